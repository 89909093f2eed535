"""State in a Redis server, for several machines.

Each operation is one script, which is atomic and uses the server's clock. A server that is away costs a request at most
`TIMEOUT_SECONDS`, and the requests after it nothing: they go on without state until one that tries again succeeds.
"""

from __future__ import annotations

import os
import re
import time
from collections.abc import Iterable, Sequence
from typing import Any
from urllib.parse import unquote, urlsplit

from cnllm.config import redact
from cnllm.config.distribution import install_command
from cnllm.errors import CnllmError
from cnllm.gateway.store.failure_log import FailureLog
from cnllm.gateway.store.items import (
    Ambiguous,
    StoreBounds,
    StoreFailure,
    TurnRecord,
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

__all__ = ["RedisStore", "connect", "describe_error"]

PREFIX = "{cnllm:gateway}"
"""The beginning of all keys on the server. The braces put them into one slot of a cluster."""
CONNECT_SECONDS = 0.5
TIMEOUT_SECONDS = 1.0
_CONNECTIONS = 16
_FIRST_PAUSE, _LAST_PAUSE = 1.0, 30.0  # seconds without an attempt after a failure
_RESPONSE = b"response"


class RedisStore:
    """State on a server. Any thread may use it."""

    blocks = True

    def __init__(self, url: str, bounds: StoreBounds | None = None, *, prefix: str = PREFIX) -> None:
        """Take the server's URL. No connection is made yet.

        Raise `CnllmError` for a URL that names no server, and where the package `redis` is missing.
        """
        self._url = url
        self._prefix = prefix
        self._bounds = bounds or StoreBounds()
        self._client = connect(url)
        self._server = _Server(url)
        self._scripts = {text: self._client.register_script(text) for text in (KEEP, FIND, DELETE)}

    @property
    def failure(self) -> str | None:
        """Return why the last operation failed; None if it did not."""
        return self._server.failures.failure

    # ── turns ────────────────────────────────────────────────────────────────
    def keep_turn(self, identity: str, turn: TurnRecord, call_ids: Sequence[str], prefix: bytes | None) -> bool:
        """Keep a turn under the ids of its calls and under the conversation that ends with it."""
        owner, blob = identity_hash(identity), encode_turn(turn)
        return self._keep(owner, digest_of(blob), blob, turn_keys(owner, call_ids, prefix))

    def find_turns(self, identity: str, *, call_ids: Iterable[str] = (), prefixes: Iterable[bytes] = ()) -> Turns:
        """Return the turns under many keys in one search."""
        owner, calls, ends = identity_hash(identity), list(call_ids), list(prefixes)
        keys = [*(call_key(owner, call) for call in calls), *(prefix_key(owner, prefix) for prefix in ends)]
        rows = self._call(FIND, [key.hex() for key in keys]) if keys else []
        if rows is None:
            return Turns(failure=self.failure)
        found = iter([None if not row else decode_turn(row[1]) if row[0] else Ambiguous() for row in rows])
        return Turns(
            {call: turn for call, turn in zip(calls, found, strict=False) if type(turn) is TurnRecord},
            {prefix: turn for prefix, turn in zip(ends, found, strict=False) if turn is not None},
        )

    # ── responses ────────────────────────────────────────────────────────────
    def keep_response(self, identity: str, id: str, blob: bytes) -> bool:
        """Keep a response under its id; it replaces an earlier one."""
        owner = identity_hash(identity)
        return self._keep(owner, _RESPONSE, blob, [response_key(owner, id)])

    def response(self, identity: str, id: str) -> bytes | StoreFailure | None:
        """Return a response; None where there is none, and a failure where nobody knows."""
        rows = self._call(FIND, [response_key(identity_hash(identity), id).hex()])
        return StoreFailure(self.failure or "") if rows is None else rows[0][1] if rows and rows[0] else None

    def delete_response(self, identity: str, id: str) -> bool | StoreFailure:
        """Delete a response. Return whether there was one, and a failure where nobody knows."""
        count = self._call(DELETE, [response_key(identity_hash(identity), id).hex()])
        return StoreFailure(self.failure or "") if count is None else bool(count)

    def close(self) -> None:
        """Close the connections."""
        self._client.close()

    # ── scripts ──────────────────────────────────────────────────────────────
    def _call(self, script: str, arguments: list[Any]) -> Any:
        """Return the result of a script; None where the server failed."""
        if not self._server.may_try():
            return None
        try:
            result = self._scripts[script](keys=[self._prefix], args=arguments)
        except Exception as error:  # noqa: BLE001 - whatever the client raises, the request goes on
            self._server.failed(error)
            return None
        self._server.worked()
        return result

    def _keep(self, owner: bytes, digest: bytes, blob: bytes, keys: list[bytes]) -> bool:
        """Keep an item. Return whether it is kept."""
        bounds = self._bounds
        if not keys or item_size(blob, len(keys)) > bounds.identity_bytes:
            return False
        limits = (bounds.count, bounds.bytes, bounds.identity_count, bounds.identity_bytes)
        lifetime = max(1, int(bounds.seconds * 1000))
        id_ = os.urandom(8).hex()
        arguments = [owner.hex(), digest, blob, id_, lifetime, *limits, *(key.hex() for key in keys)]
        return bool(self._call(KEEP, arguments))


class _Server:
    """Whether the server answers. After a failure one request at a time tries it again, after pauses that grow."""

    def __init__(self, url: str) -> None:
        self._url = url
        self.failures = FailureLog()
        self._pause = 0.0
        self._next_attempt = 0.0
        self._is_probing = False

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
        self.failures.failed(describe_error(self._url, error))

    def worked(self) -> None:
        """Log the end of a failure."""
        self._pause = 0.0
        self._is_probing = False
        self.failures.worked()


def describe_error(url: str, error: Exception) -> str:
    """Return an error of a server as a sentence, without the URL: it may hold a password."""
    parts = urlsplit(url)
    name = parts.path if parts.scheme == "unix" else f"{parts.hostname}:{parts.port or 6379}"
    reason = str(error).partition(", with args")[0][:200]  # the arguments of a script are conversations
    secrets = [unquote(parts.password)] if parts.password else []
    return redact.redact(f"Redis at {name}: {type(error).__name__}: {reason}", secrets)


def _has_database(url: str) -> bool:
    """Whether what follows the host is the number of a database, or nothing. The client takes other words for 0."""
    parts = urlsplit(url)
    return parts.scheme == "unix" or re.fullmatch(r"/?\d*", parts.path) is not None


def connect(url: str) -> Any:
    """Return a client. It reconnects once, for a connection that the server closed meanwhile."""
    try:
        import redis
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
        pool = redis.BlockingConnectionPool.from_url(url, retry=Retry(NoBackoff(), 1, again), **options)
        return redis.Redis.from_pool(pool)
    except (ValueError, TypeError, AttributeError):  # not chained: its sentence may hold the URL, and that a password
        raise CnllmError(
            "the store's URL is not one of a Redis server", hint="it looks like redis://:PASSWORD@HOST:PORT/DB"
        ) from None
