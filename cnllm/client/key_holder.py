"""The key that a client was given, where nobody who looks through the client's attributes meets it."""

from __future__ import annotations

from weakref import WeakKeyDictionary

__all__ = ["KeyHolder", "hold_key", "key_of"]


class KeyHolder:
    """Stands for a key, and has no attribute that holds it. The key goes when this goes."""

    __slots__ = ("__weakref__",)


_keys: WeakKeyDictionary[KeyHolder, str] = WeakKeyDictionary()


def hold_key(key: str | None) -> KeyHolder | None:
    """Return what stands for a key, or None where there is no key."""
    if key is None:
        return None
    made = KeyHolder()
    _keys[made] = key
    return made


def key_of(one: KeyHolder | None) -> str | None:
    """Return the key that it stands for."""
    return None if one is None else _keys[one]
