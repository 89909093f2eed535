// The page of one model: facts, abilities, known issues, each with its source.
function sourceLink(source) {
  if (!source || !source.text) return el("span", {class: "source"}, t("no_source"));
  const how = source.how ? t(`how_${source.how}`) : "";
  const says = [source.text, how, source.seen ? t("read", {date: source.seen}) : ""].filter(Boolean).join(" · ");
  const isLink = /^https?:\/\//.test(source.link);
  const text = isLink ? sourceTitle(source) : source.text;
  if (!isLink) return el("span", {class: "source", "data-says": says}, text);
  return el("span", {class: "source"},
    el("a", {href: source.link, target: "_blank", rel: "noreferrer noopener", "data-says": says}, text));
}
// The kind of a source, and the name by which people know it: the site, the repository, the package without its maker.
function sourceTitle({text, link, how}) {
  const place = text === link ? host(text) : text.replace(/[@:].*$/, "");
  const name = how === "catalogue" ? place.split("/").pop().replace(/-(linux|darwin|win32)-\w+$/, "") : place;
  return how ? t(`title_${how}`, {name}) : name;
}
function host(address) {
  try {
    const url = new URL(address);
    if (url.hostname === "pypi.org") return url.pathname.split("/")[2];
    if (url.hostname === "www.npmjs.com") return url.pathname.slice("/package/".length).split("/v/")[0];
    if (url.hostname === "github.com") return url.pathname.split("/").slice(1, 3).join("/");
    return url.hostname.replace(/^www\./, "");
  } catch {
    return address;
  }
}
function heading(level, id, text) {
  return el(level, {id, tabindex: level === "h1" ? "-1" : false}, text);
}
function backLink() {
  return el("p", {class: "back"}, el("a", {href: address({}), "data-back": true}, `← ${t("back")}`));
}

function glance(model, more) {
  const list = [];
  const add = (name, value, fact, note) => list.push(el("div", {}, el("dt", {}, name),
    el("dd", {}, value, note ? el("small", {}, note) : null, fact ? sourceLink(fact.source) : null)));
  const unknown = () => word(["?", t("legend_unknown"), "unknown"]);
  const count = value => value === null ? unknown() : number(value);
  add(t("context"), count(model.context), more.numbers["limits.context"]);
  const longest = more.numbers["limits.input"];
  if (longest) add(t("input_limit"), number(Number(longest.value)), longest);
  add(t("output"), count(model.output), more.numbers["limits.output"]);
  for (const [side, flag] of [["input", "price.input"], ["reply", "price.output"]]) {
    const value = model[side] === null ? unknown() : price(model[side], model.currency);
    add(t(`price_${side}`), value, more.numbers[flag], model[side] ? t("per_million") : null);
  }
  for (const [kind, condition, ...amounts] of more.prices) {
    const values = amounts.filter(amount => amount !== null).map(amount => price(amount, model.currency));
    const until = kind === "promotion" && condition, name = until ? t("price_until", {date: condition})
      : t(`price_${kind}`, {n: kind === "above" ? number(condition) : ""});
    add(name, values.join(" / ") || t("cheaper"));
  }
  add(t("released"), model.released === null ? unknown() : fullDay(model), more.numbers["status.released"]);
  return el("dl", {class: "glance"}, ...list);
}

function ability(model, kind, fact) {
  const value = model.can[kind.name];
  const [mark, state] = value === null ? ["?", "unknown"] : value ? ["✓", "yes"] : ["✕", "no"];
  return el("li", {class: state},
    el("b", {"aria-hidden": true}, mark),
    el("p", {}, el("strong", {}, capital(label(kind.name))), unseen(`: ${t(state)}.`), " ", el("span", {}, meaning(kind.name)),
      fact ? sourceLink(fact.source) : null));
}

function wiring(model, more) {
  const line = (name, value) => value ? el("div", {}, el("dt", {}, t(name)), el("dd", {}, value)) : null;
  return el("dl", {class: "wiring"},
    line("endpoint", el("code", {}, more.endpoint)), line("wire", more.wire),
    line("key", more.keys.length ? more.keys.map((key, n) => [n ? ", " : "", el("code", {}, key)]).flat() : t("no_key")),
    line("short", model.short.join(", ")), line("levels", more.levels));
}

function elsewhere(model) {
  const others = models.filter(other => other !== model && other.plain === model.plain && other.status !== RETIRED);
  if (!others.length) return null;
  const money = (other, side) => other[side] === null ? "?" : price(other[side], other.currency);
  return el("section", {"aria-labelledby": "elsewhere"}, heading("h2", "elsewhere", t("elsewhere")),
    el("p", {class: "soft"}, t("elsewhere_lead")),
    el("ul", {class: "others"}, ...others.map(other => el("li", {},
      el("a", {href: address({model: other.name})}, other.vendor.title),
      el("span", {}, `${money(other, "input")} ${t("in")} · ${money(other, "reply")} ${t("out")}`),
      el("a", {class: "versus", href: address({compare: `${model.name},${other.name}`}), "aria-label": t("pick", {name: other.name})}, t("compare"))))));
}

async function showModel(name) {
  const page = by("model"), model = byName.get(name);
  if (!model) {
    page.replaceChildren(backLink(), heading("h1", "model-name", t("missing", {name})));
    return;
  }
  const more = detailsOf(await details(), model);
  const state = model.status === RETIRED ? t("is_retired") : model.status === CURRENT ? "" : t("preview");
  const gone = model.status === RETIRED && el("p", {class: "warning"},
    more.since ? t("gone", {date: more.since}) : t("gone_undated"),
    more.use ? [` ${t("use")} `, el("a", {href: address({model: more.use})}, more.use)] : null);
  const issues = more.issues.length
    ? [el("p", {class: "soft"}, t("issues_lead")), el("ul", {class: "issues"}, ...more.issues.map(issue => el("li", {}, el("span", {}, issue[language]), sourceLink(issue.source))))]
    : [el("p", {class: "soft"}, t("no_issues"))];
  page.replaceChildren(
    backLink(),
    el("div", {class: "title"},
      el("div", {}, heading("h1", "model-name", model.id), state ? el("em", {}, state) : "",
        el("p", {class: "soft"}, `${[model.vendor.title, model.title].filter(Boolean).join(" · ")} · `, el("code", {}, model.name))),
      el("label", {class: "choose"}, el("input", {type: "checkbox", "data-pick": model.name}), el("span", {}, t("compare")))),
    gone || "",
    glance(model, more),
    el("div", {class: "columns"},
      el("section", {"aria-labelledby": "abilities"}, heading("h2", "abilities", t("abilities")),
        el("div", {class: "abilities"}, ...groups.map(group => el("div", {}, el("h3", {}, t(`group_${group}`)),
          el("ul", {}, ...kinds.filter(kind => kind.group === group).map(kind => ability(model, kind, more.abilities[kind.name]))))))),
      el("div", {},
        el("section", {"aria-labelledby": "call"}, heading("h2", "call", t("call")),
          el("pre", {tabindex: "0"}, el("code", {}, `cnllm call --model ${model.name} "Hi"`)), wiring(model, more)),
        el("section", {"aria-labelledby": "issues"}, heading("h2", "issues", `${t("issues")} (${more.issues.length})`), ...issues),
        elsewhere(model) ?? "")));
  page.querySelector("[data-pick]").checked = picked.includes(model);
}
