"""Find the regular expressions of a registry file that cannot be matched: broken ones, and look-around."""

from __future__ import annotations

import typing
from collections.abc import Iterator
from typing import Any

if typing.TYPE_CHECKING:
    from cnllm.registry.documents import Document

__all__ = ["pattern_faults"]

_KEYS = ("pattern", "unless")


def pattern_faults(document: Document) -> Iterator[tuple[list[str], int | None, str]]:
    """Yield (path, line, fault) of each pattern that cannot be matched in linear time."""
    for path, source, is_whole in _patterns(document.data, []):
        if (problem := _problem(source, is_whole)) is not None:
            yield path, _line(document, path, source), problem


def _line(document: Document, path: list[str], source: str) -> int | None:
    """Return the line of a pattern, or that of its key where the file writes the pattern with escapes."""
    first = document.line(path)
    for written in (source, source.replace("\\", "\\\\")):
        for number, line in enumerate(document.text.decode("utf-8", "replace").split("\n"), 1):
            if number >= (first or 1) and written in line:
                return number
    return first


def _patterns(data: dict[str, Any], path: list[str]) -> Iterator[tuple[list[str], str, bool]]:
    """Yield (path, pattern, whether it is matched as a whole) of the rules about errors and of call ids."""
    for key, value in data.items():
        here = [*path, key]
        if key == "errors" and type(value) is list:
            for place, rule in enumerate(value):
                for name in _KEYS:
                    for source in rule.get(name) or ():
                        yield [*here, str(place), name], source, False
        elif key == "call_id_pattern" and type(value) is str and path[-1:] == ["tools"]:
            yield here, value, True
        elif type(value) is dict:
            yield from _patterns(value, here)


def _problem(source: str, is_whole: bool) -> str | None:
    """Return why a pattern cannot be matched; None where it can."""
    from cnllm.schemas import ignore_case, whole_problem  # with an engine that a listing has no time for

    if is_whole:
        found = whole_problem(source)
    else:
        pattern = ignore_case(source)
        found = None if pattern.problem is None else (pattern.problem, pattern.is_broken)
    if found is None:
        return None
    what = "is no regular expression" if found[1] else "cannot be matched in linear time"
    return f"the pattern {_shown(source)} {what}: {found[0]}"


def _shown(source: str) -> str:
    return repr(source) if len(source) < 60 else f"{source[:57]!r}…"
