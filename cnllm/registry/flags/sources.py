"""Sources of facts: where something was read, and what a table takes from it."""

import datetime
from typing import Literal

from cnllm.registry.flags.describe import Base

How = Literal["docs", "recorded", "code", "catalogue", "issue", "probe", "inferred"]


class Source(Base, frozen=True):
    """A source of facts, named once for the whole file."""

    url: str
    """A URL, repository:path@commit, or a thread."""
    seen: datetime.date
    """The day on which it was read."""
    how: How
    """The kind of source: the endpoint's own documentation, recorded traffic, program code, a third party's list or
    description of models, a report of a user, a probe of the endpoint, or a conclusion from something similar.
    """
    path: str | None = None
    """The file or folder inside a package or repository that holds the values; `{provider}` stands for the name of the
    provider whose table cites it.
    """


class SourceFacts(Base, frozen=True):
    """The facts that a table takes from a source: a field that stands here wins over the named source.

    One that names a `url` stands for itself; it needs `seen` and `how`.
    """

    backs: list[str]
    """The flags of this table that it supports."""
    path: str | None = None
    """The file or folder inside a package or repository that holds the values; `{provider}` stands for the name of the
    provider whose table cites it.
    """
    how: How | None = None
    """The kind of source."""
    rounded: bool | None = None
    """Whether the source has a more exact value than this table."""
    quote: str | None = None
    """A short quotation."""
    seen: datetime.date | None = None
    """The day on which it was read."""
    url: str | None = None
    """A URL, repository:path@commit, or a thread."""
