"""State in a Redis server, for several machines.

Each operation is one script, which is atomic and uses the server's clock. A server that is away costs a request at most
`TIMEOUT_SECONDS`, and the requests after it nothing: they go on without state until one that tries again succeeds.
"""

from __future__ import annotations

import asyncio
import os
import re
import time
import weakref
from collections.abc import Iterable, Sequence
from typing import Any
from urllib.parse import unquote, urlsplit

from cnllm.config import redact
from cnllm.config.distribution import install_command
from cnllm.errors import CnllmError
from cnllm.gateway.store.failure_log import FailureLog
from cnllm.gateway.store.items import (
    Ambiguous,
    Bounds,
    StoreFailure,
    Turn,
    Turns,
    call_key,
    decode_turn,
    digest_of,
    encode_turn,
    identity_hash,
    item_size,
    prefix_key,
    response_key,
    turn_keys,
)
from cnllm.gateway.store.redis_scripts import DELETE, FIND, KEEP
from cnllm.system.processes import generation

__all__ = ["RedisStore", "connect"]

PREFIX = "{cnllm:gateway}"
"""The beginning of all keys on the server. The braces put them into one slot of a cluster."""
CONNECT_SECONDS = 0.5
TIMEOUT_SECONDS = 1.0
_CONNECTIONS = 16
_FIRST_PAUSE, _LAST_PAUSE = 1.0, 30.0  # seconds without an attempt after a failure
_RESPONSE = b"response"


class RedisStore:
    """State on a server. Any thread and any event loop may use it."""

    blocks = True

    def __init__(self, url: str, bounds: Bounds | None = None, *, prefix: str = PREFIX) -> None:
        """Take the server's URL. No connection is made yet.

        Raise `CnllmError` for a URL that names no server, and where the package `redis` is missing.
        """
        self._url = url
        self._prefix = prefix
        self._bounds = bounds or Bounds()
        self._client = connect(url, asynchronous=False)
        self._server = _Server(url)
        self._scripts = {text: self._client.register_script(text) for text in (KEEP, FIND, DELETE)}

    @property
    def failure(self) -> str | None:
        """Return why the last operation failed; None if it did not."""
        return self._server.failure

    def coroutines(self) -> AsyncRedisStore:
        """Return the same store with coroutines for methods."""
        return AsyncRedisStore(self)

    # ── turns ────────────────────────────────────────────────────────────────
    def keep_turn(self, identity: str, turn: Turn, call_ids: Sequence[str], prefix: bytes | None) -> bool:
        """Keep a turn under the ids of its calls and under the conversation that ends with it."""
        return bool(self._call(KEEP, self._keep_turn(identity, turn, call_ids, prefix)))

    def turn_by_call(self, identity: str, call_id: str) -> Turn | None:
        """Return the turn that made a call."""
        return self.find_turns(identity, call_ids=(call_id,)).by_call.get(call_id)

    def turns_by_prefix(self, identity: str, prefix: bytes) -> Turn | Ambiguous | None:
        """Return the turn at the end of a conversation, `Ambiguous()` for several, None for none."""
        return self.find_turns(identity, prefixes=(prefix,)).by_prefix.get(prefix)

    def find_turns(self, identity: str, *, call_ids: Iterable[str] = (), prefixes: Iterable[bytes] = ()) -> Turns:
        """Return the turns under many keys in one search."""
        search = _Search(identity, call_ids, prefixes)
        return search.turns(self._call(FIND, search.keys) if search.keys else [], self.failure)

    # ── responses ────────────────────────────────────────────────────────────
    def keep_response(self, identity: str, id: str, blob: bytes) -> bool:
        """Keep a response under its id; it replaces an earlier one."""
        return bool(self._call(KEEP, self._keep_response(identity, id, blob)))

    def response(self, identity: str, id: str) -> bytes | StoreFailure | None:
        """Return a response; None where there is none, and a failure where nobody knows."""
        return _blob(self._call(FIND, _response(identity, id)), self.failure)

    def delete_response(self, identity: str, id: str) -> bool | StoreFailure:
        """Delete a response. Return whether there was one, and a failure where nobody knows."""
        return _is_deleted(self._call(DELETE, _response(identity, id)), self.failure)

    def close(self) -> None:
        """Close the connections."""
        self._client.close()

    # ── scripts ──────────────────────────────────────────────────────────────
    def _call(self, script: str, arguments: list[Any] | None) -> Any:
        """Return the result of a script; None where the server failed, or where there is nothing to do."""
        if arguments is None or not self._server.may_try():
            return None
        try:
            result = self._scripts[script](keys=[self._prefix], args=arguments)
        except Exception as error:  # noqa: BLE001 - whatever the client raises, the request goes on
            self._server.failed(error)
            return None
        self._server.worked()
        return result

    def _keep_turn(self, identity: str, turn: Turn, call_ids: Sequence[str], prefix: bytes | None) -> list[Any] | None:
        owner, blob = identity_hash(identity), encode_turn(turn)
        keys = turn_keys(owner, call_ids, prefix)
        return self._keep(owner, digest_of(blob), blob, keys)

    def _keep_response(self, identity: str, id: str, blob: bytes) -> list[Any] | None:
        owner = identity_hash(identity)
        return self._keep(owner, _RESPONSE, blob, [response_key(owner, id)])

    def _keep(self, owner: bytes, digest: bytes, blob: bytes, keys: list[bytes]) -> list[Any] | None:
        bounds = self._bounds
        if not keys or item_size(blob, len(keys)) > bounds.identity_bytes:
            return None
        limits = (bounds.count, bounds.bytes, bounds.identity_count, bounds.identity_bytes)
        lifetime = max(1, int(bounds.seconds * 1000))
        id_ = os.urandom(8).hex()
        return [owner.hex(), digest, blob, id_, lifetime, *limits, *(key.hex() for key in keys)]


class AsyncRedisStore:
    """The methods of a `RedisStore` as coroutines, with connections of the running event loop."""

    def __init__(self, store: RedisStore) -> None:
        self._store = store
        self._scripts: weakref.WeakKeyDictionary[asyncio.AbstractEventLoop, tuple[int, Any, dict[str, Any]]]
        self._scripts = weakref.WeakKeyDictionary()

    async def keep_turn(self, identity: str, turn: Turn, call_ids: Sequence[str], prefix: bytes | None) -> bool:
        """Keep a turn under the ids of its calls and under the conversation that ends with it."""
        return bool(await self._call(KEEP, self._store._keep_turn(identity, turn, call_ids, prefix)))

    async def turn_by_call(self, identity: str, call_id: str) -> Turn | None:
        """Return the turn that made a call."""
        return (await self.find_turns(identity, call_ids=(call_id,))).by_call.get(call_id)

    async def turns_by_prefix(self, identity: str, prefix: bytes) -> Turn | Ambiguous | None:
        """Return the turn at the end of a conversation, `Ambiguous()` for several, None for none."""
        return (await self.find_turns(identity, prefixes=(prefix,))).by_prefix.get(prefix)

    async def find_turns(self, identity: str, *, call_ids: Iterable[str] = (), prefixes: Iterable[bytes] = ()) -> Turns:
        """Return the turns under many keys in one search."""
        search = _Search(identity, call_ids, prefixes)
        return search.turns(await self._call(FIND, search.keys) if search.keys else [], self._store.failure)

    async def keep_response(self, identity: str, id: str, blob: bytes) -> bool:
        """Keep a response under its id; it replaces an earlier one."""
        return bool(await self._call(KEEP, self._store._keep_response(identity, id, blob)))

    async def response(self, identity: str, id: str) -> bytes | StoreFailure | None:
        """Return a response; None where there is none, and a failure where nobody knows."""
        return _blob(await self._call(FIND, _response(identity, id)), self._store.failure)

    async def delete_response(self, identity: str, id: str) -> bool | StoreFailure:
        """Delete a response. Return whether there was one, and a failure where nobody knows."""
        return _is_deleted(await self._call(DELETE, _response(identity, id)), self._store.failure)

    async def close(self) -> None:
        """Close the connections of this event loop."""
        entry = self._scripts.pop(asyncio.get_running_loop(), None)
        if entry is not None and entry[0] == generation():
            await entry[1].aclose()
        self._store.close()

    async def _call(self, script: str, arguments: list[Any] | None) -> Any:
        server = self._store._server
        if arguments is None or not server.may_try():
            return None
        try:
            # The client's own timeouts do not cover a name that is looked up, nor (in old versions) its first reply.
            async with asyncio.timeout(CONNECT_SECONDS + TIMEOUT_SECONDS):
                result = await self._loop_scripts()[script](keys=[self._store._prefix], args=arguments)
        except Exception as error:  # noqa: BLE001 - whatever the client raises, the request goes on
            server.failed(error)
            return None
        server.worked()
        return result

    def _loop_scripts(self) -> dict[str, Any]:
        loop = asyncio.get_running_loop()
        entry = self._scripts.get(loop)
        if entry is None or entry[0] != generation():
            client = connect(self._store._url, asynchronous=True)
            scripts = {text: client.register_script(text) for text in (KEEP, FIND, DELETE)}
            entry = self._scripts[loop] = (generation(), client, scripts)
        return entry[2]


class _Server:
    """Whether the server answers. After a failure one request at a time tries it again, after pauses that grow."""

    def __init__(self, url: str) -> None:
        parts = urlsplit(url)
        self._name = parts.path if parts.scheme == "unix" else f"{parts.hostname}:{parts.port or 6379}"
        self._secrets = [unquote(parts.password)] if parts.password else []
        self._failures = FailureLog()
        self._pause = 0.0
        self._next_attempt = 0.0
        self._is_probing = False

    @property
    def failure(self) -> str | None:
        return self._failures.failure

    def may_try(self) -> bool:
        """Whether to send a request now."""
        if not self._pause:
            return True
        now = time.monotonic()
        if now < self._next_attempt:
            return False
        self._next_attempt = now + self._pause  # the others wait for this attempt
        self._is_probing = True
        return True

    def failed(self, error: Exception) -> None:
        """Log a failure. One of the connection begins a pause, or doubles it."""
        from redis.exceptions import ConnectionError, TimeoutError

        if isinstance(error, ConnectionError | TimeoutError | OSError):
            if self._is_probing or not self._pause:
                self._pause = min(max(_FIRST_PAUSE, self._pause * 2), _LAST_PAUSE)
                self._next_attempt = time.monotonic() + self._pause
            self._is_probing = False
        reason = str(error).partition(", with args")[0][:200]  # the arguments of a script are conversations
        text = redact.redact(f"Redis at {self._name}: {type(error).__name__}: {reason}", self._secrets)
        self._failures.failed(text)

    def worked(self) -> None:
        """Log the end of a failure."""
        self._pause = 0.0
        self._is_probing = False
        self._failures.worked()


class _Search:
    """The keys of a search, and the turns in its result."""

    def __init__(self, identity: str, call_ids: Iterable[str], prefixes: Iterable[bytes]) -> None:
        owner = identity_hash(identity)
        self._calls = list(call_ids)
        self._prefixes = list(prefixes)
        self.keys = [call_key(owner, call_id).hex() for call_id in self._calls]
        self.keys += [prefix_key(owner, prefix).hex() for prefix in self._prefixes]

    def turns(self, rows: Any, failure: str | None) -> Turns:
        """Return the turns of a script's result; None stands for a failure."""
        if rows is None:
            return Turns(failure=failure)
        matches = [None if not row else decode_turn(row[1]) if row[0] else Ambiguous() for row in rows]
        return Turns(
            {call: turn for call, turn in zip(self._calls, matches, strict=False) if type(turn) is Turn},
            {
                prefix: turn
                for prefix, turn in zip(self._prefixes, matches[len(self._calls) :], strict=False)
                if turn is not None
            },
        )


def _response(identity: str, id_: str) -> list[Any]:
    return [response_key(identity_hash(identity), id_).hex()]


def _blob(rows: Any, failure: str | None) -> bytes | StoreFailure | None:
    """Return the content of a script's result; None for the rows stands for a failure."""
    if rows is None:
        return StoreFailure(failure or "")
    return rows[0][1] if rows and rows[0] else None


def _is_deleted(count: int | None, failure: str | None) -> bool | StoreFailure:
    return StoreFailure(failure or "") if count is None else bool(count)


def _has_database(url: str) -> bool:
    """Whether what follows the host is the number of a database, or nothing. The client takes other words for 0."""
    parts = urlsplit(url)
    return parts.scheme == "unix" or re.fullmatch(r"/?\d*", parts.path) is not None


def connect(url: str, *, asynchronous: bool) -> Any:
    """Return a client. It reconnects once, for a connection that the server closed meanwhile."""
    try:
        import redis
        import redis.asyncio
        from redis.asyncio.retry import Retry as AsyncRetry
        from redis.backoff import NoBackoff
        from redis.retry import Retry
    except ImportError as error:
        raise CnllmError("a store on a Redis server needs the package redis", hint=install_command("redis")) from error
    options: dict[str, Any] = {
        "socket_connect_timeout": CONNECT_SECONDS,
        "socket_timeout": TIMEOUT_SECONDS,
        "max_connections": _CONNECTIONS,
        "timeout": TIMEOUT_SECONDS,
        "protocol": 2,
    }
    again = (redis.ConnectionError,)
    try:
        if not _has_database(url):
            raise ValueError
        if asynchronous:
            retry = AsyncRetry(NoBackoff(), 1, supported_errors=again)
            pool = redis.asyncio.BlockingConnectionPool.from_url(url, retry=retry, **options)
            return redis.asyncio.Redis.from_pool(pool)
        blocking = redis.BlockingConnectionPool.from_url(url, retry=Retry(NoBackoff(), 1, again), **options)
        return redis.Redis.from_pool(blocking)
    except (ValueError, TypeError, AttributeError):  # not chained: its sentence may hold the URL, and that a password
        raise CnllmError(
            "the store's URL is not one of a Redis server", hint="it looks like redis://:PASSWORD@HOST:PORT/DB"
        ) from None
