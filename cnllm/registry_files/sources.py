"""List the sources of registry files: old ones, and flags without one."""

from __future__ import annotations

import datetime
from collections.abc import Iterator, Sequence

from msgspec import Struct

from cnllm.registry.documents import CATALOGUE, Document, layer_tables
from cnllm.registry.merge import META, flatten
from cnllm.registry.problem import dotted_path
from cnllm.registry.provenance import citations, cited_flags, precision_of

__all__ = ["CitedSource", "UnsourcedFlag", "stale_sources", "unsourced_flags", "unsourced_paths"]

_OWN_CHOICES = frozenset({"title", "status", "call", "keys"})  # not behaviour on the wire; the user's own in an overlay


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


def stale_sources(files: Sequence[Document], days: int, today: datetime.date) -> list[CitedSource]:
    """Return the sources that were read more than so many days ago, the oldest first."""
    citations = [citation for document in files for citation in _citations(document, today) if citation.days > days]
    return sorted(citations, key=lambda c: (-c.days, c.source, c.where))


def unsourced_flags(files: Sequence[Document]) -> list[UnsourcedFlag]:
    """Return the flags without a source (see `unsourced_paths`), with their lines."""
    return [
        UnsourcedFlag(dotted_path(path), document.place(path))
        for document in files
        for path in unsourced_paths(document)
    ]


def unsourced_paths(document: Document) -> Iterator[list[str]]:
    """Yield the paths of a file's flags that no source in their own table backs.

    Flags of the wires and of `defaults` need no source. In the user's files and in the catalogue neither do flags that
    do not describe behaviour on the wire.
    """
    excepted = frozenset() if document.builtin and document.path.name != CATALOGUE else _OWN_CHOICES
    for path, table in layer_tables(document.data):
        if path[0] in ("defaults", "protocols"):
            continue  # the wire itself, not the behaviour of an endpoint
        backs = [flag for _, _, source in cited_flags(document.data, path, table) for flag in source["backs"]]
        flags = {k: v for k, v in table.items() if (k not in META or k == "when") and k not in excepted}
        for keys, _ in flatten(flags):
            if not precision_of(".".join(keys), backs):
                yield [*path, *keys]


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
                document.place([*path, "sources", name]),
                tuple(source["backs"]),
            )
