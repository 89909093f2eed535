"""The book of keys on a Redis server, for several machines.

Keys and teams are in the hash `PREFIX:keys` (digest to record, MessagePack), the names in use in `PREFIX:names`, and
the use of each in `PREFIX:use:DIGEST`. Nothing expires. An account is read with the server's clock, changed here, and
written back if nobody wrote it meanwhile, else all over again.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar
from urllib.parse import unquote, urlsplit

import msgspec
from msgspec.structs import replace

from cnllm.config import redact
from cnllm.errors import CnllmError
from cnllm.gateway.limits.account import Grant, Operation, update
from cnllm.gateway.limits.key_use import KeyUse, account_of, name_taken, no_such_name, use_of
from cnllm.gateway.limits.keys import KeyRecord, Rights, team_digest
from cnllm.gateway.store.redis import connect
from cnllm.system.processes import generation

__all__ = ["AsyncRedisBook", "RedisBook"]

PREFIX = "{cnllm:keys}"
"""The beginning of all names on the server. The braces put them into one slot of a cluster."""
_SECONDS = 2.0
_PAUSE = 0.002  # seconds, at most, before an account that others write is read again; longer each time

_ADD = """
local other = redis.call('HGET', KEYS[1] .. ':names', ARGV[2])
if other and (other ~= ARGV[1] or ARGV[5] == '') then return 0 end
if redis.call('HGET', KEYS[1] .. ':names', ARGV[4]) == ARGV[1] then redis.call('HDEL', KEYS[1] .. ':names', ARGV[4]) end
redis.call('HSET', KEYS[1] .. ':keys', ARGV[1], ARGV[3])
redis.call('HSET', KEYS[1] .. ':names', ARGV[2], ARGV[1])
return 1
"""
"""A digest, a name, a record, the name that it had, and whether to replace that → whether the name was free."""

_CHANGE = """
if redis.call('HGET', KEYS[1] .. ':keys', ARGV[1]) ~= ARGV[3] then return 0 end
redis.call('HSET', KEYS[1] .. ':keys', ARGV[1], ARGV[4])
if ARGV[5] ~= '' then redis.call('HDEL', KEYS[1] .. ':names', ARGV[2]) end
return 1
"""
"""A digest, a name, the record as it was and as it will be, and whether its name is free → whether it was so."""

_EXCHANGE = """
local name = KEYS[1] .. ':use:' .. ARGV[1]
local account = redis.call('GET', name) or ''
if ARGV[3] and account == ARGV[2] then
  redis.call('SET', name, ARGV[3])
  return 1
end
local clock = redis.call('TIME')
return {clock[1], clock[2], account, redis.call('HGET', KEYS[1] .. ':keys', ARGV[1])}
"""
"""A digest, an account as it was and as it will be → 1 if it was so, else seconds, microseconds, account, record."""

T = TypeVar("T")
_encode = msgspec.msgpack.Encoder().encode
_decode_record = msgspec.msgpack.Decoder(KeyRecord).decode

_MEND = """
local name = KEYS[1] .. ':use:' .. ARGV[1]
local account = cmsgpack.unpack(redis.call('GET', name))
for _, lease in pairs(account.leases) do
  if type(lease.grant) == 'string' then lease.grant = cmsgpack.unpack(lease.grant) end
end
redis.call('SET', name, cmsgpack.pack(account))
"""
"""A digest whose account is of an earlier version, which kept grants as bytes in it: unpack them."""


class RedisBook:
    """The book on a server."""

    def __init__(self, url: str, *, prefix: str = PREFIX) -> None:
        """Take the server's URL. No connection is made yet. Raise `CnllmError` for a URL that names no server."""
        self.url = url
        self.prefix = prefix
        self._client = connect(url, asynchronous=False)
        scripts = map(self._client.register_script, (_ADD, _CHANGE, _EXCHANGE, _MEND))
        self._add, self._change, self._exchange, self._mend = scripts

    def coroutines(self) -> AsyncRedisBook:
        """Return the book for a gateway."""
        return AsyncRedisBook(self)

    def add(self, digest: str, record: KeyRecord) -> None:
        """Add a key or a team, or replace the record of a key in a file."""
        name = record.stored_name
        with _Failures(self.url):
            data = self._client.hget(f"{self.prefix}:keys", digest)
            old = _decode_record(data).stored_name if data else ""
            if not self._add(
                keys=[self.prefix], args=[digest, name, _encode(record), old, "file" if record.is_in_file else ""]
            ):
                raise name_taken(name)

    def change(self, name: str, change: Callable[[KeyRecord], KeyRecord]) -> KeyRecord:
        """Change the record of a name."""
        with _Failures(self.url):
            while True:
                digest = self._client.hget(f"{self.prefix}:names", name)
                data = digest and self._client.hget(f"{self.prefix}:keys", digest)
                if not data:
                    raise no_such_name(name)
                record = change(_decode_record(data))
                is_revoked = "" if record.revoked is None else "revoked"
                if self._change(keys=[self.prefix], args=[digest, name, data, _encode(record), is_revoked]):
                    return record

    def revoke(self, name: str) -> KeyRecord:
        """Revoke the key of a name."""
        return self.change(name, lambda record: replace(record, revoked=time.time()))

    def get(self, name: str) -> KeyRecord | None:
        """Return the record of a name in use."""
        with _Failures(self.url):
            digest = self._client.hget(f"{self.prefix}:names", name)
            data = digest and self._client.hget(f"{self.prefix}:keys", digest)
            return _decode_record(data) if data else None

    def uses(self, *, teams: bool = False) -> list[KeyUse]:
        """Return all keys, or all teams, with their use, the oldest first."""
        with _Failures(self.url):
            uses = []
            for digest in self._client.hkeys(f"{self.prefix}:keys"):
                if digest.startswith(team_digest("").encode()) is teams:
                    now, wall, account, record = _read(self._exchange(keys=[self.prefix], args=[digest]))
                    if _is_old(account):
                        self._mend(keys=[self.prefix], args=[digest])
                        now, wall, account, record = _read(self._exchange(keys=[self.prefix], args=[digest]))
                    if record is not None:
                        uses.append(use_of(record, account_of(account), now, wall))
        return sorted(uses, key=lambda use: use.record.created)

    def is_empty(self) -> bool:
        """Whether no key was ever added."""
        with _Failures(self.url):
            digests = self._client.hkeys(f"{self.prefix}:keys")
        return all(digest.startswith(team_digest("").encode()) for digest in digests)

    def close(self) -> None:
        """Close the connections."""
        self._client.close()


class AsyncRedisBook:
    """The book on a server for the coroutines of one event loop."""

    def __init__(self, book: RedisBook) -> None:
        self._book = book
        self._client: Any = None
        self._script: Any = None
        self._mend: Any = None
        self._generation = 0

    async def find(self, digest: str) -> Rights | None:
        """Return the rights of a key by its digest."""
        return await self._run(self._find(digest))

    async def _find(self, digest: str) -> Rights | None:
        _, wall, _, record = await self._call(digest)
        if record is None:
            return None
        team = None if record.team is None else (await self._call(team_digest(record.team)))[3]
        return Rights(record, team, wall)

    async def update(self, digest: str, operation: Operation) -> Grant:
        """Carry out an operation of a worker."""
        return await self._run(self._update(digest, operation))

    async def _update(self, digest: str, operation: Operation) -> Grant:
        found, tries = await self._call(digest), 0
        while True:
            now, wall, data, record = found
            if record is None:
                return Grant("revoked")
            try:
                account = account_of(data)
            except UnicodeDecodeError:
                await self._mend(keys=[self._book.prefix], args=[digest])
                found = await self._call(digest)
                continue
            grant = update(account, record, operation, now, wall)
            answer = await self._script(keys=[self._book.prefix], args=[digest, data, _encode(account)])
            if answer == 1:
                return grant
            tries += 1
            if tries > 1:  # several write it all the time: they take turns
                await asyncio.sleep(random.random() * _PAUSE * tries)
                answer = await self._script(keys=[self._book.prefix], args=[digest])
            found = _read(answer)

    async def _call(self, digest: str) -> tuple[int, float, bytes, KeyRecord | None]:
        """Return the times of both clocks, the account and the record of a digest."""
        self._connected()
        return _read(await self._script(keys=[self._book.prefix], args=[digest]))

    async def aclose(self) -> None:
        """Close the connections."""
        client, self._client = self._client, None
        if client is not None and self._generation == generation():
            await client.aclose()
        self._book.close()

    def _connected(self) -> Any:
        """Return the client of this process."""
        if self._client is None or self._generation != generation():
            self._generation = generation()
            self._client = connect(self._book.url, asynchronous=True)
            self._script = self._client.register_script(_EXCHANGE)
            self._mend = self._client.register_script(_MEND)
        return self._client

    async def _run(self, answer: Awaitable[T]) -> T:
        with _Failures(self._book.url):
            async with asyncio.timeout(_SECONDS):
                return await answer


def _read(answer: list[Any]) -> tuple[int, float, bytes, KeyRecord | None]:
    """Return the times of both clocks, the account and the record that the server sent."""
    seconds, micros, account, record = answer
    now = int(seconds) * 1_000_000 + int(micros)
    return now, now / 1_000_000, account, None if record is None else _decode_record(record)


def _is_old(account: bytes) -> bool:
    """Whether an account has bytes in it where texts are expected: see `_MEND`."""
    try:
        account_of(account)
    except UnicodeDecodeError:
        return True
    return False


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
