"""Find the items and properties of a value that the keywords of a schema have evaluated."""

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
    indexes: set[int] = set()
    items = schema.get("items")
    if "items" in schema:
        if not isinstance(items, list) or "additionalItems" in schema:
            return everything
        indexes |= set(range(len(items)))
    if "prefixItems" in schema:
        indexes |= set(range(len(schema["prefixItems"])))
    for keyword in ("contains", "unevaluatedItems"):
        if keyword in schema:
            indexes |= {i for i, v in enumerate(instance) if is_valid(validator, schema[keyword], v) is not False}
    for below, inner in _applicable_schemas(validator, instance, schema):
        indexes |= evaluated_indexes(below, instance, inner)
    return indexes


def evaluated_names(validator: Any, instance: Any, schema: Any) -> set[str]:
    """Return the names of the properties that a schema evaluates."""
    if not isinstance(schema, dict):
        return set()
    validator.format_checker.spend(1)
    names: set[str] = set()
    properties = schema.get("properties")
    if isinstance(properties, dict):
        validator.format_checker.spend(len(properties))
        names |= properties.keys() & instance.keys()
    for keyword in ("additionalProperties", "unevaluatedProperties"):
        if schema.get(keyword) is not None:
            names |= {
                name for name, value in instance.items() if is_valid(validator, schema[keyword], value) is not False
            }
    for source in schema.get("patternProperties", ()):
        names |= {name for name in instance if pattern_found(validator, source, name) is not False}
    for name, inner in schema.get("dependentSchemas", {}).items():
        if name in instance:
            names |= evaluated_names(validator, instance, inner)
    for below, inner in _applicable_schemas(validator, instance, schema):
        names |= evaluated_names(below, instance, inner)
    return names


def _applicable_schemas(validator: Any, instance: Any, schema: dict[str, Any]) -> Iterator[tuple[Any, Any]]:
    """Yield (validator, schema) for every schema that applies to the same instance."""
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
    """Yield the resolved references of a schema."""
    from referencing.jsonschema import lookup_recursive_ref

    for keyword in ("$ref", "$dynamicRef"):
        if keyword in schema:
            yield validator._resolver.lookup(schema[keyword])
    if "$recursiveRef" in schema:
        yield lookup_recursive_ref(validator._resolver)
