"""The methods of a store, awaited."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, TypeVar

from cnllm.gateway.store.items import Ambiguous, Store, Turn, Turns

__all__ = ["AsyncStore"]

T = TypeVar("T")


class AsyncStore:
    """A store for coroutines.

    Memory is used directly, a file in one thread of its own, and a server by asyncio's sockets. A call that is
    cancelled may still be carried out.
    """

    def __init__(self, store: Store) -> None:
        self._store = store

    @property
    def failure(self) -> str | None:
        """Return why the last operation failed; None if it did not."""
        return self._store.failure

    async def keep_turn(self, identity: str, turn: Turn, call_ids: Sequence[str], prefix: bytes | None) -> bool:
        """Keep a turn; see `Store.keep_turn`."""
        return await self._run(self._store.keep_turn, identity, turn, call_ids, prefix)

    async def turn_by_call(self, identity: str, call_id: str) -> Turn | None:
        """Return the turn that made a call."""
        return await self._run(self._store.turn_by_call, identity, call_id)

    async def turns_by_prefix(self, identity: str, prefix: bytes) -> Turn | Ambiguous | None:
        """Return the turn at the end of a conversation, `Ambiguous()` for several, None for none."""
        return await self._run(self._store.turns_by_prefix, identity, prefix)

    async def find_turns(self, identity: str, *, call_ids: Iterable[str] = (), prefixes: Iterable[bytes] = ()) -> Turns:
        """Return the turns under many keys in one search."""
        return await self._run(self._find, identity, list(call_ids), list(prefixes))

    def _find(self, identity: str, call_ids: list[str], prefixes: list[bytes]) -> Turns:
        return self._store.find_turns(identity, call_ids=call_ids, prefixes=prefixes)

    async def keep_response(self, identity: str, id: str, blob: bytes) -> bool:
        """Keep a response under its id; it replaces an earlier one. Return whether it is kept."""
        return await self._run(self._store.keep_response, identity, id, blob)

    async def response(self, identity: str, id: str) -> bytes | None:
        """Return a response; None where there is none."""
        return await self._run(self._store.response, identity, id)

    async def delete_response(self, identity: str, id: str) -> bool:
        """Delete a response. Return whether there was one."""
        return await self._run(self._store.delete_response, identity, id)

    async def aclose(self) -> None:
        """Close the store."""
        await self._run(self._store.close)

    async def _run(self, function: Callable[..., T], *arguments: Any) -> T:
        return function(*arguments)
