"""Tool calls put together from the pieces a stream sends.

Endpoints leave out or repeat almost everything: indices, ids, names, whole calls. One rule covers them: a piece belongs
to the open call at its place, unless it says that a new call begins (a new id, a new name after arguments, or a new
object after a complete one).
"""

from __future__ import annotations

import itertools
import re
from typing import Any, Literal

import msgspec

from cnllm.engine.ids import ReplyIds
from cnllm.types import Event, ToolCallDelta, ToolCallStart

__all__ = ["Call", "Calls", "markup"]

_MARKS = re.compile(r'["\\{}\[\]]')


class Call:
    """One call being put together. `extra` holds what else came with it (signatures), by key.

    `id` is the wire's, by which its pieces are known; `call_id` is the reply's, which no other call has.
    """

    __slots__ = (
        "_depth",
        "_escaped",
        "_last",
        "_quoted",
        "_read",
        "call_id",
        "extra",
        "id",
        "name",
        "pieces",
        "place",
        "size",
        "started",
        "via",
    )

    def __init__(self, place: Any, via: Literal["wire", "text"] = "wire") -> None:
        self.place = place
        self.via = via
        self.id = ""
        self.call_id = ""
        self.name = ""
        self.pieces: list[str] = []
        self.size = 0
        self.started = False
        self.extra: dict[str, Any] = {}
        self._read = self._depth = 0
        self._quoted = self._escaped = False
        self._last = ""

    @property
    def raw(self) -> str:
        return "".join(self.pieces)

    def whole(self) -> bool:
        """Is one JSON object complete, with nothing after it? Only what came since the last look is read."""
        for piece in itertools.islice(self.pieces, self._read, None):
            self._scan(piece)
        self._read = len(self.pieces)
        return self._depth == 0 and not self._quoted and self._last == "}"

    def _scan(self, piece: str) -> None:
        at = 0
        if self._escaped and piece:
            at, self._escaped = 1, False
        while mark := _MARKS.search(piece, at):
            at = mark.end()
            char = mark[0]
            if self._quoted:
                if char == "\\":
                    self._escaped = at == len(piece)
                    at += 1
                elif char == '"':
                    self._quoted = False
            elif char == '"':
                self._quoted = True
            elif char in "{[":
                self._depth += 1
            elif char in "}]":
                self._depth -= 1
        if stripped := piece.rstrip():
            self._last = stripped[-1]


class Calls:
    """The calls of one reply, in the order they began. `feed` takes wire items and returns the events they cause."""

    __slots__ = ("_open", "all", "ids")

    def __init__(self, ids: ReplyIds | None = None) -> None:
        self.ids = ReplyIds() if ids is None else ids
        self.all: list[Call] = []
        self._open: dict[Any, Call] = {}

    def feed(self, items: Any, *, whole: bool = False) -> list[Event]:
        """The items of one delta, or with `whole` of one message, where each is a call of its own."""
        out: list[Event] = []
        for item in items if type(items) is list else [items]:
            if type(item) is dict:
                self._item(item, whole, out)
        return out

    def start(self, call: Call, out: list[Event]) -> None:
        """Announce a call whose name is known, with the arguments that came before it was."""
        index = self.all.index(call) if self.all[-1] is not call else len(self.all) - 1
        if not call.started:
            call.started = True
            self.identify(call, index)
        out.append(ToolCallStart(index, call.call_id, call.name))
        if call.pieces:
            out.append(ToolCallDelta(index, call.raw))

    def identify(self, call: Call, index: int) -> None:
        """Give a call the id that it has in the reply."""
        call.call_id = self.ids.id(call.id if call.via == "wire" else "", index, f"{call.name}\0{call.raw}")
        call.id = call.id or call.call_id

    def finish(self) -> list[Event]:
        """Announce the calls that no arguments have announced."""
        out: list[Event] = []
        for index, call in enumerate(self.all):
            if not call.started and call.name:
                self.start(call, out)
            elif not call.call_id:
                self.identify(call, index)
        return out

    def _item(self, item: dict[str, Any], whole: bool, out: list[Event]) -> None:
        function = item.get("function")
        if type(function) is not dict:
            function = item if "name" in item or "arguments" in item else {}
        id = _text(item.get("id"))
        name = _text(function.get("name"))
        given = function.get("arguments")
        piece = _piece(given)
        place = None if type(item.get("index")) in (list, dict) else item.get("index")
        call = None if whole else self._find(place, id, name, piece)
        if call is None:
            call = Call(place)
            self._close(out)
            self.all.append(call)
            self._open[place] = call
        elif call.size and piece.lstrip()[:1] == "{" and call.whole() and _same(piece, call.raw):
            piece = ""  # the whole call once more at its end
        if id and not call.id:
            call.id = id
        if name and not (call.size and call.name) and not call.started and name != call.name:
            call.name += name
        for key, value in item.items():
            if key not in ("id", "index", "type", "function", "name", "arguments") and value is not None:
                call.extra[key] = value
        if piece:
            call.pieces.append(piece)
            call.size += len(piece)
            if call.started:
                index = len(self.all) - 1 if self.all[-1] is call else self.all.index(call)
                out.append(ToolCallDelta(index, piece))
            elif call.name:
                self.start(call, out)

    def _find(self, place: Any, id: str, name: str, piece: str) -> Call | None:
        """The call a piece goes on with, or None when it begins one."""
        if not self.all:
            return None
        by_id = next((c for c in reversed(self.all) if c.id == id), None) if id else None
        if place is not None:
            call = self._open.get(place)
            if call is None:
                return by_id if by_id is not None and by_id.place is None else None
        else:
            call = by_id or (self.all[-1] if not id else None)
            if call is None and self.all[-1].id == "" and not self.all[-1].size:
                call = self.all[-1]
            if call is None:
                return None
        if id and call.id and id != call.id:
            return by_id
        if name and call.size and call.name and name != call.name and not id:
            return None
        if name and place is None and not id and call.name and name != call.name:
            return None
        begins = piece.lstrip()[:1] == "{"
        # An id that comes again goes on with its call, unless a name and an object follow a whole object.
        goes_on = bool(id) and id == call.id and not (name and call.raw.strip() != "{}")
        if begins and call.size and not goes_on and call.whole() and not _same(piece, call.raw):
            return None
        return call

    def _close(self, out: list[Event]) -> None:
        """A new call begins: one that waited for its first arguments has none."""
        if self.all and not self.all[-1].started and self.all[-1].name:
            self.start(self.all[-1], out)


def _text(value: Any) -> str:
    """Null and the empty string are absent; a number is its digits."""
    return value if type(value) is str else "" if value is None else str(value)


def _same(one: str, other: str) -> bool:
    """Do two JSON texts say the same?"""
    if one == other:
        return True
    try:
        told = [msgspec.json.encode(msgspec.json.decode(text), order="sorted") for text in (one, other)]
        return told[0] == told[1]  # as text: true is not 1
    except (msgspec.DecodeError, RecursionError):
        return False


def _piece(arguments: Any) -> str:
    """A piece of arguments as text; some endpoints send the decoded object."""
    if type(arguments) is str:
        return arguments
    return "" if arguments is None else msgspec.json.encode(arguments).decode()


def markup(name: str, arguments: dict[str, Any] | None) -> str | None:
    """What of a call's markup is left in its name or in a name of its arguments: it was read wrongly on its way."""
    words: list[str] = [name, *(arguments or ())]
    return next((word for word in words if "<" in word and ">" in word), None)
