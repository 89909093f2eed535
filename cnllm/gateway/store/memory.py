"""State in the memory of this process."""

from __future__ import annotations

import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Sequence

from msgspec import Struct, field

from cnllm.gateway.store.items import Item, StateStore, StoreBounds
from cnllm.system.processes import fork_safe

__all__ = ["MemoryStore"]

_DEFAULT = StoreBounds(count=50_000, bytes=32 << 20)


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

    items: OrderedDict[_Item, None] = field(default_factory=OrderedDict)
    bytes: int = 0


class MemoryStore(StateStore):
    """State that ends with the process. A forked child begins with a copy and goes its own way."""

    threads = 0
    failure: str | None = None

    def __init__(self, bounds: StoreBounds | None = None, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._bounds = bounds or _DEFAULT
        self._owner_count, self._owner_bytes = self._bounds.identity_count, self._bounds.identity_bytes
        self._clock = clock
        self._lock = fork_safe(threading.Lock())
        # The oldest first. A plain dict whose first entries were deleted looks for its first one among their places.
        self._items: OrderedDict[_Item, None] = OrderedDict()
        self._keys: dict[bytes, _Item] = {}
        self._owners: dict[bytes, _Owner] = {}
        self._bytes = 0

    def _keep(self, items: Sequence[Item]) -> list[bool]:
        """Keep items. Return for each whether it is kept."""
        now = self._clock()
        with self._lock:
            return [self._keep_item(item, now) for item in items]

    def _find(self, keys: Sequence[bytes]) -> list[tuple[bytes, bytes, bytes]]:
        """Return key, digest and content of the items under these keys."""
        now = self._clock()
        with self._lock:
            return [(key, item.digest, item.blob) for key in keys if (item := self._live(key, now)) is not None]

    def _delete(self, key: bytes) -> bool:
        """Delete the item under a key. Return whether there was one."""
        with self._lock:
            item = self._live(key, self._clock())
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
    def _live(self, key: bytes, now: float) -> _Item | None:
        item = self._keys.get(key)
        return None if item is None or item.at < now - self._bounds.seconds else item

    def _keep_item(self, new: Item, now: float) -> bool:
        clear = []
        for key in new.keys:
            if (earlier := self._live(key, now)) is not None and earlier.digest != new.digest:
                self._add(_Item(new.owner, now, b"", b"", [key], _size(b"", 1)))
            else:
                clear.append(key)
        item = _Item(new.owner, now, new.digest, bytes(new.blob), clear, _size(new.blob, len(clear)))
        fits = bool(clear) and item.size <= self._owner_bytes
        if fits:
            self._add(item)
        self._evict(new.owner, now)
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
        while owner and owner.items and (owner.bytes > self._owner_bytes or len(owner.items) > self._owner_count):
            self._drop(next(iter(owner.items)))
        while self._items and (self._bytes > bounds.bytes or len(self._items) > bounds.count):
            self._drop(next(iter(self._items)))
        for _ in range(4):
            oldest = next(iter(self._items), None)
            if oldest is None or oldest.at >= now - bounds.seconds:
                return
            self._drop(oldest)


def _size(blob: bytes, keys: int) -> int:
    """Return the bytes that an item takes: those of its content, its objects, and its places in the dictionaries."""
    return len(blob) + 540 + 128 * keys
