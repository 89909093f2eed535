"""List the sources of registry files: old ones, and flags without one."""

from __future__ import annotations

import datetime
import re
from collections.abc import Iterator, Sequence
from pathlib import Path

from msgspec import Struct

from cnllm.registry.documents import CATALOGUE, Document, layer_tables
from cnllm.registry.merge import META, flatten
from cnllm.registry.problem import dotted_path
from cnllm.registry.provenance import citations, cited_flags, precision_of
from cnllm.registry.read import builtin_path, data_paths, overlay_paths, read

__all__ = ["CitedSource", "UnsourcedFlag", "load_documents", "stale_sources", "unsourced_flags", "unsourced_paths"]

_OWN_CHOICES = frozenset({"title", "status", "call", "keys"})  # not behaviour on the wire; the user's own in an overlay
_KEY_PATTERN = re.compile(r'"([^"]*)"|([^."]+)')


class CitedSource(Struct, frozen=True):
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
    data = [read(path, is_data=True) for path in data_paths()] if paths is None else []
    overlays = overlay_paths() if paths is None else [Path(p) for p in paths]
    return [read(builtin_path(), builtin=True), *data, *(read(p) for p in overlays)]


def stale_sources(files: Sequence[Document], days: int, today: datetime.date) -> list[CitedSource]:
    """Return the sources that were read more than so many days ago, the oldest first."""
    citations = [citation for document in files for citation in _citations(document, today) if citation.days > days]
    return sorted(citations, key=lambda c: (-c.days, c.source, c.where))


def unsourced_flags(files: Sequence[Document]) -> list[UnsourcedFlag]:
    """Return the flags without a source (see `unsourced_paths`), with their lines."""
    return [
        UnsourcedFlag(flag, _location(document, _keys(flag)))
        for document in files
        for flag in unsourced_paths(document)
    ]


def unsourced_paths(document: Document) -> list[str]:
    """Return the dotted paths of a file's flags that no source in their own table backs.

    Flags of the wires and of `defaults` need no source. In the user's files and in the catalogue neither do flags that
    do not describe behaviour on the wire.
    """
    excepted = frozenset() if document.builtin and document.path.name != CATALOGUE else _OWN_CHOICES
    out: list[str] = []
    for path, table in layer_tables(document.data):
        if path[0] in ("defaults", "protocols"):
            continue  # the wire itself, not the behaviour of an endpoint
        backs = [flag for _, _, source in cited_flags(document.data, path, table) for flag in source["backs"]]
        flags = {k: v for k, v in table.items() if (k not in META or k == "when") and k not in excepted}
        for keys, _ in flatten(flags):
            flag = ".".join(keys)
            if not precision_of(flag, backs):
                out.append(dotted_path([*path, *keys]))
    return out


def _citations(document: Document, today: datetime.date) -> Iterator[CitedSource]:
    """Yield the citations of a file."""
    for path, table in layer_tables(document.data):
        for name, source in citations(document.data, table):
            date = datetime.date.fromisoformat(source["seen"])
            yield CitedSource(
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
    return f"{document.label}:{line}" if line else document.label
