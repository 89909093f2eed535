"""Build tool calls from the pieces of a stream.

Endpoints omit or repeat almost everything: indexes, ids, names, whole calls. One rule covers them: a piece belongs to
the open call at its index, unless it begins a new call (a new id, a new name after arguments, or a new object after a
complete one).
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Callable
from typing import Any, Literal

import msgspec

from cnllm.engine.encode.plan import Plan
from cnllm.protocols.identifiers import ReplyIds
from cnllm.protocols.reported import as_index
from cnllm.schemas.coerce import decode_json
from cnllm.types import Event, ToolCallDelta, ToolCallStart
from cnllm.types.lenient_json import JsonNesting, arguments_text, join_halves, replace_surrogates

__all__ = ["CallBuilder", "CallCollector", "markup_in_names"]

_MARKUP = re.compile(r"<[^<>]*>")
_TWO_OBJECTS = re.compile(r"\}\s*\{")
_MAX_EMPTY_OBJECT = 16  # characters of an object without members
_PLACEHOLDERS = ("{}", "null")  # arguments that some endpoints send ahead of the true ones
_FUNCTION_KEYS = frozenset({"name", "arguments", "parameters"})
_ITEM_KEYS = frozenset({"id", "index", "type", "function", *_FUNCTION_KEYS})
_NEWEST = 16  # calls, of which a stream goes on with the pieces


class CallBuilder:
    """One call that is being built. `extra` holds other data of the call (signatures), by key.

    `id` is the wire's, which identifies its pieces; `call_id` is the reply's, which no other call has.
    """

    def __init__(self, place: Any, via: Literal["wire", "text"] = "wire") -> None:
        self.place = place
        self.via = via
        self.at = -1  # its index among the calls of the reply
        self.id = ""
        self.call_id = ""
        self._name: list[str] = []
        self.name_size = 0
        self.pieces: list[str] = []
        self.half = ""  # half of a character at the end of the newest piece
        self.size = 0
        self.started = False
        self.waits = False  # the arguments may be a placeholder, and are not delivered yet
        self.is_whole: bool | None = None  # whether the wire says that the call is whole; None where it says nothing
        self.extra: dict[str, Any] = {}
        self.late: Callable[[], dict[str, Any] | None] | None = None  # returns more data at the end of the reply
        self._scanned = 0
        self._nesting = JsonNesting()
        self._objects = 0  # JSON objects that begin in the arguments
        self._has_snapshots = False  # a piece held all that came before
        self._canonical: bytes | None = None  # canonical form of the arguments, where they are one object

    @property
    def raw(self) -> str:
        """Return the arguments as text."""
        return "".join(self.pieces)

    @property
    def name(self) -> str:
        """Return the name, as far as it has arrived."""
        if len(self._name) > 1:
            self._name = ["".join(self._name)]
        return self._name[0] if self._name else ""

    @name.setter
    def name(self, name: str) -> None:
        self._name, self.name_size = [name], len(name)

    def has_name(self, name: str) -> bool:
        """Whether this is the call's name. The pieces of the name are joined only where the lengths are equal."""
        return self.name_size == len(name) and self.name == name

    def add_name(self, piece: str) -> None:
        """Add a piece of the name."""
        self._name.append(piece)
        self.name_size += len(piece)

    def repeats(self, piece: str) -> bool:
        """Whether a piece repeats all the arguments. Takes time in proportion to the piece."""
        if len(piece) == self.size and piece == self.raw:
            return True
        if self._objects != 1:
            return False
        if self._canonical is None:
            self._canonical = _canonical(self.raw)
        return bool(self._canonical) and _canonical(piece) == self._canonical

    def is_snapshot(self, piece: str) -> bool:
        """Whether a piece that begins an object holds all the arguments so far, and not a value in them.

        An object may be such a value behind one of three signs, unless an earlier piece was a snapshot.
        """
        raw = self.raw
        if not piece.startswith(raw) or self.is_complete():
            return False
        self._has_snapshots = self._has_snapshots or raw.rstrip()[-1:] not in (":", ",", "[")
        return self._has_snapshots

    def add(self, piece: str) -> str:
        """Add a piece of the arguments; return what can be delivered now.

        Arguments that may be a placeholder wait for the next piece, which replaces them where it begins an object.
        """
        has_waited = self.waits
        if has_waited and piece.lstrip()[:1] == "{":
            has_waited = False
            self.pieces, self.size, self._scanned, self._objects = [], 0, 0, 0
            self._nesting, self._canonical = JsonNesting(), None
        self.waits = not self.size and _is_placeholder(piece)
        self.pieces.append(piece)
        self.size += len(piece)
        return "" if self.waits else self.raw if has_waited else piece

    def is_complete(self) -> bool:
        """Whether the arguments are one complete JSON object. Only pieces since the last check are read."""
        for piece in self.pieces[self._scanned :]:
            for mark in self._nesting.brackets(piece):
                if mark[0] in "{[":
                    self._objects += self._nesting.depth == 1
                    self._canonical = None
        self._scanned = len(self.pieces)
        return self._nesting.has_ended("}")


class CallCollector:
    """The calls of one reply, in the order they began. `feed` takes items of the wire and returns their events.

    `request` is what the ids of the calls fit; None where it is not known.
    """

    __slots__ = ("_by_id", "_ids", "_open", "_request", "_waiting", "all", "renamed", "reply_id")

    def __init__(self, request: Plan | None = None) -> None:
        self._request = request
        self._ids: ReplyIds | None = None  # most replies have no call
        self.renamed: list[str] = []  # ids that were not unique, and were changed
        self.reply_id: str | None = None
        self.all: list[CallBuilder] = []
        self._open: dict[Any, CallBuilder] = {}
        self._by_id: dict[str, CallBuilder] = {}  # for each id, the call that began last
        self._waiting: deque[CallBuilder] = deque()  # calls whose arguments may be a placeholder

    def add(self, call: CallBuilder) -> None:
        """Begin a call."""
        call.at = len(self.all)
        self.all.append(call)

    def _set_id(self, call: CallBuilder, id: str) -> None:
        """Set the wire's id of a call."""
        call.id = id
        other = self._by_id.get(id)
        if other is None or other.at < call.at:
            self._by_id[id] = call

    def feed(self, items: list[Any], *, whole: bool = False) -> list[Event]:
        """Return the events of the items of one delta, or with `whole` of a message of complete calls."""
        out: list[Event] = []
        for item in items:
            if type(item) is dict:
                self._add_item(item, out, whole=whole)
        return out

    @property
    def open_indexes(self) -> set[str | int | None]:
        """Return the indexes on the wire of the newest calls that were announced."""
        found: set[str | int | None] = set()
        for call in self.all[-_NEWEST:]:  # no more: a reply may have thousands
            is_open = call.started and not (call.waits or call.half) and type(call.place) is int
            if is_open and self._open.get(call.place) is call:
                found.add(call.place)
        return found

    def go_on(self, index: int, pieces: list[str]) -> list[Event]:
        """Return the events of pieces that go on with a call of `begun`; none of them begins a JSON object."""
        call = self._open[index]
        call.pieces += pieces
        call.size += sum(map(len, pieces))
        at = call.at
        return [ToolCallDelta(at, piece) for piece in pieces]

    def start(self, call: CallBuilder) -> list[Event]:
        """Announce a call whose name is known, with the arguments that came before the name."""
        if not call.started:
            call.started = True
            self.identify(call)
        begin = ToolCallStart(call.at, call.call_id, call.name)
        return [begin, ToolCallDelta(call.at, call.raw)] if call.pieces and not call.waits else [begin]

    def announce_last(self) -> list[Event]:
        """Announce the last call where it has no arguments so far, because another call or part begins."""
        is_silent = bool(self.all) and not self.all[-1].started and self.all[-1].name_size > 0
        return self.start(self.all[-1]) if is_silent else []

    def end(self, index: Any, *, is_whole: bool) -> None:
        """Set whether the wire says that the last call with this index is whole."""
        if (call := self._open.get(as_index(index))) is not None:
            call.is_whole = is_whole

    def identify(self, call: CallBuilder) -> None:
        """Set the id that a call has in the reply."""
        if self._ids is None:
            self._ids = _reply_ids(self._request)
            self.renamed = self._ids.renamed
        self._ids.reply = self.reply_id
        call.call_id = self._ids.id(call.id if call.via == "wire" else "", call.at, f"{call.name}\0{call.raw}")
        call.id = call.id or call.call_id

    def finish(self) -> list[Event]:
        """Announce the calls that have no arguments, and deliver those that were no placeholder."""
        out: list[Event] = []
        self._release(len(self.all), out)
        for call in self.all:
            if not call.started and call.name_size:
                out += self.start(call)
            elif not call.call_id:
                self.identify(call)
        return out

    def _add_item(self, item: dict[str, Any], out: list[Event], *, whole: bool) -> None:
        """Add an item of the wire to its call."""
        function = item.get("function")
        if type(function) is not dict:
            function = item if not _FUNCTION_KEYS.isdisjoint(item) else {}
        id = _text(item.get("id"))
        name = _text(function.get("name"))
        arguments = function.get("arguments")
        if arguments is None:
            arguments = function.get("parameters")  # as models of open weights write them
        piece = arguments if type(arguments) is str else arguments_text(replace_surrogates(arguments))
        index = as_index(item.get("index"))
        call = None if whole else self._find(index, id, name, piece)
        if call is None:
            call = CallBuilder(index)
            out += self.announce_last()
            self.add(call)
            self._open[index] = call
        if call.half or not piece.isascii():
            piece, call.half = join_halves(call.half, piece)
        if call.size and piece.lstrip()[:1] == "{":
            if call.is_complete() and call.repeats(piece):
                piece = ""  # it repeats the whole call at its end
            elif len(piece) >= call.size and call.is_snapshot(piece):
                piece = piece[call.size :]
        if id and not call.id:
            self._set_id(call, id)
        if name and not (call.size and call.name_size) and not call.started and not call.has_name(name):
            call.add_name(name)
        for key, value in item.items():
            if key not in _ITEM_KEYS and value is not None:
                call.extra[replace_surrogates(key)] = replace_surrogates(value)
        if piece:
            if not call.size and _TWO_OBJECTS.search(piece):
                piece = _single_object(piece)
            delivered = call.add(piece)
            if call.waits:
                self._waiting.append(call)
            elif self._waiting:
                self._release(call.at, out)
            if not call.started and call.name_size:
                out += self.start(call)
            elif call.started and delivered:
                out.append(ToolCallDelta(call.at, delivered))

    def _find(self, index: Any, id: str, name: str, piece: str) -> CallBuilder | None:
        """Return the call that a piece continues, or None where it begins a call."""
        if not self.all:
            return None
        by_id = self._by_id.get(id) if id else None
        if index is not None:
            call = self._open.get(index)
            if call is None:
                # Some servers count the pieces of a call otherwise than its beginning, which has a name or an id.
                last = by_id if id else self.all[-1]
                is_known = by_id is not None and by_id.place is None
                if last is not None and not last.name_size and not last.id:
                    return None
                goes_on = not name and last is not None and (last.waits or not last.is_complete())
                return last if is_known or goes_on else None
        else:
            call = by_id or (self.all[-1] if not id else None)
            if call is None and (not name or (self.all[-1].id == "" and not self.all[-1].size)):
                call = self.all[-1]
            if call is None:
                return None
        if id and call.id and id != call.id:
            # Some servers make an id for each piece. Without a name the piece goes on with a call that is unfinished.
            return by_id or (None if name or not call.name_size or call.is_complete() else call)
        if name and call.name_size and not id and (call.size or index is None) and not call.has_name(name):
            return None
        begins = piece.lstrip()[:1] == "{"
        # A repeated id continues its call, unless a name and an object follow a complete object.
        continues = bool(id) and id == call.id and (call.waits or not name)
        if begins and call.size and not continues and call.is_complete() and not call.repeats(piece):
            # Nobody can call a piece without a name. Behind a placeholder that is delivered it spoils the arguments.
            return call if not name and (call.waits or _is_placeholder(call.raw)) else None
        return call

    def _release(self, at: int, out: list[Event]) -> None:
        """Deliver the arguments of the calls before `at` that were no placeholder.

        Calls may begin together and get their arguments one after the other: only those of a later call tell.
        """
        while self._waiting and self._waiting[0].at < at:
            call = self._waiting.popleft()
            if call.waits and call.started:
                out.append(ToolCallDelta(call.at, call.raw))
            call.waits = False


def _reply_ids(request: Plan | None) -> ReplyIds:
    """Return what makes the ids of the calls in a reply to a request."""
    if request is None:
        return ReplyIds()
    return ReplyIds(request.flags.tools.call_id_pattern, request.messages, request.content)


def _is_placeholder(arguments: str) -> bool:
    """Whether arguments may be sent ahead of the true ones."""
    return len(arguments) <= _MAX_EMPTY_OBJECT and "".join(arguments.split()) in _PLACEHOLDERS


def _single_object(arguments: str) -> str:
    """Return arguments that are one object several times as that object once; any others as they are."""
    text = arguments.strip()
    try:
        _, end = decode_json(text, 0)
    except ValueError:
        return arguments
    one = text[:end]
    is_repeated = len(one) < len(text) and not text.replace(one, "").strip()
    return one if is_repeated else arguments


def _text(value: Any) -> str:
    """Return an id or name as text: null is empty, a number becomes its digits."""
    return replace_surrogates(value) if type(value) is str else "" if value is None else str(value)


def _canonical(text: str) -> bytes:
    """Return the canonical form of a JSON text, for comparison; empty where it is no JSON. As text: true is not 1."""
    try:
        return msgspec.json.encode(msgspec.json.decode(text), order="sorted")
    except (msgspec.DecodeError, RecursionError, UnicodeEncodeError):
        return b""


def markup_in_names(name: str, arguments: dict[str, Any] | None) -> str | None:
    """Return a call's name or argument name that contains markup: the call was parsed wrongly on its way."""
    words: list[str] = [name, *(arguments or ())]
    tags = ((word, tag) for word in words if "<" in word for tag in _MARKUP.findall(word))
    return next((word for word, tag in tags if any(map(str.isalpha, tag))), None)
