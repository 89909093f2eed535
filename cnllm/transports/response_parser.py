"""The reading side of one HTTP/1.1 connection: bytes in, a status, headers and pieces of a body out. No I/O.

llhttp (by httptools) does the parsing. Body bytes before a fault are delivered first, and the fault after them.
"""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Iterator
from functools import lru_cache
from typing import Any

from httptools import HttpParserError, HttpParserUpgrade, HttpResponseParser

from cnllm.transports.content_encoding import MAX_SILENT_BYTES, CodingEnd, Decoder, DecodingError, body_decoder
from cnllm.transports.headers import MAX_HEAD_BYTES

__all__ = ["FastBody", "ResponseParser"]

_TAIL = 32  # the last bytes of a segment, which are searched for surplus line ends
_LINE_ENDS = b"\r\n"
_USUAL_NAME = 64  # bytes of a header's name; longer ones are not remembered
_END = re.compile(rb"\n\r?\n")
_START = re.compile(rb"HTTP/[0-9]\.[0-9]")
_INTERIM = re.compile(rb"HTTP/[0-9]\.[0-9] 1(?!01)[0-9]{2}(?![0-9])")  # 101 is final
_LATER = re.compile(rb"HTTP/(?!0\.9|1\.[01])[0-9]\.[0-9]")
_CONTROL = bytes.maketrans(bytes([*range(1, 9), *range(14, 32), 127]), b"?" * 27)


class ResponseParser:
    """Reads one response after another; call `begin_response` before each."""

    def __init__(self) -> None:
        self._pieces: list[bytes] = []
        self.on_body = self._pieces.append  # called by the parser for each piece; `append` is the fastest callback
        self._parser = self._new_parser()
        self.begin_response()

    def _new_parser(self) -> HttpResponseParser:
        parser = HttpResponseParser(self)
        # Some servers write line ends without CR, and blanks around the size of a chunk.
        parser.set_dangerous_leniencies(
            lenient_optional_cr_before_lf=True, lenient_spaces_after_chunk_size=True, lenient_data_after_close=True
        )
        return parser

    def begin_response(self) -> None:
        """Reset for the response to the next request."""
        self._pieces.clear()
        self._fields: list[tuple[bytes, bytes]] = []
        self._body_pieces = 0  # number of pieces in a complete body; later ones belong to no response
        self.status = 0  # until the headers are complete
        self.began = False  # a byte of a response arrived
        self._head = bytearray()  # bytes so far, until the headers are complete
        self._head_size = 0  # bytes so far, with those of interim responses
        self._silent_size = 0  # bytes of the body's framing since the last content
        self._needs_repair = False  # the parser refused the head: it is rewritten when it is complete
        self._rewritten = False
        self._in_body = False
        self._interim = False  # an interim response arrived
        self.headers: dict[str, str] = {}
        self.complete = False
        self.reusable = False
        self.fault: str | None = None
        self.more = False  # `take` has more plain bytes without another read
        self._decoder: Decoder | None = None
        self._decoded: Iterator[bytes] = iter(())

    def feed(self, data: bytes | memoryview) -> None:
        """Parse bytes from the connection."""
        if 2 < len(data) <= _TAIL and not bytes(data).strip(b"\r\n"):  # the response may end among them
            for index in range(len(data)):
                self.feed(data[index : index + 1])
            return
        if not self._in_body:
            if self.complete:  # bytes after a complete response belong to no response
                self.reusable = False
                return
            if self._needs_repair:
                self._repair(data, max(len(self._head) - 2, 0))  # its end may have begun
                return
            if not self.began:
                self.began = True
                if data and data[0] in _LINE_ENDS:  # perhaps the rest of the previous response
                    self._fail("it begins with an empty line")
                    return
        try:
            self._parser.feed_data(data)
        except HttpParserUpgrade:
            self._fail("the peer switched to another protocol")
        except HttpParserError as error:
            self._on_parser_error(data, error)
        if self._in_body:
            if not self._pieces:
                self._count_framing(len(data))
            return
        if self.complete:
            self._finish(data)
        elif not self.status and not self._needs_repair and self.fault is None:
            self._store_head(data)

    def _on_parser_error(self, data: bytes | memoryview, error: HttpParserError) -> None:
        """Handle bytes that the parser refused: after a response, in a body, or in a head that may be repairable."""
        if self.complete:
            self.reusable = False
        elif self.status or not _START.match(bytes(self._head + data)):
            self._fail(str(error))
        else:
            self._needs_repair = True
            self._repair(data)

    def _count_framing(self, size: int) -> None:
        """Count bytes that are no content: sizes and extensions of chunks, and trailers."""
        self._silent_size += size
        if self._silent_size > MAX_SILENT_BYTES:
            self._fail(f"more than {MAX_SILENT_BYTES:,} bytes of its chunks and trailers hold no content")

    def _finish(self, data: bytes | memoryview) -> None:
        """Finish the response. Bytes after it belong to no response."""
        if len(self._pieces) > self._body_pieces:
            del self._pieces[self._body_pieces :]
        if data[-1] in _LINE_ENDS and self.reusable and self._has_surplus(data):
            self.reusable = False

    def _store_head(self, data: bytes | memoryview) -> None:
        """Store bytes of an incomplete head. Those of complete interim responses are only counted."""
        self._head += data
        self._head_size += len(data)
        if self._interim:
            self._interim = False
            _rewrite(self._head, 0)  # this removes them
        self._check_head()

    def _check_head(self) -> None:
        if self._head_size > MAX_HEAD_BYTES:
            self._fail(f"its headers have more than {MAX_HEAD_BYTES:,} bytes")

    def _repair(self, data: bytes | memoryview, start: int = 0) -> None:
        """Rewrite a head that the parser refused, and parse it again. Its connection is not used again.

        The end of the head is searched from `start`.
        """
        self._head += data
        self._head_size += len(data)
        if (strict := _rewrite(self._head, start)) is None:
            self._check_head()
            return
        self._rewritten = True
        self._fields.clear()
        self._parser = self._new_parser()
        try:
            self._parser.feed_data(strict)
        except HttpParserUpgrade:
            self._fail("the peer switched to another protocol")
        except HttpParserError as error:
            self._fail(str(error))
        self._needs_repair = False
        if not self.status:
            self._fail("its headers cannot be read")
        elif self.complete:
            self._finish(data)

    def _has_surplus(self, data: bytes | memoryview) -> bool:
        """Whether line ends follow the response, which the parser skips silently. True where that is unknown.

        Any other byte after a response begins a message, and the parser reports it.
        """
        end = bytes(data[-_TAIL:])
        last = self._pieces[-1] if self._pieces and "transfer-encoding" not in self.headers else b""
        line_ends = end[len(end.rstrip(b"\r\n")) :]
        if last:  # the body's own line ends are no surplus
            return len(line_ends) > len(last) - len(last.rstrip(b"\r\n")) or (len(line_ends) == len(end) < len(data))
        if len(line_ends) == len(data):
            return data not in (b"\n", b"\r\n")
        return line_ends not in (b"\r\n\r\n", b"\n\n")

    def end(self, reason: str = "the peer closed the connection") -> None:
        """Report the end of the connection."""
        self.reusable = False
        if self.complete or self.fault is not None:
            return
        coding = self.headers.get("transfer-encoding", "")
        if self.status and "content-length" not in self.headers and "chunked" not in coding.lower():
            self.complete = True  # the end of the connection is the end of such a body
            self._body_pieces = len(self._pieces)
        else:
            self._fail(f"{reason} in the middle of the message" if self.status else reason)

    def connection_lost(self, reason: str) -> None:
        """Report that the connection broke."""
        self._fail(reason)

    def take(self) -> bytes:
        """Return the decoded body bytes since the last call. If `more` is true afterwards, call it again."""
        pieces = self._pieces
        if self._decoder is not None and (pieces or self.more):
            return self._decode_piece(self._decoder)
        if not pieces:
            return b""
        data = pieces[0] if len(pieces) == 1 else b"".join(pieces)
        pieces.clear()
        self._body_pieces = self._silent_size = 0
        return data

    def _decode_piece(self, decode: Decoder) -> bytes:
        """Return one decoded piece. Good pieces are delivered before a decoding error. An empty one is not the end."""
        self.more = True
        try:
            while True:
                for plain in self._decoded:
                    if plain:
                        self._silent_size = 0
                    return plain
                if not self._pieces:
                    break
                self._decoded = decode(self._pieces.pop(0))
                self._body_pieces = max(self._body_pieces - 1, 0)
        except (DecodingError, CodingEnd) as error:
            self._pieces.clear()
            if isinstance(error, CodingEnd):  # the bytes behind it belong to no reply
                self.complete, self.reusable = True, False
            else:
                self.complete = False
                self._fail(str(error))
        self.more = False
        self._decoded = iter(())
        return b""

    def _fail(self, reason: str) -> None:
        self.reusable = False
        if not self.complete and self.fault is None:
            self.fault = reason

    def release(self) -> None:
        """Free the parser, which holds this object. No more bytes come."""
        del self._parser

    # ── called by the parser ─────────────────────────────────────────────────
    def on_message_begin(self) -> None:
        """Register the start of a response. A second one answers no request."""
        self._fields.clear()
        if self.complete:
            self.reusable = False

    def on_status(self, reason: bytes) -> None:
        """Check the reason phrase."""
        if reason.find(b"\0") >= 0:
            self._fail("its status line holds a NUL")

    def on_header(self, name: bytes, value: bytes) -> None:
        """Store a header. Trailers are ignored."""
        if not self.status:
            self._fields.append((name, value))

    def on_headers_complete(self) -> None:
        """Store status and headers, unless they belong to an interim response."""
        status = self._parser.get_status_code()
        if self.status or self.fault is not None:
            return
        if 100 <= status < 200 and status != 101:  # 101: the peer switches to another protocol
            self._interim = True
            return
        headers = self.headers
        for raw, value in self._fields:
            name = _field_name(raw) if len(raw) <= _USUAL_NAME else _text(raw).lower()
            try:
                text = value.decode().strip(" \t")
            except UnicodeDecodeError:
                text = _text(value).strip(" \t")
            headers[name] = f"{headers[name]}, {text}" if name in headers else text
        if status < 200:
            self._fail(f"status {status} is not the answer to a request")
        elif headers.get("transfer-encoding", "chunked").lower() != "chunked":
            self._fail("it has a transfer-encoding other than chunked")
        else:
            self.status = status
            self._in_body = True
            if (encoding := headers.get("content-encoding")) is not None:
                self._decoder = body_decoder(encoding)

    def on_message_complete(self) -> None:
        """Finish the response, unless it is an interim one."""
        if self.status and not self.complete:
            self.complete = True
            self._in_body = False
            self.reusable = not self._rewritten and self._parser.should_keep_alive()
            self._body_pieces = len(self._pieces)


@lru_cache(maxsize=256)
def _field_name(raw: bytes) -> str:
    """Return the name of a header in lower case. Most responses of an endpoint have the same ones."""
    return _text(raw).lower()


def _text(raw: bytes) -> str:
    try:
        return raw.decode()
    except UnicodeDecodeError:
        return raw.decode("latin-1")


class FastBody(ABC):
    """The bytes of a response, as far as both fast adapters read them alike. `take` gives those that have arrived."""

    def __init__(self, pool: Any, connection: Any, idle: float | None) -> None:
        self._pool = pool
        self._connection = connection
        self._idle = idle
        self._fault: str | None = None
        self._remaining: float | None = None  # seconds that reads may still take; the caller's own time does not count
        self._interrupted = False
        self._ready: bytes = connection.take()  # body bytes that arrived with the headers
        self._release_if_done(connection)

    def _release_if_done(self, connection: Any) -> None:
        """Release the connection when the body is complete, or close it when it is broken."""
        reader = connection.reader
        if reader.more:
            return  # its pieces are read first
        if reader.fault is not None:
            self._fault = reader.fault
            self._release(reusable=False)
        elif reader.complete:
            self._release(reusable=reader.reusable)

    @property
    def has_ended(self) -> bool:
        """Whether all of the body was read."""
        return self._connection is None and self._fault is None and not (self._ready or self._interrupted)

    @abstractmethod
    def _release(self, *, reusable: bool) -> None:
        """Give the connection back to its pool, once."""


# ── irregular heads ───────────────────────────────────────────────────────────
# An irregular but unambiguous head is rewritten, so that a strict parser reads it, as other clients do: a header over
# two lines (obs-fold), a repeated Content-Length with one value, a Content-Length together with chunks (RFC 9112 6.3:
# the chunks count), control characters in a value, and an unknown version of HTTP in the form of HTTP/1.1.


def _rewrite(data: bytearray, start: int) -> bytes | None:
    """Return the data with its head rewritten; None while the head is incomplete.

    Complete interim responses are removed from the data. `start` is where the search for the end of the head begins.
    """
    begin = 0
    while (end := _END.search(data, max(start, begin))) is not None:
        if _INTERIM.match(data, begin) is None:
            return _rewrite_head(bytes(data[begin : end.start()])) + bytes(data[end.end() :])
        begin = end.end()
    del data[:begin]
    return None


def _rewrite_head(head: bytes) -> bytes:
    head = _LATER.sub(b"HTTP/1.1", head, count=1) if _LATER.match(head) else head
    lines = _unfold([line.removesuffix(b"\r") for line in head.split(b"\n")])
    fields = [line.translate(_CONTROL) for line in lines[1:]]
    names = [line.partition(b":")[0].lower() for line in fields]
    lengths = [index for index, name in enumerate(names) if name == b"content-length"]
    values = {part.strip(b" \t") for index in lengths for part in fields[index].partition(b":")[2].split(b",")}
    if len(values) == 1:  # different values stay unchanged, and the parser refuses them
        chunked = b"transfer-encoding" in names
        unwanted = lengths if chunked else lengths[1:]
        if not chunked:
            fields[lengths[0]] = b"content-length: " + values.pop()
        fields = [line for index, line in enumerate(fields) if index not in unwanted]
    return b"\r\n".join([lines[0], *fields]) + b"\r\n\r\n"


def _unfold(lines: list[bytes]) -> list[bytes]:
    """Join each continuation line with the line before it, except with the status line."""
    out = lines[:1]
    for line in lines[1:]:
        if line[:1] in (b" ", b"\t") and len(out) > 1:
            out[-1] += b" " + line.strip(b" \t")
        else:
            out.append(line)
    return out
