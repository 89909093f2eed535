"""Remember messages by what a caller or a client sent, within a bound."""

from __future__ import annotations

import marshal
from collections.abc import Hashable
from typing import Any

import msgspec

from cnllm.types.message import Message
from cnllm.types.messages import as_messages

__all__ = ["LONG", "MessageMemory", "exact_bytes"]

LONG = 8
"""Messages of a conversation that is remembered: building a shorter one costs less than comparing it."""

_BYTES = 32 * 1024 * 1024
_SIZE = 500  # bytes that a message takes beside its words
_MARSHAL = 2  # the last version whose bytes depend on nothing but the values
_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(Message).decode


def exact_bytes(value: Any) -> bytes:
    """Return a value of Python's own types as bytes: other values have others. Raises `ValueError` for other types."""
    return marshal.dumps(value, _MARSHAL)


class MessageMemory:
    """Holds what was worked out from the messages of one owner.

    An owner is a client, or somebody who has a key of a gateway; nobody else shares the memory. `size` is the most that
    is kept, in bytes. What was not used for longest goes first: values are in two halves, and when the younger one is
    full, the older one is dropped. Values must not change. Safe for several threads.
    """

    def __init__(self, size: int = _BYTES) -> None:
        self._half = size // 2
        self._young: dict[Hashable, tuple[Any, int]] = {}
        self._old: dict[Hashable, tuple[Any, int]] = {}
        self._used = 0  # bytes of the younger half
        self._older = 0  # bytes of the other one

    @property
    def size(self) -> int:
        """Return how many bytes are kept."""
        return self._used + self._older

    def find(self, key: Hashable) -> Any:
        """Return a value; None where there is none."""
        entry = self._young.get(key)
        if entry is None:
            entry = self._old.get(key)
            if entry is None:
                return None
            self.keep(key, *entry)
        return entry[0]

    def keep(self, key: Hashable, value: Any, size: int) -> None:
        """Keep a value of so many bytes. One that takes more than a quarter of a half is not kept."""
        if size > self._half // 4:
            return
        if self._used + size > self._half:
            self._old, self._older = self._young, self._used
            self._young, self._used = {}, 0
        self._young[key] = (value, size)
        self._used += size

    def keep_message(self, message: Message, size: int) -> None:
        """Keep a message that nobody else can change, so that `messages` returns this object."""
        self.keep(id(message), message, _SIZE + size)

    def messages(self, messages: Any) -> list[Message] | None:
        """Return messages, as `as_messages` reads them: of equal ones always the same object, which nobody else has.

        None where one of them has values that cannot be compared, or cannot be read.
        """
        if type(messages) is not list:
            return None
        find = self.find
        out: list[Message] = []
        try:
            for item in messages:
                if type(item) is Message:
                    out.append(item if find(id(item)) is item else self._own(item))
                elif type(item) is dict:
                    key = exact_bytes(item)
                    found = find(key)
                    if found is None:
                        [found] = as_messages([marshal.loads(key)])  # a copy, which nobody changes later
                        self.keep(key, found, len(key))
                        self.keep_message(found, len(key))
                    out.append(found)
                else:
                    return None
        except (TypeError, ValueError, UnicodeError):
            return None
        return out

    def _own(self, message: Message) -> Message:
        """Return the memory's own copy of a message. Raises `TypeError` or `ValueError` where there can be none."""
        key = _encode(message)
        found: Message | None = self.find(key)
        if found is None:
            found = _decode(key)
            self.keep(key, found, len(key))
            self.keep_message(found, len(key))
        return found
