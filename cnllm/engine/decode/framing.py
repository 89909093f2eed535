"""Take the bytes of a body apart: server-sent events, the objects of one JSON array, or one value a line.

The parser of events follows the standard (https://html.spec.whatwg.org/multipage/server-sent-events.html): CR, LF or
CRLF ends a line, `data` lines of one event are joined, comments are skipped, a BOM is dropped. It works on bytes, so a
character may be cut anywhere, and U+2028 in a line does not end it. Three deviations: the last blank line may be
missing; the data of an event with the name of an error are `ErrorData`, even if they are empty, and so is a field with
that name; and a line that is no field, such as an object without `data:` before it, is an event of its own.
The lines of an object that is written over many of them are one event, too.
"""

from __future__ import annotations

import re
import sys
from itertools import repeat
from operator import contains

from cnllm.types.lenient_json import JsonNesting, NotJson, decode_lenient

__all__ = [
    "BLANK",
    "BOM",
    "MOST_END_MARKER",
    "TOO_LONG",
    "ErrorData",
    "JsonArrayElements",
    "JsonLines",
    "NamedData",
    "SseParser",
    "detect_mode",
    "has_json_lines",
    "is_complete",
    "is_end_marker",
    "short_text",
]

TOO_LONG = b"\0 too long"
"""Stands, as this very object, for an event beyond the limit."""
MOST_END_MARKER = 64
"""The bytes of a line with the end marker."""

_NEWLINE = 0x0A
_LINES = re.compile(rb"[^\r\n]*[\r\n]?")
_ERROR = rb"(?i)(?:.*[._-])?error"
_FIELD = re.compile(rb"[A-Za-z_-]*(?::|\Z)")  # a comment is a field without a name
_ERROR_FIELD = rb"(?is)error:(.*)"
_SSE_FIELDS = (b"data:", b"event:", b"id:", b"retry:", b":")
_CLOSERS = {b"{": (b"}",), b"[": (b"]",), b"[{": (b"]", b"}]")}
"""The first line of a value that is written over many lines, and its last line."""
_TYPED = (b' {"type"', b'{"type"')
_MAX_FIELD_SIZE = max(len(field) for field in _SSE_FIELDS)
BOM = b"\xef\xbb\xbf"
BLANK = b" \t\r\n"


class ErrorData(bytes):
    """The data of an event that reports an error."""

    __slots__ = ()


class NamedData(bytes):
    """The data of an event whose `name` they may not repeat."""

    name: str


class SseParser:
    """The parser of a stream: `feed` bytes in pieces of any size, and get the data of every event that became complete.

    The time is linear in the bytes. An event may have `limit` bytes, its unfinished line included. A longer event is
    replaced by `TOO_LONG`, and nothing is read after it. With `names` data that do not begin with their type are
    `NamedData` where the event has a name.
    """

    __slots__ = (
        *("_counted_lines", "_data", "_data_size", "_event", "_limit", "_line", "_names", "_size", "_start"),
        "_was_cr",
    )

    def __init__(self, limit: int = sys.maxsize, *, names: bool = False) -> None:
        self._limit = limit
        self._names = names
        self._size = 0  # bytes of the unfinished event
        self._data_size = self._counted_lines = 0  # bytes in finished lines of the event, and the lines counted in it
        self._line: list[bytes] = []  # the pieces of an unfinished line
        self._data: list[bytes] | None = None  # the data lines of an unfinished event
        self._event = b""  # the line with the name of the event, where it says something
        self._was_cr = False
        self._start = True

    def feed(self, chunk: bytes) -> list[bytes]:
        """Return the data of each event that these bytes complete."""
        if self._size + len(chunk) > self._limit:
            return self._feed_lines(chunk)
        if self._start:
            chunk = self._strip_bom(chunk)
            if self._start:
                return []
        if chunk.find(b"\r") >= 0 or self._was_cr:  # `in` costs more: it first tries whether its left is a number
            chunk = self._unify(chunk)
        if self._data is None and not self._event:
            if not self._line and (single := _single_event(chunk, self._names)) is not None:
                self._size = 0
                return [single]
            events = self._plain_events(chunk)
            if events is not None:
                return events
        lines = chunk.split(b"\n")
        if len(lines) == 1:
            if chunk:
                self._line.append(chunk)
                self._size += len(chunk)
            return []
        if self._line:
            self._line.append(lines[0])
            lines[0] = b"".join(self._line)
            self._line = []
        rest = lines.pop()
        if rest:
            self._line.append(rest)
        self._size = len(rest)
        if self._data is None and not self._event and len(lines) != 3:
            events = _named_events(lines, self._names)
            if events is not None:
                return events
        return self._read_lines(lines)

    def _read_lines(self, lines: list[bytes]) -> list[bytes]:
        """Return the data of each event that these whole lines complete."""
        data = before = self._data
        event = self._event
        out: list[bytes] = []
        for line in lines:
            if not line:
                if event and _is_error(event):
                    out.append(ErrorData(b"\n".join(data or ())))
                elif data is not None:
                    whole = data[0] if len(data) == 1 else b"\n".join(data)
                    out.append(whole if not event or whole.startswith(_TYPED) else _with_name(whole, event))
                data, event = None, b""
            elif line.startswith(b"data:"):
                # JSON ignores leading white space, so the one space after the colon may stay.
                if data is None:
                    data = [line[5:]]
                else:
                    data.append(line[5:])
            elif line.startswith(b"event:"):
                event = line if self._names or _is_error(line) else b""
            elif line == b"data":
                data = data if data is not None else []
                data.append(b"")
            elif (stray := _stray_event(line)) is not None:
                if event and _is_error(event):
                    data = [*(data or ()), line]
                    continue
                closers = _CLOSERS.get(data[0]) if data is not None else None
                if data is not None and closers is not None:
                    data.append(line)
                    if line not in closers:
                        continue
                if data is not None:
                    out.append(b"\n".join(data))
                    data = None
                if closers is None and stray in _CLOSERS:
                    data = [stray]
                elif closers is None:
                    out.append(stray)
        self._data, self._event = data, event
        if data is not None:
            if data is not before:
                self._data_size = self._counted_lines = 0
            self._data_size += sum(map(len, data[self._counted_lines :])) + len(data) - self._counted_lines
            self._counted_lines = len(data)
            self._size += self._data_size
        return out

    def _feed_lines(self, chunk: bytes) -> list[bytes]:
        """Feed line by line, so that events before one that is too long still count."""
        out: list[bytes] = []
        limit, self._limit = self._limit, sys.maxsize
        for line in _LINES.findall(chunk) if limit >= 0 else ():
            if self._size + len(line.rstrip(b"\r\n")) > limit:
                limit = -1
                out.append(TOO_LONG)
                break
            out += self.feed(line)
        self._limit = limit
        return out

    def end(self) -> list[bytes]:
        """Return the data of an event without its last line end or blank line."""
        last = self.feed(b"\n\n")
        self._line = []
        return last

    @property
    def is_torn(self) -> bool:
        """Whether a line or an event is unfinished."""
        return bool(self._line) or self._data is not None

    def closing_event(self) -> list[bytes]:
        """Return the data of an unfinished event that ends with `[DONE]`, which ends the stream. Otherwise nothing."""
        if self._event and _is_error(self._event):
            return []
        data = self._data or []
        if self._line:
            if len(self._line) > MOST_END_MARKER or sum(map(len, self._line)) > MOST_END_MARKER:
                return []
            line = b"".join(self._line)
            if not line.startswith(b"data:"):
                return []
            data = [*data, line[5:]]
        return [b"\n".join(data)] if data and is_end_marker(data[-1]) else []

    def _strip_bom(self, chunk: bytes) -> bytes:
        """Remove a BOM from the first bytes."""
        self._line.append(chunk)
        head = b"".join(self._line)
        if len(head) < 3 and BOM.startswith(head):
            self._line = [head]
            return b""
        self._start = False
        self._line = []
        return head[3:] if head.startswith(BOM) else head

    def _plain_events(self, chunk: bytes) -> list[bytes] | None:
        """Return the data of the events that these bytes complete; None where one is not a single line of data.

        Nearly all streams have no others. Taken apart at the borders of events they cost half of what lines cost.
        """
        if chunk.find(b"\n") < 0:
            return None
        text = chunk
        if self._line:
            text = b"".join([*self._line, chunk])
        if text[:5] != b"data:":
            return None
        events = text.split(b"\n\ndata:")
        end = events[-1].find(b"\n\n")
        if end >= 0:
            rest = events[-1][end + 2 :]
            events[-1] = events[-1][:end]
        else:
            rest = b"data:" + events.pop()
            if not events:
                return None
        if _NEWLINE in rest or any(map(contains, events, repeat(_NEWLINE))):  # a count of them all takes twice the time
            return None
        events[0] = events[0][5:]
        self._line = [rest] if rest else []
        self._size = len(rest)
        return events

    def _unify(self, chunk: bytes) -> bytes:
        """Convert CR and CRLF to LF, also where a CRLF is cut in two."""
        if self._was_cr and chunk.startswith(b"\n"):
            chunk = chunk[1:]
            self._was_cr = False
        if chunk:
            self._was_cr = chunk.endswith(b"\r")
        return chunk.replace(b"\r\n", b"\n").replace(b"\r", b"\n")


def _single_event(text: bytes, names: bool) -> bytes | None:
    """Return the data of one event with one line of data, as most servers send each; None where the text is another.

    With `names` they have the name of the event where it may add something.
    """
    begin, end = 0, text.find(b"\n")
    if text[:6] == b"event:" and not _names_error(text[:end]):
        begin, end = end + 1, text.find(b"\n", end + 1)
    if end != len(text) - 2 or text[-1] != _NEWLINE or text[begin : begin + 5] != b"data:":
        return None
    data = text[begin + 5 : end]
    return data if not (names and begin) or data.startswith(_TYPED) else _with_name(data, text[: begin - 1])


def _with_name(data: bytes, line: bytes) -> bytes:
    """Return data with the name in a line of their event."""
    result = NamedData(data)
    result.name = line[6:].strip().decode("utf-8", "replace")
    return result


def _stray_event(line: bytes) -> bytes | None:
    """Return a line that is no field, or the value of a field that names an error; None for any other field.

    llama.cpp has sent errors as a field.
    """
    if (match := re.match(_ERROR_FIELD, line)) is not None:
        return ErrorData(match[1])
    is_field = _FIELD.match(line) is not None or not line.strip()
    return None if is_field else line


def _named_events(lines: list[bytes], names: bool) -> list[bytes] | None:
    """Return the data of events that have a name and one line of data each; None where there are others."""
    if not len(lines) % 3 and not any(lines[2::3]):
        data = [line[5:] for line in lines[1::3] if line.startswith(b"data:")]
        heads = [line for line in lines[::3] if line.startswith(b"event:") and not _names_error(line)]
        if len(data) == len(heads) == len(lines) // 3:
            if not names:
                return data
            pairs = zip(data, heads, strict=True)
            return [line if line.startswith(_TYPED) else _with_name(line, head) for line, head in pairs]
    return None


def _names_error(line: bytes) -> bool:
    """Whether the name of an event may be that of an error: `error`, `Error` or `ERROR`, perhaps after others."""
    return line.find(b"rror") >= 0 or line.find(b"RROR") >= 0


def _is_error(line: bytes) -> bool:
    """Whether the line with the name of an event names an error."""
    return _names_error(line) and re.fullmatch(_ERROR, line[6:].strip()) is not None


def detect_mode(head: bytes, *, at_end: bool = False) -> str | None:
    """Return the mode that the first bytes indicate, "sse" or "whole"; None while both are possible."""
    if head[:1] == b"{":  # most often
        return "whole"
    if head[:3] == BOM:
        text = head[3:].lstrip(BLANK)
    elif not at_end and BOM.startswith(head[:3]):
        return None
    else:
        text = head.lstrip(BLANK)
    if not text:
        return "whole" if at_end else None
    if text.startswith(_SSE_FIELDS):
        return "sse"
    if len(text) < _MAX_FIELD_SIZE and any(f.startswith(text) for f in _SSE_FIELDS):
        return "sse" if at_end else None  # the beginning of a field's name, cut off
    return "whole"


def is_end_marker(data: bytes) -> bool:
    """Whether data marks the end of a stream: `[DONE]`, in any case, perhaps written as a text of JSON."""
    text = data.strip(b' \t\r\n"')
    return len(text) == len(b"[DONE]") and text.upper() == b"[DONE]"


def is_complete(data: bytes) -> bool:
    """Whether data is a whole chunk or the end marker, although its blank line is missing."""
    if is_end_marker(data):
        return True
    try:
        decode_lenient(data.strip())
    except NotJson:
        return False
    return True


def has_json_lines(body: bytes) -> bool:
    """Whether a body is a stream of objects, one a line: its first line is a whole object, and more lines follow."""
    text = body.removeprefix(BOM).lstrip(BLANK)
    end = text.find(b"\n")
    return end > 0 and text[:1] == b"{" and is_complete(text[:end]) and bool(text[end:].strip(BLANK))


def short_text(data: bytes) -> str:
    """Return data as text of at most 80 characters."""
    text = data.decode("utf-8", "replace").strip()
    return text if len(text) <= 80 else text[:79] + "…"


class JsonArrayElements:
    """The parser of an array: `feed` returns the text of every object that became complete.

    The bytes may come in pieces of any size. An object may have `limit` bytes. A longer object is replaced by
    `TOO_LONG`, and nothing is read after it.
    """

    __slots__ = ("_has_ended", "_limit", "_nesting", "_pieces", "_size")

    def __init__(self, limit: int = sys.maxsize) -> None:
        self._has_ended = False
        self._limit = limit
        self._size = 0  # bytes of the unfinished object
        self._pieces: list[bytes] = []  # of the unfinished object
        self._nesting = JsonNesting()

    def feed(self, chunk: bytes) -> list[bytes]:
        """Return the text of each object that these bytes complete."""
        if self._has_ended:
            return []
        out: list[bytes] = []
        begin = 0 if self._nesting.depth > 1 else -1
        for mark in self._nesting.brackets(chunk.decode("latin-1")):  # with the positions of the bytes
            depth = self._nesting.depth
            if mark[0] in "{[":
                begin = mark.start() if depth == 2 else begin
            elif depth == 1:
                self._size += mark.end() - begin
                if self._size > self._limit:
                    break
                out.append(b"".join(self._pieces) + chunk[begin : mark.end()])
                self._pieces, begin, self._size = [], -1, 0
        else:
            if begin >= 0:
                self._pieces.append(chunk[begin:])
                self._size += len(chunk) - begin
        if self._size > self._limit:
            self._has_ended = True
            out.append(TOO_LONG)
        return out

    @property
    def is_torn(self) -> bool:
        """Whether the array is not complete."""
        return self._nesting.depth > 0

    def closing_event(self) -> list[bytes]:
        """Return nothing: an array has no end marker."""
        return []

    def end(self) -> list[bytes]:
        """Return nothing: an unfinished object was cut."""
        self._pieces = []
        return []


class JsonLines:
    """The parser of newline-delimited JSON: `feed` returns the text of every line that became complete.

    A line has at most `limit` bytes; in place of a longer one comes `TOO_LONG`, and nothing after it. A body whose
    first line is only an opening brace is one value over many lines: it comes whole, at the end.
    """

    __slots__ = ("_has_ended", "_is_first", "_is_one_value", "_limit", "_pieces", "_size")

    def __init__(self, limit: int = sys.maxsize) -> None:
        self._limit = limit
        self._size = 0  # bytes of the unfinished line
        self._pieces: list[bytes] = []  # of the unfinished line
        self._is_first = True
        self._is_one_value = self._has_ended = False

    def feed(self, chunk: bytes) -> list[bytes]:
        """Return the text of each line that these bytes complete."""
        if self._has_ended:
            return []
        *lines, rest = (chunk,) if self._is_one_value else chunk.split(b"\n")
        out: list[bytes] = []
        for line in lines:
            self._add(line)
            if self._size > self._limit:
                break
            text = self._take()
            if self._is_first and text.strip():
                self._is_first = False
                if text.strip() == b"{":
                    self._is_one_value = True
                    self._add(text)
                    continue
            if self._is_one_value:
                self._add(text)
            elif text.strip():
                out.append(text)
        else:
            self._add(rest)
        if self._size > self._limit:
            self._has_ended = True
            out.append(TOO_LONG)
        return out

    @property
    def is_torn(self) -> bool:
        """Whether a line is unfinished."""
        return self._size > 0

    def closing_event(self) -> list[bytes]:
        """Return an unfinished line that is `[DONE]`, which ends the stream. Otherwise nothing."""
        if self._size > MOST_END_MARKER or not is_end_marker(b"".join(self._pieces)):
            return []
        return [self._take()]

    def end(self) -> list[bytes]:
        """Return the last line, which may lack its newline."""
        text = self._take()
        return [text] if text.strip() else []

    def _add(self, piece: bytes) -> None:
        self._pieces.append(piece)
        self._size += len(piece)

    def _take(self) -> bytes:
        """Return the unfinished line, which ends here."""
        text = b"".join(self._pieces)
        self._pieces, self._size = [], 0
        return text.removeprefix(BOM) if self._is_first else text
