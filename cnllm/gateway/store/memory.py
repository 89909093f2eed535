"""State in the memory of this process."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Sequence

from msgspec import Struct

from cnllm.gateway.store.items import (
    Ambiguous,
    StoreBounds,
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
from cnllm.system.processes import fork_safe

__all__ = ["MemoryStore"]

_DEFAULT = StoreBounds(count=50_000, bytes=32 << 20)
_RESPONSE = b"response"
"""The digest of all responses: a later one replaces an earlier one, and makes nothing ambiguous."""


class _Item(Struct, eq=False):
    """A turn, a response, or (without a digest) the mark of an ambiguous key. `keys` are those that still find it."""

    owner: bytes
    at: float
    digest: bytes
    blob: bytes
    keys: list[bytes]
    size: int


class _Owner(Struct, eq=False):
    """The items of one identity, the oldest first, and their bytes."""

    items: dict[_Item, None] = {}
    bytes: int = 0


class MemoryStore:
    """State that ends with the process. A forked child begins with a copy and goes its own way."""

    blocks = False
    failure: str | None = None

    def __init__(self, bounds: StoreBounds | None = None, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._bounds = bounds or _DEFAULT
        self._clock = clock
        self._lock = fork_safe(threading.Lock())
        self._items: dict[_Item, None] = {}  # the oldest first
        self._keys: dict[bytes, _Item] = {}
        self._owners: dict[bytes, _Owner] = {}
        self._bytes = 0

    # ── turns ────────────────────────────────────────────────────────────────
    def keep_turn(self, identity: str, turn: TurnRecord, call_ids: Sequence[str], prefix: bytes | None) -> bool:
        """Keep a turn under the ids of its calls and under the conversation that ends with it."""
        owner, blob = identity_hash(identity), encode_turn(turn)
        keys = turn_keys(owner, call_ids, prefix)
        return self._keep(owner, digest_of(blob), blob, keys)

    def find_turns(self, identity: str, *, call_ids: Iterable[str] = (), prefixes: Iterable[bytes] = ()) -> Turns:
        """Return the turns under many keys in one search."""
        owner, now = identity_hash(identity), self._clock()
        with self._lock:
            calls = [(call_id, self._turn(call_key(owner, call_id), now)) for call_id in call_ids]
            ends = [(prefix, self._turn(prefix_key(owner, prefix), now)) for prefix in prefixes]
        return Turns(
            {call_id: turn for call_id, turn in calls if type(turn) is TurnRecord},
            {prefix: turn for prefix, turn in ends if turn is not None},
        )

    # ── responses ────────────────────────────────────────────────────────────
    def keep_response(self, identity: str, id: str, blob: bytes) -> bool:
        """Keep a response under its id; it replaces an earlier one."""
        owner = identity_hash(identity)
        return self._keep(owner, _RESPONSE, bytes(blob), [response_key(owner, id)])

    def response(self, identity: str, id: str) -> bytes | None:
        """Return a response; None where there is none."""
        with self._lock:
            item = self._find(response_key(identity_hash(identity), id), self._clock())
        return None if item is None else item.blob

    def delete_response(self, identity: str, id: str) -> bool:
        """Delete a response. Return whether there was one."""
        with self._lock:
            item = self._find(response_key(identity_hash(identity), id), self._clock())
            if item is not None:
                self._drop(item)
        return item is not None

    def close(self) -> None:
        """Forget everything."""
        with self._lock:
            self._items.clear()
            self._keys.clear()
            self._owners.clear()
            self._bytes = 0

    # ── items ────────────────────────────────────────────────────────────────
    def _find(self, key: bytes, now: float) -> _Item | None:
        item = self._keys.get(key)
        return None if item is None or item.at < now - self._bounds.seconds else item

    def _turn(self, key: bytes, now: float) -> TurnRecord | Ambiguous | None:
        item = self._find(key, now)
        if item is None:
            return None
        return decode_turn(item.blob) if item.digest else Ambiguous()

    def _keep(self, owner: bytes, digest: bytes, blob: bytes, keys: list[bytes]) -> bool:
        now = self._clock()
        with self._lock:
            clear = []
            for key in keys:
                if (earlier := self._find(key, now)) is not None and earlier.digest != digest:
                    self._add(_Item(owner, now, b"", b"", [key], item_size(b"", 1)))
                else:
                    clear.append(key)
            item = _Item(owner, now, digest, blob, clear, item_size(blob, len(clear)))
            fits = bool(clear) and item.size <= self._bounds.identity_bytes
            if fits:
                self._add(item)
            self._evict(owner, now)
        return fits

    def _add(self, item: _Item) -> None:
        for key in item.keys:
            if (earlier := self._keys.get(key)) is not None:
                self._unlink(earlier, key)
            self._keys[key] = item
        owner = self._owners.get(item.owner)
        if owner is None:
            owner = self._owners[item.owner] = _Owner()
        self._items[item] = owner.items[item] = None
        self._bytes += item.size
        owner.bytes += item.size

    def _unlink(self, item: _Item, key: bytes) -> None:
        """Take a key from an item. An item without keys is dropped."""
        item.keys.remove(key)
        if not item.keys:
            self._drop(item)

    def _drop(self, item: _Item) -> None:
        for key in item.keys:
            del self._keys[key]
        del self._items[item]
        self._bytes -= item.size
        owner = self._owners[item.owner]
        del owner.items[item]
        owner.bytes -= item.size
        if not owner.items:
            del self._owners[item.owner]

    def _evict(self, name: bytes, now: float) -> None:
        """Drop the oldest items of this identity, then of all, until the bounds hold, and a few that are too old."""
        bounds = self._bounds
        owner = self._owners.get(name)
        while (
            owner and owner.items and (owner.bytes > bounds.identity_bytes or len(owner.items) > bounds.identity_count)
        ):
            self._drop(next(iter(owner.items)))
        while self._items and (self._bytes > bounds.bytes or len(self._items) > bounds.count):
            self._drop(next(iter(self._items)))
        for _ in range(4):
            oldest = next(iter(self._items), None)
            if oldest is None or oldest.at >= now - bounds.seconds:
                return
            self._drop(oldest)
