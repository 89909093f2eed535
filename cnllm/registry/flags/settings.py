"""The tables of a file that describe no endpoint: the settings of a gateway, and the user's MCP servers."""

from typing import Annotated, Literal

from cnllm.registry.flags.describe import Base, flag

__all__ = ["GatewayFlags", "Mcp", "RouteSettings"]


class RouteSettings(Base, frozen=True):
    """The models behind one name of a gateway's clients."""

    targets: Annotated[
        list[str] | None, flag("The models or tiers, best first; `?protocol=WIRE` behind a model chooses its wire.")
    ] = None
    weights: Annotated[
        list[float] | None,
        flag(
            "How often each target comes first, as numbers that are compared; left out: always in order.",
            "Several keys or endpoints share the load.",
        ),
    ] = None
    first_token: Annotated[
        float | None,
        flag(
            "The seconds in which the first piece of a stream must arrive, or the next target is asked.",
            "An endpoint may accept a request and keep it waiting.",
        ),
    ] = None
    cooldown: Annotated[
        float | None,
        flag("The seconds in which a target that failed is passed over; 30 where it is left out."),
    ] = None
    order: Annotated[
        Literal["measured"] | None,
        flag(
            "The targets are ordered by what was seen of them in the last hour; left out: as they are listed.",
            "The same weights fail more often on one host than on another, and hosts degrade and recover.",
        ),
    ] = None
    report: Annotated[
        str | None,
        flag("The path of a report of `cnllm compare`, which counts in `order` until enough was seen."),
    ] = None


class GatewayFlags(Base, frozen=True):
    """Settings of a gateway (`cnllm serve`)."""

    models: Annotated[
        dict[str, str] | None,
        flag(
            'The model or tier that a client\'s name or pattern stands for, "claude-*" for example; `?protocol=WIRE` '
            "behind a model chooses its wire."
        ),
    ] = None
    routes: Annotated[
        dict[str, RouteSettings] | None,
        flag("Names of clients that stand for several models: the next one takes over where one fails."),
    ] = None


class Mcp(Base, frozen=True):
    """An MCP server, for `--mcp NAME`. Only the file in the config folder may have this table."""

    command: Annotated[
        str | list[str] | None, flag("The command that starts the server, as one text or as its words.")
    ] = None
    url: Annotated[str | None, flag("The address of a server that runs already (streamable HTTP).")] = None
    env: Annotated[
        list[str] | None,
        flag(
            "The variables that the server's process gets: NAME, or NAME=VALUE.",
            "It gets PATH, HOME and the like, and no keys that it does not need.",
        ),
    ] = None
    cwd: Annotated[str | None, flag("The folder in which the command runs.")] = None
    headers: Annotated[
        dict[str, str] | None, flag("Headers for the url; {key} in one stands for the key in `key_env`.")
    ] = None
    key_env: Annotated[
        str | None, flag("The variable that holds the key for the url; it goes as `Authorization: Bearer`.")
    ] = None
    tools: Annotated[list[str] | None, flag("The tools that are offered, by the server's names; left out: all.")] = None
    timeout: Annotated[float | None, flag("The seconds that a call may take; 60 where it is left out.")] = None
    start_timeout: Annotated[float | None, flag("The seconds that the start may take; 60 where it is left out.")] = None
    list_timeout: Annotated[
        float | None, flag("The seconds in which the server must list its tools; 30 where it is left out.")
    ] = None
