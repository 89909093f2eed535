"""The sources of the files in force: how old they are, and which flags have none."""

from __future__ import annotations

import datetime
import re
from collections.abc import Iterator, Sequence
from pathlib import Path

from msgspec import Struct

from cnllm.registry.check import _tables, dotted_path, unsourced_paths
from cnllm.registry.documents import Document, builtin_path, overlay_paths, read

__all__ = ["Citation", "UnsourcedFlag", "load_documents", "stale_sources", "unsourced_flags"]

_KEY = re.compile(r'"([^"]*)"|([^."]+)')


class Citation(Struct, frozen=True):
    """One source as a table cites it: what was read and when, where it is cited, and the flags it backs."""

    source: str
    seen: str
    days: int
    how: str
    table: str
    where: str
    backs: tuple[str, ...]


class UnsourcedFlag(Struct, frozen=True):
    """A flag that says what a wire does and names no source."""

    flag: str
    where: str


def load_documents(paths: Sequence[str] | None = None) -> list[Document]:
    """The files in force, or the built-in one with the given ones on it. Raises `RegistryError`."""
    chosen = overlay_paths() if paths is None else [Path(p) for p in paths]
    return [read(builtin_path(), builtin=True), *(read(p) for p in chosen)]


def stale_sources(files: Sequence[Document], days: int, today: datetime.date) -> list[Citation]:
    """The sources that were read more than so many days ago, the oldest first."""
    found = [cited for document in files for cited in _cited(document, today) if cited.days > days]
    return sorted(found, key=lambda c: (-c.days, c.source, c.where))


def unsourced_flags(files: Sequence[Document]) -> list[UnsourcedFlag]:
    """The flags of these files that no source backs (see `cnllm.registry.check.unsourced_paths`), with their lines."""
    return [
        UnsourcedFlag(flag, _place(document, _keys(flag))) for document in files for flag in unsourced_paths(document)
    ]


def _cited(document: Document, today: datetime.date) -> Iterator[Citation]:
    for path, table in _tables(document.data):
        for name, source in table.get("sources", {}).items():
            seen = datetime.date.fromisoformat(source["seen"])
            yield Citation(
                source["url"],
                source["seen"],
                (today - seen).days,
                source["how"],
                dotted_path(path),
                _place(document, [*path, "sources", name]),
                tuple(source["backs"]),
            )


def _keys(dotted: str) -> list[str]:
    """A dotted path taken apart; keys with a dot in them stand in quotes."""
    return [quoted or bare for quoted, bare in _KEY.findall(dotted)]


def _place(document: Document, path: list[str]) -> str:
    line = document.line(path)
    return f"{document.shown}:{line}" if line else document.shown
