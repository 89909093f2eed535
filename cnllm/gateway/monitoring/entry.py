"""The record of one request at its end: the line of the access log, and the source of the metrics."""

from __future__ import annotations

from msgspec import Struct

from cnllm.types import Cost, Note, Usage

__all__ = ["Entry"]


class Entry(Struct):
    """One request. `path` has no query, which may hold a key. `key` names a key with limits, `team` its team, `tag` is
    the name that the client gives the call.

    `verb` is what is done with the resource, empty where there is none. `upstream_protocol` is the wire on which the
    model was asked. `first` is the number of seconds until the first piece of a streamed reply. `tool_calls` are those
    of the reply, `tool_results` those that the client returned with this request; `tool_errors` counts the results that
    report an error and the calls whose arguments are unusable.
    `soft_budget` names the soft budgets that are spent, `soft_budgets` whose they are: a kind, a name, a currency.
    `charged`: a call that failed may be charged. `broken` says how the chain of calls and results broke. `registry` is
    the version of the data on the endpoint. `reply_id` and `reply_model` are the endpoint's own: a
    vendor's bill may have them.
    """

    id: str
    method: str
    path: str
    time: float = 0.0
    status: int = 0
    verb: str = ""
    protocol: str = ""
    upstream_protocol: str = ""
    key: str = ""
    tag: str = ""
    team: str = ""
    model: str = ""
    stream: bool | None = None
    finish: str = ""
    outcome: str = ""
    error: str = ""
    charged: bool | None = None
    seconds: float = 0.0
    first: float | None = None
    tokens_per_second: float | None = None
    usage: Usage | None = None
    cost: Cost | None = None
    tool_calls: int | None = None
    tool_results: int | None = None
    tool_errors: int | None = None
    cut: bool | None = None
    recovered: bool | None = None
    broken: str = ""
    registry: str = ""
    reply_id: str | None = None
    reply_model: str | None = None
    soft_budget: str = ""
    soft_budgets: list[tuple[str, str, str]] = []
    notes: list[Note] = []
