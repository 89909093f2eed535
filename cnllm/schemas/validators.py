"""Build jsonschema's validators with keywords that count their work."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import jsonschema

from cnllm.schemas.keywords import KEYWORDS, contains_one, count_work, items, properties
from cnllm.schemas.patterns import Pattern, compile_pattern

__all__ = ["bounded_validator", "undecided_patterns"]

_VALUES = frozenset(("enum", "const", "default", "examples"))  # their values are data, not schemas
_NAMES = frozenset(("properties", "patternProperties", "$defs", "definitions", "dependentSchemas", "dependencies"))


@lru_cache(maxsize=16)
def bounded_validator(kind: Any) -> Any:
    """Return the validator class of a dialect with counted work; its `format_checker` is a `WorkBudget`."""
    keywords = {
        **kind.VALIDATORS,
        **{name: replacement for name, replacement in KEYWORDS.items() if name in kind.VALIDATORS},
    }
    if kind is not jsonschema.Draft3Validator:  # where `required` stands in each property
        keywords["properties"] = properties
    if kind is jsonschema.Draft202012Validator:
        keywords["items"] = items
    if kind in (jsonschema.Draft6Validator, jsonschema.Draft7Validator):
        keywords["contains"] = contains_one
    extend: Any = jsonschema.validators.extend
    validator_class = extend(kind, {name: count_work(name, keyword) for name, keyword in keywords.items()})

    def evolve(self: Any, **changes: Any) -> Any:
        """Return a validator for another schema, of a dialect with counted work."""
        schema = changes.get("schema", self.schema)
        cls = validator_class
        if type(schema) is dict and "$schema" in schema:
            dialect = jsonschema.validators.validator_for(schema, default=kind)
            cls = validator_class if dialect is kind else bounded_validator(dialect)
        work = changes.get("format_checker", self.format_checker)
        resolver = changes.get("_resolver", self._resolver)
        return cls(schema, None, work, registry=self._registry, _resolver=resolver)

    validator_class.evolve = evolve
    return validator_class


def undecided_patterns(schema: Any) -> list[Pattern]:
    """Return the patterns of a schema that the engine cannot judge, including invalid ones."""
    sources: dict[str, None] = {}
    stack: list[Any] = [schema]
    while stack:
        node = stack.pop()
        if isinstance(node, list):
            stack += node
        elif isinstance(node, dict):
            if isinstance(node.get("pattern"), str):
                sources[node["pattern"]] = None
            if isinstance(node.get("patternProperties"), dict):
                sources |= dict.fromkeys(node["patternProperties"])
            for name, child in node.items():
                if name in _NAMES and isinstance(child, dict):
                    stack += child.values()
                elif name not in _VALUES:
                    stack.append(child)
    patterns = map(compile_pattern, sources)
    return [pattern for pattern in patterns if pattern.problem is not None]
