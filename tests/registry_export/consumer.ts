import registry from "cnllm-registry/data";
import { inMode, resolve, value, type Facts, type Unknown } from "cnllm-registry";

const facts: Facts = resolve(registry, "zai/glm-4.7");
const context: number | Unknown = value(facts, "limits.context");
if (context !== "unknown") console.log(context.toFixed(0));
const price = facts["price.input"];
if (price !== undefined && price.value !== "unknown") console.log(price.value * 2, price.url, price.seen, price.how);
const modes = inMode(facts, ["reasoning", "tools"]);
console.log(value(modes, "tool_choice.allowed"), value(facts, "params.temperature.max"));
for (const [name, model] of Object.entries(registry.models)) if (model.status === "retired") console.log(name);
// @ts-expect-error: a value may be unknown
const wrong: number = value(facts, "limits.output");
void wrong;
