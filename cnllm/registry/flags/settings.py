"""The tables of a file that describe no endpoint: settings of a gateway, the user's MCP servers, sources of facts."""

import datetime
from typing import Literal

from cnllm.registry.flags.describe import Base

__all__ = [
    "GatewayFlags",
    "Mcp",
    "RouteSettings",
]


How = Literal["docs", "recorded", "code", "catalogue", "issue", "probe", "inferred"]


class RouteSettings(Base, frozen=True):
    """The models behind one name of a gateway's clients."""

    targets: list[str] | None = None
    """The models or tiers, best first; `?protocol=WIRE` behind a model chooses its wire."""
    weights: list[float] | None = None
    """How often each target comes first, as numbers that are compared; left out: always in order. Why: Several keys or
    endpoints share the load.
    """
    first_token: float | None = None
    """The seconds in which the first piece of a stream must arrive, or the next target is asked. Why: An endpoint may
    accept a request and keep it waiting.
    """
    cooldown: float | None = None
    """The seconds in which a target that failed is passed over; 30 where it is left out."""
    order: Literal["measured"] | None = None
    """The targets are ordered by what was seen of them in the last hour; left out: as they are listed. Why: The same
    weights fail more often on one host than on another, and hosts degrade and recover.
    """
    report: str | None = None
    """The path of a report of `cnllm compare`, which counts in `order` until enough was seen."""


class GatewayFlags(Base, frozen=True):
    """Settings of a gateway (`cnllm serve`)."""

    models: dict[str, str] | None = None
    """The model or tier that a client's name or pattern stands for, "claude-*" for example; `?protocol=WIRE` behind a
    model chooses its wire.
    """
    routes: dict[str, RouteSettings] | None = None
    """Names of clients that stand for several models: the next one takes over where one fails."""


class Mcp(Base, frozen=True):
    """An MCP server, for `--mcp NAME`. Only the file in the config folder may have this table."""

    command: str | list[str] | None = None
    """The command that starts the server, as one text or as its words."""
    url: str | None = None
    """The address of a server that runs already (streamable HTTP)."""
    env: list[str] | None = None
    """The variables that the server's process gets: NAME, or NAME=VALUE. Why: It gets PATH, HOME and the like, and no
    keys that it does not need.
    """
    cwd: str | None = None
    """The folder in which the command runs."""
    headers: dict[str, str] | None = None
    """Headers for the url; {key} in one stands for the key in `key_env`."""
    key_env: str | None = None
    """The variable that holds the key for the url; it goes as `Authorization: Bearer`."""
    tools: list[str] | None = None
    """The tools that are offered, by the server's names; left out: all."""
    timeout: float | None = None
    """The seconds that a call may take; 60 where it is left out."""
    start_timeout: float | None = None
    """The seconds that the start may take; 60 where it is left out."""
    list_timeout: float | None = None
    """The seconds in which the server must list its tools; 30 where it is left out."""


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
