// The check: progress while it runs, then each kind of finding with what it means.

const found = { issues: new Map() };

function during(is) {
  byId('check-go').hidden = is;
  byId('check-stop').hidden = byId('check-progress').hidden = !is;
}

byId('check-stop').addEventListener('click', () => state.long.end());
byId('check-go').addEventListener('click', tried(async () => {
  calm();
  found.issues = new Map();
  byId('check-result').replaceChildren();
  byId('check-bar').removeAttribute('value');
  byId('check-pass').textContent = 'Beginning \u2026';
  during(true);
  const begun = performance.now();
  try {
    const hear = ({ issue, pass, done, of }) => {
      if (issue) {
        if (!found.issues.has(issue.kind)) found.issues.set(issue.kind, []);
        found.issues.get(issue.kind).push(issue);
        return;
      }
      byId('check-pass').textContent = of ? `${pass}: ${count(done)} of ${count(of)}` : pass;
      if (of) byId('check-bar').value = done / of;
    };
    const result = await state.long.ask({ ask: 'check', ...state.part }, hear);
    byId('check-result').replaceChildren(...verdict(result, performance.now() - begun));
  } catch (error) {
    byId('check-result').replaceChildren(el('p', { class: error.message === 'stopped' ? 'soft' : 'bad' }, error.message === 'stopped' ? 'Stopped.' : shown(error.message)));
  } finally {
    during(false);
    byId('check-go').focus();
  }
}));

function verdict(result, took) {
  const real = result.kinds.filter(kind => kind.kind !== 'journal-needs-replay');
  const issues = real.reduce((sum, kind) => sum + kind.count, 0);
  const words = issues === 0 ? 'Nothing is wrong with this volume.' : `${plural(issues, 'finding')} of ${plural(real.length, 'kind')}.`;
  return [
    el('p', { class: `verdict ${issues ? 'bad' : 'good'}`, role: 'status', id: 'verdict' }, `${issues ? '\u2717' : '\u2713'} ${words}`),
    el('p', { class: 'soft' }, `${plural(result.files, 'file')} and ${plural(result.directories, 'directory', 'directories')}, ${count(result.inodes_used)} of ${plural(result.inodes, 'inode')} and ${count(result.blocks_used)} of ${plural(result.blocks, 'block')} in use, ${count(result.fragmented)} in pieces. It took ${(took / 1000).toFixed(1)} s.`),
    ...result.kinds.map(kind => kindOf(kind, result.paths)),
    ...(issues ? [el('p', { class: 'soft' }, 'To repair it, run ', el('code', {}, 'plat check IMAGE'), ' on a copy of the image.')] : []),
  ];
}

function kindOf(kind, paths) {
  const issues = found.issues.get(kind.kind) ?? [];
  return el('details', { class: 'kind', open: true },
    el('summary', {}, el('b', {}, kind.title.charAt(0).toUpperCase() + kind.title.slice(1)), ` \u00d7 ${count(kind.count)} `, el('span', { class: `badge ${kind.severe ? 'bad' : ''}` }, kind.severity)),
    el('p', { class: 'soft small' }, `${kind.kind}: ${kind.weight}`),
    el('p', {}, kind.means),
    el('p', {}, el('b', {}, 'A repair: '), `${kind.risk}${kind.safe ? ' It loses nothing.' : ' It can take something away.'}`),
    el('ul', { class: 'issues' }, ...issues.slice(0, 50).map(issue => issueLine(issue, paths))),
    ...(kind.count > Math.min(50, issues.length) ? [el('p', { class: 'soft small' }, `The first ${count(Math.min(50, issues.length))} of ${count(kind.count)} are shown.`)] : []));
}

// An inode by its number: the check knows no paths.
function showInode(inode) {
  view('files');
  visited();
  detail({ name: `inode ${inode}`, inode, type: '?', way: [{ name: '/', inode: state.about.root }] }, true);
}

function issueLine(issue, paths) {
  const where = [
    issue.group === null ? null : `group ${count(issue.group)}`,
    issue.block === null ? null : `block ${count(issue.block)}`,
    issue.file_block === null ? null : `file block ${count(issue.file_block)}`,
  ].filter(Boolean).join(', ');
  const inode = issue.inode === null ? null : el('button', { class: 'link', disabled: !state.about, onclick: () => { showInode(issue.inode); } }, `inode ${issue.inode}`);
  const path = paths[issue.inode];
  return el('li', {}, ...[inode, path ? el('span', {}, ' (', name(path), ')') : null, inode && where ? ', ' : null, where, issue.name === null ? null : el('span', {}, ', ', name(issue.name)), inode || where ? ': ' : null, shown(issue.found), issue.expected ? ` (should be ${shown(issue.expected)})` : null].filter(one => one !== null));
}
