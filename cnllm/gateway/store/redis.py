"""State in a Redis server, for several machines.

Each operation is one script, which is atomic and uses the server's clock. A server that is away costs a request at most
`TIMEOUT_SECONDS`, and the requests after it nothing: they go on without state until one that tries again succeeds.
"""

from __future__ import annotations

import os
import re
import time
from collections.abc import Sequence
from typing import Any
from urllib.parse import unquote, urlsplit

from cnllm.config import redact
from cnllm.config.distribution import install_command
from cnllm.errors import CnllmError
from cnllm.gateway.store.items import FailureLog, Item, StateStore, StoreBounds, item_size
from cnllm.gateway.store.redis_scripts import DELETE, FIND, KEEP

__all__ = ["RedisStore", "connect", "describe_error"]

PREFIX = "{cnllm:gateway}"
"""The beginning of all keys on the server. The braces put them into one slot of a cluster."""
CONNECT_SECONDS = 0.5
TIMEOUT_SECONDS = 1.0
_CONNECTIONS = 16
_FIRST_PAUSE, _LAST_PAUSE = 1.0, 30.0  # seconds without an attempt after a failure


class RedisStore(StateStore):
    """State on a server. Any thread may use it."""

    threads = _CONNECTIONS

    def __init__(self, url: str, bounds: StoreBounds | None = None) -> None:
        """Take the server's URL. No connection is made yet.

        Raise `CnllmError` for a URL that names no server, and where the package `redis` is missing.
        """
        self._url = url
        self._bounds = bounds or StoreBounds()
        self._client = connect(url)
        self._server = _Server(url)
        self._scripts = {text: self._client.register_script(text) for text in (KEEP, FIND, DELETE)}

    @property
    def failure(self) -> str | None:
        """Return why the last operation failed; None if it did not."""
        return self._server.failures.failure

    def _keep(self, items: Sequence[Item]) -> list[bool | None]:
        """Keep items. Return for each whether it is kept; None for a failure."""
        return [self._keep_item(*item) for item in items]

    def _find(self, keys: Sequence[bytes]) -> list[tuple[bytes, bytes, bytes]] | None:
        """Return key, digest and content of the items under these keys; None for a failure."""
        rows = self._call(FIND, [key.hex() for key in keys])
        return None if rows is None else [(key, *row) for key, row in zip(keys, rows, strict=False) if row]

    def _delete(self, key: bytes) -> bool | None:
        """Delete the item under a key. Return whether there was one; None for a failure."""
        count = self._call(DELETE, [key.hex()])
        return None if count is None else bool(count)

    def close(self) -> None:
        """Close the connections."""
        self._client.close()

    # ── scripts ──────────────────────────────────────────────────────────────
    def _call(self, script: str, arguments: list[Any]) -> Any:
        """Return the result of a script; None where the server failed."""
        if not self._server.may_try():
            return None
        try:
            result = self._scripts[script](keys=[PREFIX], args=arguments)
        except Exception as error:  # noqa: BLE001 - whatever the client raises, the request goes on
            self._server.log_failure(error, script)
            return None
        self._server.log_recovery(script)
        return result

    def _keep_item(self, owner: bytes, digest: bytes, blob: bytes, keys: list[bytes]) -> bool | None:
        """Keep an item. Return whether it is kept; None for a failure."""
        bounds = self._bounds
        if not keys or item_size(blob, len(keys)) > bounds.identity_bytes:
            return False
        limits = (bounds.count, bounds.bytes, bounds.identity_count, bounds.identity_bytes)
        lifetime = max(1, int(bounds.seconds * 1000))
        id_ = os.urandom(8).hex()
        arguments = [owner.hex(), digest, blob, id_, lifetime, *limits, *(key.hex() for key in keys)]
        count = self._call(KEEP, arguments)
        return None if count is None else bool(count)


class _Server:
    """Whether the server answers. After a failure one request at a time tries it again, after pauses that grow."""

    def __init__(self, url: str) -> None:
        self._url = url
        self.failures = FailureLog()
        self._pause = 0.0
        self._next_attempt = 0.0
        self._is_probing = False
        self._refused: str | None = None  # the script that the server refused last

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

    def log_failure(self, error: Exception, script: str) -> None:
        """Log the failure of a script. One of the connection begins a pause, or doubles it."""
        from redis.exceptions import ConnectionError, TimeoutError

        if isinstance(error, ConnectionError | TimeoutError | OSError):
            if self._is_probing or not self._pause:
                self._pause = min(max(_FIRST_PAUSE, self._pause * 2), _LAST_PAUSE)
                self._next_attempt = time.monotonic() + self._pause
            self._is_probing = False
            self._refused = None
        else:
            self._refused = script
        self.failures.log_failure(describe_error(self._url, error))

    def log_recovery(self, script: str) -> None:
        """Log the end of a failure. A full server can be read: what it refused last has to work again."""
        self._pause = 0.0
        self._is_probing = False
        if self._refused in (None, script):
            self._refused = None
            self.failures.log_recovery()


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
