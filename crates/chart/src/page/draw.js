"use strict";
// Charts as SVG from data: lines, dots, bars, stacked bars, heat maps, strips. Texts get in as text nodes only, so that no
// name of a file can become markup. Colours are classes and variables of the style sheet.

const draw = (() => {
  const NS = "http://www.w3.org/2000/svg";

  function node(target, attributes, children) {
    for (const [key, value] of Object.entries(attributes || {})) {
      if (key.startsWith("on")) target.addEventListener(key.slice(2), value);
      else if (value !== undefined && value !== null && value !== false) target.setAttribute(key, value);
    }
    target.append(...children.filter((child) => child !== undefined && child !== null));
    return target;
  }
  const svg = (name, attributes, ...children) => node(document.createElementNS(NS, name), attributes, children);
  const html = (name, attributes, ...children) => node(document.createElement(name), attributes, children);

  function number(value) {
    if (value === null || value === undefined || !Number.isFinite(value)) return "\u2013";
    const size = Math.abs(value);
    if (Number.isInteger(value) || size >= 1000) return Math.round(value).toLocaleString("en");
    return value.toFixed(size >= 100 ? 1 : size >= 10 ? 2 : size >= 1 ? 3 : 4);
  }
  function brief(value) {
    const size = Math.abs(value);
    for (const [unit, letter] of [[1e12, "T"], [1e9, "G"], [1e6, "M"], [1e3, "k"]]) {
      if (size >= 10 * unit || (size >= unit && value % (unit / 10) === 0)) return +(value / unit).toFixed(1) + letter;
    }
    return String(+value.toPrecision(4));
  }
  const UNITS = ["B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"];
  // The unit of a size: its name, and its bytes.
  function unit(value) {
    let at = 0;
    while (value >= 1024 ** (at + 1) && at < 6) at += 1;
    return [UNITS[at], 1024 ** at];
  }
  // Rounded up, as commands print sizes.
  function bytes(value) {
    const [name, size] = unit(value), tenths = Math.ceil(value * 10 / size);
    return (size > 1 && tenths < 100 ? (tenths / 10).toFixed(1) : Math.ceil(value / size)) + " " + name;
  }

  // A scale from values to places, with marks at 1, 2 or 5 times a power of ten.
  function scale(low, high, from, to, log) {
    if (!(high > low)) { const pad = Math.abs(low) * 0.1 || 1; low -= log ? 0 : pad; high += pad; }
    const f = log ? Math.log10 : (v) => v;
    const [a, b] = [f(low), f(high)];
    const place = (v) => from + (f(v) - a) / (b - a) * (to - from);
    const back = (p) => { const v = a + (p - from) / (to - from) * (b - a); return log ? 10 ** v : v; };
    const marks = [];
    if (log && b - a >= 1) {
      for (let e = Math.floor(a); e <= b; e += 1) for (const m of b - a > 2 ? [1] : [1, 2, 5]) marks.push(m * 10 ** e);
    } else {
      const rough = (high - low) / Math.max(2, Math.min(6, Math.abs(to - from) / 60));
      const power = 10 ** Math.floor(Math.log10(rough));
      const step = [1, 2, 5, 10].map((m) => m * power).find((s) => s >= rough * 0.999);
      for (let n = Math.ceil(low / step - 1e-9); n * step <= high + step * 1e-9; n += 1) marks.push(n * step);
    }
    return { place, back, low, high, marks: marks.filter((v) => v >= low * (1 - 1e-9) && v <= high * (1 + 1e-9) || v === 0) };
  }
  function range(values) {
    let [low, high] = [Infinity, -Infinity];
    for (const v of values) { if (v < low) low = v; if (v > high) high = v; }
    return low > high ? [0, 1] : [low, high];
  }
  // Whether a logarithmic scale shows what a linear one would press into a line.
  const spread = ([low, high]) => low > 0 && high / low > 40;

  const tip = html("div", { id: "tip", role: "status", hidden: "" });
  document.body.append(tip);
  function say(event, rows) {
    tip.replaceChildren(...rows.map((row) => Array.isArray(row)
      ? html("div", {}, html("span", {}, row[2] === undefined ? "" : html("span", { class: "key", style: color(row[2]) }), row[0]), html("b", {}, row[1]))
      : html("div", {}, html("b", {}, row))));
    tip.hidden = false;
    const box = tip.getBoundingClientRect();
    const x = event.clientX + 14 + box.width > innerWidth ? event.clientX - 14 - box.width : event.clientX + 14;
    const y = event.clientY + 14 + box.height > innerHeight ? event.clientY - 14 - box.height : event.clientY + 14;
    tip.style.left = Math.max(2, x) + "px";
    tip.style.top = Math.max(2, y) + "px";
  }
  const hush = () => { tip.hidden = true; };
  // As `chart::page::color`.
  const mixed = ["", "55%, var(--ink))", "60%, var(--paper))"];
  const color = (at) => {
    const rest = mixed[Math.floor(at / 10) % 3];
    return rest ? `--c: color-mix(in oklab, var(--s${at % 10}) ${rest}` : `--c: var(--s${at % 10})`;
  };

  // Puts a drawing into its place and tells how much there is to see.
  function show(host, root, marks) {
    host.replaceChildren(root);
    host.dataset.marks = marks;
    return root;
  }
  function sheet(host, height, label) {
    const width = Math.max(220, Math.round(host.clientWidth || 640));
    return [svg("svg", { class: "chart", viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label": label, tabindex: "0" }), width];
  }
  function spot(root, event) {
    const box = root.getBoundingClientRect();
    const view = root.viewBox.baseVal;
    return [(event.clientX - box.left) / box.width * view.width, (event.clientY - box.top) / box.height * view.height];
  }

  // Names at the ends of lines, pushed apart where they would overlap.
  function names(root, ends, x, top, bottom) {
    ends.sort((a, b) => a.y - b.y);
    let last = top - 13;
    for (const end of ends) { end.at = Math.max(end.y, last + 13); last = end.at; }
    let over = last - bottom;
    for (let at = ends.length - 1; at >= 0 && over > 0; at -= 1) {
      const limit = at + 1 < ends.length ? ends[at + 1].at - 13 : bottom;
      ends[at].at = Math.min(ends[at].at, limit);
    }
    for (const end of ends) root.append(svg("text", { class: "name", x, y: end.at + 4, style: color(end.color) }, end.name));
  }
  function frame(root, x, y, box, titles) {
    for (const v of y.marks) {
      root.append(svg("line", { class: "axis", x1: box.left, x2: box.right, y1: y.place(v), y2: y.place(v) }));
      root.append(svg("text", { x: box.left - 6, y: y.place(v) + 4, "text-anchor": "end" }, brief(v)));
    }
    let last = -Infinity;
    for (const v of x.marks) {
      if (x.place(v) - last < 28) continue;
      last = x.place(v);
      root.append(svg("text", { x: last, y: box.bottom + 16, "text-anchor": "middle" }, brief(v)));
    }
    root.append(svg("line", { class: "base", x1: box.left, x2: box.right, y1: box.bottom, y2: box.bottom }));
    root.append(svg("text", { x: box.left, y: 10 }, titles[1]));
    root.append(svg("text", { x: (box.left + box.right) / 2, y: box.bottom + 32, "text-anchor": "middle" }, titles[0]));
  }

  // spec: {label, x, y, series: [{name, color, points: [[x, y]], first}]}. Dragging zooms, Escape or a double click goes back.
  function lines(host, spec, view) {
    const series = spec.series.filter((s) => s.points.length);
    const [root, width] = sheet(host, 250, spec.label);
    const room = Math.min(150, 14 + 6.6 * Math.max(0, ...series.map((s) => s.name.length)));
    const box = { left: 48, right: width - room, top: 22, bottom: 206 };
    const inside = (p) => !view || (p[0] >= view[0] && p[0] <= view[1]);
    const seen = series.map((s) => s.points.filter(inside));
    const xs = view || range(series.flatMap((s) => s.points.map((p) => p[0])));
    const ys = range(seen.flat().map((p) => p[1]));
    const log = spread(ys);
    const low = log ? ys[0] : ys[0] >= 0 && ys[0] < ys[1] * 0.6 ? 0 : ys[0] - (ys[1] - ys[0]) * 0.06;
    // Few places, as of numbers of threads, have a mark each; such doublings stand at even distances.
    const places = [...new Set(series.flatMap((s) => s.points.map((p) => p[0])))].sort((a, b) => a - b);
    const few = !view && places.length > 1 && places.length <= 9;
    const x = scale(xs[0], xs[1], box.left, box.right, few && xs[0] > 0 && xs[1] / xs[0] >= 8);
    if (few) x.marks = places;
    const y = scale(low, ys[1] + (log ? 0 : (ys[1] - ys[0]) * 0.04), box.bottom, box.top, log);
    frame(root, x, y, box, [spec.x, spec.y + (log ? " (logarithmic)" : "")]);
    const ends = [], texts = series.map((s) => String(s.points));
    series.forEach((s, at) => {
      const path = seen[at].map((p) => [x.place(p[0]).toFixed(1), y.place(p[1]).toFixed(1)]);
      if (!path.length) return;
      // Of lines that cover each other each has dashes where the others have gaps.
      const text = path.join(" "), same = (other) => other === texts[at];
      const alike = texts.filter(same).length, own = texts.slice(0, at).filter(same).length;
      const dashes = alike > 1 ? { "stroke-dasharray": `7 ${7 * (alike - 1)}`, "stroke-dashoffset": -7 * own } : {};
      root.append(svg("polyline", { class: "line" + (s.first ? " first" : ""), style: color(s.color), points: text, ...dashes }));
      if (path.length < 12) for (const [cx, cy] of path) root.append(svg("circle", { class: "dot", style: color(s.color), cx, cy, r: 3 }));
      ends.push({ y: +path[path.length - 1][1], name: s.name, color: s.color });
    });
    names(root, ends, box.right + 8, box.top, box.bottom);
    const cursor = svg("line", { class: "cursor", y1: box.top, y2: box.bottom, visibility: "hidden" });
    const brush = svg("rect", { class: "brush", y: box.top, height: box.bottom - box.top, width: 0 });
    root.append(cursor, brush);
    const all = [...new Set(seen.flat().map((p) => p[0]))].sort((a, b) => a - b);
    let at = -1, start = null;
    const point = (event) => {
      const value = all[at];
      cursor.setAttribute("x1", x.place(value)); cursor.setAttribute("x2", x.place(value));
      cursor.setAttribute("visibility", "visible");
      const rows = series.map((s) => [s, s.points.reduce((best, p) => (!best || Math.abs(p[0] - value) < Math.abs(best[0] - value) ? p : best), null)]);
      rows.sort((a, b) => b[1][1] - a[1][1]);
      say(event, [`${spec.x}: ${number(value)}`, ...rows.map(([s, p]) => [s.name, number(p[1]), s.color])]);
    };
    const zoom = (to) => lines(host, spec, to);
    root.addEventListener("pointermove", (event) => {
      const [px] = spot(root, event);
      if (start !== null) {
        brush.setAttribute("x", Math.min(px, start)); brush.setAttribute("width", Math.abs(px - start));
      } else if (all.length) {
        const value = x.back(px);
        at = all.reduce((best, v, i) => (Math.abs(v - value) < Math.abs(all[best] - value) ? i : best), 0);
        point(event);
      }
    });
    root.addEventListener("pointerleave", () => { hush(); cursor.setAttribute("visibility", "hidden"); });
    root.addEventListener("pointerdown", (event) => { [start] = spot(root, event); hush(); });
    root.addEventListener("pointerup", (event) => {
      const [px] = spot(root, event);
      const [a, b] = [Math.min(px, start), Math.max(px, start)].map((p) => x.back(Math.min(box.right, Math.max(box.left, p))));
      const wide = start !== null && Math.abs(px - start) > 8;
      start = null; brush.setAttribute("width", 0);
      if (wide) zoom([a, b]);
    });
    root.addEventListener("dblclick", () => zoom());
    root.addEventListener("keydown", (event) => {
      const [a, b] = [x.low, x.high];
      if (event.key === "Escape") { hush(); zoom(); host.firstChild.focus({ preventScroll: true }); return; }
      if (event.key === "+" || event.key === "-") {
        const middle = at >= 0 ? all[at] : (a + b) / 2, half = (b - a) / (event.key === "+" ? 4 : 1);
        zoom([middle - half, middle + half]); host.firstChild.focus({ preventScroll: true }); return;
      }
      if (!["ArrowLeft", "ArrowRight"].includes(event.key) || !all.length) return;
      event.preventDefault();
      at = Math.max(0, Math.min(all.length - 1, at + (event.key === "ArrowRight" ? 1 : -1)));
      const rect = root.getBoundingClientRect();
      point({ clientX: rect.left + x.place(all[at]) * rect.width / width, clientY: rect.top + 40 });
    });
    root.addEventListener("blur", hush);
    return show(host, root, seen.flat().length);
  }

  // spec: {label, x, rows: [name], series: [{name, color, values, published}]}: a row for each name, a dot for each series; what was published
  // elsewhere is hollow.
  function dots(host, spec) {
    const count = spec.rows.length;
    const [root, width] = sheet(host, 50 + count * 20, spec.label);
    const room = Math.min(width * 0.4, 12 + 6.4 * Math.max(0, ...spec.rows.map((r) => r.length)));
    const box = { left: room, right: width - 12, top: 12, bottom: 14 + count * 20 };
    const values = spec.series.flatMap((s) => s.values.concat(s.published || [])).filter((v) => Number.isFinite(v));
    let ends = range(values);
    const log = spread(ends);
    if (!log && ends[0] > 0) ends = [0, ends[1]];
    const x = scale(ends[0], ends[1], box.left + 6, box.right - 6, log);
    for (const v of x.marks) {
      root.append(svg("line", { class: "axis", x1: x.place(v), x2: x.place(v), y1: box.top, y2: box.bottom }));
      root.append(svg("text", { x: x.place(v), y: box.bottom + 15, "text-anchor": "middle" }, brief(v)));
    }
    root.append(svg("text", { x: (box.left + box.right) / 2, y: box.bottom + 31, "text-anchor": "middle" }, spec.x + (log ? " (logarithmic)" : "")));
    let marks = 0;
    spec.rows.forEach((name, row) => {
      const y = box.top + 10 + row * 20;
      root.append(svg("line", { class: "axis", x1: box.left, x2: box.right, y1: y, y2: y }));
      root.append(svg("text", { x: box.left - 8, y: y + 4, "text-anchor": "end" }, name));
      const cells = [];
      for (const s of [...spec.series].reverse()) {
        for (const [kind, list] of [["published", s.published || []], ["dot", s.values]]) {
          const value = list[row];
          if (!Number.isFinite(value) || (log && value <= 0)) continue;
          root.append(svg("circle", { class: kind, style: color(s.color), cx: x.place(value), cy: y, r: kind === "dot" ? 4.4 : 4 }));
          cells.unshift([s.name + (kind === "published" ? ", published" : ""), number(value), s.color]);
          marks += 1;
        }
      }
      root.append(svg("rect", { x: 0, y: y - 10, width, height: 20, fill: "transparent", onpointermove: (event) => say(event, [name, ...cells]), onpointerleave: hush }));
    });
    return show(host, root, marks);
  }

  // spec: {label, x, y, color, bins: [name], values, high}: one colour, bars from zero.
  function bars(host, spec) {
    const [root, width] = sheet(host, 130, spec.label);
    const box = { left: 38, right: width - 4, top: 18, bottom: 98 };
    const y = scale(0, spec.high || Math.max(1e-9, ...spec.values), box.bottom, box.top);
    frame(root, { marks: [] }, y, box, [spec.x, spec.y]);
    const step = Math.min(72, (box.right - box.left) / Math.max(1, spec.bins.length));
    let marks = 0, last = -Infinity;
    spec.bins.forEach((name, at) => {
      const left = box.left + at * step, value = spec.values[at] || 0;
      if (value > 0) marks += 1;
      root.append(svg("rect", { class: "bar-mark", style: color(spec.color || 0), x: left + step * 0.1, width: step * 0.8, y: y.place(value), height: Math.max(value > 0 ? 1 : 0, box.bottom - y.place(value)) }));
      if (left - last > 34) { root.append(svg("text", { x: left + step / 2, y: box.bottom + 14, "text-anchor": "middle" }, name)); last = left; }
      root.append(svg("rect", { x: left, width: step, y: box.top, height: box.bottom - box.top, fill: "transparent", onpointermove: (event) => say(event, [spec.hint ? spec.hint(at) : name, [spec.y, number(value)]]), onpointerleave: hush }));
    });
    return show(host, root, marks);
  }

  // spec: {label, parts: [name], rows: [{name, values}]}: the parts of each row as shares of its sum.
  function stacked(host, spec) {
    const wide = Math.max(220, host.clientWidth || 640), level = (at) => Math.round(1 + at * 8 / Math.max(1, spec.parts.length - 1));
    // The names of the parts, in as many lines as they need.
    let left = 0, top = 2;
    const keys = spec.parts.map((name) => {
      const long = 27 + 6.4 * name.length;
      if (left + long > wide) { left = 0; top += 16; }
      left += long;
      return { name, x: left - long, y: top };
    });
    const head = top + 20;
    const [root, width] = sheet(host, head + 6 + spec.rows.length * 24, spec.label);
    const room = Math.min(width * 0.45, 12 + 6.4 * Math.max(0, ...spec.rows.map((r) => r.name.length)));
    let marks = 0;
    keys.forEach(({ name, x, y }, at) => root.append(svg("rect", { class: "l" + level(at), x, y, width: 11, height: 11 }), svg("text", { x: x + 15, y: y + 10 }, name)));
    spec.rows.forEach((row, line) => {
      const y = head + line * 24, sum = row.values.reduce((a, b) => a + b, 0) || 1;
      root.append(svg("text", { x: room - 8, y: y + 13, "text-anchor": "end" }, row.name));
      let x = room;
      row.values.forEach((value, at) => {
        const wide = value / sum * (width - room - 4);
        if (value <= 0) return;
        marks += 1;
        root.append(svg("rect", { class: "l" + level(at), x, y, width: Math.max(0.6, wide), height: 18, onpointermove: (event) => say(event, [row.name, [spec.parts[at], number(value)], ["share", (100 * value / sum).toFixed(1) + " %"]]), onpointerleave: hush }));
        x += wide;
      });
    });
    return show(host, root, marks);
  }

  // Cells of a volume by how much of each is in use (0 to 63; empty and full have colours of their own), row by row.
  const tenth = (v) => (v <= 0 ? 0 : v >= 63 ? 9 : 1 + Math.floor((v - 1) * 8 / 62));
  // spec: {label, levels: [0..63, or -1 for what is not there], columns, tell(cell), pick(cell), low, tall, kept; block, name}: every
  // `block` rows stand apart and have the name of their number, if there are any names.
  function heat(host, spec) {
    const count = spec.levels.length, columns = spec.columns, block = spec.block || Infinity;
    const rows = Math.ceil(count / columns), blocks = Math.ceil(rows / block);
    const room = spec.name ? 8 + 6.4 * Math.max(...[0, blocks - 1].map((at) => spec.name(at).length)) : 0;
    const full = Math.max(220, Math.round(host.clientWidth || 640)), size = (full - room) / columns;
    const tall = Math.max(spec.low || 3, Math.min(size, spec.tall || 14)), apart = spec.name ? 4 : 0;
    const height = rows * tall + (blocks - 1) * apart + 2;
    const [root] = sheet(host, height, spec.label);
    const gap = Math.min(size, tall) > 5 ? 1 : 0.3;
    const down = (row) => row * tall + (block < Infinity ? Math.floor(row / block) * apart : 0);
    const place = (cell) => [room + cell % columns * size, down(Math.floor(cell / columns))];
    const square = (cell) => { const [x, y] = place(cell); return `M${x.toFixed(1)} ${y.toFixed(1)}h${(size - gap).toFixed(2)}v${(tall - gap).toFixed(2)}h${(gap - size).toFixed(2)}z`; };
    const names = spec.name ? blocks : 0, each = Math.ceil(11 / (Math.min(block, rows) * tall + apart));
    for (let at = 0; at < names; at += each) root.append(svg("text", { x: room - 6, y: down(at * block) + Math.max(9, tall), "text-anchor": "end" }, spec.name(at)));
    const paths = Array.from({ length: 10 }, (_, at) => root.appendChild(svg("path", { class: "l" + at })));
    const pick = root.appendChild(svg("path", { class: "pick" }));
    const mark = (cells) => pick.setAttribute("d", cells.map(square).join(""));
    const fill = (levels) => {
      const texts = paths.map(() => []);
      levels.forEach((level, cell) => { if (level >= 0) texts[tenth(level)].push(square(cell)); });
      paths.forEach((path, at) => path.setAttribute("d", texts[at].join("")));
    };
    fill(spec.levels);
    const rest = () => mark(spec.kept || []);
    let at = -1;
    const tell = (event) => { if (at >= 0 && at < count) { mark([...(spec.kept || []), at]); say(event, spec.tell(at)); } };
    root.addEventListener("pointermove", (event) => {
      const [x, y] = spot(root, event);
      const row = block < Infinity ? Math.floor((y + Math.floor(y / (block * tall + apart)) * -apart) / tall) : Math.floor(y / tall);
      at = row * columns + Math.min(columns - 1, Math.max(0, Math.floor((x - room) / size)));
      tell(event);
    });
    root.addEventListener("pointerleave", () => { hush(); rest(); });
    root.addEventListener("blur", () => { hush(); rest(); });
    root.addEventListener("click", () => { if (spec.pick && at >= 0 && at < count) spec.pick(at); });
    root.addEventListener("keydown", (event) => {
      const step = { ArrowLeft: -1, ArrowRight: 1, ArrowUp: -columns, ArrowDown: columns }[event.key];
      if (event.key === "Enter" && spec.pick && at >= 0) spec.pick(at);
      if (!step) return;
      event.preventDefault();
      at = Math.max(0, Math.min(count - 1, at < 0 ? 0 : at + step));
      const box = root.getBoundingClientRect(), [x, y] = place(at), by = box.width / full;
      tell({ clientX: box.left + (x + size / 2) * by, clientY: box.top + (y + tall) * by });
    });
    show(host, root, count);
    return { fill, keep: (cells) => { spec.kept = cells; rest(); } };
  }
  // The colours of a heat map, from empty to full, and what is shown.
  function legend(host, from, to, what = "") {
    const long = (text) => 6.4 * text.length, left = 6 + Math.max(36, long(what ? `${what}: ${from}` : from)), width = left + 172 + Math.max(36, long(to));
    const root = svg("svg", { class: "chart", viewBox: `0 0 ${width} 14`, style: `width: ${width}px`, role: "img", "aria-label": `Colours: ${what} ${from} to ${to}` });
    root.append(svg("text", { x: left - 6, y: 11, "text-anchor": "end" }, what ? `${what}: ${from}` : from), svg("text", { x: left + 164, y: 11 }, to));
    for (let at = 0; at < 10; at += 1) root.append(svg("rect", { class: "l" + at, x: left + at * 16, y: 1, width: 15, height: 11 }));
    host.replaceChildren(root);
  }

  // spec: {label, total, rows: [{name, note, runs: [start, length, ...], color}], pick(row), chosen, mark}: where each row's runs lie
  // from 0 to total; `mark` says what a part of all of it is, for the axis below.
  function strips(host, spec) {
    const tall = spec.tall || 11, foot = spec.mark ? 20 : 2, [root, width] = sheet(host, Math.max(1, spec.rows.length) * tall + foot, spec.label);
    const room = spec.names ? Math.min(width * 0.42, 10 + 6.4 * Math.max(0, ...spec.rows.map((r) => Math.min(44, r.name.length)))) : 0;
    let marks = 0;
    spec.rows.forEach((row, line) => {
      const y = line * tall, place = (v) => room + v / spec.total * (width - room);
      root.append(svg("rect", { class: "track", x: room, y: y + 1, width: width - room, height: tall - 2 }));
      const parts = [];
      for (let at = 0; at + 1 < row.runs.length; at += 2) {
        parts.push(`M${place(row.runs[at]).toFixed(1)} ${y + 1}h${Math.max(1.4, row.runs[at + 1] / spec.total * (width - room)).toFixed(1)}v${tall - 2}H${place(row.runs[at]).toFixed(1)}z`);
        marks += 1;
      }
      root.append(svg("path", { class: "bar-mark", style: color(row.color || 0), d: parts.join("") }));
      if (spec.names) {
        const name = row.name.length > 44 ? "\u2026" + row.name.slice(-43) : row.name;
        root.append(svg("text", { x: room - 6, y: y + tall - 3, "text-anchor": "end" }, name));
      }
      if (spec.chosen === line) root.append(svg("rect", { class: "pick", x: room, y: y + 0.5, width: width - room, height: tall - 1 }));
      root.append(svg("rect", { x: 0, y, width, height: tall, fill: "transparent", style: spec.pick ? "cursor: pointer" : "", onpointermove: (event) => say(event, [row.name, ...(row.note || [])]), onpointerleave: hush, onclick: () => spec.pick && spec.pick(line) }));
    });
    const low = Math.max(1, spec.rows.length) * tall;
    for (let part = 0; spec.mark && part <= 4; part += 1) {
      const x = room + part / 4 * (width - room);
      root.append(svg("line", { class: "base", x1: x, x2: x, y1: low, y2: low + 4 }));
      root.append(svg("text", { x, y: low + 16, "text-anchor": ["start", "middle", "middle", "middle", "end"][part] }, spec.mark(part / 4)));
    }
    // With the keyboard: up and down, Enter chooses.
    const frame = root.appendChild(svg("rect", { class: "pick", x: room, width: width - room, height: tall - 1, visibility: "hidden" }));
    let at = spec.chosen >= 0 ? spec.chosen : -1;
    root.addEventListener("keydown", (event) => {
      if (event.key === "Enter" && spec.pick && at >= 0) { spec.pick(at); host.firstChild.focus({ preventScroll: true }); return; }
      const step = { ArrowUp: -1, ArrowDown: 1 }[event.key];
      if (!step || !spec.rows.length) return;
      event.preventDefault();
      at = Math.max(0, Math.min(spec.rows.length - 1, at + step));
      frame.setAttribute("y", at * tall + 0.5);
      frame.setAttribute("visibility", "visible");
      const box = root.getBoundingClientRect();
      say({ clientX: box.left + room, clientY: box.top + (at + 1) * tall * box.width / width }, [spec.rows[at].name, ...(spec.rows[at].note || [])]);
    });
    root.addEventListener("blur", () => { hush(); frame.setAttribute("visibility", "hidden"); });
    return show(host, root, marks);
  }

  // The switch between light, dark and what the system says, kept for the next page where that is allowed.
  function theme(button) {
    const kinds = ["system", "light", "dark"];
    let kind = "system";
    try { kind = localStorage.getItem("plat-theme") || kind; } catch { /* pages of files may not keep anything */ }
    const set = (to) => {
      kind = kinds.includes(to) ? to : "system";
      if (kind === "system") delete document.documentElement.dataset.theme; else document.documentElement.dataset.theme = kind;
      button.textContent = "Colours: " + kind;
      try { localStorage.setItem("plat-theme", kind); } catch { /* as above */ }
    };
    button.addEventListener("click", () => set(kinds[(kinds.indexOf(kind) + 1) % 3]));
    set(kind);
  }
  // Draws again when the width changes.
  function again(work) {
    let width = innerWidth, due = 0;
    addEventListener("resize", () => { if (innerWidth !== width) { width = innerWidth; cancelAnimationFrame(due); due = requestAnimationFrame(work); } });
  }
  // Levels of cells from the letters that stand for them; -1 for a point.
  const LETTERS = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";
  const levels = (text) => Array.from(text, (c) => LETTERS.indexOf(c));
  const data = () => JSON.parse(document.getElementById("data").textContent);

  return { svg, html, number, brief, unit, bytes, color, say, hush, lines, dots, bars, stacked, heat, legend, strips, theme, again, levels, data };
})();
