// Choosing an image and a part of it, and the views.

const VIEWS = ['files', 'map', 'volume', 'check'];
const shows = {};

function view(which) {
  for (const one of VIEWS) {
    byId(one).hidden = one !== which;
    byId(`tab-${one}`).setAttribute('aria-selected', one === which);
    byId(`tab-${one}`).tabIndex = one === which ? 0 : -1;
  }
  document.body.dataset.view = which;
  if (state.about) shows[which]?.();
}

// The views that there are of what is open.
function tabs(those) {
  for (const one of VIEWS) byId(`tab-${one}`).disabled = !those.includes(one);
  byId('tabs').hidden = false;
}

function close() {
  state.quick?.end();
  state.long?.end();
  calm();
  Object.assign(state, { part: null, which: '', quick: null, long: null, about: null });
  for (const one of VIEWS) byId(one).hidden = true;
  byId('tabs').hidden = byId('another').hidden = byId('parts').hidden = true;
  byId('start').hidden = false;
  byId('about').textContent = byId('status').textContent = '';
  delete document.documentElement.dataset.listed;
  document.title = 'platfs: explore an image';
}

// Shows a file. One in which nothing can be shown leaves open what is open.
const choose = tried(async file => {
  const begun = performance.now();
  await prepare();
  const desk = new Desk(file, null);
  const disk = await quick({ ask: { ask: 'disk' } }, desk).catch(error => ({ parts: [], problem: error.message }));
  if (!disk.volume && !disk.parts.length) {
    desk.end();
    throw new Error(`${file.name}: ${disk.problem}`);
  }
  hold(file, desk, kept(file));
  byId('about').replaceChildren(name(file.name), ` ${disk.shown}`);
  if (disk.volume) return open({ start: 0, size: disk.size }, '', begun);
  return offer(file, disk);
});

// A file takes the place of what was open.
function hold(file, desk, image) {
  close();
  Object.assign(state, { file, image, quick: desk });
  byId('another').hidden = false;
}

// Files that were dropped: one image is shown at a time.
async function dropped([first, ...others]) {
  if (!first) return;
  await choose(first);
  if (others.length) remark(`One image is shown at a time. Not looked at: ${others.map(file => file.name).join(', ')}.`);
}

function offer(file, disk) {
  byId('parts-of').textContent = `${shown(file.name)} is a disk of ${disk.shown} with ${plural(disk.parts.length, 'partition')}.`;
  byId('parts-list').replaceChildren(...disk.parts.map(part => el('li', {},
    el('button', { disabled: !part.volume, onclick: () => open({ start: part.start, size: part.size }, ` partition ${part.number}`, performance.now()) },
      el('b', {}, `${part.number}`), el('span', {}, name(part.name ?? ''), part.name ? ' ' : '', part.shown),
      el('span', { class: 'soft' }, part.volume ? 'ext2/3/4' : 'no ext2, ext3 or ext4 volume')))));
  byId('parts').hidden = false;
  byId('parts-list').querySelector('button:enabled')?.focus();
}

// Opens a volume, at its root or at a place of before.
const open = tried(async (part, which, begun, place) => {
  calm();
  state.long?.end();
  Object.assign(state, { part, which, about: null, long: new Desk(state.file, part) });
  const about = await ask({ ask: 'open', ...part }).catch(error => ({ failed: error.message }));
  state.quick.part = part;
  if (about.failed) {
    // The check may say more of a volume that can't be opened.
    byId('start').hidden = true;
    tabs(['check']);
    forget([]);
    view('check');
    visited();
    throw new Error(`${about.failed}. Here it can be checked, and shown as a repair would leave it.`);
  }
  state.about = about;
  byId('about').replaceChildren(name(state.file.name), which, part.repaired ? ' as a repair would leave it' : '', about.label ? el('span', {}, ' \u2013 ', name(about.label)) : '', ` ${human(part.size)}`);
  document.title = `${shown(about.label || state.file.name)} \u2013 platfs`;
  byId('start').hidden = true;
  tabs(VIEWS);
  const way = place?.way.length ? place.way : [{ name: '/', inode: about.root }];
  forget(way);
  view(place?.view ?? 'files');
  const listed = await enter(way, place?.file, place?.file);
  const took = Math.round(performance.now() - begun);
  document.documentElement.dataset.listed = took;
  byId('status').textContent = `Opened in ${took} ms.${about.replayed ? ` Its journal was replayed in memory: ${about.replayed}.` : ''}`;
  if (about.warning) remark(`${about.warning}.`);
  if (about.warning || !listed) remark('The view Check shows the volume as a repair would leave it.');
});

byId('file').addEventListener('change', event => {
  const [file] = event.target.files;
  // The same file can be chosen once more.
  event.target.value = '';
  if (file) choose(file);
});
byId('as-repaired').addEventListener('click', () => open({ ...state.part, repaired: true }, state.which, performance.now()));
byId('another').addEventListener('click', () => { close(); byId('file').focus(); });
byId('stop').addEventListener('click', () => asked?.end());
addEventListener('dragover', event => { event.preventDefault(); byId('drop').classList.add('over'); });
addEventListener('dragleave', () => byId('drop').classList.remove('over'));
addEventListener('drop', event => {
  event.preventDefault();
  byId('drop').classList.remove('over');
  dropped([...event.dataTransfer.files]);
});

byId('tabs').addEventListener('click', event => { if (event.target.role === 'tab') { view(event.target.id.slice(4)); visited(); } });
byId('tabs').addEventListener('keydown', event => {
  const step = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
  if (!step) return;
  const at = VIEWS.findIndex(one => byId(`tab-${one}`) === document.activeElement);
  const next = byId(`tab-${VIEWS[(at + step + VIEWS.length) % VIEWS.length]}`);
  if (next.disabled) return;
  next.focus();
  next.click();
});

// What was shown of another volume is forgotten.
function forget(way) {
  seen.map = seen.volume = null;
  byId('check-result').replaceChildren();
  byId('volume').replaceChildren();
  byId('wanted').value = '';
  Object.assign(list, { way, entries: [], order: [], at: 0, found: null });
  crumbs();
  draw();
  counted('', false);
  hideDetail();
}
const seen = { map: null, volume: null };

// The library is ready before an image is chosen.
prepare().catch(error => complain(`This browser can\u2019t run the library: ${error.message}`));
