"""Sources of facts: where something was read, and what a table takes from it."""

import datetime
from typing import Annotated, Literal

from cnllm.registry.flags.describe import Base, flag

How = Annotated[
    Literal["docs", "recorded", "code", "issue", "probe", "inferred"],
    flag("The kind of source.", reasons={"probe": "for overlays that `cnllm probe` writes"}),
]
_PATH = "The file inside the package, which holds the values."


class Source(Base, frozen=True):
    """A source of facts, named once for the whole file."""

    url: Annotated[str, flag("A URL, repository:path@commit, or a thread.")]
    seen: Annotated[datetime.date, flag("The day on which it was read.")]
    how: How
    path: Annotated[str | None, flag(_PATH)] = None


class Citation(Base, frozen=True):
    """What a table takes from a source: what stands here wins over the named source.

    One that names a `url` stands for itself; it needs `seen` and `how`.
    """

    backs: Annotated[list[str], flag("The flags of this table that it supports.")]
    path: Annotated[str | None, flag(_PATH)] = None
    how: Annotated[How | None, flag("The kind of source.")] = None
    rounded: Annotated[bool | None, flag("Whether the source has a more exact value than this table.")] = None
    quote: Annotated[str | None, flag("A short quotation.")] = None
    seen: Annotated[datetime.date | None, flag("The day on which it was read.")] = None
    url: Annotated[str | None, flag("A URL, repository:path@commit, or a thread.")] = None
