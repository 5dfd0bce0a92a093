// About one file: facts, attributes, contents, layout; and downloads.

const PREVIEW = 1 << 16;
const HEX = 1 << 12;
const PICTURE = 32 << 20;
// Most bytes of holes that a download is given as parts.
const HOLES = 2 ** 32;
const PICTURES = { png: 'image/png', jpg: 'image/jpeg', jpeg: 'image/jpeg', gif: 'image/gif', webp: 'image/webp', svg: 'image/svg+xml', bmp: 'image/bmp', ico: 'image/x-icon', avif: 'image/avif' };
const pane = { entry: null, visit: 0, url: null };

function hideDetail() {
  pane.visit++;
  pane.entry = null;
  if (pane.url) URL.revokeObjectURL(pane.url);
  pane.url = null;
  byId('detail').hidden = true;
  document.body.classList.remove('detailed');
}

const bytesOf = (entry, offset, len) => quick({ bytes: { inode: entry.inode, offset, len } });

const detail = tried(async (entry, focus = false) => {
  if (!entry || entry.type === 'broken') return hideDetail();
  const visit = ++pane.visit;
  const about = await ask({ ask: 'facts', inode: entry.inode });
  if (visit !== pane.visit) return;
  hideDetail();
  if (entry.type === '?') entry.type = about.type;
  pane.visit = visit;
  pane.entry = entry;
  byId('detail').replaceChildren(...head(entry, about), ...parts(entry, about));
  byId('detail').hidden = false;
  byId('detail').scrollTop = 0;
  document.body.classList.add('detailed');
  if (focus) byId('detail').querySelector('.actions button')?.focus({ preventScroll: true });
  if (about.type === 'file' && !about.locked) await contents(entry, about, visit);
});

function head(entry, about) {
  const actions = el('div', { class: 'actions' });
  if (about.type === 'directory') actions.append(el('button', { class: 'main', onclick: () => act(entry) }, 'Open'));
  if (about.type === 'file') actions.append(el('button', { class: 'main', id: 'download', disabled: about.locked, onclick: () => download(entry, about) }, 'Download'));
  if (about.type === 'symlink') actions.append(el('button', { class: 'main', onclick: () => follow(entry, about) }, 'Go to its target'));
  actions.append(el('button', { id: 'on-map', onclick: () => highlight(entry, about) }, 'Show on the map'));
  return [
    el('div', { class: 'title' }, el('h2', {}, name(entry.name)), el('button', { class: 'quiet', 'aria-label': 'Close (Esc)', onclick: () => { hideDetail(); byId('grid').focus(); } }, '\u00d7')),
    actions,
    el('p', { id: 'download-state', role: 'status', class: 'small soft', hidden: true }),
  ];
}

function parts(entry, about) {
  const size = about.type === 'file' || about.type === 'directory' ? `${about.shown} (${plural(about.size, 'byte')})` : null;
  const rows = facts([
    ['Type', about.type], ['Target', about.target === null ? null : name(about.target)], ['Size', size], ['On disk', about.allocated],
    ['Mode', `${about.mode} (${about.octal})`], ['Owner', `${about.uid}:${about.gid}`], ['Modified', moment(about.modified)],
    ['Accessed', moment(about.accessed)], ['Changed', moment(about.changed)], ['Created', moment(about.created)],
    ['Inode', about.inode], ['Links', about.links], ['Device', about.device], ['Project', about.project || null],
    ['Flags', about.flags.join(', ')], ['Bytes of the name', entry.name_hex],
  ]);
  const sections = [rows];
  if (about.problem) sections.push(el('p', { class: 'bad' }, shown(about.problem)));
  if (about.attributes.length) {
    sections.push(el('h3', {}, 'Extended attributes'), facts(about.attributes.map(one => [shown(one.name), one.value])));
  }
  if (about.locked) sections.push(el('p', { class: 'soft' }, 'The contents are encrypted, and this page has no key.'));
  if (about.type === 'file' && !about.locked) sections.push(el('h3', {}, 'Contents'), el('div', { id: 'contents' }));
  const layout = el('details', { id: 'layout' }, el('summary', {}, 'Layout on disk'));
  layout.addEventListener('toggle', () => { if (layout.open && layout.children.length === 1) extents(entry, layout); });
  sections.push(layout);
  return sections;
}

const extents = tried(async (entry, box) => {
  const { runs, pieces, more, problem, inline } = await ask({ ask: 'extents', inode: entry.inode });
  if (!runs.length) {
    box.append(el('p', { class: 'soft' }, inline ? 'The contents stand in the inode.' : 'It takes no blocks.'));
  } else {
    const span = (start, many) => many === 1 ? count(start) : `${count(start)}\u2013${count(start + many - 1)}`;
    const line = ([logical, many, what, start]) => [span(logical, many), start === null ? '' : span(start, many), count(many), what];
    box.append(el('p', { class: 'soft small' }, `${plural(pieces, 'piece')} on disk${more ? ' and more' : ''}`));
    const some = table(['File blocks', 'Disk blocks', 'Blocks', ''], runs.slice(0, 200).map(line), [0, 1, 2]);
    box.append(some);
    if (runs.length > 200) {
      const all = el('button', { onclick: () => { some.replaceWith(table(['File blocks', 'Disk blocks', 'Blocks', ''], runs.map(line), [0, 1, 2])); all.remove(); } }, `Show all ${count(runs.length)}`);
      box.append(all);
    }
  }
  if (problem) box.append(el('p', { class: 'bad' }, shown(problem)));
});

// Text if it is: UTF-8 without zeros, but for a character that the end of the preview cuts.
function textOf(bytes, whole) {
  if (bytes.includes(0)) return null;
  try { return new TextDecoder('utf-8', { fatal: true }).decode(bytes, { stream: !whole }); } catch { return null; }
}

function typeOf(entry, bytes) {
  const magic = [...bytes.subarray(0, 4)].map(byte => byte.toString(16).padStart(2, '0')).join('');
  if (magic === '89504e47') return 'image/png';
  if (magic.startsWith('ffd8ff')) return 'image/jpeg';
  if (magic === '47494638') return 'image/gif';
  return PICTURES[entry.name.split('.').pop().toLowerCase()] ?? null;
}

async function contents(entry, about, visit) {
  const box = byId('contents');
  if (about.size === 0) { box.append(el('p', { class: 'soft' }, 'Empty.')); return; }
  const bytes = await bytesOf(entry, 0, Math.min(PREVIEW, about.size));
  if (visit !== pane.visit) return;
  const text = textOf(bytes, bytes.length === about.size);
  const picture = about.size <= PICTURE ? typeOf(entry, bytes) : null;
  const body = el('div', {});
  const kinds = [
    picture && ['Image', () => showPicture(entry, about, picture, body)],
    text !== null && ['Text', () => showText(text, about, body)],
    ['Hex', () => showHex(entry, about, 0, body)],
  ].filter(Boolean);
  const press = at => {
    [...choice.children].forEach((button, which) => button.setAttribute('aria-pressed', which === at));
    return tried(kinds[at][1])();
  };
  const choice = el('div', { class: 'choice', role: 'group', 'aria-label': 'How the contents are shown' }, ...kinds.map(([label], at) => el('button', { onclick: () => press(at) }, label)));
  box.replaceChildren(choice, body);
  await press(0);
}

function showText(text, about, body) {
  const rest = about.size > PREVIEW ? el('p', { class: 'soft small' }, `The first ${human(PREVIEW)} of ${about.shown}.`) : null;
  body.replaceChildren(el('pre', { class: 'text', tabindex: 0, 'aria-label': 'Contents as text' }, text.replace(/[\u202a-\u202e\u2066-\u2069]/g, c => shown(c))), ...[rest].filter(Boolean));
}

async function showPicture(entry, about, type, body) {
  const blob = await quick({ whole: { inode: entry.inode, size: about.size, type } });
  if (pane.entry !== entry) return;
  if (pane.url) URL.revokeObjectURL(pane.url);
  pane.url = URL.createObjectURL(blob);
  const image = el('img', { src: pane.url, alt: `The picture ${shown(entry.name)}` });
  image.addEventListener('error', () => body.replaceChildren(el('p', { class: 'soft' }, 'The browser can\u2019t show this picture.')));
  body.replaceChildren(image);
}

async function showHex(entry, about, offset, body) {
  const bytes = await bytesOf(entry, offset, Math.min(HEX, about.size - offset));
  if (pane.entry !== entry) return;
  const width = innerWidth < 640 ? 8 : 16;
  const digits = Math.max(6, (about.size - 1).toString(16).length);
  let text = '';
  for (let at = 0; at < bytes.length; at += width) {
    const line = [...bytes.subarray(at, at + width)];
    const hex = line.map(byte => byte.toString(16).padStart(2, '0')).join(' ').padEnd(width * 3 - 1);
    const plain = line.map(byte => byte > 31 && byte < 127 ? String.fromCharCode(byte) : '\u00b7').join('');
    text += `${(offset + at).toString(16).padStart(digits, '0')}  ${hex}  ${plain}\n`;
  }
  const turn = (to, label) => el('button', { disabled: to < 0 || to >= about.size, onclick: tried(() => showHex(entry, about, to, body)) }, label);
  const pages = about.size > HEX ? el('div', { class: 'actions' }, turn(offset - HEX, 'Before'), turn(offset + HEX, 'Next'), el('span', { class: 'soft small' }, `${count(offset)}\u2013${count(offset + bytes.length - 1)} of ${count(about.size)}`)) : null;
  body.replaceChildren(...[pages, el('pre', { class: 'hex', tabindex: 0, 'aria-label': 'Contents in hexadecimal' }, text)].filter(Boolean));
}

// The contents as parts of the image, which the browser itself reads: nothing is copied, whatever the size. Not where
// the library changes what it reads (a journal that was replayed, a repair, inline contents), nor for maps that are not whole.
async function slicesOf(about) {
  if (state.about.replayed || state.about.repaired || about.flags.includes('encrypted') || about.flags.includes('inline-data')) return null;
  const { runs, more, problem } = await ask({ ask: 'extents', inode: about.inode });
  if (more || problem) return null;
  const size = state.about.block_size, zeros = new Blob([new Uint8Array(1 << 20)]), parts = [];
  let at = 0, holes = 0;
  const fill = to => {
    holes += to - at;
    for (; at < to && holes <= HOLES; at += Math.min(zeros.size, to - at)) parts.push(zeros.slice(0, Math.min(zeros.size, to - at)));
  };
  for (const [logical, many, what, start] of runs) {
    const from = Math.min(logical * size, about.size), to = Math.min((logical + many) * size, about.size);
    fill(what === 'data' ? from : to);
    if (at >= to) continue;
    const first = state.part.start + start * size;
    parts.push(state.file.slice(first, first + to - at));
    at = to;
  }
  fill(about.size);
  return holes <= HOLES ? parts : null;
}

const download = tried(async (entry, about) => {
  const line = byId('download-state');
  const stop = el('button', { onclick: () => state.long.end() }, 'Stop');
  const words = el('span', {}, 'Reading \u2026 ');
  line.replaceChildren(words, stop);
  line.hidden = false;
  try {
    const type = 'application/octet-stream', parts = await slicesOf(about);
    const hear = ({ done, of }) => { words.textContent = `Reading \u2026 ${Math.floor(100 * done / of)} % of ${about.shown} `; };
    const blob = parts ? new Blob(parts, { type }) : await state.long.call({ whole: { inode: entry.inode, size: about.size, type } }, hear);
    if (blob.size !== about.size) throw new Error('the image ends before the file does');
    const url = URL.createObjectURL(blob);
    el('a', { href: url, download: entry.name }).click();
    setTimeout(() => URL.revokeObjectURL(url), 60000);
    line.textContent = `${shown(entry.name)}: ${plural(blob.size, 'byte')} handed to the browser.`;
  } catch (error) {
    line.textContent = error.message === 'stopped' ? 'Stopped.' : 'Not downloaded.';
    throw error;
  }
});

// Where a link leads, taken apart as text: the library follows links on the way.
const follow = tried(async (entry, about) => {
  const from = about.target.startsWith('/') ? [] : wayOf(entry).slice(1).map(place => place.name);
  const names = [];
  for (const part of [...from, ...about.target.split('/')]) {
    if (part === '..') names.pop();
    else if (part !== '' && part !== '.') names.push(part);
  }
  const { way } = await ask({ ask: 'places', path: names.join('/') });
  const root = { name: '/', inode: state.about.root };
  const last = way[way.length - 1];
  if (!last || last.directory) return enter([root, ...way]);
  return enter([root, ...way.slice(0, -1)], last.inode);
});
