// Print what the resolver of the package returns: a line for each model over each of its wires, and for some modes.
import { inMode, resolve } from "./index.js";
import registry from "./data.js";

const modes = process.argv.slice(2).map((mode) => mode.split("+"));
for (const [name, model] of Object.entries(registry.models)) {
  for (const wire of [model.wire, ...Object.keys(model.wires ?? {})]) {
    const facts = resolve(registry, name, wire);
    const values = modes.map((mode) => {
      const entries = Object.entries(inMode(facts, mode)).filter(([, fact]) => fact.value !== "unknown");
      return Object.fromEntries(entries.map(([flag, fact]) => [flag, fact.value]));
    });
    process.stdout.write(JSON.stringify({ name, wire, facts, modes: values }) + "\n");
  }
}
