"""Define the items of a store: turns and responses, the keys that find them, the bounds, and the log of failures."""

from __future__ import annotations

import hashlib
import logging
import math
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import lru_cache
from typing import NamedTuple, TypeVar

import msgspec
from msgspec import Struct

from cnllm.store.text import as_json, from_json
from cnllm.types import Part, checks

__all__ = [
    "Ambiguous",
    "FailureLog",
    "Item",
    "StateStore",
    "StoreBounds",
    "StoreFailure",
    "TurnRecord",
    "Turns",
    "WouldWait",
    "check_of",
    "decode_turn",
    "digest_of",
    "encode_turn",
    "identity_hash",
    "item_size",
    "key_of",
    "turn_keys",
]


_RESPONSE = b"response"
"""The digest of all responses: a later one replaces an earlier one, and makes nothing ambiguous."""

_REPEAT_SECONDS = 60.0
_log = logging.getLogger("cnllm.gateway")
T = TypeVar("T")


class TurnRecord(Struct, frozen=True):
    """One assistant turn, as far as clients lose it: its author, reasoning, and the seals of its calls by call id."""

    provider: str
    model: str
    protocol: str
    parts: tuple[Part, ...] = ()


class Ambiguous(Struct, frozen=True):
    """Two turns that differ were kept under one prefix: nothing says which one a client means."""


class Turns(Struct, frozen=True):
    """The turns of one search. `failure` says why a store could not search; None where it could."""

    by_call: dict[str, TurnRecord] = {}
    by_prefix: dict[bytes, TurnRecord | Ambiguous] = {}
    failure: str | None = None


class StoreFailure(Struct, frozen=True):
    """A store could not be asked, so that nobody knows the answer. `reason` says why. It is false."""

    reason: str

    def __bool__(self) -> bool:
        return False


class StoreBounds(Struct, frozen=True):
    """The bounds of a store: items, bytes, seconds to live, and the share of count and bytes that one identity gets.

    The oldest items go first. An item is a turn or a response, with all its keys.
    """

    count: int = 200_000
    bytes: int = 256 << 20
    seconds: float = 30 * 86_400
    share: float = 0.25

    def __post_init__(self) -> None:
        for name in ("count", "bytes", "seconds", "share"):
            value = getattr(self, name)
            if not isinstance(value, int | float) or not math.isfinite(value) or value <= 0:
                raise checks.wrong_value(name, value, "a number above 0")
        if self.share > 1:
            raise checks.wrong_value("share", self.share, "a number above 0, and 1 at most")

    @property
    def identity_count(self) -> int:
        """Return the number of items that one identity may keep."""
        return max(1, int(self.count * self.share))

    @property
    def identity_bytes(self) -> int:
        """Return the number of bytes that one identity may keep."""
        return max(1, int(self.bytes * self.share))


# ── keys ─────────────────────────────────────────────────────────────────────
@lru_cache(maxsize=256)
def identity_hash(identity: str) -> bytes:
    """Return the hash that stands for an identity in a store: 16 bytes."""
    return _hash(b"identity", identity.encode("utf-8", "surrogatepass"))


def key_of(kind: bytes, owner: bytes, name: str | bytes) -> bytes:
    """Return the key of what an owner has under a name: 16 bytes.

    It is a turn by the id of its `call` or by the `prefix` that it ends, a `response`, or an `item` of an output.
    """
    return _hash(kind, owner + (name.encode("utf-8", "surrogatepass") if isinstance(name, str) else name))


def turn_keys(owner: bytes, call_ids: Iterable[str], prefix: bytes | None) -> list[bytes]:
    """Return the keys of a turn, each once: those of its calls, then that of the conversation that ends with it."""
    keys = [key_of(b"call", owner, call_id) for call_id in call_ids]
    return list(dict.fromkeys(keys if prefix is None else [*keys, key_of(b"prefix", owner, prefix)]))


def digest_of(blob: bytes) -> bytes:
    """Return the hash by which the contents of two turns are compared: 16 bytes."""
    return _hash(b"content", blob)


def check_of(names: bytes, blob: bytes) -> bytes:
    """Return the hash by which an item that is read proves to be whole, and the one of its keys: 16 bytes."""
    return _hash(b"check", names + blob)


def _hash(kind: bytes, data: bytes) -> bytes:
    return hashlib.blake2b(data, digest_size=16, person=kind).digest()


def item_size(blob: bytes, keys: int) -> int:
    """Return the bytes that an item counts for: its content, and about what its rows and keys take."""
    return len(blob) + 128 + 64 * keys


# ── contents ─────────────────────────────────────────────────────────────────
_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(TurnRecord).decode


def encode_turn(turn: TurnRecord) -> bytes:
    """Return a turn as bytes. MessagePack, or JSON for halves of surrogate pairs and numbers over 64 bits."""
    try:
        return b"m" + _encode(turn)
    except (UnicodeEncodeError, OverflowError):
        return b"j" + as_json(turn).encode()


def decode_turn(blob: bytes) -> TurnRecord | None:
    """Return the turn of `encode_turn`; None for bytes that are none (of another version, or damaged)."""
    try:
        if blob[:1] == b"m":
            return _decode(memoryview(blob)[1:])
        turn: TurnRecord = from_json(blob[1:], TurnRecord)
        return turn
    except (msgspec.MsgspecError, ValueError, TypeError, RecursionError):
        return None


class WouldWait(Exception):
    """Work on a store would have to wait, in a place where nothing may."""


# ── stores ───────────────────────────────────────────────────────────────────
class Item(NamedTuple):
    """A turn, a response, or (without a digest) the mark of an ambiguous key, and the keys that find it."""

    owner: bytes
    digest: bytes
    blob: bytes
    keys: list[bytes]


class StateStore(ABC):
    """State of the gateway. All methods may be called from any thread; none raises because the store fails.

    A class of stores has three operations on items. Each of them sets `failure`, which says why the last one failed,
    None if it did not. That may be one of another thread, so that a result says itself whether its operation failed.
    `threads` is the number of threads in which the methods may wait for a disk or a network; with 0 none waits, so that
    an event loop may call them.
    """

    threads: int

    def attempt(self, work: Callable[[], T]) -> T | None:
        """Return the result of work with this store, if it need not wait for a disk, a thread or a process, else None.

        Work that began may be done again.
        """
        return None

    @property
    def needs_checkpoint(self) -> bool:
        """Whether `checkpoint` has something to do, which may take long."""
        return False

    def checkpoint(self) -> None:
        """Move what was written to where it stays, if that is due. Others may use the store meanwhile."""
        return

    @property
    @abstractmethod
    def failure(self) -> str | None:
        """Return why the last operation failed; None if it did not."""

    @abstractmethod
    def _keep(self, items: Sequence[Item]) -> Sequence[bool | None]:
        """Keep items at once. Return for each whether it is kept; None for a failure."""

    @abstractmethod
    def _find(self, keys: Sequence[bytes]) -> Iterable[tuple[bytes, bytes, bytes]] | None:
        """Return key, digest and content of the items under these keys; None for a failure."""

    @abstractmethod
    def _delete(self, key: bytes) -> bool | None:
        """Delete the item under a key. Return whether there was one; None for a failure."""

    @abstractmethod
    def close(self) -> None:
        """Close files and connections. Without this call no data is lost. A later call opens them again."""

    def keep_turn(
        self, identity: str, turn: TurnRecord, call_ids: Sequence[str], prefix: bytes | None
    ) -> bool | StoreFailure:
        """Keep a turn under the ids of its calls and the conversation that ends with it.

        Return whether it is kept, or a failure. `prefix` is the whole conversation as sent, or a hash of it. Another
        turn that was kept under the same key makes that key ambiguous; the same content does not.
        """
        return self.keep_turns([(identity, turn, call_ids, prefix)])[0]

    def keep_turns(
        self, turns: Sequence[tuple[str, TurnRecord, Sequence[str], bytes | None]]
    ) -> list[bool | StoreFailure]:
        """Keep turns with the arguments of `keep_turn`, at once, and return its result for each."""
        items = []
        for identity, turn, call_ids, prefix in turns:
            owner, blob = identity_hash(identity), encode_turn(turn)
            items.append(Item(owner, digest_of(blob), blob, turn_keys(owner, call_ids, prefix)))
        return [self._failed if is_kept is None else is_kept for is_kept in self._keep(items)]

    @property
    def _failed(self) -> StoreFailure:
        """Return the failure of an operation. Another thread may have ended it meanwhile."""
        return StoreFailure(self.failure or "it failed a moment ago")

    def find_turns(
        self,
        identity: str,
        *,
        call_ids: Iterable[str] = (),
        prefixes: Iterable[bytes] = (),
        decode: Callable[[bytes, bytes], TurnRecord | None] = lambda digest, blob: decode_turn(blob),
    ) -> Turns:
        """Return the turns under many keys in one search: those that made calls, and those that end conversations.

        A call that two turns claim has none; a prefix that several turns have is `Ambiguous()`. `decode` returns the
        turn of a content with this digest.
        """
        owner = identity_hash(identity)
        calls = {key_of(b"call", owner, call_id): call_id for call_id in call_ids}
        ends = {key_of(b"prefix", owner, prefix): prefix for prefix in prefixes}
        rows = self._find([*calls, *ends]) if calls or ends else ()
        if rows is None:
            return Turns(failure=self._failed.reason)
        matches = [(key, decode(digest, blob) if digest else Ambiguous()) for key, digest, blob in rows]
        return Turns(
            {calls[key]: turn for key, turn in matches if key in calls and type(turn) is TurnRecord},
            {ends[key]: turn for key, turn in matches if key in ends and turn is not None},
        )

    def keep_response(
        self, identity: str, id: str, blob: bytes, items: Mapping[str, bytes] | None = None
    ) -> bool | StoreFailure:
        """Keep a response under its id; it replaces an earlier one. Return whether it is kept, or a failure.

        `items` are those of its output, by their ids, which `output_items` finds.
        """
        owner = identity_hash(identity)
        entries = [
            Item(owner, _RESPONSE, item, [key_of(b"item", owner, item_id)]) for item_id, item in (items or {}).items()
        ]
        is_kept = self._keep([Item(owner, _RESPONSE, blob, [key_of(b"response", owner, id)]), *entries])[0]
        return self._failed if is_kept is None else is_kept

    def output_items(self, identity: str, item_ids: Sequence[str]) -> dict[str, bytes] | StoreFailure:
        """Return the items of outputs that are kept under these ids, and a failure where nobody knows."""
        owner = identity_hash(identity)
        keys = {key_of(b"item", owner, item_id): item_id for item_id in item_ids}
        rows = self._find([*keys])
        return self._failed if rows is None else {keys[key]: blob for key, _, blob in rows}

    def response(self, identity: str, id: str) -> bytes | StoreFailure | None:
        """Return a response; None where there is none, and a failure where nobody knows."""
        rows = self._find([key_of(b"response", identity_hash(identity), id)])
        if rows is None:
            return self._failed
        return next((blob for _, _, blob in rows), None)

    def delete_response(self, identity: str, id: str, item_ids: Sequence[str] = ()) -> bool | StoreFailure:
        """Delete a response and the items of its output. Return whether it was kept, or a failure."""
        owner = identity_hash(identity)
        deleted = [
            self._delete(key)
            for key in [*(key_of(b"item", owner, id) for id in item_ids), key_of(b"response", owner, id)]
        ]
        return self._failed if None in deleted else deleted[-1] is True


# ── failures ─────────────────────────────────────────────────────────────────


class FailureLog:
    """The present failure of a store, and the log lines about it."""

    def __init__(self) -> None:
        self.failure: str | None = None
        self._logged: str | None = None
        self._logged_at = 0.0

    def log_failure(self, failure: str) -> None:
        """Log a failure, unless the last line said the same within a minute."""
        self.failure = failure
        now = time.monotonic()
        if failure != self._logged or now - self._logged_at >= _REPEAT_SECONDS:
            self._logged, self._logged_at = failure, now
            _log.warning("the gateway's store fails, and requests go on without state: %s", failure)

    def log_recovery(self) -> None:
        """Log the end of a failure."""
        if self.failure is not None:
            self.failure = self._logged = None
            _log.warning("the gateway's store works again")
