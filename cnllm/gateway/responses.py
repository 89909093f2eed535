"""Keep the responses that a client of the Responses protocol may continue by their ids.

Each is kept with the whole input that it answered, by the client's identity. All functions are steps of a store; see
`cnllm.gateway.state`.
"""

from __future__ import annotations

from typing import Any

import msgspec

from cnllm.gateway.exchange import Exchange
from cnllm.gateway.failures import Failure, RequestFailed
from cnllm.gateway.state import Steps, StoreCall, store_note
from cnllm.gateway.store import StoreFailure
from cnllm.types import Reply

__all__ = ["continued_body", "delete_response", "keep_response", "response_body", "response_items"]

_UNAVAILABLE = Failure(
    503,
    "the store of this gateway fails, so nobody knows whether the response is kept: try again",
    "store_unavailable",
    retry_after=2.0,
)


def continued_body(identity: str, body: dict[str, Any]) -> Steps[dict[str, Any]]:
    """Return a body whose input begins with the conversation that `previous_response_id` names.

    Raises `RequestFailed` for an id that is not kept, and for a conversation, which is not kept.
    """
    if body.get("conversation") is not None:
        raise RequestFailed(
            Failure(400, "conversation: this gateway keeps responses, and no conversations", "unsupported")
        )
    if body.get("background") is True:
        raise RequestFailed(Failure(400, "background: this gateway answers at once", "unsupported"))
    id = body.get("previous_response_id")
    if id is None:
        return body
    if not isinstance(id, str):
        raise RequestFailed(Failure(400, "previous_response_id: a text is required", "invalid_request"))
    kept = yield from _load(identity, id, 400, "previous_response_not_found")
    given = body.get("input")
    items = [{"role": "user", "content": given}] if isinstance(given, str) else given
    if not isinstance(items, list):
        return body  # the decoder names the place
    rest = {key: value for key, value in body.items() if key != "previous_response_id"}
    return {**rest, "input": [*kept["input"], *kept["response"].get("output", ()), *items]}


def keep_response(identity: str, exchange: Exchange, reply: Reply) -> Steps[None]:
    """Keep a response, unless its request says that it is not to be stored. A note says where that failed."""
    if exchange.body.get("store") is False:
        return
    given = exchange.body.get("input")
    items = [{"role": "user", "content": given}] if isinstance(given, str) else given
    record, _ = yield lambda: msgspec.json.encode({"input": items, "response": exchange.reply_body(reply)})
    is_kept, failure = yield StoreCall("keep_response", (identity, exchange.id, record))
    if not is_kept:
        exchange.notes.append(store_note(failure or "it is too long", "the response was not kept under its id"))


def response_body(identity: str, id: str) -> Steps[dict[str, Any]]:
    """Return a response. Raises `RequestFailed` for an id that is not kept."""
    record = yield from _load(identity, id)
    response: dict[str, Any] = record["response"]
    return response


def response_items(identity: str, id: str) -> Steps[dict[str, Any]]:
    """Return the input items of a response. Raises `RequestFailed` for an id that is not kept."""
    record = yield from _load(identity, id)
    items = [{"id": f"item_{index}", **item} for index, item in enumerate(record["input"])]  # its own id stays
    ids = [item["id"] for item in items]
    ends = {"first_id": ids[0] if ids else None, "last_id": ids[-1] if ids else None}
    return {"object": "list", "data": items, **ends, "has_more": False}


def delete_response(identity: str, id: str) -> Steps[dict[str, Any]]:
    """Delete a response. Raises `RequestFailed` for an id that is not kept."""
    was_kept, _ = yield StoreCall("delete_response", (identity, id))
    if type(was_kept) is StoreFailure:
        raise RequestFailed(_UNAVAILABLE)
    if not was_kept:
        raise RequestFailed(_missing(id, 404, "not_found"))
    return {"id": id, "object": "response", "deleted": True}


def _load(identity: str, id: str, status: int = 404, code: str = "not_found") -> Steps[dict[str, Any]]:
    """Return what is kept of a response."""
    content, _ = yield StoreCall("response", (identity, id))
    if type(content) is StoreFailure:
        raise RequestFailed(_UNAVAILABLE)
    if content is None:
        raise RequestFailed(_missing(id, status, code))
    record: dict[str, Any]
    record, _ = yield lambda: msgspec.json.decode(content)
    return record


def _missing(id: str, status: int, code: str) -> Failure:
    """Return the answer for an id that is not kept."""
    return Failure(status, f"Previous response with id '{id}' not found.", code)
