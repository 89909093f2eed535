"""Read what a table of a registry file cites.

A file names each source once, in its table `sources`. The `sources` of a layer say what each of them backs: a list of
flags, a table where something differs (`path`, `how`, `rounded`, `quote`), or a list of both. A citation with a `url`
of its own needs no name.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import groupby
from typing import Any

__all__ = ["citations", "written_citations"]


def citations(data: Mapping[str, Any], table: Mapping[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield (name, source) for each citation of a table in a file's data; a name that nobody explains is left out."""
    cited = table.get("sources")
    if not cited:
        return
    named = data.get("sources", {})
    for name, value in cited.items():
        for citation in written_citations(value):
            if "url" in citation:
                yield name, citation
            elif name in named:
                yield name, {**named[name], **citation}


def written_citations(value: Any) -> Iterator[dict[str, Any]]:
    """Yield the citations under one name as tables, without what the named source says."""
    if isinstance(value, dict):
        yield value
        return
    for is_table, items in groupby(value, lambda item: isinstance(item, dict)):
        if is_table:
            yield from items
        else:
            yield {"backs": list(items)}
