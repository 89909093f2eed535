"""Remember messages by what a caller or a client sent, within a bound."""

from __future__ import annotations

import marshal
from collections.abc import Callable, Hashable, Sequence
from functools import cache
from operator import is_
from typing import Any, TypeGuard, TypeVar

import msgspec
from msgspec import Struct

from cnllm.types.message import Message
from cnllm.types.messages import as_messages

__all__ = ["LONG", "NOT_COPIED", "DecodedList", "MessageMemory", "exact_bytes", "made_of"]

NOT_COPIED = (TypeError, ValueError, OverflowError, RecursionError)
"""The errors about values of which a memory has no copy: large numbers, halves of characters, a caller's own types."""

Made = TypeVar("Made")

LONG = 8
"""Messages of a conversation that is remembered: building a shorter one costs less than comparing it."""

_BYTES = 32 * 1024 * 1024
_SIZE = 500  # bytes that a message takes beside its words
_DECODED = 3  # bytes that a byte of JSON takes, with what is decoded from it
_START = 256  # bytes by which the lists of a client are told apart at first
_SLOTS = 64  # conversations with such a beginning
_READ_BACK = 64  # items in which a new end of a list is looked for
_POINTER = 8
_LISTS, _OWN = "lists", "own"
_MARSHAL = 2  # the last version whose bytes depend on nothing but the values
_encode = msgspec.msgpack.Encoder().encode


class DecodedList(Struct, eq=False):
    """The items of a JSON list, and the list's text without its end. Nobody may change them."""

    stem: bytes
    items: list[Any]


@cache
def _message_decoder() -> msgspec.msgpack.Decoder[Message]:
    """Return the decoder of messages. To make one takes a millisecond, and a program that calls once needs none."""
    return msgspec.msgpack.Decoder(Message)


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
        self._drop(key)
        if self._used + size > self._half:
            self._old, self._older = self._young, self._used
            self._young, self._used = {}, 0
        self._young[key] = (value, size)
        self._used += size

    def decode_list(self, kind: str, raw: bytes, decode: Callable[[bytes], list[Any]], most: int) -> DecodedList | None:
        """Return the items of a JSON list of objects. Those with which an earlier list began are the same as there.

        `decode` returns the items of such a list, which it decodes each from itself alone; `kind` stands for it. None
        for other values, and where more than `most` bytes are new. Raises what `decode` raises.
        """
        stem = raw[:-1].rstrip()
        if not (raw.startswith(b"[") and raw.endswith(b"]") and stem.endswith(b"}")):
            return None
        start, slot, earlier = raw[:_START], len(raw) % _SLOTS, None
        for number in range(_SLOTS):
            entry: DecodedList | None = self.find((kind, number, start))
            if entry is None:
                slot = number if earlier is None else slot
                break
            if stem.startswith(entry.stem) and (earlier is None or len(entry.stem) > len(earlier.stem)):
                slot, earlier = number, entry
        rest = raw if earlier is None else raw[len(earlier.stem) :].lstrip()
        if len(rest) > most:
            return None
        if earlier is not None and rest[:1] == b",":  # an object ends before it
            new = decode(b"[" + rest[1:])
            found = DecodedList(stem, [*earlier.items, *new])
            self._drop((_LISTS, id(earlier.items)))
        elif earlier is not None and rest == b"]":  # the list has nothing new
            found = earlier
        else:
            found = DecodedList(stem, decode(raw))
        self.keep((kind, slot, start), found, _DECODED * len(stem))
        self.keep((_LISTS, id(found.items)), found, _SIZE)
        return found

    def _drop(self, key: Hashable) -> None:
        """Drop a value."""
        if (entry := self._young.pop(key, None)) is not None:
            self._used -= entry[1]
        if (entry := self._old.pop(key, None)) is not None:
            self._older -= entry[1]

    def _entry_of(self, items: Any) -> DecodedList | None:
        """Return what is known of the items that `decode_list` returned; None for any other list."""
        found: DecodedList | None = self.find((_LISTS, id(items)))
        return found if found is not None and found.items is items else None

    def has_list(self, items: Any) -> TypeGuard[list[Any]]:
        """Whether these are the items that `decode_list` returned, or a list that was made of them."""
        return self._entry_of(items) is not None

    def made_of(self, items: Any, make: Callable[..., Made], *arguments: Hashable) -> Made:
        """Return what `make` makes of a list, which nobody may change: once for a list that the memory has.

        It makes it of the list and of the arguments alone. A list that is made is one of the memory, too. Raises what
        `make` raises.
        """
        entry = self._entry_of(items)
        if entry is None:
            return make(items, *arguments)
        key = (make, arguments, id(items))
        known: tuple[Any, Made] | None = self.find(key)
        if known is not None and known[0] is items:
            return known[1]
        made = make(items, *arguments)
        size = _SIZE + _DECODED * len(entry.stem)
        self.keep(key, (items, made), size)
        if isinstance(made, list) and made is not items:
            self.keep((_LISTS, id(made)), DecodedList(entry.stem, made), size)
        return made

    def find_start(self, kind: Hashable, items: Sequence[Any]) -> tuple[int, Any]:
        """Return what is kept of the longest beginning of a list, and its number of items; 0 and None without one."""
        for end in range(len(items), max(0, len(items) - _READ_BACK), -1):
            known = self.find((kind, id(items[end - 1])))
            if known is not None and len(known[0]) == end and all(map(is_, known[0], items)):
                return end, known[1]
        return 0, None

    def keep_start(self, kind: Hashable, items: Sequence[Any], value: Any, size: int) -> None:
        """Keep what was worked out of a list, for lists that begin with the same objects, which nobody changes."""
        self.keep((kind, id(items[-1])), (tuple(items), value), size + _POINTER * len(items))

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
        count, _ = self.find_start(_OWN, messages)
        out: list[Message] = messages[:count]
        try:
            for item in messages[count:]:
                if type(item) is Message:
                    out.append(item if find(id(item)) is item else self.own(item))
                elif type(item) is dict and "role" in item:  # without one it is part of a turn
                    key = exact_bytes(item)
                    found = find(key)
                    if found is None:
                        [found] = as_messages([marshal.loads(key)])  # a copy, which nobody changes later
                        self.keep(key, found, len(key))
                        self.keep_message(found, len(key))
                    out.append(found)
                else:
                    return None
        except NOT_COPIED:
            return None
        if out and count < len(out):
            self.keep_start(_OWN, out, None, _SIZE)
        return out

    def own(self, message: Message) -> Message:
        """Return the memory's own copy of a message, always the same object for equal ones.

        Raises one of `NOT_COPIED` where there can be none.
        """
        key = _encode(message)
        found: Message | None = self.find(key)
        if found is None:
            as_messages([message])  # raises for values that would be others in the copy
            found = _message_decoder().decode(key)
            self.keep(key, found, len(key))
            self.keep_message(found, len(key))
        return found


def made_of(memory: MessageMemory | None, items: Any, make: Callable[..., Made], *arguments: Hashable) -> Made:
    """Return what `make` makes of a list, as `MessageMemory.made_of` does; anew where there is no memory."""
    return make(items, *arguments) if memory is None else memory.made_of(items, make, *arguments)
