"""jsonschema's validators with keywords that count their work."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import jsonschema

from cnllm.schemas.keywords import KEYWORDS, contains_one, count_work, items, properties
from cnllm.schemas.patterns import Pattern, compile_pattern

__all__ = ["bounded_validator", "undecided_patterns"]

_VALUES = frozenset(("enum", "const", "default", "examples"))  # what stands there is data
_NAMES = frozenset(("properties", "patternProperties", "$defs", "definitions", "dependentSchemas", "dependencies"))


@lru_cache(maxsize=16)
def bounded_validator(kind: Any) -> Any:
    """Return the class of validators of a dialect whose work is counted; their `format_checker` is a `WorkBudget`."""
    keywords = {**kind.VALIDATORS, **{name: own for name, own in KEYWORDS.items() if name in kind.VALIDATORS}}
    if kind is not jsonschema.Draft3Validator:  # where `required` stands in each property
        keywords["properties"] = properties
    if kind is jsonschema.Draft202012Validator:
        keywords["items"] = items
    if kind in (jsonschema.Draft6Validator, jsonschema.Draft7Validator):
        keywords["contains"] = contains_one
    extend: Any = jsonschema.validators.extend
    made = extend(kind, {name: count_work(name, one) for name, one in keywords.items()})

    def evolve(self: Any, **changes: Any) -> Any:
        """Return a validator of another schema, of a dialect that counts as well."""
        schema = changes.get("schema", self.schema)
        cls = made
        if type(schema) is dict and "$schema" in schema:
            said = jsonschema.validators.validator_for(schema, default=kind)
            cls = made if said is kind else bounded_validator(said)
        work = changes.get("format_checker", self.format_checker)
        resolver = changes.get("_resolver", self._resolver)
        return cls(schema, None, work, registry=self._registry, _resolver=resolver)

    made.evolve = evolve
    return made


def undecided_patterns(schema: Any) -> list[Pattern]:
    """Return the patterns of a schema that the engine cannot judge, broken ones among them."""
    sources: dict[str, None] = {}
    waiting: list[Any] = [schema]
    while waiting:
        one = waiting.pop()
        if isinstance(one, list):
            waiting += one
        elif isinstance(one, dict):
            if isinstance(one.get("pattern"), str):
                sources[one["pattern"]] = None
            if isinstance(one.get("patternProperties"), dict):
                sources |= dict.fromkeys(one["patternProperties"])
            for name, below in one.items():
                if name in _NAMES and isinstance(below, dict):
                    waiting += below.values()
                elif name not in _VALUES:
                    waiting.append(below)
    patterns = map(compile_pattern, sources)
    return [pattern for pattern in patterns if pattern.problem is not None]
