"""Hold a client's key outside the client's attributes, so that a dump of the client does not show it."""

from __future__ import annotations

from weakref import WeakKeyDictionary

__all__ = ["KeyHolder", "hold_key", "key_of"]


class KeyHolder:
    """Stands for a key without holding it in an attribute. The key is dropped with this object."""

    __slots__ = ("__weakref__",)


_keys: WeakKeyDictionary[KeyHolder, str] = WeakKeyDictionary()


def hold_key(key: str | None) -> KeyHolder | None:
    """Return a holder for a key, or None where there is no key."""
    if key is None:
        return None
    holder = KeyHolder()
    _keys[holder] = key
    return holder


def key_of(holder: KeyHolder | None) -> str | None:
    """Return the key of a holder."""
    return None if holder is None else _keys[holder]
