"""Keep the responses that a client of the Responses protocol may continue by their ids."""

from __future__ import annotations

from typing import Any

import msgspec

from cnllm.gateway.exchange import Exchange
from cnllm.gateway.failures import Failure, RequestFailed
from cnllm.gateway.state import State
from cnllm.types import Reply

__all__ = ["ResponseState"]


class ResponseState:
    """The responses of a gateway. Each is kept with the whole input that it answered, by the client's identity."""

    def __init__(self, state: State) -> None:
        self._state = state

    async def continued(self, identity: str, body: dict[str, Any]) -> dict[str, Any]:
        """Return a body whose input begins with the conversation that `previous_response_id` names.

        Raises `RequestFailed` for an id that is not kept, and for a conversation, which this gateway does not keep.
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
        kept = await self._load(identity, id, 400, "previous_response_not_found")
        given = body.get("input")
        items = [{"role": "user", "content": given}] if isinstance(given, str) else given
        if not isinstance(items, list):
            return body  # the decoder names the place
        rest = {key: value for key, value in body.items() if key != "previous_response_id"}
        return {**rest, "input": [*kept["input"], *kept["response"].get("output", ()), *items]}

    async def keep(self, identity: str, exchange: Exchange, reply: Reply) -> None:
        """Keep a response, unless its request says that it is not to be stored."""
        if exchange.body.get("store") is False:
            return
        given = exchange.body.get("input")
        items = [{"role": "user", "content": given}] if isinstance(given, str) else given
        record = msgspec.json.encode({"input": items, "response": exchange.reply_body(reply)})
        await self._state.store.keep_response(identity, exchange.id, record)

    async def body(self, identity: str, id: str) -> dict[str, Any]:
        """Return a response. Raises `RequestFailed` for an id that is not kept."""
        response: dict[str, Any] = (await self._load(identity, id))["response"]
        return response

    async def items(self, identity: str, id: str) -> dict[str, Any]:
        """Return the input items of a response. Raises `RequestFailed` for an id that is not kept."""
        items = [
            item if isinstance(item, dict) and item.get("id") else {"id": f"item_{index}", **item}
            for index, item in enumerate((await self._load(identity, id))["input"])
        ]
        ids = [item["id"] for item in items]
        ends = {"first_id": ids[0] if ids else None, "last_id": ids[-1] if ids else None}
        return {"object": "list", "data": items, **ends, "has_more": False}

    async def delete(self, identity: str, id: str) -> dict[str, Any]:
        """Delete a response. Raises `RequestFailed` for an id that is not kept."""
        if not await self._state.store.delete_response(identity, id):
            raise RequestFailed(_missing(id, 404, "not_found"))
        return {"id": id, "object": "response", "deleted": True}

    async def _load(self, identity: str, id: str, status: int = 404, code: str = "not_found") -> dict[str, Any]:
        """Return what is kept of a response."""
        content = await self._state.store.response(identity, id)
        if content is None:
            raise RequestFailed(_missing(id, status, code))
        record: dict[str, Any] = msgspec.json.decode(content)
        return record


def _missing(id: str, status: int, code: str) -> Failure:
    """Return the answer for an id that is not kept."""
    return Failure(status, f"Previous response with id '{id}' not found.", code)
