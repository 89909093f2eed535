"""State between requests: what clients cannot carry, by the id of a call or by the conversation so far.

    from cnllm.gateway.store import AsyncStore, open_store

    store = open_store("sqlite:")                      # the default file; None is the memory of this process
    store.keep_turn(identity, turn, ["call_1"], prefix)
    turns = store.find_turns(identity, call_ids=["call_1"])
    turns = await AsyncStore(store).run(StoreCall("find_turns", (identity,), {"call_ids": ["call_1"]}))

Everything is scoped by the identity of the client's key, of which only a hash is stored. Each store is bounded in
count, in bytes and in time. A store that fails (a full disk, a server that is away) raises nothing: the request goes on
without state, `failure` says why, and the log has a line. `check_store` raises at the start of a gateway.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import weakref
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from secrets import token_hex
from typing import Any
from weakref import WeakKeyDictionary

from msgspec import Struct

from cnllm.errors import CnllmError
from cnllm.gateway.store.items import (
    Ambiguous,
    StateStore,
    StoreBounds,
    StoreFailure,
    TurnRecord,
    Turns,
    WouldWait,
    decode_turn,
    encode_turn,
)
from cnllm.system.processes import generation

__all__ = [
    "Ambiguous",
    "AsyncStore",
    "StateStore",
    "StoreBounds",
    "StoreCall",
    "StoreFailure",
    "TurnRecord",
    "Turns",
    "check_store",
    "decode_turn",
    "encode_turn",
    "open_store",
]

_FORMS = "use memory:, sqlite:, sqlite:PATH, redis://HOST:PORT/DB or rediss://…"
_CHECK = "check"  # an identity that no client has: theirs are hashes
_CHECK_HINT = "the store must be there when the gateway starts: check its server, its disk, or name another store"


def open_store(url: str | None = None) -> StateStore:
    """Return the store of a URL.

    None and `memory:` are the memory of this process. `sqlite:PATH` is a file that all processes of one machine may
    use, and `sqlite:` the default one (`gateway.db` in the data folder). `redis://…` (also `rediss://`, `unix://`) is a
    server that several machines may use. Raise `CnllmError` for another URL, and for a file that cannot be used.
    """
    if url is None or url in ("memory", "memory:"):
        from cnllm.gateway.store.memory import MemoryStore

        return MemoryStore()
    scheme, separator, rest = url.partition(":")
    if separator and scheme == "sqlite":
        from cnllm.gateway.store.sqlite import SqliteStore

        return SqliteStore(rest.removeprefix("//") or None)
    if separator and scheme in ("redis", "rediss", "unix"):
        from cnllm.gateway.store.redis import RedisStore

        return RedisStore(url)
    # The URL is not shown: it may hold a password.
    raise CnllmError("the store's URL names no store that cnllm knows", hint=_FORMS)


def check_store(url: str) -> None:
    """Write, read and delete an item. Raise `CnllmError` for a store that cannot be used now."""
    store = open_store(url)
    try:
        id = token_hex(8)
        is_kept = store.keep_response(_CHECK, id, b"") is True and store.response(_CHECK, id) == b""
        if not is_kept or store.delete_response(_CHECK, id) is not True:
            raise CnllmError(store.failure or "the store keeps nothing", hint=_CHECK_HINT)
    finally:
        store.close()


# ── the methods of a store, awaited ──────────────────────────────────────────


Outcome = tuple[Any, Exception | None]
"""The result of a call, or its error."""


class StoreCall(Struct, frozen=True):
    """A method of a store to call."""

    method: str
    arguments: tuple[Any, ...]
    options: dict[str, Any] = {}

    def on(self, store: StateStore) -> Any:
        """Call the method of a store, and return its result."""
        return getattr(store, self.method)(*self.arguments, **self.options)


class AsyncStore:
    """A store for coroutines.

    Memory is used directly, a file in one thread of this process, and a server in several. Turns that are kept at the
    same time go to the file in one transaction. A call that is cancelled may still be carried out.
    """

    def __init__(self, store: StateStore) -> None:
        self._store = store
        self._threads: ThreadPoolExecutor | None = None
        self._generation = generation()
        self._groups: WeakKeyDictionary[asyncio.AbstractEventLoop, _Group] = WeakKeyDictionary()

    async def run(self, call: StoreCall) -> Any:
        """Carry out a call of a method of the store, and return its result."""
        threads = self._store.threads
        if not threads:
            return call.on(self._store)
        loop = asyncio.get_running_loop()
        if threads > 1:
            return await loop.run_in_executor(self._executor(), call.on, self._store)
        group = self._groups.get(loop)
        if group is None:
            group = self._groups[loop] = _Group(loop, self._store, self._executor)
        return await group.add(call)

    async def aclose(self) -> None:
        """Close the store."""
        await self.run(StoreCall("close", ()))  # after all that was begun before
        if self._threads is not None:
            self._threads.shutdown(wait=False)
            self._threads = None

    def _executor(self) -> ThreadPoolExecutor:
        """Return the threads of this process: a forked child has none of its parent's."""
        if self._threads is None or self._generation != generation():
            self._generation = generation()
            self._threads = ThreadPoolExecutor(self._store.threads, thread_name_prefix="cnllm-store")
        return self._threads


class _Group:
    """The operations of one event loop on a store that may block: what comes at the same time is carried out together.

    So requests that end at the same time share one transaction, which each of them awaits. It needs no thread where the
    store need not wait.
    """

    def __init__(
        self, loop: asyncio.AbstractEventLoop, store: StateStore, executor: Callable[[], ThreadPoolExecutor]
    ) -> None:
        self._loop = weakref.ref(loop)
        self._store = store
        self._executor = executor
        self._waiting: list[tuple[StoreCall, asyncio.Future[Any]]] = []
        self._is_busy = False

    def add(self, call: StoreCall) -> asyncio.Future[Any]:
        """Return the result of a call, which is carried out with the others that wait."""
        loop = self._loop()
        assert loop is not None
        future: asyncio.Future[Any] = loop.create_future()
        self._waiting.append((call, future))
        if not self._is_busy:
            self._is_busy = True
            loop.call_soon(self._begin, loop)  # with those of the requests that the loop serves now
        return future

    def _begin(self, loop: asyncio.AbstractEventLoop) -> None:
        """Carry out what waits: at once, or in the thread."""
        begun, self._waiting = self._waiting, []
        calls = [call for call, _ in begun]
        futures = [future for _, future in begun]
        carry_out = functools.partial(_carry_out, self._store, calls, {})
        if all(call.method != "close" for call in calls):
            results = self._store.attempt(carry_out)
            if results is not None:
                self._is_busy = False
                _give_out(futures, results)
                if self._store.needs_checkpoint:
                    with contextlib.suppress(RuntimeError):  # the process ends
                        self._executor().submit(self._store.checkpoint)
                return
        try:
            job = loop.run_in_executor(self._executor(), carry_out)
        except RuntimeError as error:  # the process ends
            self._is_busy = False
            _give_out(futures, [(None, error)] * len(futures))
            return
        job.add_done_callback(functools.partial(self._end, loop, futures))

    def _end(
        self,
        loop: asyncio.AbstractEventLoop,
        futures: list[asyncio.Future[Any]],
        job: asyncio.Future[list[Outcome]],
    ) -> None:
        """Give the results out, and go on with what came meanwhile."""
        failure = asyncio.CancelledError() if job.cancelled() else job.exception()
        _give_out(futures, [(None, failure)] * len(futures) if failure is not None else job.result())
        if self._waiting:
            self._begin(loop)
        else:
            self._is_busy = False


def _give_out(futures: list[asyncio.Future[Any]], results: Sequence[tuple[Any, BaseException | None]]) -> None:
    """Give each future its result or its error."""
    for future, (result, error) in zip(futures, results, strict=True):
        if future.done():  # its request was given up
            continue
        if error is not None:
            future.set_exception(error)
        else:
            future.set_result(result)


def _carry_out(store: StateStore, calls: list[StoreCall], outcomes: dict[int, Outcome]) -> list[Outcome]:
    """Return the results of calls, or their errors. The turns are kept together, before the rest.

    `outcomes` takes them by the number of the call: one that has its outcome is not carried out again.
    """
    turns = [number for number, call in enumerate(calls) if call.method == "keep_turn" and number not in outcomes]
    if turns:
        arguments = [calls[number].arguments for number in turns]
        values, failure = _outcome(StoreCall("keep_turns", (arguments,)), store)
        results = iter(values or ())
        outcomes.update((number, (next(results, None), failure)) for number in turns)
    for number, call in enumerate(calls):
        if number not in outcomes:
            outcomes[number] = _outcome(call, store)
    return [outcomes[number] for number in range(len(calls))]


def _outcome(call: StoreCall, store: StateStore) -> Outcome:
    """Return the result of a call, or its error, which is raised where the call is awaited. Raises `WouldWait`."""
    try:
        return call.on(store), None
    except WouldWait:
        raise
    except Exception as error:  # noqa: BLE001
        return None, error
