"""The key that a client was given, where nobody who looks through the client's attributes meets it."""

from __future__ import annotations

from weakref import WeakKeyDictionary

__all__ = ["Held", "held", "key_of"]


class Held:
    """Stands for a key, and has no attribute that holds it. The key goes when this goes."""

    __slots__ = ("__weakref__",)


_keys: WeakKeyDictionary[Held, str] = WeakKeyDictionary()


def held(key: str | None) -> Held | None:
    """Return what stands for a key, or None where there is no key."""
    if key is None:
        return None
    made = Held()
    _keys[made] = key
    return made


def key_of(one: Held | None) -> str | None:
    """Return the key that it stands for."""
    return None if one is None else _keys[one]
