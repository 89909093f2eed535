"use strict";
// Every text goes into the page as text: nothing of a request is ever parsed as HTML.
const byId = (id) => document.getElementById(id);

function element(name, text, className) {
  const node = document.createElement(name);
  if (text !== undefined && text !== null) node.textContent = String(text);
  if (className) node.className = className;
  return node;
}

async function load(path) {
  const response = await fetch(path, { credentials: "same-origin" });
  if (response.status === 401) location.reload();
  if (!response.ok) throw new Error(`${response.status}: ${(await response.json()).error}`);
  return response.json();
}

const isBad = (entry) => entry.status >= 400 || entry.outcome || entry.error || entry.finish === "cut";
const number = (value, digits) => (value === undefined || value === null ? "" : value.toFixed(digits));

const count = (value) => value.toLocaleString("en-US");

function tokens(usage) {
  if (!usage || (usage.input == null && usage.output == null)) return "";
  return `${usage.input ?? "?"} → ${usage.output ?? "?"}`;
}

// A lower bound, where something of the cost is not known.
function money({ cost, usage, notes }) {
  if (notes.some(({ code }) => code === "simulated")) return t("simulated");
  return cost ? `${cost.missing ? "≥ " : ""}${cost.amount} ${cost.currency}` : usage ? "?" : "";
}

const moment = (seconds) => new Date(seconds * 1000).toLocaleString(
  isChinese ? "zh-CN" : "en-GB", { dateStyle: "medium", timeStyle: "medium" });

// The wire of the client, and that of the endpoint where it is another one.
function wires(entry) {
  const { protocol, upstream_protocol: upstream } = entry;
  return upstream && upstream !== protocol ? `${protocol} → ${upstream}` : protocol;
}

function row(entry) {
  const line = element("tr", null, isBad(entry) ? "bad" : "");
  const time = element("td");
  const button = element("button", moment(entry.time), "link");
  button.type = "button";
  button.addEventListener("click", () => show(entry.id));
  time.append(button);
  const cells = [
    ["Status", entry.status || "–"],
    ["Key", entry.key || "–"],
    ["Model", entry.model || "–"],
    ["Protocol", wires(entry)],
    ["Seconds", number(entry.seconds, 2), "number"],
    ["First", number(entry.first, 2), "number"],
    ["Tokens", tokens(entry.usage), "number"],
    ["Cost", money(entry), "number"],
    ["Notes", entry.notes.length || "", "number"],
  ].map(([label, text, className]) => {
    const cell = element("td", text, className);
    cell.dataset.label = t(label);
    return cell;
  });
  line.append(time, ...cells);
  line.dataset.id = entry.id;
  return line;
}

function pretty(value) {
  if (value === null || value === undefined) return t("nothing was sent");
  return typeof value === "string" ? value : JSON.stringify(value, null, 2);
}

function note(value) {
  const item = element("li");
  item.append(element("code", value.flag), " ", element("span", `${value.said} → ${value.did}`));
  const origin = [value.code, value.where].filter(Boolean).join(" · ");
  item.append(" ", element("small", origin));
  return item;
}

async function show(id) {
  try {
    const record = await load(`/ui/requests/${encodeURIComponent(id)}`);
    const entry = record.entry;
    byId("title").textContent = `${entry.method} ${entry.path} · ${entry.id}`;
    const facts = [entry.status, entry.finish && t("finish: {finish}", entry), entry.error, entry.outcome, entry.broken];
    byId("outcome").textContent = facts.filter(Boolean).join(" · ");
    byId("notes").replaceChildren(...(entry.notes.length ? entry.notes.map(note) : [element("li", t("none"))]));
    byId("sent").textContent = pretty(record.sent);
    byId("upstream").textContent = (record.address ? `${record.address}\n\n` : "") + pretty(record.upstream);
    byId("reply").textContent = pretty(record.reply ?? t("no reply"));
    byId("detail").hidden = false;
    for (const line of byId("rows").children) line.classList.toggle("open", line.dataset.id === id);
    byId("detail").scrollIntoView({ block: "nearest" });
  } catch (error) {
    byId("state").textContent = error.message;
  }
}

async function list() {
  try {
    const entries = await load("/ui/requests");
    byId("rows").replaceChildren(...entries.map(row));
    byId("state").textContent = t(entries.length === 1 ? "1 request is kept" : "{n} requests are kept", { n: entries.length });
  } catch (error) {
    byId("state").textContent = error.message;
  }
}

function used(use) {
  const parts = [];
  if (use.models.length) parts.push(t("models {names}", { names: use.models.join(t(", ")) }));
  if (use.rpm != null) parts.push(t("{n} of {limit} requests a minute", { n: count(use.minute_requests), limit: count(use.rpm) }));
  if (use.tpm != null) parts.push(t("{n} of {limit} tokens a minute", { n: count(use.minute_tokens), limit: count(use.tpm) }));
  if (use.concurrency != null) parts.push(t("{n} of {limit} in flight", { n: use.in_flight, limit: use.concurrency }));
  for (const [currency, budget] of Object.entries(use.budgets)) {
    const period = use.periods[currency] ? t(` a ${use.periods[currency]}`) : "";
    const soft = use.soft_budgets[currency];
    const text = t("{n} of {limit} {currency}{period}", { n: use.spent[currency] ?? "0.00", limit: budget, currency, period });
    parts.push(text + (soft ? t(", warns at {limit}", { limit: soft }) : ""));
  }
  if (use.expires != null) parts.push(t("until {time}", { time: moment(use.expires) }));
  return parts.join(t("; ")) || t("no limit");
}

function keyRow(use) {
  const line = element("tr");
  const name = use.kind === "team" ? t("team {name}", use) : use.name;
  const cells = [
    ["Name", name], ["State", t(use.state)], ["Team", use.team], ["Calls", count(use.calls), "number"],
    ["Tokens", count(use.tokens), "number"], ["Used and allowed", used(use)],
  ];
  for (const [label, text, className] of cells) {
    const cell = element("td", text, className);
    cell.dataset.label = t(label);
    line.append(cell);
  }
  return line;
}

async function keys() {
  try {
    const uses = await load("/ui/keys");
    byId("keyRows").replaceChildren(...[...uses.teams, ...uses.keys].map(keyRow));
    byId("keys").hidden = uses.teams.length + uses.keys.length === 0;
  } catch (error) {
    byId("state").textContent = error.message;
  }
}

// What decides on a host in a route by measurement. The one that was asked first says why, and when that was.
function hostRow(choice, score) {
  const isFirst = score.name === choice.first;
  const line = element("tr", null, [score === choice.scores[0] && "begin", isFirst && "first"].filter(Boolean).join(" "));
  const share = (value) => number(100 * value, 0);
  const range = t("{failed} ({low} to {high} %)", { failed: score.failed, low: share(score.low), high: share(score.high) });
  const cells = [
    ["Host", score.name],
    ["Turns", score.turns, "number"],
    ["Failed", score.turns ? range : "", "number"],
    ["First", number(score.first, 2), "number"],
    ["Price", score.turns ? `${number(score.cost, 2)} ×` : "", "number"],
    ["Loss", score.turns ? number(score.loss, 2) : "", "number"],
    ["Choice", isFirst ? t("asked first: {reason} ({time})", { reason: t(choice.reason), time: moment(choice.time) }) : ""],
  ];
  for (const [label, text, className] of cells) {
    const cell = element("td", text, className);
    cell.dataset.label = t(label);
    line.append(cell);
  }
  return line;
}

async function routes() {
  try {
    const choices = await load("/ui/routes");
    byId("routeRows").replaceChildren(...choices.flatMap((choice) => choice.scores.map((score) => hostRow(choice, score))));
    byId("routes").hidden = choices.length === 0;
  } catch (error) {
    byId("state").textContent = error.message;
  }
}

function reload() {
  list();
  keys();
  routes();
}

setInterval(() => document.hidden || routes(), 5000);

byId("reload").addEventListener("click", reload);
reload();
