import type { Values } from "./values.js";

export type { Values };

/** What nobody knows is this word: it is neither false nor 0, and never null. */
export type Unknown = "unknown";

/** How a source was read; "default" is cnllm's own assumption. */
export type How = "docs" | "recorded" | "code" | "catalogue" | "issue" | "probe" | "inferred" | "default" | Unknown;

/** The type of a flag's value, where it is known. */
export type Known<Flag extends string> = Flag extends keyof Values ? Values[Flag] : any;

/** A value with its source: where it was read, on which day, and how. */
export interface Fact<Value = unknown> {
  value: Value;
  url: string;
  seen: string;
  how: How;
  /** The source has a more exact value. */
  rounded?: true;
}

/** The facts of a model over a wire, by flag. A flag that is a table has no fact of its own, but its members have. */
export type Facts = { [Flag in keyof Values]?: Fact<Values[Flag] | Unknown> } & { [flag: string]: Fact<any> | undefined };

/** A fact as the document holds it: `source` is a name in `sources`, `ref` one in `values`. */
export interface StoredFact {
  source: string;
  value?: unknown;
  ref?: string;
  rounded?: true;
}

/** A table: facts by flag, and the flags of the tables below it that do not hold. */
export interface Part {
  facts: Record<string, StoredFact>;
  without?: string[];
}

export interface Family extends Part {
  match: string[];
}

export interface Endpoint extends Part {
  families?: Record<string, Part>;
}

export interface Provider {
  title: string;
  described: boolean;
  wires: Record<string, Endpoint>;
}

export interface Model extends Part {
  provider: string;
  id: string;
  wire: string;
  family: string;
  status: "current" | "preview" | "retired" | Unknown;
  described: boolean;
  can: Record<string, boolean | Unknown>;
  wires?: Record<string, Part>;
}

/** The whole document. `format` is its semantic version; `version` is that of the data. */
export interface Registry {
  format: string;
  version: string;
  read: string;
  licenses: Record<string, string>;
  sources: Record<string, { url: string; seen: string; how: How }>;
  values: Record<string, unknown>;
  flags: Record<string, { value: Unknown; meaning: string; reason: string; schema: object }>;
  wires: Record<string, Part>;
  families: Record<string, Family>;
  providers: Record<string, Provider>;
  models: Record<string, Model>;
  aliases: Record<string, string>;
}

/** Return every fact of a model over a wire (its own, if none is named): known ones, and "unknown" for all others. */
export function resolve(registry: Registry, name: string, wire?: string): Facts;

/** Return the value of a flag, or "unknown". */
export function value<Flag extends string>(facts: Facts, flag: Flag): Known<Flag> | Unknown;

/** Return the facts in a mode: the conditions that hold, such as "reasoning", "tools" or "no-stream". */
export function inMode(facts: Facts, conditions: string[]): Facts;
