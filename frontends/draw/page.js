"use strict";
// The page's data: nodes with their texts by number, boxes of the drawing, the forecast's streams.
const data = JSON.parse(document.getElementById("data").textContent);
const $ = id => document.getElementById(id);
const fills = ["feed", "state", "forward", "backward", "join", "update"];

const nodes = [];
{
  let last = "";
  for (const [same, rest, op, kernel, fill, where, reason, stream, cause, type, epoch, order, bytes, nanoseconds, critical, inputs] of data.nodes) {
    last = last.slice(0, same) + rest;
    nodes.push({ name: last, op, kernel, fill, where, reason, stream, cause, type, epoch, order, bytes, nanoseconds, critical, inputs });
  }
}
let readersOfAll = null;
function readersOf(i) {
  if (!readersOfAll) {
    readersOfAll = nodes.map(() => []);
    nodes.forEach((n, k) => n.inputs.forEach(from => readersOfAll[from].push(k)));
  }
  return readersOfAll[i];
}
const boxOf = new Map();
data.boxes.forEach((all, b) => all.forEach(n => { if (!boxOf.has(n)) boxOf.set(n, b); }));

function humanBytes(n) {
  let unit = 0;
  const units = ["B", "KiB", "MiB", "GiB", "TiB"];
  while (n >= 1024 && unit < 4) n /= 1024, ++unit;
  return (unit ? n.toFixed(1) : n) + " " + units[unit];
}
function humanTime(ns) {
  if (ns >= 1e9) return (ns / 1e9).toPrecision(3) + " s";
  if (ns >= 1e6) return (ns / 1e6).toPrecision(3) + " ms";
  return (ns / 1e3).toPrecision(3) + " us";
}
const make = (name, attributes, parent, text) => {
  const e = document.createElementNS("http://www.w3.org/2000/svg", name);
  for (const k in attributes) e.setAttribute(k, attributes[k]);
  if (text !== undefined) e.textContent = text;
  if (parent) parent.append(e);
  return e;
};
const element = (name, parent, text, css) => {
  const e = document.createElement(name);
  if (text !== undefined) e.textContent = text;
  if (css) e.className = css;
  if (parent) parent.append(e);
  return e;
};

/// Rows of what is known of a node: title and text.
function factsOf(i) {
  const n = nodes[i], t = data.texts, out = [["op", t[n.op]]];
  const add = (title, text) => { if (text) out.push([title, text]); };
  add("kernel", t[n.kernel]);
  add("on", t[n.where]);
  add("type", t[n.type]);
  if (n.bytes) add("bytes", humanBytes(n.bytes));
  if (n.nanoseconds) add("takes", humanTime(n.nanoseconds) + (n.critical ? ", on the critical path" : ""));
  if (t[n.stream]) add("stream", t[n.stream] + ", order " + n.epoch + "." + n.order);
  add("reason", t[n.reason]);
  if (t[n.cause]) add("inserted for", t[n.cause]);
  add("moved", (data.moved[i] || "").replace("moved: ", ""));
  return out;
}
const tipOf = i => nodes[i].name + "\n" + factsOf(i).map(([title, text]) => title + ": " + text).join("\n");

// Move and zoom.
const view = $("view"), svg = view.querySelector("svg");
let place = { x: 0, y: 0, k: 1 }, fitted = true;
function show() { svg.style.transform = `translate(${place.x}px,${place.y}px) scale(${place.k})`; }
function fit() {
  const w = svg.width.baseVal.value, h = svg.height.baseVal.value, room = view.clientWidth - ($("side").hidden ? 0 : 540);
  const k = Math.min(1.25, room / w, Math.max(view.clientHeight / h, 0.62));
  place = { x: Math.max(0, (room - w * k) / 2), y: Math.max(0, (view.clientHeight - h * k) / 2), k };
  fitted = true;
  show();
}
view.addEventListener("wheel", e => {
  e.preventDefault();
  fitted = false;
  const r = view.getBoundingClientRect(), x = e.clientX - r.left, y = e.clientY - r.top;
  const k = Math.min(8, Math.max(0.05, place.k * Math.exp(-e.deltaY * 0.0015)));
  place = { x: x - (x - place.x) * k / place.k, y: y - (y - place.y) * k / place.k, k };
  show();
}, { passive: false });
let drag = null;
view.addEventListener("pointerdown", e => { drag = { x: e.clientX, y: e.clientY, from: { ...place }, far: false }; });
window.addEventListener("pointermove", e => {
  if (!drag) return;
  const dx = e.clientX - drag.x, dy = e.clientY - drag.y;
  if (Math.abs(dx) + Math.abs(dy) > 4) drag.far = true, fitted = false, view.classList.add("dragged");
  if (drag.far) place = { ...place, x: drag.from.x + dx, y: drag.from.y + dy }, show();
});
window.addEventListener("pointerup", () => { view.classList.remove("dragged"); setTimeout(() => { drag = null; }); });

// Layers that open: their nodes appear below their row, and all that is lower moves down.
const diagram = svg.querySelector(".diagram"), below = svg.querySelector(".below");
const opened = new Map();  // box → { cut, height, element }
const height0 = svg.height.baseVal.value, width0 = svg.width.baseVal.value;
const placeOf = g => g.getAttribute("transform").match(/-?[\d.]+/g).map(Number);
const fixed = diagram ? [...diagram.querySelectorAll("rect, text, path, g[transform]")].filter(e => !e.parentNode.closest("g[transform]")).map(e => {
  if (e.tagName === "g") return { e, kind: "g", at: placeOf(e) };
  if (e.tagName === "rect") return { e, kind: "rect", y: +e.getAttribute("y"), h: +e.getAttribute("height") };
  if (e.tagName === "text") return { e, kind: "text", y: +e.getAttribute("y") };
  return { e, kind: "path", d: e.getAttribute("d") };
}) : [];
function down(y) {
  let more = 0;
  for (const o of opened.values()) if (y > o.cut) more += o.height;
  return y + more;
}
function reflow() {
  for (const f of fixed) {
    if (f.kind === "g") f.e.setAttribute("transform", `translate(${f.at[0]} ${down(f.at[1])})`);
    else if (f.kind === "rect") f.e.setAttribute("y", down(f.y)), f.e.setAttribute("height", down(f.y + f.h) - down(f.y));
    else if (f.kind === "text") f.e.setAttribute("y", down(f.y));
    else f.e.setAttribute("d", f.d.replace(/([MLCQ])([^A-Za-z]*)|H(-?[\d.]+)/g, (all, letter, numbers) => letter ? letter + numbers.trim().split(/\s+/).map((v, i) => i % 2 ? down(+v) : v).join(" ") : all));
  }
  let total = 0;
  for (const o of opened.values()) {
    let above = o.cut + 4;
    for (const other of opened.values()) if (other !== o && (other.cut < o.cut || (other.cut === o.cut && other.box < o.box))) above += other.height;
    o.element.setAttribute("transform", `translate(${o.x} ${above})`);
    total += o.height;
  }
  if (below) below.setAttribute("transform", `translate(0 ${total})`);
  svg.setAttribute("height", height0 + total);
  svg.setAttribute("viewBox", `0 0 ${width0} ${height0 + total}`);
}
function toggle(b, redraw = true) {
  if (!data.inside[b]) return false;
  if (opened.has(b)) opened.get(b).element.remove(), opened.delete(b);
  else {
    const [w, h, inner] = data.inside[b], box = diagram.querySelector(`[data-b="${b}"]`);
    const f = fixed.find(f => f.e === box), size = box.querySelector(".o").getBBox();
    const k = Math.min(1, (width0 - 40) / w), x = Math.max(16, Math.min(f.at[0] + size.width / 2 - w * k / 2, width0 - w * k - 16));
    const g = make("g", { class: "inside" }, diagram);
    make("rect", { class: "frame", width: w * k, height: h * k, rx: 8 }, g);
    const content = make("g", { transform: `scale(${k})` }, g);
    content.innerHTML = inner;
    opened.set(b, { box: b, cut: f.at[1] + size.y + size.height + 3, height: h * k + 12, x, element: g });
  }
  if (redraw) reflow();
  return true;
}
$("open").onclick = () => { for (const b in data.inside) if (!opened.has(+b)) toggle(+b, false); reflow(); };
$("close").onclick = () => { for (const b of [...opened.keys()]) toggle(b, false); reflow(); };
if (!Object.keys(data.inside).length) $("open").hidden = $("close").hidden = true;

function centre(target) {
  const r = target.getBoundingClientRect(), v = view.getBoundingClientRect();
  fitted = false;
  place.x += v.left + (v.width - ($("side").hidden ? 0 : 540)) / 2 - (r.left + r.width / 2);
  place.y += v.top + v.height / 2 - (r.top + r.height / 2);
  show();
}

// A node with two hops around it.
function select(i, move = true) {
  const side = $("side"), n = nodes[i];
  side.hidden = false;
  side.textContent = "";
  element("button", side, "close", "shut").onclick = () => { side.hidden = true; if (fitted) fit(); };
  element("h2", side, n.name);
  const table = element("table", side);
  for (const [title, text] of factsOf(i)) {
    const row = element("tr", table);
    element("td", row, title);
    element("td", row, text);
  }
  const more = (from, seen, next) => {
    const out = [];
    for (const f of from) for (const k of next(f)) if (!seen.has(k)) seen.add(k), out.push(k);
    return out;
  };
  const seen = new Set([i]), inputs = k => nodes[k].inputs;
  const up1 = more([i], seen, inputs), up2 = more(up1, seen, inputs), down1 = more([i], seen, readersOf), down2 = more(down1, seen, readersOf);
  drawHops(side, [up2, up1, [i], down1, down2]);
  document.querySelectorAll(".found").forEach(e => e.classList.remove("found"));
  if (diagram && boxOf.has(i)) {
    const b = boxOf.get(i), box = diagram.querySelector(`[data-b="${b}"]`);
    if (data.inside[b] && move && !opened.has(b)) toggle(b);
    const inner = opened.has(b) && opened.get(b).element.querySelector(`[data-n="${i}"]`);
    (inner || box).classList.add("found");
    if (move) centre(inner || box);
  }
}
function drawHops(side, rows) {
  const wide = 484, most = 15, columns = 3, cell = wide / columns, names = ["two before", "read", "", "read by", "two behind"];
  const drawing = make("svg", { width: wide }, null), at = new Map();
  const lines = make("g", {}, drawing);
  let y = 0;
  rows.forEach((row, r) => {
    if (!row.length) return;
    if (names[r]) make("text", { x: 0, y: y + 11, class: "f" }, drawing, `${names[r]} (${row.length})`), y += 18;
    row.slice(0, most).forEach((k, j) => {
      const count = Math.min(columns, row.length - columns * Math.floor(j / columns));
      const x = (wide - count * cell) / 2 + (j % columns) * cell + 3, top = y + Math.floor(j / columns) * 30, n = nodes[k];
      const g = make("g", { class: "n " + fills[n.fill], transform: `translate(${x} ${top})`, "data-n": k }, drawing);
      make("rect", { class: "o", width: cell - 6, height: 22, rx: 4 }, g);
      make("text", { class: "l", x: (cell - 6) / 2, y: 15, "text-anchor": "middle" }, g, n.name.length > 22 ? "…" + n.name.slice(-20) : n.name);
      at.set(k, [x + (cell - 6) / 2, top]);
    });
    y += Math.ceil(Math.min(row.length, most) / columns) * 30 + 4;
    if (row.length > most) make("text", { x: 0, y: y + 8, class: "f" }, drawing, `and ${row.length - most} more`), y += 16;
    y += 14;
  });
  for (const [k, [x2, y2]] of at) for (const from of nodes[k].inputs) if (at.has(from)) {
    const [x1, y1] = at.get(from), middle = (y1 + 22 + y2) / 2;
    make("path", { class: "w", d: `M${x1} ${y1 + 22}C${x1} ${middle} ${x2} ${middle} ${x2} ${y2}` }, lines);
  }
  drawing.setAttribute("height", y);
  side.append(drawing);
}

// Pointing and clicking.
svg.querySelectorAll(".n > title").forEach(t => { t.parentNode.dataset.note = t.textContent; t.remove(); });
function nodeAt(target) {
  const g = target.closest && target.closest("[data-n], [data-b]");
  if (!g) return null;
  if (g.dataset.n !== undefined) return { node: +g.dataset.n };
  const all = data.boxes[+g.dataset.b];
  return all.length === 1 ? { node: all[0], note: g.dataset.note } : { box: +g.dataset.b, note: g.dataset.note };
}
function tip(text, e) {
  const t = $("tip");
  t.hidden = !text;
  if (!text) return;
  t.textContent = text;
  t.style.left = Math.min(e.clientX + 14, innerWidth - t.offsetWidth - 8) + "px";
  t.style.top = (e.clientY + 18 + t.offsetHeight > innerHeight ? e.clientY - t.offsetHeight - 8 : e.clientY + 18) + "px";
}
document.addEventListener("pointermove", e => {
  if (e.target.tagName === "CANVAS") return;
  const on = nodeAt(e.target);
  tip(!on ? "" : on.node !== undefined ? tipOf(on.node) : on.note + (data.inside[on.box] ? "\nclick to " + (opened.has(on.box) ? "close" : "open") : ""), e);
});
document.addEventListener("click", e => {
  if (drag && drag.far) return;
  const on = nodeAt(e.target);
  if (on && on.node !== undefined) select(on.node, !view.contains(e.target));
  else if (on && !toggle(on.box)) select(data.boxes[on.box][0], false);
  if (!$("hits").contains(e.target) && e.target !== $("find")) $("hits").hidden = true;
});

// Search: every word must stand in the name, op or kernel.
function search(text) {
  const words = text.toLowerCase().split(/\s+/).filter(w => w), hits = [], box = $("hits");
  let count = 0;
  if (words.length) nodes.forEach((n, i) => {
    const all = (n.name + " " + data.texts[n.op] + " " + data.texts[n.kernel]).toLowerCase();
    if (words.every(w => all.includes(w)) && ++count <= 60) hits.push(i);
  });
  hits.sort((a, b) => nodes[a].name.length - nodes[b].name.length);
  box.textContent = "";
  box.hidden = !words.length;
  for (const i of hits) {
    const line = element("div", box, nodes[i].name + "  ", box.children.length ? "" : "first");
    element("small", line, data.texts[nodes[i].op]);
    line.onclick = () => { box.hidden = true; select(i); };
  }
  if (words.length) element("div", box).append(element("small", null, count ? `${count} of ${nodes.length} nodes` : `none of ${nodes.length} nodes`));
  return hits;
}
$("find").oninput = e => search(e.target.value);
$("find").onkeydown = e => {
  if (e.key !== "Enter") return;
  const hits = search(e.target.value);
  $("hits").hidden = true;
  if (hits.length) select(hits[0]);
};
document.addEventListener("keydown", e => {
  if (e.key === "/" && document.activeElement !== $("find")) e.preventDefault(), $("find").focus();
  if (e.key === "Escape") $("side").hidden = $("hits").hidden = true;
});
$("fit").onclick = fit;

// The timeline: what is narrower than a pixel is drawn with its neighbours.
const time = $("time"), canvas = time.querySelector("canvas"), rows = [];
let from = 0, to = (data.seconds || 0) * 1e9;
const whole = to, nameWidth = 130, rowHeight = 18;
function unpack() {
  for (const [name, cells] of data.streams) {
    const count = cells.length / 5, begin = new Float64Array(count), end = new Float64Array(count);
    let at = 0;
    for (let i = 0; i < count; ++i) begin[i] = at + cells[5 * i + 2], end[i] = at = begin[i] + cells[5 * i + 3];
    rows.push({ name, cells, begin, end });
  }
}
const firstAfter = (sorted, value) => {
  let low = 0, high = sorted.length;
  while (low < high) { const m = (low + high) >> 1; if (sorted[m] < value) low = m + 1; else high = m; }
  return low;
};
let colours = null;
function drawTime() {
  if (time.hidden) return;
  const ratio = devicePixelRatio || 1, w = canvas.clientWidth, h = canvas.clientHeight, pen = canvas.getContext("2d");
  canvas.width = w * ratio, canvas.height = h * ratio;
  pen.scale(ratio, ratio);
  const style = getComputedStyle(document.documentElement), faint = style.getPropertyValue("--faint"), text = style.getPropertyValue("--text");
  if (!colours) colours = fills.map(f => { const r = make("rect", { class: f }, svg), c = getComputedStyle(r).fill; r.remove(); return c; });
  pen.font = "10.5px " + getComputedStyle(document.body).fontFamily;
  const scale = (w - nameWidth - 10) / (to - from);
  pen.fillStyle = faint;
  for (let i = 0; i <= 4; ++i) {
    pen.textAlign = ["left", "center", "center", "center", "right"][i];
    pen.fillText(from + (to - from) * i / 4 ? humanTime(from + (to - from) * i / 4) : "0", nameWidth + (w - nameWidth - 10) * i / 4, 13);
  }
  pen.textAlign = "left";
  rows.forEach((row, r) => {
    const y = 20 + r * rowHeight;
    if (y > h) return;
    pen.fillStyle = text;
    pen.fillText(row.name, 12, y + 10);
    pen.fillStyle = style.getPropertyValue("--ground");
    pen.fillRect(nameWidth, y, w - nameWidth - 10, 12);
    let last = -1;
    for (let i = firstAfter(row.end, from); i < row.begin.length && row.begin[i] < to; ++i) {
      let x1 = nameWidth + Math.max(0, (row.begin[i] - from) * scale);
      const x2 = Math.min(w - 10, nameWidth + (row.end[i] - from) * scale);
      if (x2 - last < 0.35) continue;
      if (x1 - last < 0.5 && last > 0) x1 = last;
      last = x2;
      const n = nodes[row.cells[5 * i]], wide = Math.max(0.35, x2 - x1);
      pen.fillStyle = colours[n.fill];
      pen.fillRect(x1, y, wide > 3 ? wide - 0.5 : wide, 12);
      if (row.cells[5 * i + 4]) pen.fillStyle = "#cf3f4f", pen.fillRect(x1, y + 13, wide, 2);
      if (wide > 40) {
        pen.save();
        pen.beginPath();
        pen.rect(x1, y, wide - 2, 12);
        pen.clip();
        pen.fillStyle = "#fff";
        pen.fillText(n.name.split("/").slice(-2).join("/"), x1 + 3, y + 9.5);
        pen.restore();
      }
    }
  });
}
function launchAt(e) {
  const r = canvas.getBoundingClientRect(), row = rows[Math.floor((e.clientY - r.top - 20) / rowHeight)];
  if (!row) return null;
  const t = from + (e.clientX - r.left - nameWidth) / (r.width - nameWidth - 10) * (to - from), i = firstAfter(row.end, t);
  return i < row.begin.length && row.begin[i] <= t ? { row, i } : null;
}
canvas.addEventListener("wheel", e => {
  e.preventDefault();
  const r = canvas.getBoundingClientRect(), t = from + (e.clientX - r.left - nameWidth) / (r.width - nameWidth - 10) * (to - from), k = Math.exp(e.deltaY * 0.002);
  from = Math.max(0, t - (t - from) * k), to = Math.min(whole, Math.max(from + 100, t + (to - t) * k));
  drawTime();
}, { passive: false });
let slide = null;
canvas.addEventListener("pointerdown", e => { slide = { x: e.clientX, from, to }; });
canvas.addEventListener("pointermove", e => {
  if (slide && e.buttons) {
    const by = (slide.x - e.clientX) / (canvas.clientWidth - nameWidth - 10) * (slide.to - slide.from), room = Math.max(-slide.from, Math.min(by, whole - slide.to));
    from = slide.from + room, to = slide.to + room;
    drawTime();
  }
  const on = launchAt(e);
  tip(on ? (on.row.cells[5 * on.i + 1] >= 0 ? "tower " + on.row.cells[5 * on.i + 1] + ", " : "") + humanTime(on.row.end[on.i] - on.row.begin[on.i]) + " from " + humanTime(on.row.begin[on.i]) + "\n" + tipOf(on.row.cells[5 * on.i]) : "", e);
});
canvas.addEventListener("click", e => {
  const on = launchAt(e);
  if (on && slide && Math.abs(slide.x - e.clientX) < 4) select(on.row.cells[5 * on.i]);
});
if (data.streams.length) {
  unpack();
  time.hidden = false;
  time.style.height = Math.min(30 + rowHeight * rows.length, innerHeight * 0.3) + "px";
}
window.addEventListener("resize", () => { if (fitted) fit(); drawTime(); });

fit();
drawTime();
// A link may name a node to find, and boxes to open: page.html#open=2,5&find=dense/matmul
const wish = new URLSearchParams(location.hash.slice(1));
for (const b of (wish.get("open") || "").split(",")) if (b !== "") toggle(+b);
if (wish.has("find")) { const hits = search(wish.get("find")); $("hits").hidden = true; if (hits.length) select(hits[0]); }
svg.getBoundingClientRect();
document.documentElement.dataset.ready = performance.now().toFixed(0);  // milliseconds since the page was asked for, laid out
requestAnimationFrame(() => setTimeout(() => { document.documentElement.dataset.painted = performance.now().toFixed(0); }));
