"""Which items and properties of a value the keywords of a schema have looked at."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from cnllm.schemas.verdicts import is_valid, pattern_found

__all__ = ["evaluated_indexes", "evaluated_names"]


def evaluated_indexes(validator: Any, instance: Any, schema: Any) -> set[int]:
    """Return the indexes of the items that a schema evaluates."""
    if not isinstance(schema, dict):
        return set()
    validator.format_checker.spend(1)
    everything = set(range(len(instance)))
    found: set[int] = set()
    items = schema.get("items")
    if "items" in schema:
        if not isinstance(items, list) or "additionalItems" in schema:
            return everything
        found |= set(range(len(items)))
    if "prefixItems" in schema:
        found |= set(range(len(schema["prefixItems"])))
    for keyword in ("contains", "unevaluatedItems"):
        if keyword in schema:
            found |= {i for i, v in enumerate(instance) if is_valid(validator, schema[keyword], v) is not False}
    for below, inner in _applied(validator, instance, schema):
        found |= evaluated_indexes(below, instance, inner)
    return found


def evaluated_names(validator: Any, instance: Any, schema: Any) -> set[str]:
    """Return the names of the properties that a schema evaluates."""
    if not isinstance(schema, dict):
        return set()
    validator.format_checker.spend(1)
    found: set[str] = set()
    properties = schema.get("properties")
    if isinstance(properties, dict):
        validator.format_checker.spend(len(properties))
        found |= properties.keys() & instance.keys()
    for keyword in ("additionalProperties", "unevaluatedProperties"):
        if schema.get(keyword) is not None:
            found |= {n for n, v in instance.items() if is_valid(validator, schema[keyword], v) is not False}
    for source in schema.get("patternProperties", ()):
        found |= {name for name in instance if pattern_found(validator, source, name) is not False}
    for name, inner in schema.get("dependentSchemas", {}).items():
        if name in instance:
            found |= evaluated_names(validator, instance, inner)
    for below, inner in _applied(validator, instance, schema):
        found |= evaluated_names(below, instance, inner)
    return found


def _applied(validator: Any, instance: Any, schema: dict[str, Any]) -> Iterator[tuple[Any, Any]]:
    """Yield (validator, schema) of every schema that holds for the same instance."""
    for resolved in _references(validator, schema):
        yield validator.evolve(schema=resolved.contents, _resolver=resolved.resolver), resolved.contents
    for keyword in ("allOf", "oneOf", "anyOf"):
        for branch in schema.get(keyword, ()):
            if is_valid(validator, branch, instance) is not False:
                yield validator, branch
    if "if" in schema:
        verdict = is_valid(validator, schema["if"], instance)
        words = ("if", "then") if verdict else ("if", "then", "else") if verdict is None else ("else",)
        for word in words:
            if word in schema:
                yield validator, schema[word]


def _references(validator: Any, schema: dict[str, Any]) -> Iterator[Any]:
    """Yield what the references of a schema point at."""
    from referencing.jsonschema import lookup_recursive_ref

    for keyword in ("$ref", "$dynamicRef"):
        if keyword in schema:
            yield validator._resolver.lookup(schema[keyword])
    if "$recursiveRef" in schema:
        yield lookup_recursive_ref(validator._resolver)
