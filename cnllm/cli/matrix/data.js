// The data of the page: the list at once, the details of models when one is opened.
const read = id => JSON.parse(document.getElementById(id).textContent);
const data = read("data");
const kinds = data.kinds.map(([name, group]) => ({name, group}));
const groups = [...new Set(kinds.map(kind => kind.group))];
const vendors = data.vendors.map(([key, title]) => ({key, title}));
const epoch = Date.parse(data.epoch);
const CURRENT = 0, RETIRED = 2, MOST = 4;

const models = data.models.id.map((id, i) => {
  const at = name => data.models[name][i];
  const vendor = vendors[at("vendor")], letters = data.states[at("states")], short = at("short") || [];
  const can = {};
  kinds.forEach((kind, k) => { can[kind.name] = letters[k] === "?" ? null : letters[k] === "1"; });
  const name = `${vendor.key}/${id}`;
  return {
    i, id, name, vendor, can, short, title: at("title") || "", status: at("status"), text: at("text"),
    released: at("released"), context: at("context"), output: at("output"), border: at("border") || null, quirks: at("quirks"),
    input: at("input"), reply: at("reply"), currency: data.currencies[at("currency")],
    look: [name, vendor.title, ...short].join(" ").toLowerCase(),
    plain: id.split("/").pop().toLowerCase().split(":")[0],
  };
});
const byName = new Map(models.map(model => [model.name, model]));

let unpacked;
function details() {
  unpacked ??= (async () => {
    if (document.readyState === "loading") await new Promise(done => addEventListener("DOMContentLoaded", done));
    const bytes = Uint8Array.from(atob(document.getElementById("packed").textContent), sign => sign.charCodeAt(0));
    const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("deflate"));
    return JSON.parse(await new Response(stream).text());
  })();
  return unpacked;
}

function detailsOf(all, model) {
  const [wire, endpoint, keys, facts, issues, prices, use, since, levels] = all.models[model.i];
  const source = number => {
    const [text, link, seen, how] = all.sources[number];
    return {text, link: link === "=" ? text : link, seen, how};
  };
  const fact = number => {
    if (number < 0) return null;
    const [flag, value, from] = all.facts[number];
    return {flag, value, source: source(from)};
  };
  return {
    wire: all.texts[wire], endpoint: all.texts[endpoint], keys: keys.map(key => all.texts[key]),
    abilities: Object.fromEntries(kinds.map((kind, k) => [kind.name, fact(facts[k])])),
    numbers: Object.fromEntries(all.numbers.map((flag, k) => [flag, fact(facts[kinds.length + k])])),
    issues: issues.map(([text, from]) => ({en: all.texts[text], zh: all.chinese[text], source: source(from)})),
    prices, use, since, levels,
  };
}

// Build an element. Text goes in as text and never as markup.
function el(tag, attributes = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (value === false || value === null || value === undefined) continue;
    element.setAttribute(name, value === true ? "" : value);
  }
  element.append(...children.flat().filter(child => child !== null && child !== undefined && child !== ""));
  return element;
}
const by = id => document.getElementById(id);
