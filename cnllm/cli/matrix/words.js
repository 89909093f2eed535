// The words of the page, in the reader's language.
const texts = read("texts");
let language = "en";
const fill = (text, values) => text.replace(/\{(\w+)\}/g, (_, name) => values[name] ?? "");
const t = (key, values = {}) => fill(texts[language][key] ?? key, values);
const label = kind => texts[language].kind[kind]?.[0] ?? kind;
const meaning = kind => texts[language].kind[kind]?.[1] ?? "";
const capital = text => text.charAt(0).toUpperCase() + text.slice(1);

function translate() {
  document.documentElement.lang = language === "zh" ? "zh-CN" : "en";
  for (const element of document.querySelectorAll("[data-t]")) {
    const values = element.dataset.vars ? JSON.parse(element.dataset.vars) : {};
    if (values.date) values.date = day(Date.parse(values.date), "long");
    for (const name of ["all", "providers", "models", "vendors"]) if (values[name]) values[name] = number(values[name]);
    element.textContent = t(element.dataset.t, values);
  }
  for (const element of document.querySelectorAll("[data-t-label]")) {
    element.setAttribute("aria-label", t(element.dataset.tLabel));
  }
  for (const element of document.querySelectorAll("[data-t-placeholder]")) {
    element.placeholder = t(element.dataset.tPlaceholder);
  }
  const manual = document.querySelector("[data-t=manual]");
  if (manual) {
    manual.dataset.en ??= manual.getAttribute("href");
    manual.href = manual.dataset[language];
  }
  by("language").textContent = language === "zh" ? "English" : "中文";
  by("language").lang = language === "zh" ? "en" : "zh";
}

// ── numbers, days, prices ──
const formats = new Map();
function format(kind, options, value) {
  const key = `${language} ${kind.name} ${JSON.stringify(options)}`;
  if (!formats.has(key)) formats.set(key, new kind(language === "zh" ? "zh-CN" : options.month === "short" ? "en-US" : "en-GB", options));
  return formats.get(key).format(value);
}
const number = value => format(Intl.NumberFormat, {}, value);
const day = (time, month) => format(Intl.DateTimeFormat, {year: "numeric", month, day: "numeric", timeZone: "UTC"}, time);
const month = model => format(
  Intl.DateTimeFormat, {year: "numeric", month: "short", timeZone: "UTC"}, epoch + model.released * 864e5);
const fullDay = model => day(epoch + model.released * 864e5, "long");
function tokens(count) {
  const [size, unit] = count >= 1e6 ? [1e6, "M"] : count >= 1e3 ? [1e3, "K"] : [1, ""];
  return `${Math.round(count / size * (size === 1e6 ? 100 : 1)) / (size === 1e6 ? 100 : 1)}${unit}`;
}
function price(amount, currency) {
  if (amount === 0) return t("free");
  const options = {minimumFractionDigits: 2, maximumFractionDigits: 6};
  if (/^[A-Z]{3}$/.test(currency)) {
    Object.assign(options, {style: "currency", currency, currencyDisplay: "narrowSymbol"});
    return format(Intl.NumberFormat, options, amount);
  }
  return `${format(Intl.NumberFormat, options, amount)} ${currency}`.trim();
}

// ── what a model can do, in words: [word, meaning, strength] ──
const UNKNOWN = () => ["?", t("says_unknown"), "unknown"];
const refused = kind => [t("word_no"), t("says_no", {says: meaning(kind)}), "no"];
function kindsOf(model, names) {
  return names.filter(name => model.can[name]).map(name => [label(name), meaning(name), "more"]);
}
const words = {
  Tools(model) {
    if (model.can.tools === null) return [UNKNOWN()];
    if (!model.can.tools) return [refused("tools")];
    return [[t("word_yes"), meaning("tools"), "yes"], ...kindsOf(model, ["forced-tool", "parallel-tools", "strict-tools"])];
  },
  Reasoning(model) {
    if (model.can.reasoning === null) return [UNKNOWN()];
    if (!model.can.reasoning) return [[t("word_never"), t("says_never"), "no"]];
    const off = model.can["reasoning-off"];
    const first = off ? [t("word_switch"), meaning("reasoning-off"), "yes"]
      : off === false ? [t("word_always"), t("says_always"), "yes"] : [t("word_reasons"), meaning("reasoning"), "yes"];
    return [first, ...kindsOf(model, ["reasoning-levels", "reasoning-budget"])];
  },
  Reads(model) {
    if (model.text === null) return [UNKNOWN()];
    const others = kindsOf(model, ["images", "audio", "video", "files"]).map(word => [word[0], word[1], "yes"]);
    if (!others.length) return [[t("word_text_only"), t("says_text"), "no"]];
    return [...(model.text ? [[t("word_text"), t("says_text"), "more"]] : []), ...others];
  },
  Answers(model) {
    if (model.can.schema) return [[label("schema"), meaning("schema"), "yes"]];
    if (model.can.json) return [[label("json"), meaning("json"), "yes"]];
    return [model.can.json === null ? UNKNOWN() : refused("json")];
  },
};
