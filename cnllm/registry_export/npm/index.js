// Read the registry of cnllm: what each endpoint does on the wire, each fact with its source.
// @ts-check

/** @typedef {import("./index.js").Registry} Registry */
/** @typedef {import("./index.js").Facts} Facts */
/** @typedef {import("./index.js").Part} Part */

const JOINED = ["errors", "leaks", "simulator.refusals"]; // lists of rules: those of a mode go before the others

/**
 * Return every fact of a model over a wire (its own, if none is named): known ones, and "unknown" for all others.
 * @type {typeof import("./index.js").resolve}
 */
export function resolve(registry, name, wire) {
  const model = registry.models[registry.aliases[name] ?? name];
  if (!model) throw new Error(`the registry has no model called ${JSON.stringify(name)}`);
  const over = wire ?? model.wire;
  const own = over === model.wire ? model : model.wires?.[over];
  const endpoint = registry.providers[model.provider]?.wires[over];
  if (!own || !endpoint) throw new Error(`${model.provider} does not have the wire ${over} for ${model.id}`);
  const parts = [registry.wires[over], registry.families[model.family], endpoint, endpoint.families?.[model.family], own];
  /** @type {Map<string, import("./index.js").StoredFact>} */
  const known = new Map();
  for (const part of parts) {
    for (const flag of part?.without ?? []) known.delete(flag);
    for (const [flag, fact] of Object.entries(part?.facts ?? {})) known.set(flag, fact);
  }
  const tables = new Set();
  for (const flag of known.keys()) {
    for (let dot = flag.indexOf("."); dot > 0; dot = flag.indexOf(".", dot + 1)) tables.add(flag.slice(0, dot));
  }
  /** @type {Record<string, import("./index.js").Fact<any>>} */
  const facts = {};
  for (const flag of Object.keys(registry.flags)) {
    if (!known.has(flag) && !tables.has(flag)) known.set(flag, { value: "unknown", source: "unknown" });
  }
  for (const [flag, fact] of known) {
    const { url, seen, how } = registry.sources[fact.source];
    const value = fact.ref === undefined ? fact.value : registry.values[fact.ref];
    facts[flag] = { value, url, seen, how, ...(fact.rounded ? { rounded: true } : {}) };
  }
  return /** @type {Facts} */ (facts);
}

/**
 * Return the value of a flag, or "unknown".
 * @type {typeof import("./index.js").value}
 */
export function value(facts, flag) {
  return facts[flag]?.value ?? "unknown";
}

/**
 * Return the facts in a mode: the conditions that hold, such as "reasoning", "tools" or "no-stream".
 * @type {typeof import("./index.js").inMode}
 */
export function inMode(facts, conditions) {
  /** @type {Record<string, any>} */
  const out = Object.fromEntries(Object.entries(facts).filter(([flag]) => !flag.startsWith("when.")));
  const entries = Object.entries(facts).filter(([flag]) => flag.startsWith("when."));
  const atoms = (/** @type {string} */ mode) => mode.split("+");
  const active = [...new Set(entries.map(([flag]) => flag.split(".")[1]))]
    .filter((mode) => atoms(mode).every((atom) => conditions.includes(atom)))
    .sort((a, b) => atoms(a).length - atoms(b).length || (a < b ? -1 : 1));
  for (const mode of active) {
    for (const [name, fact] of entries) {
      if (!name.startsWith(`when.${mode}.`)) continue;
      const flag = name.slice(`when.${mode}.`.length);
      const under = JOINED.includes(flag) && Array.isArray(out[flag]?.value) ? out[flag].value : [];
      const inner = Object.keys(out).filter((other) => other.startsWith(`${flag}.`));
      const isTable = fact?.value !== null && typeof fact?.value === "object" && !Array.isArray(fact.value);
      if (isTable && inner.length) continue; // an empty table over one that is not: that one stays
      for (const other of Object.keys(out)) {
        if (inner.includes(other) || flag.startsWith(`${other}.`)) delete out[other];
      }
      out[flag] = under.length ? { ...fact, value: [...fact?.value, ...under] } : fact;
    }
  }
  return /** @type {Facts} */ (out);
}
