"""Find patterns in a registry file that cannot be matched: invalid ones, and those with look-around."""

from __future__ import annotations

import typing
from collections.abc import Iterator
from typing import Any

if typing.TYPE_CHECKING:
    from cnllm.registry.documents import Document

__all__ = ["pattern_faults"]

_KEYS = ("pattern", "unless")


def pattern_faults(document: Document) -> Iterator[tuple[list[str], int | None, str]]:
    """Yield (path, line, fault) for each pattern that cannot be matched in linear time."""
    for path, source, is_whole in _patterns(document.data, []):
        if (problem := _problem(source, is_whole)) is not None:
            yield path, _line(document, path, source), problem


def _line(document: Document, path: list[str], source: str) -> int | None:
    """Return the line of a pattern, or that of its key where the file writes the pattern with escapes."""
    key_line = document.line(path)
    for spelling in (source, source.replace("\\", "\\\\")):
        for number, line in enumerate(document.text.decode("utf-8", "replace").split("\n"), 1):
            if number >= (key_line or 1) and spelling in line:
                return number
    return key_line


def _patterns(data: dict[str, Any], path: list[str]) -> Iterator[tuple[list[str], str, bool]]:
    """Yield (path, pattern, whether it is matched as a whole) for the rules about errors and for call ids."""
    for key, value in data.items():
        key_path = [*path, key]
        if key == "errors" and type(value) is list:
            for index, rule in enumerate(value):
                for name in _KEYS:
                    for source in rule.get(name) or ():
                        yield [*key_path, str(index), name], source, False
        elif key == "call_id_pattern" and type(value) is str and path[-1:] == ["tools"]:
            yield key_path, value, True
        elif type(value) is dict:
            yield from _patterns(value, key_path)


def _problem(source: str, is_whole: bool) -> str | None:
    """Return why a pattern cannot be matched; None where it can."""
    from cnllm.schemas import ignore_case, whole_problem  # loads the pattern engine, which a listing does not need

    if is_whole:
        problem = whole_problem(source)
    else:
        pattern = ignore_case(source)
        problem = None if pattern.problem is None else (pattern.problem, pattern.is_broken)
    if problem is None:
        return None
    verdict = "is no regular expression" if problem[1] else "cannot be matched in linear time"
    return f"the pattern {_short_pattern(source)} {verdict}: {problem[0]}"


def _short_pattern(source: str) -> str:
    """Return a pattern of at most 60 characters for a message."""
    return repr(source) if len(source) < 60 else f"{source[:57]!r}…"
