"""Define the script of the page of `cnllm models matrix`.

It filters and sorts, and shows the source of a cell on hover, focus or tap."""

__all__ = ["SCRIPT"]

SCRIPT = """
(() => {
"use strict";
const by = id => document.getElementById(id);
const data = JSON.parse(by("data").textContent);
const body = by("matrix").tBodies[0], rows = [...body.rows], card = by("card"), scroll = by("scroll");
const heads = [...document.querySelectorAll("thead [data-c]")];
const boxes = [...document.querySelectorAll("input[name=can]")];
const place = Object.fromEntries(data.columns.map((column, at) => [column.name, at]));
const words = {y: "yes", n: "no", u: "unknown"}, ranks = {y: 0, u: 1, n: 2};
const state = cell => ["y", "n", "u"].find(mark => cell.classList.contains(mark));
let sorted = {by: 0, down: false};

// ── filters ──
function filter() {
  const text = by("text").value.toLowerCase().split(/\\s+/).filter(Boolean), provider = by("provider").value;
  const wanted = boxes.filter(box => box.checked).map(box => place[box.value]);
  const maybe = by("maybe").checked, current = by("current").checked;
  let count = 0;
  for (const row of rows) {
    const fits = text.every(word => row.dataset.k.includes(word))
      && (!provider || row.dataset.p === provider)
      && !(current && row.dataset.r === "1")
      && wanted.every(at => { const is = state(row.cells[at]); return is === "y" || (maybe && is === "u"); });
    row.hidden = !fits;
    count += fits;
  }
  by("count").textContent = count === rows.length ? count : `${count} of ${rows.length}`;
  by("wanted").textContent = wanted.length || "";
  by("none").hidden = count > 0;
  by("reset").hidden = !(text.length || provider || wanted.length || maybe || current);
  for (const head of heads) head.classList.toggle("wanted", wanted.includes(+head.dataset.c));
  hide();
  if (!current_ || current_.parentNode.hidden) roam(body.querySelector("tr:not([hidden]) > th"));
  keep();
}

// ── sorting: what is unknown comes last, prices stand by currency ──
const order = new Map(rows.map((row, at) => [row, at]));
function key(row, at) {
  const cell = row.cells[at];
  if (at === 0) return ["", order.get(row)];
  if (cell.classList.contains("number")) return "v" in cell.dataset ? [cell.dataset.u, +cell.dataset.v] : null;
  return ["", ranks[state(cell)]];
}
function sort(at, down) {
  sorted = {by: at, down};
  const keys = new Map(rows.map(row => [row, key(row, at)]));
  const turn = down ? -1 : 1;
  rows.sort((a, b) => {
    const one = keys.get(a), other = keys.get(b);
    if (!one || !other) return (one ? 0 : 1) - (other ? 0 : 1) || order.get(a) - order.get(b);
    return one[0].localeCompare(other[0]) || turn * (one[1] - other[1]) || order.get(a) - order.get(b);
  });
  body.append(...rows);
  for (const head of heads) {
    if (+head.dataset.c === at) head.setAttribute("aria-sort", down ? "descending" : "ascending");
    else head.removeAttribute("aria-sort");
  }
  scroll.scrollTop = 0;
  keep();
}
for (const head of heads) {
  const at = +head.dataset.c, button = head.querySelector("button");
  button.tabIndex = 0;
  button.title = `${data.columns[at].says}; click to sort`;
  button.addEventListener("click", () => sort(at, sorted.by === at ? !sorted.down : false));
}

// ── the card: what a cell says, and who says so ──
let shown = null, pinned = false, timer = 0, current_ = null;
function line(list, name, value) {
  if (!value) return;
  const term = document.createElement("dt"), text = document.createElement("dd");
  term.textContent = name;
  text.append(value);
  list.append(term, text);
}
function made(tag, text) {
  const element = document.createElement(tag);
  element.textContent = text;
  return element;
}
function told(source) {
  if (!/^https?:\\/\\//.test(source)) return source;
  const link = made("a", source);
  link.href = source;
  link.target = "_blank";
  link.rel = "noreferrer noopener";
  return link;
}
function fill(cell) {
  const row = cell.parentNode, name = `${row.dataset.p}/${row.querySelector("th b").textContent}`;
  const column = data.columns[cell.cellIndex], list = document.createElement("dl");
  card.replaceChildren();
  if (cell.cellIndex === 0) {
    card.append(made("h2", name), made("p", cell.dataset.note));
  } else {
    const says = words[state(cell)] || cell.textContent;
    card.append(made("h2", `${column.name}: ${says}`), made("p", `${name} · ${column.says}`));
    if ("f" in cell.dataset) {
      const [flag, value, layer, where, from] = data.facts[cell.dataset.f], [source, seen, how] = data.sources[from];
      line(list, "Flag", made("code", `${flag} = ${value}`));
      line(list, "Set by", `${layer}, ${where}`);
      line(list, "Source", source ? told(source) : "none");
      line(list, "Read", [seen, how].filter(Boolean).join(", "));
      card.append(list);
    } else {
      card.append(made("p", "No flag says so either way."));
    }
  }
  if (pinned) {
    const button = made("button", "✕");
    button.setAttribute("aria-label", "Close");
    button.addEventListener("click", () => { hide(); if (current_) current_.focus({preventScroll: true}); });
    card.append(button);
  }
}
function show(cell, pin) {
  clearTimeout(timer);
  if (pinned && !pin) return;
  if (shown) shown.classList.remove("shown");
  shown = cell;
  pinned = pin;
  fill(cell);
  cell.classList.add("shown");
  card.hidden = false;
  const at = cell.getBoundingClientRect(), size = card.getBoundingClientRect();
  const below = at.bottom + 6 + size.height <= innerHeight;
  card.style.left = `${Math.max(8, Math.min(at.left, innerWidth - size.width - 8))}px`;
  card.style.top = `${below ? at.bottom + 6 : Math.max(8, at.top - size.height - 6)}px`;
}
function hide() {
  clearTimeout(timer);
  if (shown) shown.classList.remove("shown");
  shown = null;
  pinned = false;
  card.hidden = true;
}
const soon = () => { clearTimeout(timer); if (!pinned) timer = setTimeout(hide, 150); };
const cellOf = event => event.target.closest("tbody td, tbody th");
body.addEventListener("pointerover", event => {
  const cell = cellOf(event);
  if (event.pointerType === "mouse" && cell) show(cell, false);
});
scroll.addEventListener("pointerleave", soon);
card.addEventListener("pointerenter", () => clearTimeout(timer));
card.addEventListener("pointerleave", soon);
scroll.addEventListener("scroll", () => { if (innerWidth > 640 && !pinned) hide(); }, {passive: true});
body.addEventListener("click", event => {
  const cell = cellOf(event);
  if (!cell) return;
  if (pinned && shown === cell) return hide();
  roam(cell);
  cell.focus({preventScroll: true});
  show(cell, true);
});
document.addEventListener("click", event => {
  if (!event.target.closest("tbody, #card")) hide();
  if (!event.target.closest("#more")) by("more").open = false;
});
document.addEventListener("keydown", event => {
  if (event.key === "Escape") { hide(); by("more").open = false; }
});

// ── the keyboard: Tab reaches one cell, arrow keys move from there ──
function roam(cell) {
  if (current_) current_.removeAttribute("tabindex");
  current_ = cell;
  if (cell) cell.tabIndex = 0;
}
const next = (row, step) => { do row = row && row[step]; while (row && row.hidden); return row; };
body.addEventListener("keydown", event => {
  const cell = cellOf(event);
  if (!cell) return;
  const row = cell.parentNode, at = cell.cellIndex;
  const to = {
    ArrowRight: () => row.cells[at + 1], ArrowLeft: () => row.cells[at - 1],
    ArrowDown: () => (next(row, "nextElementSibling") || row).cells[at],
    ArrowUp: () => (next(row, "previousElementSibling") || row).cells[at],
    Home: () => row.cells[0], End: () => row.cells[row.cells.length - 1],
  }[event.key];
  if (event.key === "Enter" || event.key === " ") { event.preventDefault(); return show(cell, true); }
  if (!to) return;
  event.preventDefault();
  const target = to();
  if (!target) return;
  hide();
  roam(target);
  target.focus();
  show(target, false);
});
body.addEventListener("focusin", event => {
  const cell = cellOf(event);
  if (cell && cell !== shown) show(cell, false);
});
body.addEventListener("focusout", soon);

// ── keep the filters in the address ──
function keep() {
  const params = new URLSearchParams();
  if (by("text").value) params.set("text", by("text").value);
  if (by("provider").value) params.set("provider", by("provider").value);
  const wanted = boxes.filter(box => box.checked).map(box => box.value).join(",");
  if (wanted) params.set("can", wanted);
  if (by("maybe").checked) params.set("maybe", "1");
  if (by("current").checked) params.set("current", "1");
  if (sorted.by || sorted.down) params.set("sort", data.columns[sorted.by].name + (sorted.down ? ":down" : ""));
  const hash = params.toString();
  try {
    history.replaceState(null, "", hash ? `#${hash}` : location.pathname + location.search);
  } catch { /* the browser forbids it to a page in a frame */ }
}
function recall() {
  const params = new URLSearchParams(location.hash.slice(1)), wanted = (params.get("can") || "").split(",");
  by("text").value = params.get("text") || "";
  by("provider").value = params.get("provider") || "";
  if (by("provider").selectedIndex < 0) by("provider").value = "";
  for (const box of boxes) box.checked = wanted.includes(box.value);
  by("maybe").checked = params.has("maybe");
  by("current").checked = params.has("current");
  const [name, down] = (params.get("sort") || "model").split(":");
  sort(place[name] ?? 0, down === "down");
  filter();
}
by("filters").addEventListener("input", filter);
by("filters").addEventListener("submit", event => event.preventDefault());
by("filters").addEventListener("reset", () => setTimeout(filter));
addEventListener("hashchange", recall);
recall();
})();
"""
"""The JavaScript of the page."""
