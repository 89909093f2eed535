import type { Registry } from "./index.js";

declare const registry: Registry;
export default registry;
