// Addresses, keys, explanations on hover.
const FLAGS = ["maybe", "retired"], TEXTS = ["q", "vendor", "currency"];

// The part of an address after #: one model, a comparison, or the list with its filters.
function address(place) {
  const params = new URLSearchParams();
  if (place.model) params.set("model", place.model);
  else if (place.compare) params.set("compare", place.compare);
  else {
    for (const name of TEXTS) if (view[name]) params.set(name, view[name]);
    if (view.can.length) params.set("can", view.can.join(","));
    for (const name of FLAGS) if (view[name]) params.set(name, "1");
    if (view.sort !== "released") params.set("sort", view.sort);
  }
  if (language !== preferred()) params.set("lang", language);
  return `#${params.toString().replaceAll("%2F", "/").replaceAll("%2C", ",").replaceAll("%3A", ":")}`;
}
const preferred = () => /^zh\b/i.test(navigator.language) ? "zh" : "en";
const parameters = () => new URLSearchParams(location.hash.slice(1));
function keep() {
  try {
    history.replaceState(history.state, "", address({}));
  } catch { /* the browser forbids it to a page in a frame */ }
}

let place = null, origin = null, listTop = 0;
async function visit() {
  const params = parameters(), wanted = texts[params.get("lang")] ? params.get("lang") : preferred();
  const first = place === null, changed = first || wanted !== language;
  language = wanted;
  const next = params.get("model") ? "model" : params.get("compare") ? "comparison" : "list";
  if (next === "list" && (first || location.hash.length > 1 || place !== "list")) recall(params);
  if (changed) { translate(); buildForm(); }
  if (place === "list" && next !== "list") { listTop = scrollY; origin = document.activeElement; }
  if (next === "comparison" && first) {
    params.get("compare").split(",").map(name => byName.get(name)).filter(Boolean).slice(0, MOST).forEach(model => picked.push(model));
  }
  if (next === "model") await showModel(params.get("model"));
  if (next === "comparison") await showComparison(params.get("compare").split(","));
  if (next === "list" || first) { fillForm(); showList(); }
  else if (changed) showList();
  for (const id of ["list", "model", "comparison"]) by(id).hidden = id !== next;
  by("intro").hidden = next !== "list";
  hideTip();
  showTray();
  const name = next === "model" ? params.get("model") : next === "comparison" ? t("comparison") : "";
  document.title = name ? `${name} · ${t("doc_title")}` : t("doc_title");
  if (next === "list" && place && place !== "list") {
    scrollTo(0, listTop);
    if (origin?.isConnected) origin.focus({preventScroll: true});
  } else if (next !== "list" && !(place === next && changed)) {
    scrollTo(0, 0);
    by(next).querySelector("h1").focus({preventScroll: true});
  }
  place = next;
}
function recall(params) {
  for (const name of TEXTS) view[name] = params.get(name) ?? "";
  if (!vendors.some(vendor => vendor.key === view.vendor)) view.vendor = "";
  if (!data.currencies.includes(view.currency)) view.currency = "";
  view.can = (params.get("can") ?? "").split(",").filter(name => kinds.some(kind => kind.name === name));
  for (const name of FLAGS) view[name] = params.has(name);
  view.sort = SORTS.includes(params.get("sort")) ? params.get("sort") : "released";
}
function change() {
  readForm();
  keep();
  showList();
}

// ── explanations ──
const tip = by("tip");
function showTip(target) {
  tip.textContent = target.dataset.says;
  tip.hidden = false;
  const at = target.getBoundingClientRect(), size = tip.getBoundingClientRect();
  const top = at.bottom + 8 + size.height < innerHeight ? at.bottom + 8 : at.top - size.height - 8;
  tip.style.left = `${Math.max(8, Math.min(at.left, innerWidth - size.width - 8))}px`;
  tip.style.top = `${Math.max(8, top)}px`;
}
const hideTip = () => { tip.hidden = true; };
for (const name of ["pointerover", "focusin", "click"]) {
  document.addEventListener(name, event => {
    const target = event.target.closest("[data-says]");
    if (target && !target.closest("#heads button")) showTip(target);
    else hideTip();
  });
}
addEventListener("scroll", hideTip, {passive: true});

// ── events ──
by("filters").addEventListener("input", change);
by("filters").addEventListener("submit", event => event.preventDefault());
by("filters").addEventListener("reset", () => setTimeout(() => { by("sort").value = "released"; change(); by("q").focus(); }));
by("heads").addEventListener("click", event => {
  const button = event.target.closest("[data-sort]");
  if (!button) return;
  by("sort").value = view.sort === button.dataset.sort ? "released" : button.dataset.sort;
  change();
});
by("language").addEventListener("click", () => {
  const params = parameters(), other = language === "zh" ? "en" : "zh";
  params.delete("lang");
  if (other !== preferred()) params.set("lang", other);
  location.hash = params.toString() || "_";
});
document.addEventListener("change", event => {
  const box = event.target.closest("[data-pick]");
  if (!box) return;
  const isFull = box.checked && picked.length >= MOST;
  pick(byName.get(box.dataset.pick), box.checked);
  if (isFull) by("count").textContent = t("full");
});
document.addEventListener("click", event => {
  const drop = event.target.closest("[data-drop]"), back = event.target.closest("[data-back]");
  if (drop) pick(byName.get(drop.dataset.drop), false);
  if (event.target.closest("#unpick")) { picked.length = 0; showTray(); (place === "list" ? by("q") : by("model").querySelector("h1")).focus(); }
  if (back && place !== "list") { event.preventDefault(); close(); }
  if (!event.target.closest("#can")) by("can").open = false;
});
function close() {
  location.hash = address({}).slice(1) || "_";
}
const links = () => [...by("rows").querySelectorAll("th a")];
document.addEventListener("keydown", event => {
  if (event.ctrlKey || event.metaKey || event.altKey) return;
  const typing = event.target.closest("input:not([type=checkbox]), select"), line = event.target.closest("#rows tr");
  if (event.key === "Escape") {
    if (!tip.hidden) hideTip();
    if (by("can").open) { by("can").open = false; by("can").querySelector("summary").focus(); }
    else if (place !== "list") close();
  } else if (typing && !(event.key === "ArrowDown" && event.target.id === "q")) {
    return;
  } else if (event.key === "/" && place === "list") {
    event.preventDefault();
    by("q").focus();
  } else if ((event.key === "ArrowDown" || event.key === "ArrowUp") && (line || event.target.id === "q")) {
    const all = links(), at = line ? all.indexOf(line.querySelector("th a")) : -1;
    const to = at + (event.key === "ArrowDown" ? 1 : -1);
    if (to >= -1 && to < all.length) { event.preventDefault(); (all[to] ?? by("q")).focus(); }
  } else if (event.key === "c" && line) {
    const box = line.querySelector("[data-pick]");
    box.click();
  }
});
addEventListener("hashchange", visit);
document.querySelector("header").hidden = self !== top;  // in a page of the manual, which has a head of its own
visit();
