"""The book of keys on a Redis server, for several machines.

Keys and teams are in the hash `PREFIX:keys` (digest to record, MessagePack), the names in use in `PREFIX:names`, and
the use of each in `PREFIX:use:DIGEST`. Nothing expires. An account is read with the server's clock, changed here, and
written back if nobody wrote it meanwhile, else all over again.
"""

from __future__ import annotations

import contextlib
import random
import time
from collections.abc import Callable, Iterator, Mapping

import msgspec
from msgspec.structs import replace

from cnllm.errors import CnllmError
from cnllm.gateway.limits.account import Grant, Operation, update
from cnllm.gateway.limits.key_use import KeyUse, account_of, name_taken, no_such_name, use_of
from cnllm.gateway.limits.keys import KeyRecord, Rights, team_digest
from cnllm.gateway.store.redis import connect, describe_error

__all__ = ["RedisBook"]

PREFIX = "{cnllm:keys}"
"""The beginning of all names on the server. The braces put them into one slot of a cluster."""
_SECONDS = 2.0  # for an operation that others disturb all the time
_PAUSE = 0.002  # seconds, at most, before an account that others write is read again; longer each time

_ADD = """
local names, taken = KEYS[1] .. ':names', {}
for i = 1, #ARGV, 5 do
  local other = taken[ARGV[i + 1]] or redis.call('HGET', names, ARGV[i + 1])
  if other and (other ~= ARGV[i] or ARGV[i + 4] == '') then return ARGV[i + 1] end
  taken[ARGV[i + 1]] = ARGV[i]
end
for i = 1, #ARGV, 5 do
  if redis.call('HGET', names, ARGV[i + 3]) == ARGV[i] then redis.call('HDEL', names, ARGV[i + 3]) end
  redis.call('HSET', KEYS[1] .. ':keys', ARGV[i], ARGV[i + 2])
  redis.call('HSET', names, ARGV[i + 1], ARGV[i])
end
"""
"""For each a digest, a name, a record, the name that it had, and whether to replace that → the first name in use."""

_CHANGE = """
if redis.call('HGET', KEYS[1] .. ':keys', ARGV[1]) ~= ARGV[3] then return 0 end
redis.call('HSET', KEYS[1] .. ':keys', ARGV[1], ARGV[4])
if ARGV[5] ~= '' then redis.call('HDEL', KEYS[1] .. ':names', ARGV[2]) end
return 1
"""
"""A digest, a name, the record as it was and as it will be, and whether its name is free → whether it was so."""

_REMOVE = """
redis.call('HDEL', KEYS[1] .. ':names', ARGV[1])
redis.call('DEL', KEYS[1] .. ':use:' .. ARGV[1])
return redis.call('HDEL', KEYS[1] .. ':keys', ARGV[1])
"""
"""The digest of a team, which is its name → whether there was one."""

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

_encode = msgspec.msgpack.Encoder().encode
_decode_record = msgspec.msgpack.Decoder(KeyRecord).decode


class RedisBook:
    """The book on a server."""

    def __init__(self, url: str) -> None:
        """Take the server's URL. No connection is made yet. Raise `CnllmError` for a URL that names no server."""
        self.url = url
        self._client = connect(url)
        scripts = map(self._client.register_script, (_ADD, _CHANGE, _REMOVE, _EXCHANGE))
        self._add, self._change, self._remove, self._exchange = scripts

    def add(self, digest: str, record: KeyRecord) -> None:
        """Add a key or a team, or replace the record of a key in a file unless it is revoked."""
        self.add_all({digest: record})

    def add_all(self, records: Mapping[str, KeyRecord]) -> None:
        """Add some, as `add` does, at once."""
        values: list[str | bytes] = []
        with _failures(self.url):
            for digest, record in records.items():
                data = self._client.hget(f"{PREFIX}:keys", digest)
                old = _decode_record(data) if data else None
                if old is not None and old.revoked is not None:
                    continue
                had = "" if old is None else old.stored_name
                values += (digest, record.stored_name, _encode(record), had, "file" if record.is_in_file else "")
            if name := self._add(keys=[PREFIX], args=values):
                raise name_taken(name.decode())

    def change(self, name: str, change: Callable[[KeyRecord], KeyRecord]) -> KeyRecord:
        """Change the record of a name."""
        with _failures(self.url):
            while True:
                digest = self._client.hget(f"{PREFIX}:names", name)
                data = digest and self._client.hget(f"{PREFIX}:keys", digest)
                if not data:
                    raise no_such_name(name)
                record = change(_decode_record(data))
                is_revoked = "" if record.revoked is None else "revoked"
                if self._change(keys=[PREFIX], args=[digest, name, data, _encode(record), is_revoked]):
                    return record

    def revoke(self, name: str) -> KeyRecord:
        """Revoke the key of a name."""
        return self.change(name, lambda record: replace(record, revoked=time.time()))

    def remove(self, name: str) -> None:
        """Remove a team and what it used."""
        with _failures(self.url):
            if not self._remove(keys=[PREFIX], args=[name]):
                raise no_such_name(name)

    def get(self, name: str) -> KeyRecord | None:
        """Return the record of a name in use."""
        with _failures(self.url):
            digest = self._client.hget(f"{PREFIX}:names", name)
            data = digest and self._client.hget(f"{PREFIX}:keys", digest)
            return _decode_record(data) if data else None

    def uses(self, *, teams: bool = False) -> list[KeyUse]:
        """Return all keys, or all teams, with their use, the oldest first."""
        with _failures(self.url):
            uses = []
            for digest in self._client.hkeys(f"{PREFIX}:keys"):
                if digest.startswith(team_digest("").encode()) is teams:
                    now, wall, data, record = self._look(digest)
                    if record is not None:
                        uses.append(use_of(record, account_of(data), now, wall))
        return sorted(uses, key=lambda use: use.record.created)

    def find(self, digest: str) -> Rights | None:
        """Return the rights of a key by its digest."""
        with _failures(self.url):
            _, wall, _, record = self._look(digest)
            if record is None:
                return None
            team = None if record.team is None else self._look(team_digest(record.team))[3]
            return Rights(record, team, wall)

    def update(self, digest: str, operation: Operation) -> Grant:
        """Carry out an operation of a worker."""
        last, tries = time.monotonic() + _SECONDS, 0
        with _failures(self.url):
            while True:
                now, wall, data, record = self._look(digest)
                if record is None:
                    return Grant("unknown")
                account = account_of(data)
                grant = update(account, record, operation, now, wall)
                if self._exchange(keys=[PREFIX], args=[digest, data, _encode(account)]) == 1:
                    return grant
                if time.monotonic() > last:
                    raise TimeoutError
                tries += 1
                if tries > 1:  # several write it all the time: they take turns
                    time.sleep(random.random() * _PAUSE * tries)

    def close(self) -> None:
        """Close the connections."""
        self._client.close()

    def _look(self, digest: str | bytes) -> tuple[int, float, bytes, KeyRecord | None]:
        """Return the times of both clocks, the account and the record of a digest."""
        seconds, micros, account, record = self._exchange(keys=[PREFIX], args=[digest])
        now = int(seconds) * 1_000_000 + int(micros)
        return now, now / 1_000_000, account, None if record is None else _decode_record(record)


@contextlib.contextmanager
def _failures(url: str) -> Iterator[None]:
    """Raise `CnllmError` for an error of the server."""
    try:
        yield
    except CnllmError:
        raise
    except Exception as error:  # noqa: BLE001 - whatever the client raises
        raise CnllmError(describe_error(url, error), hint="check the server, and the URL of --store") from None
