"""Adapt the JSON Schemas of tools to the subset that an endpoint accepts, or to strict mode.

The caller's schema does not change.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache, partial
from graphlib import CycleError, TopologicalSorter
from typing import Any
from urllib.parse import unquote

import msgspec

from cnllm.schemas.subschemas import json_type, map_children, resolve, schemas_in

__all__ = ["adapt_schema", "adapt_schema_if_needed", "is_recursive", "make_strict", "remove_nulls"]

Schema = dict[str, Any]
_SAME_VALUE = ("anyOf", "oneOf", "allOf", "not", "if", "then", "else")  # they apply to the same value as the node
_DEFINITIONS = ("$defs", "definitions")
_KINDS = {
    "object": ("properties", "additionalProperties", "required", "patternProperties", "minProperties", "maxProperties"),
    "array": ("items", "prefixItems", "minItems", "maxItems", "uniqueItems", "contains"),
    "number": ("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf"),
}
_BOUNDS = (
    *("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf", "minLength", "maxLength", "pattern"),
    *("format", "minItems", "maxItems", "uniqueItems", "minProperties", "maxProperties"),
)
"""Keywords that a model is told of in the description where an endpoint refuses them, as anthropic's SDK does it."""
_PLAIN = (int, float, str, bool)
_MAX_CACHED = 65_536  # bytes of a schema that is cached
_MAX_EXPANSIONS = 500  # references replaced in full; a further reference becomes its bare type
_MAX_CHAIN = 40  # references inside of each other that are replaced in full
_MAX_NODES = 20_000  # schemas in the replaced references; a further schema becomes its bare type, too
_CONDITIONS = ("if", "then", "else", "dependentSchemas")
"""Keywords whose schemas mean something else in strict form: an object that lacks a property no longer fits."""
_MAX_HOPS = 20  # references in a row


def adapt_schema_if_needed(schema: Schema, rules: Sequence[str], drop: Sequence[str]) -> Schema | None:
    """Return the result of `adapt_schema`, or None if it changes nothing.

    A loop offers the same tools again and again: each schema is adapted once. The cache holds bytes, so that no
    request shares a schema with another.
    """
    try:
        encoded = msgspec.json.encode(schema)
        is_plain_json = len(encoded) <= _MAX_CACHED and msgspec.json.decode(encoded) == schema
    except (TypeError, ValueError, OverflowError, RecursionError):
        is_plain_json = False
    if not is_plain_json:  # it holds values that JSON does not preserve
        out = adapt_schema(schema, rules, drop)
        return None if out == schema else out
    cached = _adapt_encoded(encoded, tuple(rules), tuple(drop))
    return None if cached is None else msgspec.json.decode(cached)


@lru_cache(maxsize=256)
def _adapt_encoded(encoded: bytes, rules: tuple[str, ...], drop: tuple[str, ...]) -> bytes | None:
    """Return the adapted schema as JSON, or None if nothing changes."""
    schema = msgspec.json.decode(encoded)
    out = adapt_schema(schema, rules, drop)
    return None if out == schema else msgspec.json.encode(out)


def adapt_schema(schema: Schema, rules: Sequence[str], drop: Sequence[str]) -> Schema:
    """Return `schema` adapted by the rules of `tools.schema` or `schema.rules`, without some keywords.

    An endpoint that refuses one tool's schema refuses the whole request, so unsupported parts are left out: the
    model is told of bounds in the description, and the arguments are still checked against the caller's own schema.
    """
    out = _merge_root(schema) if "root-object" in rules else schema
    if "inline-refs" in rules:
        out = _Inliner(out).inline(out, ())
    elif "root-refs" in rules:
        out = _move_refs_to_root(out)
    adapted: Schema = _adapt_node(out, frozenset(rules), frozenset(drop), None)
    return adapted


# ── references ────────────────────────────────────────────────────────────────


class _Inliner:
    """A replacement of references by their targets. A recursion ends in the bare type of its schema."""

    def __init__(self, root: Schema) -> None:
        self._root = root
        self._expansions_left, self._nodes_left = _MAX_EXPANSIONS, _MAX_NODES

    def inline(self, node: Any, references: tuple[str, ...]) -> Any:
        """Return a node without references. `references` are those that led to it."""
        if type(node) is not dict:
            return node
        self._nodes_left -= bool(references)
        ref = node.get("$ref")
        if self._nodes_left < 0 and references:
            return _bare_type(node)
        if type(ref) is not str:
            return map_children(_without_definitions(node), lambda child: self.inline(child, references))
        target = resolve(ref, self._root)
        self._expansions_left -= 1
        is_long = len(references) >= _MAX_CHAIN or self._expansions_left < 0
        if ref in references or type(target) is not dict or is_long:
            replacement = _bare_type(target)
        else:
            replacement = self.inline(target, (*references, ref))
        return {**replacement, **self.inline({k: v for k, v in node.items() if k != "$ref"}, references)}


def _without_definitions(node: Schema) -> Schema:
    """Return a schema without its definitions: those that it refers to are found in the whole."""
    return {key: value for key, value in node.items() if key not in _DEFINITIONS}


def _bare_type(node: Any) -> Schema:
    """Return a schema with only the type of this one."""
    kind = node.get("type") if type(node) is dict else None
    return {"type": kind if type(kind) is str else "object"}


def _move_refs_to_root(schema: Schema) -> Schema:
    """Return a schema with every reference written as `#/$defs/NAME`, alone in its node."""
    names: dict[int | str, str] = {}  # by the identity of the target: a reference to it may be written in many ways
    counts: dict[str, int] = {}
    defs: dict[str, Any] = {}
    waiting: list[tuple[str, Schema]] = []  # not done in `reference_to`: a chain of references may be long

    def reference_to(ref: str) -> str:
        """Return the reference to the definition of a target."""
        target = resolve(ref, schema)
        identity = id(target) if type(target) is dict else ref
        if identity not in names:
            last = unquote(ref.rsplit("/", 1)[-1]).replace("~1", "_").replace("~0", "_")
            base = "".join(c if c.isalnum() or c in "_.-" else "_" for c in last) or "root"
            name, count = base, counts.get(base, 2)
            while name in defs:
                name, count = f"{base}_{count}", count + 1
            counts[base] = count
            names[identity], defs[name] = name, {"type": "object"}
            if type(target) is dict:
                waiting.append((name, target))
        return f"#/$defs/{names[identity]}"

    def rewrite(node: Any) -> Any:
        """Return a node with its references renamed and its definitions removed."""
        if type(node) is not dict:
            return node
        if type(node.get("$ref")) is str:
            return {"$ref": "#" if node["$ref"] == "#" else reference_to(node["$ref"])}
        return map_children(_without_definitions(node), rewrite)

    out: Schema = rewrite(schema)
    while waiting:
        name, target = waiting.pop()
        defs[name] = rewrite(target)
    return {**out, "$defs": defs} if defs else out


# ── the root ──────────────────────────────────────────────────────────────────


def _merge_root(schema: Schema) -> Schema:
    """Return the root as one object.

    References are resolved, alternatives become one set of properties, and a property is required if every
    alternative requires it.
    """
    out = dict(schema)
    for _ in range(8):
        target = resolve(out.get("$ref"), schema)
        if type(target) is not dict:
            break
        del out["$ref"]
        out = {**target, **out}
    for key in ("allOf", "anyOf", "oneOf"):
        branches = out.pop(key, None)
        if type(branches) is list and branches:
            out = _merge_branches(out, [_resolve_branch(b, schema) for b in branches], all_apply=key == "allOf")
    if out.get("type", "object") != "object" and "properties" not in out:
        out = {k: v for k, v in out.items() if k in ("description", *_DEFINITIONS)}
    return {**out, "type": "object", "properties": out.get("properties", {})}


def _resolve_branch(branch: Any, root: Schema) -> Schema:
    """Return a branch of the root with its reference resolved."""
    target = resolve(branch["$ref"], root) if type(branch) is dict and "$ref" in branch else branch
    return target if type(target) is dict else {}


def _merge_branches(node: Schema, branches: list[Schema], *, all_apply: bool) -> Schema:
    """Return a node merged with its branches.

    If every branch applies, it gets all their keywords; else only the requirements that all branches share, and a
    property may fit the schema of any branch.
    """
    out = dict(node)
    found: dict[str, list[Any]] = {}
    for branch in branches:
        for name, schema in branch.get("properties", {}).items():
            found.setdefault(name, []).append(schema)
    properties = {name: schemas[-1] if all_apply else _any_of(schemas) for name, schemas in found.items()}
    if properties or "properties" in out:
        out["properties"] = {**properties, **out.get("properties", {})}
    requirements = [set(branch.get("required", ())) for branch in branches]
    shared = set.union(*requirements) if all_apply else set.intersection(*requirements)
    required = [*out.get("required", ()), *sorted(shared - set(out.get("required", ())))]
    if required:
        out["required"] = required
    if all_apply:
        merged: Schema = {}  # an earlier branch overrides a later one, and the node overrides all
        for branch in reversed(branches):
            merged.update((k, v) for k, v in branch.items() if k not in ("properties", "required"))
        out = {**merged, **out}
    return out


def _any_of(schemas: list[Any]) -> Any:
    """Return the schema for what fits any of these. Single values, by which branches are told apart, are listed."""
    schemas = list({repr(schema): schema for schema in schemas}.values())  # 1 is not True
    first = schemas[0]
    if len(schemas) == 1:
        return first
    if not all(type(schema) is dict and ("const" in schema or type(schema.get("enum")) is list) for schema in schemas):
        return {"anyOf": schemas}
    listed = [value for s in schemas for value in ([s["const"]] if "const" in s else s["enum"])]
    values = {repr(value): value for value in listed}
    rest = {key: value for key, value in first.items() if all(schema.get(key) == value for schema in schemas)}
    return {**{key: value for key, value in rest.items() if key not in ("const", "enum")}, "enum": [*values.values()]}


# ── every node ────────────────────────────────────────────────────────────────


def _adapt_node(node: Any, rules: frozenset[str], drop: frozenset[str], parent_type: str | None) -> Any:
    """Return one schema and all below it, adapted.

    `parent_type` is the type of its value, if a schema above declares it.
    """
    if type(node) is bool:
        return {"type": parent_type or "string"} if node and "typed" in rules else node
    if type(node) is not dict:
        return node
    whole = _any_of_only(node) if "any-of-only" in rules else node
    out = {k: v for k, v in whole.items() if k not in drop}
    if "$ref" not in out and "description" not in drop:
        _tell_bounds(out, {k: whole[k] for k in _BOUNDS if k in drop and type(whole.get(k)) in _PLAIN})
    if "one-type" in rules and type(out.get("type")) is list:
        kinds = out.pop("type")
        if len(kinds) == 1:
            out["type"] = kinds[0]
        elif kinds and "anyOf" not in out:
            out["anyOf"] = [{"type": kind} for kind in kinds]
    if "branch-types" in rules and type(out.get("anyOf")) is list and "type" in out:
        kind = out.pop("type")
        out["anyOf"] = [_push_type(branch, kind) for branch in out["anyOf"]]
        parent_type = kind if type(kind) is str else parent_type
    if "no-tuples" in rules:
        _remove_tuple(out)
    if "typed" in rules and not {"type", "anyOf", "oneOf", "allOf", "$ref"} & out.keys():
        out = _add_type(out, parent_type)
    if "closed" in rules and _is_object(out):
        out["additionalProperties"] = False
    own_type = out.get("type") if type(out.get("type")) is str else parent_type
    adapted: Schema = {}
    for key, value in out.items():
        kind = own_type if key in _SAME_VALUE else None
        adapted |= map_children({key: value}, partial(_adapt_node, rules=rules, drop=drop, parent_type=kind))
    return adapted


def _tell_bounds(node: Schema, bounds: Mapping[str, Any]) -> None:
    """Add bounds that are not sent to the description of a node."""
    if not bounds:
        return
    text = ", ".join(f"{name}: {msgspec.json.encode(value).decode()}" for name, value in bounds.items())
    before = node.get("description")
    node["description"] = f"{before}\n\n{{{text}}}" if type(before) is str and before else f"{{{text}}}"


def _is_object(node: Schema) -> bool:
    """Whether the value of a schema may be an object, as far as its keywords say."""
    kind = node.get("type")
    return kind == "object" or (isinstance(kind, list) and "object" in kind) or "properties" in node


def _any_of_only(node: Schema) -> Schema:
    """Return a node with allOf merged into it, also that of a branch, and oneOf as anyOf."""
    branches = node.get("allOf")
    if type(branches) is list and branches and all(type(b) is dict for b in branches):
        branches = [_any_of_only(branch) if "allOf" in branch else branch for branch in branches]
        if len(branches) == 1 and "$ref" in branches[0]:
            return {"$ref": branches[0]["$ref"]}
        node = _merge_branches({k: v for k, v in node.items() if k != "allOf"}, branches, all_apply=True)
    out = {k: v for k, v in node.items() if k not in ("oneOf", "allOf")}
    if "oneOf" in node:
        out.setdefault("anyOf", node["oneOf"])
    return out


def _push_type(branch: Any, kind: Any) -> Any:
    """Return a branch with the type that stood beside the alternatives, unless it has one."""
    if type(branch) is not dict or "type" in branch or "$ref" in branch:
        return branch
    if type(branch.get("anyOf")) is list:
        return {**branch, "anyOf": [_push_type(inner, kind) for inner in branch["anyOf"]]}
    return {"type": kind, **branch}


def _remove_tuple(node: Schema) -> None:
    """Replace a list with a schema for each position by a list of any of them."""
    positions = node.pop("prefixItems", None)
    if positions is None and type(node.get("items")) is list:
        positions = node.pop("items")
    if type(positions) is list:
        node["items"] = (
            positions[0] if len(positions) == 1 else {"anyOf": positions} if positions else {"type": "string"}
        )


def _add_type(node: Schema, parent_type: str | None) -> Schema:
    """Return a node with the type that its other keywords imply; an enum of several types becomes an anyOf."""
    values = [node["const"]] if "const" in node else node.get("enum")
    if type(values) is not list or not values:
        kind = next(
            (k for k, keywords in _KINDS.items() if any(keyword in node for keyword in keywords)),
            parent_type or "string",
        )
        return {"type": kind, **node}
    groups: dict[str, list[Any]] = {}
    for value in values:
        groups.setdefault(json_type(value), []).append(value)
    if groups.keys() == {"integer", "number"}:
        return {"type": "number", **node}
    if len(groups) == 1:
        return {"type": next(iter(groups)), **node}
    rest = {k: v for k, v in node.items() if k not in ("enum", "const")}
    return {**rest, "anyOf": [{"type": kind, "enum": members} for kind, members in groups.items()]}


# ── recursion ─────────────────────────────────────────────────────────────────


def is_recursive(schema: Schema) -> bool:
    """Whether a reference in a schema leads back to a schema around it."""
    below: dict[int, list[Any]] = {}
    for node in schemas_in(schema):
        map_children(node, below.setdefault(id(node), [resolve(node.get("$ref"), schema)]).append)
    try:
        TopologicalSorter({node: map(id, nodes) for node, nodes in below.items()}).prepare()
    except CycleError:
        return True
    return False


# ── strict mode ───────────────────────────────────────────────────────────────


def make_strict(node: Any) -> Any:
    """Return a schema for strict mode: objects are closed, every property is required, optional ones may be null."""
    if not isinstance(node, dict):
        return node
    changed = map_children(node, make_strict)
    out = {key: node[key] if key in _CONDITIONS else value for key, value in changed.items() if key != "default"}
    properties = out.get("properties")
    if isinstance(properties, dict):
        required = out.get("required")
        required_names = set(required) if isinstance(required, list | tuple) else set()
        out["properties"] = {k: v if k in required_names else _make_nullable(v) for k, v in properties.items()}
        out["required"] = list(properties)
        out["additionalProperties"] = False
    return out


def _allows_null(schema: Any) -> bool:
    """Whether a schema allows null."""
    if not isinstance(schema, dict):
        return True
    if "anyOf" in schema:
        return any(_allows_null(branch) for branch in schema["anyOf"])
    if "enum" in schema or "const" in schema:
        return None in schema.get("enum", [schema.get("const")])
    if "oneOf" in schema:
        return any(_allows_null(branch) for branch in schema["oneOf"])
    kind = schema.get("type")
    if isinstance(kind, list):
        return "null" in kind
    return kind == "null" or (kind is None and not schema.keys() & {"$ref", "properties", "items", "allOf"})


def _make_nullable(schema: Schema) -> Schema:
    """Return a schema that also allows null."""
    if _allows_null(schema):
        return schema
    description = {"description": schema["description"]} if "description" in schema else {}
    rest = {key: value for key, value in schema.items() if key != "description"}
    branches = [*rest["anyOf"]] if list(rest) == ["anyOf"] else [rest]
    return {"anyOf": [*branches, {"type": "null"}], **description}


def remove_nulls(value: Any, schema: Schema) -> Any:
    """Return arguments without the nulls that a model writes in strict mode for values it would leave out."""

    def target(node: Any) -> Any:
        """Return the target of a reference; the node itself if it has none, or one without a target."""
        for _ in range(_MAX_HOPS):
            target_node = resolve(node.get("$ref"), schema) if isinstance(node, dict) else None
            if not isinstance(target_node, dict):
                break
            node = target_node
        return node if isinstance(node, dict) else {}

    def walk(value: Any, node: Any) -> Any:
        """Return a value without the nulls at optional properties."""
        node = target(node)
        items, first = node.get("items"), node.get("prefixItems")
        if isinstance(value, list) and (isinstance(items, dict) or isinstance(first, list)):
            schemas = first if isinstance(first, list) else []
            return [walk(item, schemas[index] if index < len(schemas) else items) for index, item in enumerate(value)]
        properties, further = node.get("properties"), node.get("additionalProperties")
        if isinstance(value, dict) and (isinstance(properties, dict) or isinstance(further, dict)):
            named, required_names = properties if isinstance(properties, dict) else {}, set(node.get("required", ()))
            return {
                name: walk(inner, named.get(name, further))
                for name, inner in value.items()
                if inner is not None or name in required_names or name not in named or _allows_null(target(named[name]))
            }
        alternatives = (*node.get("anyOf", ()), *node.get("oneOf", ()))
        branches = [
            target(branch) for branch in alternatives if isinstance(branch, dict) and branch.get("type") != "null"
        ]
        matches = branches if len(branches) == 1 else [branch for branch in branches if _is_match(value, branch)]
        return walk(value, matches[0]) if matches else value

    return walk(value, schema)


def _is_match(value: Any, branch: Schema) -> bool:
    """Whether this is the schema of a list or an object among several, judged by names and constants."""
    if isinstance(value, list):
        return isinstance(branch.get("items"), dict)
    properties = branch.get("properties")
    if not isinstance(value, dict) or not isinstance(properties, dict) or not value.keys() <= properties.keys():
        return False
    return all("const" not in properties[name] or properties[name]["const"] == inner for name, inner in value.items())
