"""The tables of a file that describe no endpoint: the settings of a gateway, and the user's MCP servers."""

from typing import Literal

from cnllm.registry.flags.describe import Base

__all__ = ["GatewayFlags", "Mcp", "RouteSettings"]


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
