"""Decide with verdicts that may be unknown: True, False, or None if something was not judged."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from cnllm.schemas.patterns import compile_pattern

__all__ = ["errors_below", "is_valid", "pattern_found"]

_UNITS = 4_000  # units of search work in one step


def pattern_found(validator: Any, source: str, text: str) -> bool | None:
    """Whether a text contains a match of a pattern; None if it is not judged, which is counted."""
    pattern = compile_pattern(source)
    work = validator.format_checker
    work.spend(1 + pattern.size * len(text) // _UNITS)
    matches = pattern.matches(text)
    if matches is None:
        work.unknown += 1
    return matches


def errors_below(validator: Any, instance: Any, schema: Any, **location: Any) -> Iterator[Any]:
    """Return the errors of an instance by a schema below. A schema without an id needs no resolver of its own."""
    if type(schema) is dict and "$id" not in schema and "id" not in schema:
        location["resolver"] = validator._resolver
    errors: Iterator[Any] = validator.descend(instance, schema, **location)
    return errors


def is_valid(validator: Any, schema: Any, instance: Any) -> bool | None:
    """Whether an instance is valid by a schema; None if no error was found and something was not judged."""
    if type(schema) is bool:
        return schema
    work = validator.format_checker
    unknown = work.unknown
    work.spend(1)
    if next(errors_below(validator, instance, schema), None) is not None:
        return False
    return True if work.unknown == unknown else None
