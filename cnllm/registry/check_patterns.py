"""Find the regular expressions of a registry file that can match nothing: broken ones, and look-around."""

from __future__ import annotations

import typing
from collections.abc import Iterator
from typing import Any

if typing.TYPE_CHECKING:
    from cnllm.registry.load import Document

__all__ = ["pattern_faults"]

_KEYS = ("pattern", "unless")


def pattern_faults(document: Document) -> Iterator[tuple[list[str], int | None, str]]:
    """Yield (path, line, fault) of each pattern in a rule about errors that the engine for them cannot match."""
    for path, rules in _error_rules(document.data, []):
        for place, rule in enumerate(rules):
            for key in _KEYS:
                for source in (rule.get(key) if type(rule) is dict else None) or ():
                    if (problem := _problem(source)) is not None:
                        keys = [*path, str(place), key]
                        yield keys, _line(document, keys, source), problem


def _line(document: Document, path: list[str], source: str) -> int | None:
    """Return the line of a pattern, or that of its key where the file writes the pattern with escapes."""
    first = document.line(path)
    for written in (source, source.replace("\\", "\\\\")):
        for number, line in enumerate(document.text.decode("utf-8", "replace").split("\n"), 1):
            if number >= (first or 1) and written in line:
                return number
    return first


def _error_rules(data: Any, path: list[str]) -> Iterator[tuple[list[str], list[Any]]]:
    for key, value in data.items():
        if key == "errors" and type(value) is list:
            yield [*path, key], value
        elif type(value) is dict:
            yield from _error_rules(value, [*path, key])


def _problem(source: str) -> str | None:
    """Return why a pattern matches nothing; None where it can."""
    from cnllm.schemas import ignore_case  # with an engine that a listing has no time for

    pattern = ignore_case(source)
    if pattern.problem is None:
        return None
    what = "is no regular expression" if pattern.is_broken else "cannot be matched in linear time"
    return f"the pattern {_shown(source)} {what}: {pattern.problem}"


def _shown(source: str) -> str:
    return repr(source) if len(source) < 60 else f"{source[:57]!r}…"
