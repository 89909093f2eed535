"""Build jsonschema's validators with bounded work, and count the values that could not be judged.

Each keyword behaves as jsonschema's own and writes the same messages. A value that was not judged counts as no
error, also where a keyword inverts the verdict: `not`, `oneOf`, `if`, `maxContains`.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator, Mapping
from fractions import Fraction
from functools import lru_cache
from typing import Any

import jsonschema
from jsonschema.exceptions import ValidationError
from referencing.exceptions import Unresolvable
from referencing.jsonschema import lookup_recursive_ref

from cnllm.schemas.coerce import equal
from cnllm.schemas.patterns import Pattern, compile_pattern
from cnllm.schemas.work import canonical

__all__ = ["bounded_validator", "undecided_patterns"]

Errors = Iterator[ValidationError]
_SHORT_ENUM = 16  # values of an enum that are compared one by one, and listed in a message
_UNITS = 4_000  # units of search work in one step of a pattern
_REFERENCE = 4  # steps of a reference: it is looked up
_MAX_ERRORS = 50  # errors of a branch that are reported: one is enough for a verdict
_PER_ITEM = frozenset(  # keywords that look at every item or name
    {"items", "additionalItems", "prefixItems", "contains", "uniqueItems", "unevaluatedItems"}
    | {"propertyNames", "patternProperties", "additionalProperties", "unevaluatedProperties"}
)
_DATA = frozenset(("enum", "const", "default", "examples"))  # their values are no schemas
_NAMED = frozenset(("properties", "patternProperties", "$defs", "definitions", "dependentSchemas", "dependencies"))


# ── verdicts that may be unknown: True, False, or None if something was not judged ──


def pattern_found(validator: Any, source: str, text: str) -> bool | None:
    """Whether a text contains a match of a pattern; None if it is not judged, which is counted."""
    pattern = compile_pattern(source)
    work = validator.format_checker
    work.spend(1 + pattern.size * len(text) // _UNITS)
    matches = pattern.matches(text)
    if matches is None:
        work.unknown += 1
    return matches


def is_valid(validator: Any, schema: Any, instance: Any) -> bool | None:
    """Whether an instance is valid by a schema; None if no error was found and something was not judged."""
    if type(schema) is bool:
        return schema
    work = validator.format_checker
    unknown = work.unknown
    work.spend(1)
    if next(validator.descend(instance, schema), None) is not None:
        return False
    return True if work.unknown == unknown else None


# ── keywords ─────────────────────────────────────────────────────────────────


def _count_work(name: str, keyword: Callable[..., Any], kind: str | None) -> Callable[..., Any]:
    """Return a keyword that counts its work: the values in its schema and instance, and its errors.

    `kind` is the type of the instances that it looks at; None: it looks at all.
    """
    is_per_item = name in _PER_ITEM
    is_reference = name in ("$ref", "$dynamicRef")
    least = _REFERENCE if name.endswith(("ref", "Ref")) else 1
    counts_value = name not in ("enum", "const")

    def run(validator: Any, value: Any, instance: Any, schema: Any) -> Any:
        """Run the keyword and count its work."""
        if is_reference and type(value) is not str:  # draft 4 takes it, and has no word for it
            raise Unresolvable(ref=value)
        work = validator.format_checker
        steps = least
        if counts_value and (type(value) is list or type(value) is dict):
            steps += len(value)
        if is_per_item and (type(instance) is list or type(instance) is dict):
            steps += len(instance)
        work.spend(steps)
        if kind is not None and not validator.is_type(instance, kind):
            return ()
        return map(work.count_error, keyword(validator, value, instance, schema) or ())

    return run


# ── strings and names ─────────────────────────────────────────────────────────


def pattern(validator: Any, source: Any, instance: Any, schema: Any) -> Errors:
    """Validate `pattern`."""
    if pattern_found(validator, source, instance) is False:
        yield ValidationError(f"{instance!r} does not match {source!r}")


def pattern_properties(validator: Any, patterns: Any, instance: Any, schema: Any) -> Errors:
    """Validate `patternProperties`."""
    for source, schema_below in patterns.items():
        for name, value in instance.items():
            if pattern_found(validator, source, name):
                yield from validator.descend(value, schema_below, path=name, schema_path=source)


def additional_properties(validator: Any, below: Any, instance: Any, schema: Any) -> Errors:
    """Validate `additionalProperties`."""
    declared, patterns = schema.get("properties", {}), schema.get("patternProperties", {})
    extras = []
    for name in instance:
        if name not in declared and all(pattern_found(validator, source, name) is False for source in patterns):
            extras.append(name)
    if validator.is_type(below, "object"):
        for name in extras:
            yield from validator.descend(instance[name], below, path=name)
    elif not below and extras:
        if patterns:
            verb = "does" if len(extras) == 1 else "do"
            names, sources = _join_values(sorted(extras)), _join_values(sorted(patterns))
            yield ValidationError(f"{names} {verb} not match any of the regexes: {sources}")
        else:
            names = _list_unexpected(sorted(extras, key=str))
            yield ValidationError(f"Additional properties are not allowed ({names})")


def _join_values(values: Any) -> str:
    """Return values as one list in words."""
    return ", ".join(map(repr, values))


def _list_unexpected(extras: list[Any]) -> str:
    """Return the values that should not be there, as the end of a sentence."""
    return f"{_join_values(extras)} {'was' if len(extras) == 1 else 'were'} unexpected"


# ── equal values ──────────────────────────────────────────────────────────────


def unique_items(validator: Any, is_wanted: Any, instance: Any, schema: Any) -> Errors:
    """Validate `uniqueItems`."""
    if not is_wanted:
        return
    texts: set[str] = set()
    for item in instance:
        text = canonical(item, validator.format_checker)
        if text in texts:
            yield ValidationError(f"{instance!r} has non-unique elements")
            return
        texts.add(text)


def enum(validator: Any, values: Any, instance: Any, schema: Any) -> Errors:
    """Validate `enum`."""
    if not _is_among(validator, values, values, instance):
        allowed = repr(values) if len(values) <= _SHORT_ENUM else f"the {len(values)} values that are allowed"
        yield ValidationError(f"{instance!r} is not one of {allowed}")


def const(validator: Any, value: Any, instance: Any, schema: Any) -> Errors:
    """Validate `const`."""
    if not _is_among(validator, (value,), value, instance):
        yield ValidationError(f"{value!r} was expected")


def _is_among(validator: Any, values: Any, source: Any, instance: Any) -> bool:
    """Whether an instance equals one of the values.

    `source` is the object in the schema that holds the values: they are cached under its identity.
    """
    if len(values) <= _SHORT_ENUM and (instance is None or type(instance) in (str, bool, int)):
        return any(equal(value, instance) for value in values)
    work = validator.format_checker
    texts = work.enums.get(id(source))
    if texts is None:
        texts = work.enums[id(source)] = frozenset(canonical(value, work) for value in values)
    return canonical(instance, work) in texts


def multiple_of(validator: Any, step: Any, instance: Any, schema: Any) -> Errors:
    """Validate `multipleOf` and `divisibleBy`."""
    validator.format_checker.spend(instance.bit_length() // 64 if isinstance(instance, int) else 0)
    if not _is_multiple(instance, step):
        yield ValidationError(f"{instance!r} is not a multiple of {step}")


def _is_multiple(number: Any, step: Any) -> bool:
    """Whether a number is a multiple of a step, as decimals: 0.07 is one of 0.01. Without an overflow."""
    if isinstance(number, float) and not math.isfinite(number):
        return False
    if isinstance(step, float):
        try:
            quotient = number / step
            return int(quotient) == quotient or (Fraction(repr(number)) / Fraction(repr(step))).denominator == 1
        except OverflowError:
            return (Fraction(number) / Fraction(step)).denominator == 1
    return not number % step


# ── several schemas ───────────────────────────────────────────────────────────


def negation(validator: Any, below: Any, instance: Any, schema: Any) -> Errors:
    """Validate `not`."""
    if is_valid(validator, below, instance) is True:
        yield ValidationError(f"{instance!r} should not be valid under {below!r}")


def disallow(validator: Any, kinds: Any, instance: Any, schema: Any) -> Errors:
    """Validate `disallow`."""
    for kind in [kinds] if isinstance(kinds, str) else kinds:
        if is_valid(validator, {"type": [kind]}, instance) is True:
            yield ValidationError(f"{kind!r} is disallowed for {instance!r}")


def one_of(validator: Any, branches: Any, instance: Any, schema: Any) -> Errors:
    """Validate `oneOf`."""
    errors: list[ValidationError] = []
    valid_branches: list[Any] = []
    work = validator.format_checker
    is_judged = True
    for index, branch in enumerate(branches):
        if valid_branches or not is_judged:
            verdict = is_valid(validator, branch, instance)
        else:
            unknown = work.unknown
            found = validator.descend(instance, branch, schema_path=index)
            branch_errors = list(itertools.islice(found, _MAX_ERRORS))
            errors += branch_errors
            verdict = False if branch_errors else True if work.unknown == unknown else None
        if verdict:
            valid_branches.append(branch)
        is_judged = is_judged and verdict is not None
    if len(valid_branches) > 1:
        valid_branches = [*valid_branches[1:], valid_branches[0]]
        yield ValidationError(f"{instance!r} is valid under each of {_join_values(valid_branches)}")
    elif not valid_branches and is_judged:
        yield ValidationError(f"{instance!r} is not valid under any of the given schemas", context=errors)


def condition(validator: Any, below: Any, instance: Any, schema: Any) -> Errors:
    """Validate `if`."""
    verdict = is_valid(validator, below, instance)
    word = "then" if verdict else "else"
    if verdict is not None and word in schema:
        yield from validator.descend(instance, schema[word], schema_path=word)


def contains(validator: Any, below: Any, instance: Any, schema: Any) -> Errors:
    """Validate `contains`, `minContains` and `maxContains`."""
    least, most = schema.get("minContains", 1), schema.get("maxContains", len(instance))
    certain = possible = 0
    for item in instance:
        verdict = is_valid(validator, below, item)
        certain += verdict is True
        possible += verdict is not False
        if certain > most:
            message = f"Too many items match the given schema (expected at most {most})"
            yield ValidationError(message, validator="maxContains", validator_value=most)
            return
    if possible >= least:
        return
    if not possible:
        yield ValidationError(f"{instance!r} does not contain items matching the given schema")
    else:
        message = f"Too few items match the given schema (expected at least {least} but only {possible} matched)"
        yield ValidationError(message, validator="minContains", validator_value=least)


# ── unevaluated values ────────────────────────────────────────────────────────


def unevaluated_items(validator: Any, below: Any, instance: Any, schema: Any) -> Errors:
    """Validate `unevaluatedItems`."""
    evaluated = evaluated_indexes(validator, instance, schema)
    rest = [item for index, item in enumerate(instance) if index not in evaluated]
    if rest:
        yield ValidationError(f"Unevaluated items are not allowed ({_list_unexpected(rest)})")


def unevaluated_properties(validator: Any, below: Any, instance: Any, schema: Any) -> Errors:
    """Validate `unevaluatedProperties`."""
    evaluated = evaluated_names(validator, instance, schema)
    rest = [name for name in instance if name not in evaluated and is_valid(validator, below, instance[name]) is False]
    if rest and below is False:
        yield ValidationError(f"Unevaluated properties are not allowed ({_list_unexpected(sorted(rest, key=str))})")
    elif rest:
        verb = "was" if len(rest) == 1 else "were"
        yield ValidationError(
            "Unevaluated properties are not valid under the given schema "
            f"({_join_values(rest)} {verb} unevaluated and invalid)"
        )


KEYWORDS: Mapping[str, tuple[Callable[..., Any], str | None]] = {
    "pattern": (pattern, "string"),
    "patternProperties": (pattern_properties, "object"),
    "additionalProperties": (additional_properties, "object"),
    "uniqueItems": (unique_items, "array"),
    "enum": (enum, None),
    "const": (const, None),
    "multipleOf": (multiple_of, "number"),
    "divisibleBy": (multiple_of, "number"),
    "not": (negation, None),
    "disallow": (disallow, None),
    "oneOf": (one_of, None),
    "if": (condition, None),
    "contains": (contains, "array"),
    "unevaluatedItems": (unevaluated_items, "array"),
    "unevaluatedProperties": (unevaluated_properties, "object"),
    "format": (lambda validator, value, instance, schema: (), None),  # an annotation
}
"""The keywords that are not jsonschema's own, each with the type of the instances that it looks at."""


def evaluated_indexes(validator: Any, instance: Any, schema: Any) -> set[int]:
    """Return the indexes of the items that a schema evaluates."""
    indexes: set[int] = set()
    for below, inner in _applicable_schemas(validator, instance, schema):
        items = inner.get("items", ())
        if not isinstance(items, list | tuple) or ("items" in inner and "additionalItems" in inner):
            return set(range(len(instance)))
        indexes |= {*range(len(items)), *range(len(inner.get("prefixItems", ())))}
        for keyword in ("contains", "unevaluatedItems"):
            if keyword in inner:
                indexes |= {i for i, v in enumerate(instance) if is_valid(below, inner[keyword], v) is not False}
    return indexes


def evaluated_names(validator: Any, instance: Any, schema: Any) -> set[str]:
    """Return the names of the properties that a schema evaluates."""
    names: set[str] = set()
    for below, inner in _applicable_schemas(validator, instance, schema):
        properties = inner.get("properties")
        if isinstance(properties, dict):
            below.format_checker.spend(len(properties))
            names |= properties.keys() & instance.keys()
        for keyword in ("additionalProperties", "unevaluatedProperties"):
            if inner.get(keyword) is not None:
                names |= {n for n, value in instance.items() if is_valid(below, inner[keyword], value) is not False}
        for source in inner.get("patternProperties", ()):
            names |= {name for name in instance if pattern_found(below, source, name) is not False}
    return names


def _applicable_schemas(validator: Any, instance: Any, schema: Any) -> Iterator[tuple[Any, dict[str, Any]]]:
    """Yield (validator, schema) for a schema, and for every other one that applies to the same instance by it."""
    if isinstance(schema, dict):
        validator.format_checker.spend(1)
        yield validator, schema
        for below, inner in _branches(validator, instance, schema):
            yield from _applicable_schemas(below, instance, inner)


def _branches(validator: Any, instance: Any, schema: dict[str, Any]) -> Iterator[tuple[Any, Any]]:
    """Yield (validator, schema) for each schema in this one that applies to the same instance."""
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
    for name, inner in schema.get("dependentSchemas", {}).items() if isinstance(instance, dict) else ():
        if name in instance:
            yield validator, inner


def _references(validator: Any, schema: dict[str, Any]) -> Iterator[Any]:
    """Yield the resolved references of a schema."""
    for keyword in ("$ref", "$dynamicRef"):
        if keyword in schema:
            yield validator._resolver.lookup(schema[keyword])
    if "$recursiveRef" in schema:
        yield lookup_recursive_ref(validator._resolver)


# ── validators ────────────────────────────────────────────────────────────────


@lru_cache(maxsize=16)
def bounded_validator(kind: Any) -> Any:
    """Return the validator class of a dialect with counted work; its `format_checker` is a `WorkBudget`."""
    keywords = {name: KEYWORDS.get(name, (keyword, None)) for name, keyword in kind.VALIDATORS.items()}
    if kind in (jsonschema.Draft6Validator, jsonschema.Draft7Validator):
        keywords["contains"] = kind.VALIDATORS["contains"], None  # without counts
    extend: Any = jsonschema.validators.extend
    validator_class = extend(kind, {name: _count_work(name, *keyword) for name, keyword in keywords.items()})
    descend = validator_class.descend

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

    def descend_quickly(self: Any, instance: Any, schema: Any, **location: Any) -> Any:
        """Return the errors of an instance by a schema below. One without an id needs no resolver of its own."""
        if type(schema) is dict and "$id" not in schema and "id" not in schema:
            location.setdefault("resolver", self._resolver)
        return descend(self, instance, schema, **location)

    validator_class.evolve, validator_class.descend = evolve, descend_quickly
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
                if name in _NAMED and isinstance(child, dict):
                    stack += child.values()
                elif name not in _DATA:
                    stack.append(child)
    return [pattern for pattern in map(compile_pattern, sources) if pattern.problem is not None]
