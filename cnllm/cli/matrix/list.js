// The list: filters, order, rows.
const FIRST = 60, MORE = 200;
const view = {q: "", vendor: "", can: [], currency: "", sort: "released", maybe: false, retired: false};
const SORTS = ["released", "input", "reply", "context", "output", "name"];
const COLUMNS = ["pick", "model", "released", "Tools", "Reasoning", "Reads", "Answers", "context", "output", "input", "reply", "quirks"];
const picked = [];

function fits(model) {
  if (!view.retired && model.status === RETIRED) return false;
  if (view.vendor && model.vendor.key !== view.vendor) return false;
  if (view.currency && model.currency !== view.currency) return false;
  if (!view.q.toLowerCase().split(/\s+/).every(word => model.look.includes(word))) return false;
  return view.can.every(kind => model.can[kind] || (view.maybe && model.can[kind] === null));
}

// A missing value stands last in every order. Prices of two currencies are not compared.
function inOrder(list) {
  const key = view.sort, isPrice = key === "input" || key === "reply";
  if (key === "name") return list.sort((a, b) => a.id.localeCompare(b.id, "en") || a.i - b.i);
  const sign = isPrice ? 1 : -1, first = firstCurrency();
  return list.sort((a, b) => {
    if ((a[key] === null) !== (b[key] === null)) return a[key] === null ? 1 : -1;
    if (isPrice && a.currency !== b.currency) {
      return (b.currency === first) - (a.currency === first) || a.currency.localeCompare(b.currency);
    }
    return sign * (a[key] - b[key]) || a.i - b.i;
  });
}
const firstCurrency = () => data.currencies.includes("CNY") && language === "zh" ? "CNY" : "USD";

// What is searched for by its exact name stands first: a short name, then an id, then an id behind its maker.
function exactFirst(list) {
  const sought = view.q.toLowerCase();
  const rank = model => [...model.short, model.name].some(name => name.toLowerCase() === sought) ? 0
    : model.id.toLowerCase() === sought ? 1 : model.plain === sought ? 2 : 3;
  return sought ? list.sort((a, b) => rank(a) - rank(b)) : list;
}

// ── rows ──
let rows = new Map();
function word([text, says, strength]) {
  const attributes = {class: strength === "more" ? "more" : strength, "data-says": says};
  if (strength === "unknown") return el("span", attributes, el("span", {"aria-hidden": true}, text), unseen(t("unknown")));
  return el("span", attributes, text);
}
const unseen = text => el("span", {class: "unseen"}, text);
function cell(column, model) {
  const list = words[column](model).flatMap((one, n) => n ? [t("comma"), word(one)] : [word(one)]);
  return el("td", {role: "cell", class: "words", "data-c": column, "data-name": t(`col_${column}`)}, ...list);
}
function missing(column) {
  return el("td", {role: "cell", class: "number", "data-c": column, "data-name": t(`col_${column}`)}, word(["?", t("legend_unknown"), "unknown"]));
}
function row(model) {
  if (rows.has(model)) return rows.get(model);
  const box = el("input", {type: "checkbox", "aria-label": t("pick", {name: model.name}), "data-pick": model.name});
  box.checked = picked.includes(model);
  const state = model.status === RETIRED ? "is_retired" : model.status === CURRENT ? "" : "preview";
  const count = column => model[column] === null ? missing(column) : el(
    "td", {role: "cell", class: "number", "data-c": column, "data-name": t(`col_${column}`), "data-says": number(model[column])},
    tokens(model[column]));
  const money = (column, side) => model[column] === null ? missing(column) : el(
    "td", {role: "cell", class: "number", "data-c": column, "data-side": t(side)}, price(model[column], model.currency),
    model.border === null ? null : el("small", {}, t("up_to", {n: tokens(model.border)})));
  const element = el("tr", {role: "row", class: model.status === RETIRED ? "gone" : false},
    el("td", {role: "cell", class: "pick", "data-c": "pick"}, el("label", {}, box)),
    el("th", {scope: "row", role: "rowheader", "data-c": "model"},
      el("a", {href: address({model: model.name})}, model.id), state ? el("em", {}, t(state)) : null,
      el("small", {"data-says": model.vendor.title}, model.vendor.title)),
    model.released === null ? missing("released")
      : el("td", {role: "cell", "data-c": "released", "data-says": fullDay(model)}, month(model)),
    ...["Tools", "Reasoning", "Reads", "Answers"].map(column => cell(column, model)),
    count("context"), count("output"), money("input", "in"), money("reply", "out"),
    el("td", {role: "cell", class: "number", "data-c": "quirks", "data-name": t("col_quirks")}, number(model.quirks)));
  rows.set(model, element);
  return element;
}

let turn = 0;
function showRows(list) {
  const own = ++turn, body = by("rows");
  body.replaceChildren(...list.slice(0, FIRST).map(row));
  let done = FIRST;
  const more = () => {
    if (own !== turn || done >= list.length) return;
    body.append(...list.slice(done, done += MORE).map(row));
    setTimeout(more);
  };
  requestAnimationFrame(() => setTimeout(more));
}

function showList() {
  const all = models.filter(model => view.retired || model.status !== RETIRED).length;
  const list = exactFirst(inOrder(models.filter(fits)));
  showRows(list);
  const isPrice = view.sort === "input" || view.sort === "reply";
  const text = list.length === all ? t("count", {n: number(all)}) : t("count_of", {n: number(list.length), all: number(all)});
  const within = isPrice && !view.currency ? ` ${t("within", {first: firstCurrency()})}` : "";
  by("count").textContent = `${text}${within}`;
  by("none").hidden = list.length > 0;
  by("models").hidden = list.length === 0;
  by("wanted").textContent = view.can.length ? String(view.can.length) : "";
  by("reset").hidden = !(view.q || view.vendor || view.currency || view.can.length || view.maybe || view.retired || view.sort !== "released");
  for (const head of by("heads").children) {
    const on = head.dataset.c === view.sort || (head.dataset.c === "model" && view.sort === "name");
    const rises = ["input", "reply", "name"].includes(view.sort);
    if (on) head.setAttribute("aria-sort", rises ? "ascending" : "descending");
    else head.removeAttribute("aria-sort");
  }
}

// ── the form ──
function buildForm() {
  rows = new Map();
  const option = (value, text) => el("option", {value}, text);
  const counts = new Map();
  for (const model of models) if (model.status !== RETIRED) counts.set(model.vendor, (counts.get(model.vendor) ?? 0) + 1);
  const titles = [...vendors].sort((a, b) => a.title.localeCompare(b.title, language));
  by("vendor").replaceChildren(option("", t("all_vendors")),
    ...titles.map(vendor => option(vendor.key, `${vendor.title} (${counts.get(vendor) ?? 0})`)));
  by("currency").replaceChildren(option("", t("all_currencies")),
    ...data.currencies.filter(Boolean).sort().map(code => option(code, t("only_currency", {code}))));
  by("sort").replaceChildren(...SORTS.map(sort => option(sort, t(`sort_${sort}`))));
  const box = (name, value, text, says) => el("label", {"data-says": says},
    el("input", {type: "checkbox", name, value}), el("span", {}, text, says ? unseen(`: ${says}`) : null));
  by("kinds").replaceChildren(
    ...groups.map(group => el("fieldset", {}, el("legend", {}, t(`group_${group}`)),
      ...kinds.filter(kind => kind.group === group).map(kind => box("can", kind.name, label(kind.name), meaning(kind.name))))),
    el("fieldset", {}, el("legend", {}, t("also")), box("maybe", "1", t("maybe")), box("retired", "1", t("retired"))));
  by("heads").replaceChildren(...COLUMNS.map(column => {
    const sorts = column === "model" ? "name" : SORTS.includes(column) ? column : "";
    const says = texts[language][`says_${column}`];
    const text = column === "pick" ? unseen(t("col_pick")) : t(`col_${column}`);
    return el("th", {scope: "col", role: "columnheader", "data-c": column, "data-says": says},
      sorts ? el("button", {type: "button", "data-sort": sorts}, text) : text,
      column === "input" || column === "reply" ? el("small", {}, t("per_million")) : null);
  }));
}
function fillForm() {
  for (const id of ["q", "vendor", "currency", "sort"]) by(id).value = view[id];
  for (const box of by("kinds").querySelectorAll("input")) {
    box.checked = box.name === "can" ? view.can.includes(box.value) : view[box.name];
  }
}
function readForm() {
  for (const id of ["q", "vendor", "currency", "sort"]) view[id] = by(id).value;
  view.q = view.q.trim();
  const boxes = [...by("kinds").querySelectorAll("input")];
  view.can = boxes.filter(box => box.name === "can" && box.checked).map(box => box.value);
  for (const name of ["maybe", "retired"]) view[name] = boxes.find(box => box.name === name).checked;
}
