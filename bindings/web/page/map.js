// The map of blocks: a cell for each stretch of the volume, its colour by how much of it is in use.

const chart = { cells: null, marked: null, marks: null, at: 0, columns: 1, side: 10 };

shows.map = tried(async () => {
  if (!seen.map) {
    byId('map-note').textContent = 'Reading the bitmaps \u2026';
    byId('cell-text').textContent = '';
    const volume = state.part;
    const hear = ({ done, of }) => { byId('map-note').textContent = `Reading the bitmaps \u2026 ${count(done)} of ${plural(of, 'group')}`; };
    const answer = await state.long.ask({ ask: 'map' }, hear);
    if (volume !== state.part) return;
    Object.assign(chart, { marked: chart.pending ?? null, marks: null, at: 0 });
    chart.pending = null;
    seen.map = answer;
  }
  legend();
  drawMap();
});

const highlight = tried(async (entry, about) => {
  const { runs } = await ask({ ask: 'extents', inode: about.inode });
  const marked = { name: entry.name, runs: runs.filter(run => run[3] !== null).map(([, many, , start]) => [start, many]) };
  if (seen.map) chart.marked = marked;
  else chart.pending = marked;
  view('map');
  visited();
});

function legend() {
  const map = seen.map;
  const key = (what, text) => el('span', {}, el('i', { class: `key ${what}`, 'aria-hidden': true }), text);
  const used = map.used.reduce((sum, one) => sum + one, 0), own = map.metadata.reduce((sum, one) => sum + one, 0);
  const bytes = blocks => human(blocks * state.about.block_size);
  byId('legend').replaceChildren(
    key('free', `free ${bytes(map.blocks - used)}`), key('used', `in use ${bytes(used)}`), key('own', `of that tables and bitmaps ${bytes(own)}`),
    ...(chart.marked ? [key('marked', el('span', {}, name(chart.marked.name))), el('button', { class: 'quiet', 'aria-label': 'Remove the mark', onclick: () => { chart.marked = null; legend(); drawMap(); } }, '\u00d7')] : []));
  const notes = [`A cell is ${plural(map.cell, 'block')} (${bytes(map.cell)}).`];
  if (!map.exact) notes.push('There are so many groups that cells show the count of their group.');
  if (map.broken) notes.push(`${plural(map.broken, 'group')} could not be read: ${map.problems.slice(0, 3).map(shown).join('; ')}.`);
  byId('map-note').textContent = notes.join(' ');
}

// Blocks of the marked file by cell.
function marks() {
  const found = new Map();
  for (const [start, many] of chart.marked?.runs ?? []) {
    for (let at = start; at < start + many;) {
      const cell = Math.floor(at / seen.map.cell), end = Math.min(start + many, (cell + 1) * seen.map.cell);
      found.set(cell, (found.get(cell) ?? 0) + end - at);
      at = end;
    }
  }
  return found;
}

const colour = what => getComputedStyle(document.documentElement).getPropertyValue(`--${what}`).trim();

function drawMap() {
  const map = seen.map, canvas = byId('canvas'), width = byId('canvas-box').clientWidth;
  if (!map || !width) return;
  const cells = map.used.length;
  const side = Math.max(7, Math.min(36, Math.floor(Math.sqrt(width * 560 / cells))));
  const columns = Math.max(1, Math.floor(width / side));
  Object.assign(chart, { columns, side });
  const ratio = devicePixelRatio || 1, height = Math.ceil(cells / columns) * side;
  canvas.width = columns * side * ratio;
  canvas.height = height * ratio;
  canvas.style.width = `${columns * side}px`;
  canvas.style.height = `${height}px`;
  const pen = canvas.getContext('2d');
  pen.scale(ratio, ratio);
  chart.marks = marks();
  const paint = { free: probe('key free'), used: probe('key used'), own: probe('key own'), marked: probe('key marked') };
  for (let at = 0; at < cells; at++) {
    const x = at % columns * side, y = Math.floor(at / columns) * side, inner = side - (side > 9 ? 2 : 1);
    const blocks = Math.min(map.cell, map.blocks - at * map.cell) || 1;
    pen.globalAlpha = 1;
    pen.fillStyle = paint.free;
    pen.fillRect(x, y, inner, inner);
    if (map.used[at]) {
      // What is in use is never invisible.
      pen.globalAlpha = 0.18 + 0.82 * map.used[at] / blocks;
      pen.fillStyle = map.metadata[at] * 2 >= map.used[at] ? paint.own : paint.used;
      pen.fillRect(x, y, inner, inner);
    }
    if (chart.marks.has(at)) {
      pen.globalAlpha = 1;
      pen.fillStyle = paint.marked;
      pen.fillRect(x, y, inner, inner);
    }
  }
  pen.globalAlpha = 1;
  ring(pen);
}

// A colour as the style sheet has it now, light or dark.
function probe(classes) {
  const one = el('i', { class: classes });
  document.body.append(one);
  const found = getComputedStyle(one).backgroundColor;
  one.remove();
  return found;
}

function ring(pen) {
  if (document.activeElement !== byId('canvas')) return;
  const { columns, side, at } = chart;
  pen.strokeStyle = getComputedStyle(document.body).color;
  pen.lineWidth = 2;
  pen.strokeRect(at % columns * side, Math.floor(at / columns) * side, side - 2, side - 2);
}

function tell(at) {
  const map = seen.map;
  if (!map || at < 0 || at >= map.used.length) return;
  const first = at * map.cell, blocks = Math.min(map.cell, map.blocks - first);
  const part = many => `${(100 * many / blocks).toFixed(many && many < blocks ? 1 : 0)} %`;
  const group = Math.floor(first / map.per_group), last = Math.floor((first + blocks - 1) / map.per_group);
  const words = [`Blocks ${count(first)}\u2013${count(first + blocks - 1)}, ${group === last ? `group ${count(group)}` : `groups ${count(group)}\u2013${count(last)}`}: ${part(map.used[at])} in use`];
  if (map.metadata[at]) words.push(`${part(map.metadata[at])} tables and bitmaps`);
  if (chart.marks.get(at)) words.push(`${plural(chart.marks.get(at), 'block')} of the marked file`);
  byId('cell-text').textContent = words.join(', ');
}

byId('canvas').addEventListener('pointermove', event => tell(Math.floor(event.offsetY / chart.side) * chart.columns + Math.floor(event.offsetX / chart.side)));
byId('canvas').addEventListener('focus', () => { drawMap(); tell(chart.at); });
byId('canvas').addEventListener('blur', () => drawMap());
byId('canvas').addEventListener('keydown', event => {
  const step = { ArrowRight: 1, ArrowLeft: -1, ArrowDown: chart.columns, ArrowUp: -chart.columns, Home: -Infinity, End: Infinity }[event.key];
  if (step === undefined || !seen.map) return;
  event.preventDefault();
  chart.at = Math.max(0, Math.min(seen.map.used.length - 1, chart.at + step));
  drawMap();
  tell(chart.at);
});
addEventListener('resize', () => { if (!byId('map').hidden) drawMap(); });
matchMedia('(prefers-color-scheme: dark)').addEventListener('change', () => { if (!byId('map').hidden) drawMap(); });
