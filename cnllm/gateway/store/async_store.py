"""The methods of a store, awaited."""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Awaitable, Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Protocol, TypeVar, runtime_checkable

from cnllm.fork import generation
from cnllm.gateway.store.items import Ambiguous, Store, StoreFailure, Turn, Turns

__all__ = ["AsyncStore"]

T = TypeVar("T")


@runtime_checkable
class HasCoroutines(Protocol):
    """A store whose methods exist as coroutines, too."""

    def coroutines(self) -> Any:
        """Return an object with the store's methods as coroutines."""


class AsyncStore:
    """A store for coroutines.

    Memory is used directly, a file in one thread of this process, and a server by asyncio's sockets. A call that is
    cancelled may still be carried out.
    """

    def __init__(self, store: Store) -> None:
        self._store = store
        self._coroutines: Any = store.coroutines() if isinstance(store, HasCoroutines) else None
        self._thread: ThreadPoolExecutor | None = None
        self._generation = 0

    @property
    def failure(self) -> str | None:
        """Return why the last operation failed; None if it did not."""
        return self._store.failure

    async def keep_turn(self, identity: str, turn: Turn, call_ids: Sequence[str], prefix: bytes | None) -> bool:
        """Keep a turn; see `Store.keep_turn`."""
        return await self._run(self._store.keep_turn, identity, turn, call_ids, prefix)

    async def turn_by_call(self, identity: str, call_id: str) -> Turn | None:
        """Return the turn that made a call. None where there is none, or where two turns claim the id."""
        return await self._run(self._store.turn_by_call, identity, call_id)

    async def turns_by_prefix(self, identity: str, prefix: bytes) -> Turn | Ambiguous | None:
        """Return the turn at the end of a conversation, `Ambiguous()` for several, None for none."""
        return await self._run(self._store.turns_by_prefix, identity, prefix)

    async def find_turns(self, identity: str, *, call_ids: Iterable[str] = (), prefixes: Iterable[bytes] = ()) -> Turns:
        """Return the turns under many keys in one search."""
        return await self._run(self._store.find_turns, identity, call_ids=list(call_ids), prefixes=list(prefixes))

    async def keep_response(self, identity: str, id: str, blob: bytes) -> bool:
        """Keep a response under its id; it replaces an earlier one. Return whether it is kept."""
        return await self._run(self._store.keep_response, identity, id, blob)

    async def response(self, identity: str, id: str) -> bytes | StoreFailure | None:
        """Return a response; None where there is none, and a failure where nobody knows."""
        return await self._run(self._store.response, identity, id)

    async def delete_response(self, identity: str, id: str) -> bool | StoreFailure:
        """Delete a response. Return whether there was one, and a failure where nobody knows."""
        return await self._run(self._store.delete_response, identity, id)

    async def aclose(self) -> None:
        """Close the store."""
        await self._run(self._store.close)
        if self._thread is not None:
            self._thread.shutdown(wait=False)
            self._thread = None

    def _run(self, function: Callable[..., T], *arguments: Any, **options: Any) -> Awaitable[T]:
        if self._coroutines is not None:
            coroutine: Awaitable[T] = getattr(self._coroutines, function.__name__)(*arguments, **options)
            return coroutine
        if not self._store.blocks:
            return _result(function, *arguments, **options)
        work = functools.partial(function, *arguments, **options)
        return asyncio.get_running_loop().run_in_executor(self._executor(), work)

    def _executor(self) -> ThreadPoolExecutor:
        """Return the thread of this process: a forked child has none of its parent's."""
        if self._thread is None or self._generation != generation():
            self._generation = generation()
            self._thread = ThreadPoolExecutor(1, thread_name_prefix="cnllm-store")
        return self._thread


async def _result(function: Callable[..., T], *arguments: Any, **options: Any) -> T:
    return function(*arguments, **options)
