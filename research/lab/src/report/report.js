"use strict";
// The report: fills each figure from the data, and draws again what depends on which systems are shown.

(() => {
  const { systems, plots } = draw.data();
  const hidden = new Set();
  const shown = (s) => !hidden.has(s);
  const named = (s) => systems[s];

  function lines(host, plot) {
    const series = plot.series.map((line, at) => ({ ...line, color: line.s === null ? at : line.s, first: at === 0 }));
    draw.lines(host, { label: `${plot.y} over ${plot.x}`, x: plot.x, y: plot.y, series: series.filter((line) => line.s === null || shown(line.s)) });
  }
  function dots(host, plot) {
    const series = plot.series.filter((one) => shown(one.s)).map((one) => ({ name: named(one.s), color: one.s, values: one.values.map((v) => v ?? NaN), published: one.published.map((v) => v ?? NaN) }));
    draw.dots(host, { label: plot.x, x: plot.x, rows: plot.rows, series });
  }
  function criteria(host, plot) {
    draw.stacked(host, { label: "hits of criteria", parts: plot.parts, rows: plot.rows.filter((row) => shown(systems.indexOf(row.system))) });
  }

  // The lower ends of bins: powers of two.
  const bin = (n) => (n < 10 ? String(2 ** n) : n < 20 ? 2 ** (n - 10) + "Ki" : 2 ** (n - 20) + "Mi");

  // One case at a time, one moment at a time; each system has its volume, its files and its free space.
  function aging(host, plot) {
    const state = host.state || (host.state = { at: 0, case: 0, timer: 0 });
    const choice = draw.html("select", { "aria-label": "Case", onchange: () => { state.case = choice.selectedIndex; state.at = 0; stop(); fill(); } }, ...plot.cases.map((one) => draw.html("option", {}, one.name)));
    choice.selectedIndex = state.case;
    const play = draw.html("button", { type: "button", onclick: () => (state.timer ? stop() : start()) }, "Play");
    const slider = draw.html("input", { type: "range", min: 0, step: 1, "aria-label": "Moment of the run", oninput: () => { stop(); move(+slider.value); } });
    const moment = draw.html("span", { class: "soft small" });
    const over = draw.html("div", { class: "pair" });
    const volumes = draw.html("div", { class: "many" });
    const key = draw.html("div", { class: "soft small" });
    draw.legend(key, "empty", "full");
    host.replaceChildren(draw.html("div", { class: "controls" }, choice, play, slider, moment), over, key, volumes);
    let parts = [];

    function stop() { clearInterval(state.timer); state.timer = 0; play.textContent = "Play"; }
    function start() {
      if (state.at >= +slider.max) state.at = -1;
      state.timer = setInterval(() => { if (!host.isConnected || state.at >= +slider.max) stop(); else move(state.at + 1); }, 180);
      play.textContent = "Stop";
    }
    function track(name, column, runs) {
      const figure = draw.html("figure", {}, draw.html("figcaption", {}, draw.html("b", {}, name)), draw.html("div", {}));
      over.append(figure);
      return () => draw.lines(figure.lastChild, { label: name, x: "progress of the run", y: name, series: runs.map((run) => ({ name: named(run.s), color: run.s, first: run.s === runs[0].s, points: run.track.map((t) => [t[0], t[column]]) })) });
    }
    function fill() {
      const runs = plot.cases[state.case].runs.filter((run) => shown(run.s));
      over.replaceChildren(); volumes.replaceChildren(); parts = [];
      if (!runs.length) { host.dataset.marks = 0; return; }
      // Both have their places before either is drawn, which goes by the width.
      [track("extents per file", 3, runs), track("runs of free space", 4, runs)].forEach((work) => work());
      slider.max = Math.max(0, ...runs.map((run) => run.shots.length - 1));
      if (!state.at) state.at = +slider.max;
      const bins = Math.max(...runs.flatMap((run) => run.shots.map((shot) => shot.bins.length)));
      for (const run of runs) {
        const caption = draw.html("figcaption", {}, draw.html("span", { class: "key", style: draw.color(run.s) }), draw.html("b", {}, named(run.s)), draw.html("div", { class: "soft small" }));
        const [map, files, free] = [draw.html("div", {}), draw.html("div", {}), draw.html("div", {})];
        volumes.append(draw.html("figure", {}, caption, map, files, free));
        parts.push({ run, note: caption.lastChild, map, files, free, bins });
      }
      move(Math.min(state.at, +slider.max));
      host.dataset.marks = runs.length;
    }
    function move(at) {
      state.at = at;
      slider.value = at;
      // One scale for all at a moment, so that they can be compared.
      const shares = parts.flatMap(({ run }) => run.shots[Math.min(at, run.shots.length - 1)]?.bins || []);
      const high = [10, 25, 50, 100].find((limit) => limit >= Math.max(0, ...shares));
      for (const part of parts) {
        const { run } = part, shot = run.shots[Math.min(at, run.shots.length - 1)];
        if (!shot) continue;
        const [step, fullness, operations, extents, runs] = run.track[shot.at];
        moment.textContent = `at ${draw.number(step)}, ${Math.round(100 * fullness)} % full, ${draw.number(operations)} operations`;
        part.note.textContent = `${extents.toFixed(3)} extents per file, ${draw.number(runs)} free runs`;
        const cells = draw.levels(shot.groups), each = Math.ceil(run.groups / Math.max(1, cells.length));
        const tell = (cell) => [each > 1 ? `groups ${cell * each} to ${Math.min(run.groups, (cell + 1) * each) - 1}` : `group ${cell}`, ["in use", Math.round(100 * draw.levels(shot.groups)[cell] / 63) + " %"]];
        if (part.heat) { part.heat.fill(cells); part.heat.tell(tell); } else {
          const spec = { label: `${named(run.s)}: groups by how much is in use`, levels: cells, tell, columns: 2 ** Math.ceil(Math.log2(Math.sqrt(cells.length * 2))), low: 5, tall: 20 };
          part.heat = draw.heat(part.map, spec);
          part.heat.tell = (to) => { spec.tell = to; };
        }
        const rows = shot.files.map(([name, pieces, places]) => ({ name, note: [["pieces", draw.number(pieces)]], runs: places, color: run.s }));
        if (rows.length) draw.strips(part.files, { label: `${named(run.s)}: files in the most pieces`, total: 1024, rows, tall: 7 });
        draw.bars(part.free, { label: `${named(run.s)}: free space by length of run`, x: "clusters in a run, from", y: "% of free space", color: run.s, bins: Array.from({ length: part.bins }, (_, n) => bin(n)), values: shot.bins, high, hint: (n) => `runs of ${bin(n)} to ${bin(n + 1)} clusters` });
      }
    }
    fill();
  }

  const kinds = { lines, dots, criteria, aging };
  function all() {
    for (const figure of document.querySelectorAll("figure[data-plot]")) {
      const plot = plots[figure.dataset.plot];
      kinds[plot.kind](figure.querySelector(".draw"), plot);
    }
    draw.hush();
  }
  for (const button of document.querySelectorAll("button[data-toggle]")) {
    const system = +button.dataset.toggle;
    button.addEventListener("click", () => {
      if (hidden.has(system)) hidden.delete(system); else hidden.add(system);
      button.setAttribute("aria-pressed", String(shown(system)));
      for (const cell of document.querySelectorAll(`[data-s="${system}"]`)) cell.hidden = !shown(system);
      all();
    });
  }
  draw.theme(document.getElementById("theme"));
  draw.again(all);
  all();
  document.documentElement.dataset.drawn = plots.length;
})();
