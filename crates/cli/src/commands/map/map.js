"use strict";
// The map of one image: layers over its cells, files as strips, what free space and files are cut into.

(() => {
  const map = draw.data();
  const find = (id) => document.getElementById(id);
  const host = (id) => find(id).querySelector(".draw");
  const layers = map.layers.map(draw.levels);
  const titles = ["in use", "metadata", "inodes in use", "pieces of files"];
  // What a layer shows of a cell, and how the largest is said.
  const percent = (share) => (100 * share).toFixed(share < 0.1 ? 2 : 1) + " %";
  const shows = [
    [(n) => n[0] / n[1], percent], [(n) => n[2] * map.block, draw.bytes],
    [(n) => n[3] / n[4], percent], [(n) => n[6], draw.number],
  ];
  const FIRST = 8, MOST = 62;
  // A layer in which all cells are nearly empty is stretched, so that they differ; and what its last colour is.
  const scales = layers.map((levels, at) => {
    const [value, words] = shows[at], most = Math.max(0, ...map.numbers.map((n) => value(n) || 0));
    if (at === 3) return [levels, `${words(most)} in a cell`];
    if (!(most > 0) || Math.max(...levels) > FIRST) return [levels, "all"];
    return [levels.map((level, cell) => (level > 0 ? Math.max(1, Math.round(value(map.numbers[cell]) / most * MOST)) : level)), `${words(most)} of a cell`];
  });
  let layer = 0, chosen = null, heat = null, kept = [];
  // Whole rows for a group where it has many cells, else several groups in a row.
  const columns = Math.min(layers[0].length, map.cellsPerGroup >= 128 ? 128 : 64);
  const block = map.cellsPerGroup > columns && map.cellsPerGroup % columns === 0 ? map.cellsPerGroup / columns : 1;
  const named = columns % map.cellsPerGroup === 0 || block > 1;
  const name = (row) => "group " + Math.floor(row * block * columns / map.cellsPerGroup) * map.groupsPerCell;

  function groups(cell) {
    const first = Math.floor(cell / map.cellsPerGroup) * map.groupsPerCell;
    const last = Math.min(map.groups, first + map.groupsPerCell) - 1;
    return last > first ? `groups ${first} to ${last}` : `group ${first}`;
  }
  function tell(cell) {
    const [used, clusters, metadata, usedInodes, inodes, directories, pieces] = map.numbers[cell];
    const share = (a, b) => (b ? (100 * a / b).toFixed(a && a < b ? 1 : 0) : "0") + " %";
    const owner = map.owners[cell];
    // Of a cell without blocks of files, too, it is said what holds it.
    const whose = owner !== null ? "most of it: " + map.names[owner] : used ? "the volume's own, no file's" : "free";
    return [groups(cell), ["in use", share(used, clusters)], ["metadata", draw.bytes(metadata * map.block)], ["inodes of the group", `${draw.number(usedInodes)} of ${draw.number(inodes)}`],
      ["directories", draw.number(directories)], ["pieces that begin here", draw.number(pieces)], whose];
  }
  // Cells in which a file has any block.
  function cellsOf(file) {
    const total = map.numbers.reduce((sum, n) => sum + n[1], 0), cells = [];
    const runs = file[4];
    let from = 0;
    map.numbers.forEach((n, cell) => {
      const a = from / total * map.places, b = (from + n[1]) / total * map.places;
      from += n[1];
      for (let at = 0; at < runs.length; at += 2) {
        if (runs[at] < b && Math.max(runs[at + 1], 0.01) + runs[at] > a) { cells.push(cell); return; }
      }
    });
    return cells;
  }
  function cells() {
    heat = draw.heat(host("cells"), { label: `${map.label}: ${titles[layer]}, cell by cell`, levels: scales[layer][0], columns, tall: 15, low: 5, tell, kept, ...(named ? { block, name } : {}) });
    heat.keep(kept);
    draw.legend(find("legend"), "none", scales[layer][1], titles[layer]);
  }
  function choose(file) {
    chosen = chosen === file ? null : file;
    kept = chosen ? cellsOf(chosen) : [];
    heat.keep(kept);
    find("chosen").textContent = chosen ? `Marked: ${chosen[0]}, ${draw.number(chosen[1])} extents, ${draw.bytes(chosen[2] * map.block)}.` : "";
    files();
  }
  function files() {
    const part = find("find").value.toLowerCase(), order = find("order").selectedIndex;
    const by = [(a, b) => b[1] - a[1], (a, b) => b[2] - a[2], (a, b) => (a[0] < b[0] ? -1 : 1), (a, b) => (a[4][0] || 0) - (b[4][0] || 0)][order];
    const list = map.files.filter((file) => file[0].toLowerCase().includes(part)).sort(by);
    const rows = list.map((file) => ({ name: file[0] + (file[3] ? "/" : ""), color: file[3] ? 1 : 0, runs: file[4], note: [["extents", draw.number(file[1])], ["size", draw.bytes(file[2] * map.block)]] }));
    draw.strips(host("files"), { label: "Where files lie", total: map.places, rows, names: true, tall: 15, mark: (part) => draw.bytes(Math.floor(part * map.blocks) * map.block), pick: (row) => choose(list[row]), chosen: list.indexOf(chosen) });
  }
  function all() {
    cells();
    files();
    const [unit, size] = draw.unit(Math.max(1, ...map.bins.map((b) => b[2])) * map.block);
    draw.bars(host("free"), { label: "free space by length of run", x: "length of run, from", y: `free, ${unit}`, color: 2, bins: map.bins.map((b) => draw.bytes(b[0])), values: map.bins.map((b) => b[2] * map.block / size), hint: (at) => `${draw.number(map.bins[at][1])} runs of ${draw.bytes(map.bins[at][0])} and more` });
    draw.bars(host("pieces"), { label: "files by extents", x: "extents, from", y: "files", color: 3, bins: map.pieces.map((_, n) => String(2 ** n)), values: map.pieces, hint: (at) => (at ? `${2 ** at} to ${2 ** (at + 1) - 1} extents` : "1 extent") });
  }
  for (const button of document.querySelectorAll("button[data-layer]")) {
    button.addEventListener("click", () => {
      layer = +button.dataset.layer;
      for (const other of document.querySelectorAll("button[data-layer]")) other.setAttribute("aria-pressed", String(other === button));
      cells();
    });
  }
  find("find").addEventListener("input", files);
  find("order").addEventListener("change", files);
  draw.theme(find("theme"));
  draw.again(all);
  all();
  document.documentElement.dataset.drawn = 4;
})();
