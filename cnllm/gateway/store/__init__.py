"""State between requests: what clients cannot carry, by the id of a call or by the conversation so far.

    from cnllm.gateway.store import AsyncStore, open_store

    store = open_store("sqlite:")                      # the default file; None is the memory of this process
    store.keep_turn(identity, turn, ["call_1"], prefix)
    turns = store.find_turns(identity, call_ids=["call_1"])
    store = AsyncStore(store)                          # the same methods, awaited

Everything is scoped by the identity of the client's key, of which only a hash is stored. Each store is bounded in
count, in bytes and in time. A store that fails (a full disk, a server that is away) raises nothing: the request goes on
without state, `failure` says why, and the log has a line. `check_store` raises at the start of a gateway.
"""

from __future__ import annotations

import asyncio
import functools
import weakref
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from secrets import token_hex
from typing import Any, NamedTuple, TypeVar
from weakref import WeakKeyDictionary

from cnllm.errors import CnllmError
from cnllm.gateway.store.items import (
    Ambiguous,
    StateStore,
    StoreBounds,
    StoreFailure,
    TurnRecord,
    Turns,
    decode_turn,
    encode_turn,
)
from cnllm.system.processes import generation

__all__ = [
    "Ambiguous",
    "AsyncStore",
    "StateStore",
    "StoreBounds",
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
        is_kept = store.keep_response(_CHECK, id, b"") and store.response(_CHECK, id) == b""
        if not is_kept or store.delete_response(_CHECK, id) is not True:
            raise CnllmError(store.failure or "the store keeps nothing", hint=_CHECK_HINT)
    finally:
        store.close()


# ── the methods of a store, awaited ──────────────────────────────────────────


T = TypeVar("T")


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

    @property
    def failure(self) -> str | None:
        """Return why the last operation failed; None if it did not."""
        return self._store.failure

    async def keep_turn(self, identity: str, turn: TurnRecord, call_ids: Sequence[str], prefix: bytes | None) -> bool:
        """Keep a turn; see `Store.keep_turn`."""
        return await self._run(self._store.keep_turn, identity, turn, call_ids, prefix)

    async def find_turns(self, identity: str, *, call_ids: Iterable[str] = (), prefixes: Iterable[bytes] = ()) -> Turns:
        """Return the turns under many keys in one search."""
        return await self._run(self._store.find_turns, identity, call_ids=list(call_ids), prefixes=list(prefixes))

    async def keep_response(
        self, identity: str, id: str, blob: bytes, items: Mapping[str, bytes] | None = None
    ) -> bool:
        """Keep a response under its id; see `StateStore.keep_response`."""
        return await self._run(self._store.keep_response, identity, id, blob, items)

    async def output_items(self, identity: str, item_ids: Sequence[str]) -> dict[str, bytes] | StoreFailure:
        """Return the items of outputs that are kept under these ids, and a failure where nobody knows."""
        return await self._run(self._store.output_items, identity, item_ids)

    async def response(self, identity: str, id: str) -> bytes | StoreFailure | None:
        """Return a response; None where there is none, and a failure where nobody knows."""
        return await self._run(self._store.response, identity, id)

    async def delete_response(self, identity: str, id: str, item_ids: Sequence[str] = ()) -> bool | StoreFailure:
        """Delete a response and the items of its output; see `StateStore.delete_response`."""
        return await self._run(self._store.delete_response, identity, id, item_ids)

    async def aclose(self) -> None:
        """Close the store."""
        await self._run(self._store.close)  # after all that was begun before
        if self._threads is not None:
            self._threads.shutdown(wait=False)
            self._threads = None

    def _run(self, function: Callable[..., T], *arguments: Any, **options: Any) -> Awaitable[T]:
        if not self._store.threads:
            return _result(function, *arguments, **options)
        loop = asyncio.get_running_loop()
        if self._store.threads > 1:
            return loop.run_in_executor(self._executor(), functools.partial(function, *arguments, **options))
        group = self._groups.get(loop)
        if group is None:
            group = self._groups[loop] = _Group(loop, self._store, self._executor)
        return group.add(_Operation(function.__name__, arguments, options))

    def _executor(self) -> ThreadPoolExecutor:
        """Return the threads of this process: a forked child has none of its parent's."""
        if self._threads is None or self._generation != generation():
            self._generation = generation()
            self._threads = ThreadPoolExecutor(self._store.threads, thread_name_prefix="cnllm-store")
        return self._threads


async def _result(function: Callable[..., T], *arguments: Any, **options: Any) -> T:
    return function(*arguments, **options)


class _Operation(NamedTuple):
    """A call of a store's method."""

    method: str
    arguments: tuple[Any, ...]
    options: dict[str, Any]


class _Group:
    """The operations of one event loop on a store that blocks: what comes while others run is carried out together.

    So requests that end at the same time share one transaction, which each of them awaits.
    """

    def __init__(
        self, loop: asyncio.AbstractEventLoop, store: StateStore, executor: Callable[[], ThreadPoolExecutor]
    ) -> None:
        self._loop = weakref.ref(loop)
        self._store = store
        self._executor = executor
        self._waiting: list[tuple[_Operation, asyncio.Future[Any]]] = []
        self._is_busy = False

    def add(self, operation: _Operation) -> asyncio.Future[Any]:
        """Return the result of an operation, which is carried out with the others that wait."""
        loop = self._loop()
        assert loop is not None
        future: asyncio.Future[Any] = loop.create_future()
        self._waiting.append((operation, future))
        if not self._is_busy:
            self._is_busy = True
            loop.call_soon(self._begin, loop)  # with those of the requests that the loop serves now
        return future

    def _begin(self, loop: asyncio.AbstractEventLoop) -> None:
        """Carry out what waits, in the thread."""
        begun, self._waiting = self._waiting, []
        operations = [operation for operation, _ in begun]
        try:
            job = loop.run_in_executor(self._executor(), _carry_out, self._store, operations)
        except RuntimeError as error:  # the process ends
            self._is_busy = False
            for _, future in begun:
                if not future.done():
                    future.set_exception(error)
            return
        job.add_done_callback(functools.partial(self._end, loop, [future for _, future in begun]))

    def _end(
        self,
        loop: asyncio.AbstractEventLoop,
        futures: list[asyncio.Future[Any]],
        job: asyncio.Future[list[tuple[Any, Exception | None]]],
    ) -> None:
        """Give the results out, and go on with what came meanwhile."""
        failure = asyncio.CancelledError() if job.cancelled() else job.exception()
        results = [(None, failure)] * len(futures) if failure is not None else job.result()
        for future, (result, error) in zip(futures, results, strict=True):
            if future.done():  # its request was given up
                continue
            if error is not None:
                future.set_exception(error)
            else:
                future.set_result(result)
        if self._waiting:
            self._begin(loop)
        else:
            self._is_busy = False


def _carry_out(store: StateStore, operations: list[_Operation]) -> list[tuple[Any, Exception | None]]:
    """Return the results of operations, or their errors. The turns are kept together, before the rest."""
    turns = [operation.arguments for operation in operations if operation.method == "keep_turn"]
    kept, failure = _outcome(store.keep_turns, turns) if turns else ([], None)
    outcomes = iter(kept or ())
    return [
        (next(outcomes, None), failure)
        if method == "keep_turn"
        else _outcome(getattr(store, method), *arguments, **options)
        for method, arguments, options in operations
    ]


def _outcome(function: Callable[..., T], *arguments: Any, **options: Any) -> tuple[T | None, Exception | None]:
    """Return the result of a function, or its error, which is raised where the operation is awaited."""
    try:
        return function(*arguments, **options), None
    except Exception as error:  # noqa: BLE001
        return None, error
