"""The state of a gateway between requests: what clients cannot carry."""

from __future__ import annotations

from typing import Any

from cnllm.gateway.exchange import Exchange
from cnllm.gateway.store import AsyncStore, open_store
from cnllm.gateway.thoughts import TokenKeys
from cnllm.types import Note, Reply, Request

__all__ = ["State"]


class State:
    """The store and the keys of tokens. `store` is a store, its URL, or None for the memory of this process."""

    def __init__(self, store: Any, keys: TokenKeys | None) -> None:
        self.keys = keys
        self._store = store
        self._open: AsyncStore | None = None

    @property
    def store(self) -> AsyncStore:
        """Return the store, opened at its first use: after a fork of the server."""
        if self._open is None:
            store = open_store(self._store) if self._store is None or isinstance(self._store, str) else self._store
            self._open = store if isinstance(store, AsyncStore) else AsyncStore(store)
        return self._open

    async def restore(self, exchange: Exchange, identity: str) -> Request:
        """Return the request with what its client lost."""
        authors = exchange.authors
        if not authors.call_ids and not authors.prefixes:
            return authors.restore()
        turns = await self.store.find_turns(identity, call_ids=authors.call_ids, prefixes=authors.prefixes)
        request = authors.restore(turns.by_call, turns.by_prefix)
        exchange.notes += authors.notes
        self._note_failure(exchange)
        return request

    async def keep(self, exchange: Exchange, reply: Reply, identity: str) -> None:
        """Keep what the client may lose of a reply."""
        turn, call_ids, prefix = exchange.turn(reply)
        if turn is not None:
            await self.store.keep_turn(identity, turn, call_ids, prefix)
            self._note_failure(exchange)

    def _note_failure(self, exchange: Exchange) -> None:
        """Note that the store failed, so that reasoning may be missing."""
        if (failure := self.store.failure) is not None:
            exchange.notes.append(
                Note("state-unavailable", "gateway", f"the store: {failure}", "went on without what it keeps")
            )

    async def close(self) -> None:
        """Close the store."""
        if self._open is not None:
            await self._open.aclose()
