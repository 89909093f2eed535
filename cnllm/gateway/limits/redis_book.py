"""The book of keys on a Redis server, for several machines. Each operation is one script, which is atomic."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable
from typing import Any, TypeVar
from urllib.parse import unquote, urlsplit

import msgspec

from cnllm.config import process, redact
from cnllm.errors import CnllmError
from cnllm.gateway.limits.account import Grant, Operation
from cnllm.gateway.limits.book import KeyUse, name_taken, no_such_key
from cnllm.gateway.limits.keys import KeyRecord
from cnllm.gateway.limits.redis_script import UPDATE, USE
from cnllm.gateway.store.redis import connect

__all__ = ["AsyncRedisBook", "RedisBook"]

PREFIX = "{cnllm:keys}"
"""The beginning of all names on the server. The braces put them into one slot of a cluster."""
_SECONDS = 2.0

T = TypeVar("T")
_encode = msgspec.msgpack.Encoder().encode
_decode_record = msgspec.msgpack.Decoder(KeyRecord).decode
_decode_grant = msgspec.msgpack.Decoder(Grant).decode


class RedisBook:
    """The book on a server."""

    def __init__(self, url: str, *, prefix: str = PREFIX) -> None:
        """Take the server's URL. No connection is made yet. Raise `CnllmError` for a URL that names no server."""
        self.url = url
        self.prefix = prefix
        self._client = connect(url, asynchronous=False)
        self._use = self._client.register_script(USE)

    def coroutines(self) -> AsyncRedisBook:
        """Return the book for a gateway."""
        return AsyncRedisBook(self)

    def add(self, digest: str, record: KeyRecord) -> None:
        """Add a key."""
        with _Failures(self.url):
            # The record first: a client that has the name has a key.
            self._client.hset(f"{self.prefix}:keys", digest, _encode(record))
            if not self._client.hsetnx(f"{self.prefix}:names", record.name, digest):
                self._client.hdel(f"{self.prefix}:keys", digest)
                raise name_taken(record.name)

    def revoke(self, name: str) -> KeyRecord:
        """Revoke the key of a name."""
        with _Failures(self.url):
            digest = self._client.hget(f"{self.prefix}:names", name)
            data = digest and self._client.hget(f"{self.prefix}:keys", digest)
            if not data:
                raise no_such_key(name)
            record = msgspec.structs.replace(_decode_record(data), revoked=time.time())
            with self._client.pipeline(transaction=True) as pipeline:
                pipeline.hset(f"{self.prefix}:keys", digest, _encode(record))
                pipeline.hdel(f"{self.prefix}:names", name)
                pipeline.execute()
            return record

    def uses(self) -> list[KeyUse]:
        """Return all keys with their use, the oldest first."""
        with _Failures(self.url):
            rows = self._client.hgetall(f"{self.prefix}:keys")
            uses = [self._key_use(_decode_record(data), digest) for digest, data in rows.items()]
        return sorted(uses, key=lambda use: use.record.created)

    def is_empty(self) -> bool:
        """Whether no key was ever added."""
        with _Failures(self.url):
            return not self._client.hlen(f"{self.prefix}:keys")

    def close(self) -> None:
        """Close the connections."""
        self._client.close()

    def _key_use(self, record: KeyRecord, digest: bytes) -> KeyUse:
        """Return a key with its use."""
        spent, open, calls, tokens, unpriced, last = msgspec.msgpack.decode(
            self._use(keys=[self.prefix], args=[digest])
        )
        return KeyUse(record, dict(spent), dict(open), calls, tokens, unpriced, last / 1_000_000 if last else None)


class AsyncRedisBook:
    """The book on a server for the coroutines of one event loop."""

    def __init__(self, book: RedisBook) -> None:
        self._book = book
        self._client: Any = None
        self._script: Any = None
        self._generation = 0

    async def find(self, digest: str) -> KeyRecord | None:
        """Return the record of a key by its digest."""
        data = await self._run(self._connected().hget(f"{self._book.prefix}:keys", digest))
        return None if data is None else _decode_record(data)

    async def update(self, digest: str, operation: Operation) -> Grant:
        """Carry out an operation of a worker."""
        self._connected()
        answer = self._script(keys=[self._book.prefix], args=[digest, _encode(operation)])
        return _decode_grant(await self._run(answer))

    async def aclose(self) -> None:
        """Close the connections."""
        client, self._client = self._client, None
        if client is not None and self._generation == process.generation():
            await client.aclose()
        self._book.close()

    def _connected(self) -> Any:
        """Return the client of this process."""
        if self._client is None or self._generation != process.generation():
            self._generation = process.generation()
            self._client = connect(self._book.url, asynchronous=True)
            self._script = self._client.register_script(UPDATE)
        return self._client

    async def _run(self, answer: Awaitable[T]) -> T:
        with _Failures(self._book.url):
            async with asyncio.timeout(_SECONDS):
                return await answer


class _Failures:
    """Raises `CnllmError` for an error of the server. The URL is not shown: it may hold a password."""

    def __init__(self, url: str) -> None:
        self._url = url

    def __enter__(self) -> None: ...

    def __exit__(self, kind: Any, error: BaseException | None, trace: Any) -> None:
        if error is None or isinstance(error, CnllmError) or not isinstance(error, Exception):
            return
        parts = urlsplit(self._url)
        name = parts.path if parts.scheme == "unix" else f"{parts.hostname}:{parts.port or 6379}"
        secrets = [unquote(parts.password)] if parts.password else []
        reason = str(error).partition(", with args")[0][:200]
        text = redact.redact(f"Redis at {name}: {type(error).__name__}: {reason}", secrets)
        raise CnllmError(text, hint="check the server, and the URL of --store") from None
