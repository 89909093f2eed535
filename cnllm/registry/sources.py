"""List the sources of registry files: old ones, and flags without one."""

from __future__ import annotations

import datetime
import re
from collections.abc import Iterator, Sequence
from pathlib import Path

from msgspec import Struct

from cnllm.registry.check import _tables, dotted_path, unsourced_paths
from cnllm.registry.documents import Document, builtin_path, overlay_paths, read

__all__ = ["Citation", "UnsourcedFlag", "load_documents", "stale_sources", "unsourced_flags"]

_KEY_PATTERN = re.compile(r'"([^"]*)"|([^."]+)')


class Citation(Struct, frozen=True):
    """One source as a table cites it.

    It has the source, the date and the manner of reading, the place of the citation, and the flags that it backs.
    """

    source: str
    seen: str
    days: int
    how: str
    table: str
    where: str
    backs: tuple[str, ...]


class UnsourcedFlag(Struct, frozen=True):
    """A flag on the behaviour of a wire that has no source."""

    flag: str
    where: str


def load_documents(paths: Sequence[str] | None = None) -> list[Document]:
    """Read the user's files, or the given ones, after the built-in file. Raises `RegistryError`."""
    overlays = overlay_paths() if paths is None else [Path(p) for p in paths]
    return [read(builtin_path(), builtin=True), *(read(p) for p in overlays)]


def stale_sources(files: Sequence[Document], days: int, today: datetime.date) -> list[Citation]:
    """Return the sources that were read more than so many days ago, the oldest first."""
    citations = [citation for document in files for citation in _citations(document, today) if citation.days > days]
    return sorted(citations, key=lambda c: (-c.days, c.source, c.where))


def unsourced_flags(files: Sequence[Document]) -> list[UnsourcedFlag]:
    """Return the flags without a source (see `cnllm.registry.check.unsourced_paths`), with their lines."""
    return [
        UnsourcedFlag(flag, _location(document, _keys(flag)))
        for document in files
        for flag in unsourced_paths(document)
    ]


def _citations(document: Document, today: datetime.date) -> Iterator[Citation]:
    """Yield the citations of a file."""
    for path, table in _tables(document.data):
        for name, source in table.get("sources", {}).items():
            date = datetime.date.fromisoformat(source["seen"])
            yield Citation(
                source["url"],
                source["seen"],
                (today - date).days,
                source["how"],
                dotted_path(path),
                _location(document, [*path, "sources", name]),
                tuple(source["backs"]),
            )


def _keys(dotted: str) -> list[str]:
    """Split a dotted path into its keys; a key with a dot is in quotes."""
    return [quoted or bare for quoted, bare in _KEY_PATTERN.findall(dotted)]


def _location(document: Document, path: list[str]) -> str:
    """Return the file and line of a path."""
    line = document.line(path)
    return f"{document.shown}:{line}" if line else document.shown
