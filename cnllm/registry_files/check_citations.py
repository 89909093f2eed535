"""Check what the tables of a registry file cite: names of sources, and the flags that they back."""

from __future__ import annotations

import re
import typing
from collections.abc import Iterator
from typing import Any

from cnllm.registry.correction import corrected_key, suggested_word
from cnllm.registry.documents import layer_tables
from cnllm.registry.problem import Problem, did_you_mean, dotted_path
from cnllm.registry.provenance import SHARED, citations, cited_flags, precision_of, written_citations
from cnllm.registry_files.sources import unsourced_flags

if typing.TYPE_CHECKING:
    from cnllm.registry.documents import Document

__all__ = ["citation_problems", "has_flag"]

_READABLE = ("docs", "code", "catalogue")
"""The kinds of source whose values stand in a file that a program can read again."""

_ARCHIVE = re.compile(r"^https://(?:www\.npmjs\.com/package|pypi\.org/project)/|^[\w.-]+/[\w.-]+(?:@\S+)?$")
"""The URLs of packages, and of repositories without a path."""


def citation_problems(document: Document) -> Iterator[Problem]:
    """Yield the faults of citations: unknown and unused sources, flags that are not there."""
    named = document.data.get("sources", {})
    unused = dict.fromkeys(named)
    lines = document.source.split("\n")

    def problem(path: list[str], message: str, corrected: str = "") -> Problem:
        return Problem(document.label, document.line(path), message, corrected=corrected)

    for path, table in layer_tables(document.data):
        for name, value in table.get("sources", {}).items():
            place = [*path, "sources", name]
            unused.pop(name, None)
            for citation in written_citations(value):
                if "url" in citation:
                    if document.builtin:
                        yield problem(place, f"{dotted_path(place)} has a url; name the source under [sources]")
                elif name not in named:
                    meant = did_you_mean(name, named)
                    line = document.line(place)
                    yield problem(
                        place,
                        f"{dotted_path(path)}.sources: no source is called '{name}'{meant}",
                        corrected_key(lines, line, name, suggested_word(meant)),
                    )
                yield from (
                    problem(place, f"{dotted_path(place)} backs '{flag}', which is not there")
                    for flag in citation["backs"]
                    # `models.FLAG` is a flag of the models of a provider, or of all, in this file
                    if not (flag.startswith(SHARED) and path[0] in ("providers", "defaults"))
                    and not has_flag(table, flag)
                )
    if document.builtin:
        yield from (problem(place, message) for place, message in _missing_paths(document))
        for flag in unsourced_flags([document]):
            _, _, number = flag.where.rpartition(":")
            yield Problem(document.label, int(number) if number.isdigit() else None, f"{flag.flag} has no source")
    yield from (problem(place, message) for place, message in _idle_shares(document))
    for name in unused:
        yield Problem(
            document.label,
            document.line(["sources", name]),
            f"sources.{name} backs nothing",
            "error" if document.builtin else "warning",
        )


def _idle_shares(document: Document) -> Iterator[tuple[list[str], str]]:
    """Yield (path, fault) for each shared flag that backs nothing: the tables of models cite sources of their own."""
    needed: set[tuple[str, ...]] = set()
    for path, table in layer_tables(document.data):
        for place, _, source in cited_flags(document.data, path, table) if path[0] == "models" else ():
            needed.update((*place, flag) for flag in source["backs"])
    for path, table in layer_tables(document.data):
        for name, source in citations(document.data, table) if path[0] in ("providers", "defaults") else ():
            for flag in source["backs"]:
                place = [*path, "sources", name]
                back = flag.removeprefix(SHARED)
                if flag != back and not any(n[:-1] == tuple(place) and precision_of(n[-1], (back,)) for n in needed):
                    yield place, f"{dotted_path(place)} backs '{flag}', which no model takes from it"


def _missing_paths(document: Document) -> Iterator[tuple[list[str], str]]:
    """Yield (path, fault) for citations of a package or repository that do not say which of its files has the value."""
    for path, table in layer_tables(document.data):
        for name, source in citations(document.data, table):
            is_readable = source["how"] in _READABLE and _ARCHIVE.search(source["url"])
            if is_readable and "path" not in source:
                place = [*path, "sources", name]
                yield place, f"{dotted_path(place)} has no path; name the file of {source['url']} that has the value"


def has_flag(table: dict[str, Any], flag: str) -> bool:
    """Whether a table has a value at a dotted path. A key may contain dots."""
    value: Any = table
    keys = flag.split(".")
    while keys:
        if type(value) is not dict:
            return False
        for length in range(len(keys), 0, -1):
            key = ".".join(keys[:length])
            if key in value:
                value, keys = value[key], keys[length:]
                break
        else:
            return False
    return True
