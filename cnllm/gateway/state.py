"""The state of a gateway between requests: what clients cannot carry.

What is done with a store is written once, as generators that yield `StoreCall`s, and functions that may take long.
`State` and `SyncState` carry them out.

A response that a client of the Responses protocol may continue is kept with the whole input that it answered, by the
client's identity.
"""

from __future__ import annotations

import threading
from collections.abc import Awaitable, Callable, Generator, Mapping
from typing import Any, TypeVar

import msgspec

from cnllm.gateway.exchange import Exchange
from cnllm.gateway.failures import Failure, RequestFailed
from cnllm.gateway.store import AsyncStore, StateStore, StoreCall, StoreFailure, open_store
from cnllm.protocols import server_api
from cnllm.protocols.server import body_protocol
from cnllm.protocols.server_interface import query_number
from cnllm.system.processes import fork_safe
from cnllm.types import Note, Reply, Request, checks

__all__ = [
    "State",
    "Steps",
    "SyncState",
    "Work",
    "continued_body",
    "delete_response",
    "earlier_items",
    "keep_reply",
    "response_body",
    "response_items",
    "restored_request",
    "store_note",
]


T = TypeVar("T")

_PAGE, _MOST_ITEMS = 20, 100  # items of a page: where the client names no number, and at most

_UNAVAILABLE = Failure(
    503,
    "the store of this gateway fails, so nobody knows whether the response is kept: try again",
    "store_unavailable",
    retry_after=2.0,
)


Steps = Generator[StoreCall | Callable[[], Any], Any, T]
"""Yields calls of a store, and functions that may take long. Gets the result of each, and returns a value."""

Work = Callable[[Callable[[], Any]], Awaitable[Any]]
"""Calls a function, in a thread where it may take long."""


def restored_request(exchange: Exchange, identity: str) -> Steps[Request]:
    """Return the request with what its client lost."""
    authors = exchange.authors
    if not authors.call_ids and not authors.prefixes:
        request: Request
        request = yield authors.restore
        return request
    options = {"call_ids": authors.call_ids, "prefixes": authors.prefixes, "decode": authors.decode}
    turns = yield StoreCall("find_turns", (identity,), options)
    request = yield lambda: authors.restore(turns.by_call, turns.by_prefix)
    exchange.notes += authors.notes
    if turns.failure is not None:
        exchange.notes.append(store_note(turns.failure, "went on without what it keeps"))
    return request


def keep_reply(exchange: Exchange, reply: Reply, identity: str) -> Steps[None]:
    """Keep what the client may lose of a reply, and the reply itself where its protocol goes on from its id.

    Nothing is kept of one that its client takes for failed.
    """
    if exchange.reply_failure(reply) is not None:
        return
    turn, call_ids, prefix = yield lambda: exchange.turn(reply)
    if turn is not None:
        outcome = yield StoreCall("keep_turn", (identity, turn, call_ids, prefix))
        if type(outcome) is StoreFailure:
            exchange.notes.append(store_note(outcome.reason, "the reasoning and the calls of the reply were not kept"))
    if exchange.keeps_replies:
        yield from _keep_response(identity, exchange, reply)


def store_note(failure: str, action: str) -> Note:
    """Return the note that the store failed, and what that means."""
    return Note("state-unavailable", "gateway", f"the store: {failure}", action)


class State:
    """The store of a gateway. `store` is a store, its URL, or None for the memory of this process."""

    def __init__(self, store: Any) -> None:
        self._store = _checked_store(store)
        self._open: AsyncStore | None = None

    @property
    def store(self) -> AsyncStore:
        """Return the store, opened at its first use: after a fork of the server."""
        if self._open is None:
            store = _open_if_url(self._store)
            self._open = store if isinstance(store, AsyncStore) else AsyncStore(store)
        return self._open

    async def run(self, steps: Steps[T], work: Work | None = None) -> T:
        """Carry out steps and return their value. Raises what they raise. `work` calls the functions among them."""
        try:
            step = next(steps)
            while True:
                if isinstance(step, StoreCall):
                    step = steps.send(await self.store.run(step))
                else:
                    step = steps.send(step() if work is None else await work(step))
        except StopIteration as stop:
            value: T = stop.value
            return value

    async def close(self) -> None:
        """Close the store."""
        if self._open is not None:
            await self._open.aclose()


class SyncState:
    """`State` without an event loop, for any number of threads."""

    def __init__(self, store: Any) -> None:
        self._store = _checked_store(store)
        self._open: StateStore | None = None
        self._lock = fork_safe(threading.Lock())

    @property
    def store(self) -> StateStore:
        """Return the store, opened at its first use."""
        if self._open is None:
            with self._lock:
                if self._open is None:
                    self._open = _open_if_url(self._store)
        return self._open

    def run(self, steps: Steps[T]) -> T:
        """Carry out steps and return their value. Raises what they raise."""
        try:
            step = next(steps)
            while True:
                step = steps.send(step.on(self.store) if isinstance(step, StoreCall) else step())
        except StopIteration as stop:
            value: T = stop.value
            return value

    def close(self) -> None:
        """Close the store."""
        if self._open is not None:
            self._open.close()


def _checked_store(store: Any) -> Any:
    """Return an argument `store`. Raises `TypeError` for what is neither a store, nor its URL, nor None."""
    if not (store is None or isinstance(store, str | AsyncStore) or hasattr(store, "threads")):
        raise checks.wrong_type("store", store, "a store, its URL, or None")
    return store


def _open_if_url(store: Any) -> Any:
    """Return a store; a URL, or None for the memory of this process, is opened."""
    return open_store(store) if store is None or isinstance(store, str) else store


# ── responses that are kept ──────────────────────────────────────────────────


def continued_body(identity: str, protocol: str, body: dict[str, Any]) -> Steps[dict[str, Any]]:
    """Return a body with all that its ids name: the conversation before its input, and items of earlier outputs.

    One without such ids stays: its own protocol counts, and not that of the path (`protocol`). Raises `RequestFailed`
    for an id that is not kept, and for a conversation, which is not kept.
    """
    api = server_api(body_protocol(protocol, body))
    for key, code in api.unserved.items():
        if body.get(key) is not None:
            raise RequestFailed(Failure(400, f"{key}: no conversation is kept here; send all of its messages", code))
    if api.kept_replies is None:
        return body
    if body.get("conversation") is not None:
        raise RequestFailed(
            Failure(400, "conversation: this gateway keeps responses, and no conversations", "unsupported")
        )
    if body.get("background") is True:
        raise RequestFailed(Failure(400, "background: this gateway answers at once", "unsupported"))
    id = body.get("previous_response_id")
    input = body.get("input")
    references = _references(input)
    if id is None and not references:
        return body
    if isinstance(input, list) and references:
        input = yield from _with_items(identity, input, references)
    if id is None:
        return {**body, "input": input}
    if not isinstance(id, str):
        raise RequestFailed(Failure(400, "previous_response_id: a text is required", "invalid_request"))
    record = yield from _load(identity, id, 400, "previous_response_not_found")
    items = _input_items(input)
    if not isinstance(items, list):
        return body  # the decoder names the place
    rest = {key: value for key, value in body.items() if key != "previous_response_id"}
    return {**rest, "input": [*record["input"], *record["response"].get("output", ()), *items]}


def earlier_items(continued: dict[str, Any], body: dict[str, Any]) -> int:
    """Return how many items of a continued body stand before the input of the client's body."""
    if continued is body:
        return 0
    return len(continued["input"]) - len(_input_items(body.get("input")))


def _references(items: Any) -> dict[int, str]:
    """Return the ids of the items of earlier outputs that an input names, by their places."""
    return {
        index: item["id"]
        for index, item in enumerate(items if isinstance(items, list) else ())
        if isinstance(item, dict)
        and item.keys() <= {"type", "id"}
        and item.get("type") in ("item_reference", None)
        and isinstance(item.get("id"), str)
    }


def _with_items(identity: str, items: list[Any], references: dict[int, str]) -> Steps[list[Any]]:
    """Return an input with the items that it names, as far as they are kept. A note names what is left out."""
    blobs = yield StoreCall("output_items", (identity, list(dict.fromkeys(references.values()))))
    if type(blobs) is StoreFailure:
        raise RequestFailed(_UNAVAILABLE)
    found = yield lambda: {id: msgspec.json.decode(blob) for id, blob in blobs.items()}
    return [found.get(references.get(index, ""), item) for index, item in enumerate(items)]


def _keep_response(identity: str, exchange: Exchange, reply: Reply) -> Steps[None]:
    """Keep a response, unless its request says that it is not to be stored. A note says where that failed."""
    if exchange.body.get("store") is False:
        return
    record, items = yield lambda: _response_record(exchange, reply)
    outcome = yield StoreCall("keep_response", (identity, exchange.id, record, items))
    if outcome is not True:
        reason = outcome.reason if type(outcome) is StoreFailure else "it is too long"
        exchange.notes.append(store_note(reason, "the response was not kept under its id"))


def _response_record(exchange: Exchange, reply: Reply) -> tuple[bytes, dict[str, bytes]]:
    """Return what is kept of a response, and the items of its output by their ids."""
    input = _input_items(exchange.body.get("input"))
    response = exchange.reply_body(reply)
    items = {item["id"]: msgspec.json.encode(item) for item in _output_items(response)}
    return msgspec.json.encode({"input": input, "response": response}), items


def _input_items(input: Any) -> Any:
    """Return the input of a request as items: none where the request names a stored prompt. Anything else stays."""
    if isinstance(input, str):
        return [{"role": "user", "content": input}]
    return [] if input is None else input


def _output_items(response: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the items of a response that have an id."""
    return [item for item in response.get("output", ()) if isinstance(item.get("id"), str)]


def response_body(identity: str, id: str) -> Steps[dict[str, Any]]:
    """Return a response. Raises `RequestFailed` for an id that is not kept."""
    record = yield from _load(identity, id)
    response: dict[str, Any] = record["response"]
    return response


def response_items(identity: str, id: str, query: Mapping[str, str]) -> Steps[dict[str, Any]]:
    """Return a page of the input items of a response, the newest first unless the query has another order.

    Raises `RequestFailed` for an id that is not kept.
    """
    record = yield from _load(identity, id)
    items: dict[str, dict[str, Any]] = {}
    for index, item in enumerate(record["input"]):
        item_id = item["id"] if isinstance(item.get("id"), str) else f"item_{index}"
        while item_id in items:  # clients may send an item twice, and read on after an id
            item_id = f"{item_id}_{index}"
        items[item_id] = {**_listed_item(item), "id": item_id}
    ids = list(items) if query.get("order") == "asc" else list(items)[::-1]
    limit = min(max(query_number(query, "limit", _PAGE), 1), _MOST_ITEMS)
    start = ids.index(after) + 1 if (after := query.get("after")) in items else 0
    page = ids[start : start + limit]
    ends = {"first_id": page[0] if page else None, "last_id": page[-1] if page else None}
    return {"object": "list", "data": [items[id] for id in page], **ends, "has_more": start + limit < len(ids)}


def _listed_item(item: dict[str, Any]) -> dict[str, Any]:
    """Return an item of an input in the form of a list: a message has its type, and its content in parts."""
    if item.get("type", "message") != "message":
        return item
    kind = "output_text" if item.get("role") == "assistant" else "input_text"
    content = item.get("content")
    parts = [{"type": kind, "text": content}] if isinstance(content, str) else content
    return {**item, "type": "message", "content": parts}


def delete_response(identity: str, id: str) -> Steps[dict[str, Any]]:
    """Delete a response. Raises `RequestFailed` for an id that is not kept."""
    record = yield from _load(identity, id)
    item_ids = [item["id"] for item in _output_items(record["response"])]
    was_kept = yield StoreCall("delete_response", (identity, id, item_ids))
    if type(was_kept) is StoreFailure:
        raise RequestFailed(_UNAVAILABLE)
    if not was_kept:
        raise RequestFailed(_missing(id, 404, "not_found"))
    return {"id": id, "object": "response", "deleted": True}


def _load(identity: str, id: str, status: int = 404, code: str = "not_found") -> Steps[dict[str, Any]]:
    """Return what is kept of a response. Raises `RequestFailed` for an id that is not kept."""
    content = yield StoreCall("response", (identity, id))
    if type(content) is StoreFailure:
        raise RequestFailed(_UNAVAILABLE)
    if content is None:
        raise RequestFailed(_missing(id, status, code))
    record: dict[str, Any]
    record = yield lambda: msgspec.json.decode(content)
    return record


def _missing(id: str, status: int, code: str) -> Failure:
    """Return the answer for an id that is not kept."""
    return Failure(status, f"Previous response with id '{id}' not found.", code)
