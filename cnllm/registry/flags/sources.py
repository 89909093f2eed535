"""Sources of facts: where something was read, and what a table takes from it."""

import datetime
from typing import Annotated, Literal

from cnllm.registry.flags.describe import Base, flag

How = Annotated[
    Literal["docs", "recorded", "code", "catalogue", "issue", "probe", "inferred"],
    flag(
        "The kind of source: the endpoint's own documentation, recorded traffic, program code, a third party's list or "
        "description of models, a report of a user, a probe of the endpoint, or a conclusion from something similar."
    ),
]
_PATH = (
    "The file or folder inside a package or repository that holds the values; `{provider}` stands for the name of the "
    "provider whose table cites it."
)


class Source(Base, frozen=True):
    """A source of facts, named once for the whole file."""

    url: Annotated[str, flag("A URL, repository:path@commit, or a thread.")]
    seen: Annotated[datetime.date, flag("The day on which it was read.")]
    how: How
    path: Annotated[str | None, flag(_PATH)] = None


class SourceFacts(Base, frozen=True):
    """The facts that a table takes from a source: a field that stands here wins over the named source.

    One that names a `url` stands for itself; it needs `seen` and `how`.
    """

    backs: Annotated[list[str], flag("The flags of this table that it supports.")]
    path: Annotated[str | None, flag(_PATH)] = None
    how: Annotated[How | None, flag("The kind of source.")] = None
    rounded: Annotated[bool | None, flag("Whether the source has a more exact value than this table.")] = None
    quote: Annotated[str | None, flag("A short quotation.")] = None
    seen: Annotated[datetime.date | None, flag("The day on which it was read.")] = None
    url: Annotated[str | None, flag("A URL, repository:path@commit, or a thread.")] = None
