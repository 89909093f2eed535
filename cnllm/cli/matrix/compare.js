// The comparison of up to four models.
async function showComparison(names) {
  const page = by("comparison"), chosen = names.map(name => byName.get(name)).filter(Boolean).slice(0, MOST);
  const all = await details(), more = chosen.map(model => detailsOf(all, model));
  const plain = (name, values) => ({name, texts: values.map(value => value === "" ? "?" : String(value)), states: []});
  const lines = [
    {group: "facts", rows: [
      plain(t("released"), chosen.map(model => model.released === null ? "" : fullDay(model))),
      plain(t("context"), chosen.map(model => model.context === null ? "" : number(model.context))),
      plain(t("output"), chosen.map(model => model.output === null ? "" : number(model.output))),
      plain(t("col_input"), chosen.map(model => model.input === null ? "" : price(model.input, model.currency))),
      plain(t("col_reply"), chosen.map(model => model.reply === null ? "" : price(model.reply, model.currency))),
      plain(t("wire"), more.map(one => one.wire)),
      plain(t("issues"), more.map(one => one.issues.length)),
    ]},
    ...groups.map(group => ({group: `group_${group}`, rows: kinds.filter(kind => kind.group === group).map(kind => {
      const states = chosen.map(model => model.can[kind.name]).map(value => value === null ? "unknown" : value ? "yes" : "no");
      return {name: capital(label(kind.name)), says: meaning(kind.name), texts: states.map(state => t(state)), states};
    })})),
  ];
  const marks = {yes: "✓", no: "✕", unknown: "?"};
  const table = el("table", {class: "versus"},
    el("caption", {class: "unseen"}, t("comparison")),
    el("thead", {}, el("tr", {}, el("td", {}), ...chosen.map(model => el("th", {scope: "col"},
      el("a", {href: address({model: model.name})}, model.id), el("small", {}, model.vendor.title),
      el("a", {class: "drop", href: address({compare: chosen.filter(one => one !== model).map(one => one.name).join(",")}), "aria-label": t("remove", {name: model.name})}, "✕"))))),
    ...lines.map(({group, rows: list}) => el("tbody", {},
      el("tr", {class: "group"}, el("th", {scope: "rowgroup", colspan: chosen.length + 1}, t(group))),
      ...list.map(line => {
        const differs = new Set(line.texts).size > 1;
        return el("tr", {class: differs ? "differs" : "same"},
          el("th", {scope: "row", "data-says": line.says}, line.name, differs ? unseen(` (${t("differs")})`) : null),
          ...line.texts.map((text, n) => el("td", {class: line.states[n]},
            line.states[n] ? [el("b", {"aria-hidden": true}, marks[line.states[n]]), el("span", {}, text)] : text)));
      }))));
  const only = el("input", {type: "checkbox"});
  only.addEventListener("change", () => table.classList.toggle("only", only.checked));
  page.replaceChildren(backLink(),
    el("div", {class: "title"}, heading("h1", "comparison-name", t("comparison")), el("label", {class: "choose"}, only, el("span", {}, t("differences")))),
    el("div", {class: "scroll", tabindex: "0", role: "region", "aria-label": t("comparison")}, table));
}

// ── the models that are chosen ──
function pick(model, on) {
  const at = picked.indexOf(model);
  if (on && at < 0 && picked.length < MOST) picked.push(model);
  if (!on && at >= 0) picked.splice(at, 1);
  showTray();
}
function showTray() {
  by("tray").hidden = !picked.length || !by("comparison").hidden;
  by("picked").replaceChildren(...picked.map(model => el("li", {}, el("span", {}, model.id),
    el("button", {type: "button", "data-drop": model.name, "aria-label": t("remove", {name: model.name})}, "✕"))));
  const link = by("compare"), ready = picked.length > 1;
  link.textContent = ready ? t("compare_n", {n: picked.length}) : t("compare_more");
  if (ready) link.href = address({compare: picked.map(model => model.name).join(",")});
  else link.removeAttribute("href");
  for (const box of document.querySelectorAll("[data-pick]")) box.checked = picked.includes(byName.get(box.dataset.pick));
}
