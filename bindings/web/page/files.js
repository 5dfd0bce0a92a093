// The list of names: crumbs, sorting, search, keys. Only rows in sight are in the document.

const MOST = 300000;
const list = { way: [], entries: [], order: [], key: 'name', down: false, at: 0, found: null, visit: 0 };
const rowHeight = () => matchMedia('(pointer: coarse)').matches ? 40 : 30;
const compare = new Intl.Collator('en', { numeric: true }).compare;

const here = () => list.way[list.way.length - 1];
const chosen = () => list.order[list.at];

function sort() {
  const { key, down } = list;
  const value = { name: (a, b) => compare(a.name, b.name), mode: (a, b) => compare(a.mode ?? '', b.mode ?? ''), modified: (a, b) => compare(a.modified ?? '', b.modified ?? '') };
  const by = value[key] ?? ((a, b) => (a[key] ?? -1) - (b[key] ?? -1));
  // What was searched for stands before what only holds it.
  const first = entry => (entry.exact ? 0 : 2) + (entry.type === 'directory' ? 0 : 1);
  const sign = down ? -1 : 1;
  list.order = list.entries.toSorted((a, b) => first(a) - first(b) || sign * by(a, b) || compare(a.name, b.name));
  for (const head of byId('heads').children) {
    const is = head.dataset.key === key;
    head.setAttribute('aria-sort', is ? (down ? 'descending' : 'ascending') : 'none');
  }
}

function icon(entry) {
  return { directory: '\u25b8', symlink: '\u2197', file: '', broken: '!' }[entry.type] ?? '\u2022';
}

function row(entry, index) {
  const link = entry.target !== null && entry.target !== undefined ? el('span', { class: 'soft' }, ' \u2192 ', name(entry.target)) : null;
  const from = entry.path !== undefined ? el('span', { class: 'soft' }, ' in /', name(entry.path)) : null;
  const cells = [
    el('span', { class: 'c-name', role: 'gridcell', title: shown(entry.name) }, el('i', { class: `icon ${entry.type}`, 'aria-hidden': true }, icon(entry)), name(entry.name), link, from),
    el('span', { class: 'c-size', role: 'gridcell' }, entry.type === 'file' ? entry.shown : ''),
    el('span', { class: 'c-mode', role: 'gridcell' }, entry.mode ?? ''),
    el('span', { class: 'c-owner', role: 'gridcell' }, entry.error ? shown(entry.error) : `${entry.uid}:${entry.gid}`),
    el('span', { class: 'c-time', role: 'gridcell' }, moment(entry.modified)),
  ];
  const is = index === list.at;
  return el('div', { class: `row ${entry.type}`, role: 'row', id: `row-${index}`, 'aria-rowindex': index + 2, 'aria-selected': is, 'data-index': index, style: `top:${index * rowHeight()}px` }, ...cells);
}

function draw() {
  const grid = byId('grid'), rows = byId('rows'), height = rowHeight();
  rows.style.height = `${list.order.length * height}px`;
  grid.setAttribute('aria-rowcount', list.order.length + 1);
  const first = Math.max(0, Math.floor(grid.scrollTop / height) - 8);
  const last = Math.min(list.order.length, Math.ceil((grid.scrollTop + grid.clientHeight) / height) + 8);
  rows.replaceChildren(...list.order.slice(first, last).map((entry, at) => row(entry, first + at)));
  if (first <= list.at && list.at < last) grid.setAttribute('aria-activedescendant', `row-${list.at}`);
  else grid.removeAttribute('aria-activedescendant');
}

function counted(problem, more) {
  const dirs = list.entries.filter(entry => entry.type === 'directory').length;
  const words = list.found !== null
    ? `${plural(list.entries.length, 'name')} with \u201c${list.found}\u201d${more ? ', and more' : ''}`
    : `${plural(dirs, 'directory', 'directories')}, ${plural(list.entries.length - dirs, 'other name')}${more ? ' so far' : ''}`;
  byId('count').textContent = problem ? `${words}. ${shown(problem)}` : words;
}

function crumbs() {
  const last = list.way.length - 1;
  byId('crumbs').replaceChildren(...list.way.flatMap((place, at) => [
    at > 1 ? el('span', { class: 'soft', 'aria-hidden': true }, '/') : null,
    el('button', { class: 'crumb', 'aria-current': at === last ? 'page' : null, onclick: () => enter(list.way.slice(0, at + 1)) }, name(place.name)),
  ].filter(Boolean)));
  byId('crumbs').scrollLeft = byId('crumbs').scrollWidth;
}

// Goes into a directory: the first page of names is shown at once, the others as they come.
const enter = tried(async (way, then, file) => {
  const visit = ++list.visit;
  const directory = way[way.length - 1].inode;
  let page = await ask({ ask: 'list', inode: directory, from: '0' });
  if (visit !== list.visit) return;
  calm();
  hideDetail();
  Object.assign(list, { way, entries: page.entries, at: 0, found: null });
  byId('wanted').value = '';
  crumbs();
  sort();
  byId('grid').scrollTop = 0;
  goTo(Math.max(0, then === undefined ? 0 : list.order.findIndex(entry => entry.inode === then)), false);
  counted(page.problem, page.next !== null);
  visited(file);
  if (document.activeElement === document.body || byId('crumbs').contains(document.activeElement)) byId('grid').focus({ preventScroll: true });
  await rest(visit, directory, page);
  return true;
});

async function rest(visit, directory, page) {
  while (page.next !== null && list.entries.length < MOST) {
    page = await ask({ ask: 'list', inode: directory, from: page.next });
    if (visit !== list.visit) return;
    list.entries.push(...page.entries);
    counted(page.problem, page.next !== null);
    // Sorting each page into a large list would take the square of its length.
    if (page.next !== null && list.entries.length < 2 * list.order.length && list.entries.length < MOST) continue;
    const held = chosen();
    sort();
    list.at = Math.max(0, list.order.indexOf(held));
    draw();
  }
  if (page.next !== null) byId('count').textContent += ` (the list ends after ${count(MOST)} names)`;
}

let glance = 0;

// Chooses a row and brings it into sight; on wide screens its facts appear beside it.
function goTo(index, look = true) {
  list.at = Math.max(0, Math.min(index, list.order.length - 1));
  const grid = byId('grid'), height = rowHeight(), top = list.at * height;
  if (top < grid.scrollTop) grid.scrollTop = top;
  else if (top + height > grid.scrollTop + grid.clientHeight) grid.scrollTop = top + height - grid.clientHeight;
  draw();
  clearTimeout(glance);
  if (look && chosen() && matchMedia('(min-width: 60rem)').matches) glance = setTimeout(() => detail(chosen()), 120);
}

function act(entry) {
  if (!entry) return;
  if (entry.type === 'directory') return enter([...wayOf(entry), { name: entry.name, inode: entry.inode }]);
  clearTimeout(glance);
  // Where the facts cover the list, the browser's way back leads to it.
  if (matchMedia('(max-width: 60rem)').matches && list.found === null) visited(entry.inode);
  return detail(entry, true);
}

// The directories above an entry: where we are, or where the search found it.
const wayOf = entry => entry.way ?? list.way;

function up() {
  if (list.found !== null) return leaveSearch();
  if (list.way.length > 1) return enter(list.way.slice(0, -1), here().inode);
}

const leaveSearch = () => { state.long.end(); byId('grid').focus(); return enter(list.way); };

const search = tried(async text => {
  if (!text) return leaveSearch();
  const visit = ++list.visit;
  state.long.end();
  hideDetail();
  Object.assign(list, { entries: [], order: [], at: 0, found: text });
  byId('count').textContent = 'Searching \u2026';
  draw();
  const top = list.way;
  let due = 0;
  const hear = ({ match, done }) => {
    if (visit !== list.visit) return;
    if (match) {
      const names = match.path === '' ? [] : match.path.split('/');
      list.entries.push({ ...match.entry, path: match.path, exact: match.exact, way: [...top, ...names.map((one, at) => ({ name: one, inode: match.way[at + 1] }))] });
    } else {
      byId('count').textContent = `Searching \u2026 ${plural(done, 'name')} looked at (Esc stops)`;
    }
    if (!due) due = setTimeout(() => { due = 0; sort(); draw(); }, 100);
  };
  const done = await state.long.ask({ ask: 'search', inode: here().inode, text }, hear);
  if (visit !== list.visit) return;
  clearTimeout(due);
  sort();
  goTo(0, false);
  counted(done.problems ? `${plural(done.problems, 'directory', 'directories')} could not be read.` : '', done.more);
  byId('grid').focus();
});

const KEYS = {
  ArrowDown: () => goTo(list.at + 1),
  ArrowUp: () => goTo(list.at - 1),
  PageDown: () => goTo(list.at + Math.max(1, Math.floor(byId('grid').clientHeight / rowHeight()) - 1)),
  PageUp: () => goTo(list.at - Math.max(1, Math.floor(byId('grid').clientHeight / rowHeight()) - 1)),
  Home: () => goTo(0),
  End: () => goTo(list.order.length - 1),
  Enter: () => act(chosen()),
  ArrowRight: () => { if (chosen()?.type === 'directory') act(chosen()); },
  ArrowLeft: () => up(),
  Backspace: () => up(),
  Escape: () => byId('detail').hidden ? list.found !== null && leaveSearch() : hideDetail(),
};

byId('grid').addEventListener('keydown', event => {
  if (event.ctrlKey || event.metaKey || event.altKey || !KEYS[event.key]) return;
  event.preventDefault();
  KEYS[event.key]();
});
byId('grid').addEventListener('scroll', () => requestAnimationFrame(draw));
byId('grid').addEventListener('click', event => {
  const at = event.target.closest('.row')?.dataset.index;
  if (at === undefined) return;
  goTo(Number(at), false);
  act(chosen());
});
byId('heads').addEventListener('click', event => {
  const key = event.target.closest('[data-key]')?.dataset.key;
  if (!key) return;
  const held = chosen();
  list.down = list.key === key ? !list.down : key === 'size' || key === 'modified';
  list.key = key;
  sort();
  goTo(Math.max(0, list.order.indexOf(held)), false);
});
byId('search').addEventListener('submit', event => { event.preventDefault(); search(byId('wanted').value.trim()); });
byId('wanted').addEventListener('keydown', event => { if (event.key === 'Escape') { byId('wanted').value = ''; leaveSearch(); } });
addEventListener('keydown', event => {
  const typing = /INPUT|TEXTAREA/.test(document.activeElement.tagName);
  if (event.key === '/' && !typing && state.about) {
    event.preventDefault();
    if (byId('files').hidden) view('files');
    byId('wanted').focus();
  } else if (event.key === 'Escape' && !typing && byId('detail').contains(document.activeElement)) {
    hideDetail();
    byId('grid').focus();
  }
});
addEventListener('resize', () => { if (!byId('files').hidden) draw(); });
shows.files = () => draw();
