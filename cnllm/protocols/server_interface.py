"""Define the rest of a protocol's API: models, counts of tokens, pings, statuses, the words of errors and batches."""

from __future__ import annotations

import datetime
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from msgspec import Struct

from cnllm.errors import (
    BadKey,
    BadRequest,
    CannotSend,
    ContentFiltered,
    ContextTooLong,
    EndpointError,
    Overloaded,
    QuotaExceeded,
    RateLimited,
    ReplayMissing,
    StreamCut,
    Timeout,
    TransportError,
    UnknownModel,
)

__all__ = [
    "BatchForm",
    "ModelCard",
    "ServerApi",
    "error_status",
    "openai_error",
    "query_number",
    "write_model",
    "write_models",
]


_DIGITS = 9  # of a number of which the rest makes no difference

_KINDS = {401: "authentication_error", 403: "permission_error", 404: "not_found_error", 429: "rate_limit_error"}
_BY_CLASS: tuple[tuple[type[Exception] | tuple[type[Exception], ...], int], ...] = (
    (BadKey, 401),
    (QuotaExceeded, 402),
    (RateLimited, 429),
    (Overloaded, 503),
    ((ContextTooLong, ContentFiltered, ReplayMissing, BadRequest, CannotSend), 400),
    (Timeout, 504),
    ((EndpointError, TransportError, StreamCut), 502),
    (UnknownModel, 404),
)


class BatchForm(Struct, frozen=True):
    """The words of a protocol's own batch interface, which its SDKs expect.

    `job` and `page` are fixed keys of a job and of a page of the list. `prefix` begins the id of a job. `iso_times`:
    times are RFC 3339 texts, not seconds. `served` and `refused` are the words for what became of a row. `total`,
    `remaining` and `results_url` are paths in a job.
    """

    job: dict[str, Any] = {}
    page: dict[str, Any] = {}
    prefix: str = "batch_"
    iso_times: bool = False
    served: str | None = None
    refused: str | None = None
    total: str | None = None
    remaining: str | None = None
    results_url: str | None = None


class ModelCard(Struct, frozen=True):
    """A model in a list: its name, its provider, and what is known of it, None for the rest.

    `input` and `output` are its limits in tokens, `released` and `shutdown` its first and its last day.
    """

    name: str
    provider: str
    input: int | None = None
    output: int | None = None
    released: datetime.date | None = None
    shutdown: datetime.date | None = None
    is_retired: bool = False


class ServerApi(Struct, frozen=True):
    """The rest of one protocol's API.

    `write_models(cards, query)` returns the list of models, `write_model(card)` one model. `id_prefix` is the beginning
    of a reply's id. `ping` is a piece of a stream that carries no data and keeps the connection open.

    `count_paths` are the paths of requests to count tokens. `read_count(body)` returns the request to count,
    `write_count(tokens)` the answer; None where the protocol has no such request. `kept_replies` is the path of stored
    replies; None where the protocol stores none. `listing_header` is the request header by which a request for models
    belongs to this protocol. `estimates_input`: the first piece of a stream holds the number of input tokens, and a
    reply the numbers of input and output tokens: estimates, where the endpoint reports none. `counts_both`: a reply has
    the numbers of both or neither, so that the one that the endpoint does not report is an estimate.

    `unserved` are the keys of a body that no gateway serves, each with the code by which clients know that they have to
    send the whole conversation.

    `overflow_message` and `overflow_code` are the message (with `{tokens}` and `{limit}`) and the code by which clients
    recognise a conversation that is too long. `overloaded_status` is the HTTP status of an overload,
    `budget_status` that of a budget that is spent. `token_parts` are the types of parts that have an opaque field,
    which clients send back unchanged. `token_beside_text`: clients send
    the text of the reasoning back with that field. `events_query` is the part of a query that asks for server-sent
    events; a stream without it is one JSON array. None where all streams are server-sent events.
    """

    write_models: Callable[[Sequence[ModelCard], Mapping[str, str]], dict[str, Any]]
    write_model: Callable[[ModelCard], dict[str, Any]]
    id_prefix: str
    ping: bytes
    overflow_message: str
    overflow_code: str | None = None
    overloaded_status: int = 503
    budget_status: int = 429
    read_count: Callable[[dict[str, Any]], dict[str, Any]] = lambda body: body
    write_count: Callable[[int], dict[str, Any]] | None = None
    count_paths: tuple[str, ...] = ()
    kept_replies: str | None = None
    unserved: Mapping[str, str] = {}
    listing_header: str | None = None
    estimates_input: bool = False
    counts_both: bool = False
    token_parts: tuple[type, ...] = ()
    token_beside_text: bool = False
    events_query: tuple[str, str] | None = None


def query_number(query: Mapping[str, str], name: str, default: int) -> int:
    """Return a number of a query; the default where it is missing or no number."""
    text = query.get(name, "")
    return int(text[:_DIGITS]) if text.isdecimal() else default


def write_models(cards: Sequence[ModelCard], query: Mapping[str, str]) -> dict[str, Any]:
    """Return a list of models, as two of the protocols have it."""
    return {"object": "list", "data": [write_model(card) for card in cards]}


def write_model(card: ModelCard) -> dict[str, Any]:
    """Return a model."""
    return {"id": card.name, "object": "model", "created": 0, "owned_by": card.provider}


# ── errors ───────────────────────────────────────────────────────────────────


def error_status(error: Exception) -> int:
    """Return the status of an error: the endpoint's own, or the one for its class.

    An error inside a stream or a body comes with the status 200, and only its class shows what went wrong.
    """
    if isinstance(error, EndpointError) and 400 <= error.status <= 599:
        return error.status
    return next((status for kind, status in _BY_CLASS if isinstance(error, kind)), 500)


def openai_error(status: int, message: str, code: str | None) -> dict[str, Any]:
    """Return the body of an error of OpenAI's APIs."""
    kind = _KINDS.get(status, "server_error" if status >= 500 else "invalid_request_error")
    return {"error": {"message": message, "type": kind, "param": None, "code": code}}
