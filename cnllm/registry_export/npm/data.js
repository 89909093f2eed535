import { readFileSync } from "node:fs";

/** The registry of this package. A browser imports registry.json itself. */
export default JSON.parse(readFileSync(new URL("./registry.json", import.meta.url), "utf8"));
