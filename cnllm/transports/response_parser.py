"""The reading side of one HTTP/1.1 connection: bytes in, a status, headers and pieces of a body out. No I/O.

llhttp (by httptools) does the parsing. Whatever came before a fault is kept: it is told after the last good piece.
"""

from __future__ import annotations

from collections.abc import Iterator

from httptools import HttpParserError, HttpParserUpgrade, HttpResponseParser

from cnllm.transports.content_encoding import DecodingError, Undo, body_decoder
from cnllm.transports.head_repair import is_head, rewrite

__all__ = ["ResponseParser"]

_HEAD = 102_400  # bytes of a status line and headers, as httpx takes them
_TAIL = 32  # bytes of a segment in which line ends behind a response are looked for
_LINE_ENDS = b"\r\n"


class ResponseParser:
    """Reads one response after another; `begin` goes before each."""

    def __init__(self) -> None:
        self._pieces: list[bytes] = []
        self.on_body = self._pieces.append  # called by the parser for each piece: nothing in Python is quicker
        self._parser = self._new_parser()
        self.begin_response()

    def _new_parser(self) -> HttpResponseParser:
        parser = HttpResponseParser(self)
        # Line ends without CR and blanks around the size of a chunk: there are servers that write them.
        parser.set_dangerous_leniencies(
            lenient_optional_cr_before_lf=True, lenient_spaces_after_chunk_size=True, lenient_data_after_close=True
        )
        return parser

    def begin_response(self) -> None:
        """A request goes out; what comes now answers it."""
        self._pieces.clear()
        self._fields: list[tuple[bytes, bytes]] = []
        self._whole = 0  # pieces of a complete body; what follows them is nobody's
        self.status = 0  # until the headers are complete
        self.began = False  # a byte of a response came
        self._head: bytes | bytearray = b""  # what came until the headers are complete
        self._odd = False  # the parser refused the head: it is rewritten once all of it is there
        self._rewritten = False
        self._in_body = False
        self._interim = False  # an interim response came
        self.headers: dict[str, str] = {}
        self.complete = False
        self.reusable = False
        self.fault: str | None = None
        self.more = False  # there are plain bytes to be had without reading on
        self._undo: Undo | None = None
        self._plain: Iterator[bytes] = iter(())

    def feed(self, data: bytes | memoryview) -> None:
        """What the connection brought."""
        if 2 < len(data) <= _TAIL and not bytes(data).strip(b"\r\n"):  # the response may end among them
            for at in range(len(data)):
                self.feed(data[at : at + 1])
            return
        if not self._in_body:
            if self.complete:  # behind a complete response: nobody's
                self.reusable = False
                return
            if self._odd:
                self._repair(data)
                return
            if not self.began:
                self.began = True
                if data and data[0] in _LINE_ENDS:  # a rest of the response before it, perhaps
                    self._fail("it begins with an empty line")
                    return
        try:
            self._parser.feed_data(data)
        except HttpParserUpgrade:
            self._fail("the peer speaks another protocol from here on")
        except HttpParserError as error:
            self._refused(data, error)
        if self._in_body:
            return
        if self.complete:
            self._finish(data)
        elif not self.status and not self._odd and self.fault is None:
            self._keep(data)

    def _refused(self, data: bytes | memoryview, error: HttpParserError) -> None:
        """The parser refused some bytes: what is behind a response, a body, or a head that may yet be read."""
        if self.complete:
            self.reusable = False
        elif self.status or not is_head(bytes(self._head + data)):
            self._fail(str(error))
        else:
            self._odd = True
            self._repair(data)

    def _finish(self, data: bytes | memoryview) -> None:
        """The response is complete; what follows it in the same bytes is nobody's."""
        if len(self._pieces) > self._whole:
            del self._pieces[self._whole :]
        if data[-1] in _LINE_ENDS and self.reusable and self._has_surplus(data):
            self.reusable = False

    def _keep(self, data: bytes | memoryview) -> None:
        """Keep bytes of a head that is not complete yet. An interim response's do not count."""
        if self._interim:
            self._interim = False
            self._head = b""
        self._head = self._head or bytearray()
        self._head += data
        if len(self._head) > _HEAD:
            self._fail(f"its headers have more than {_HEAD:,} bytes")

    def _repair(self, data: bytes | memoryview) -> None:
        """Read a head that the parser refused once more, rewritten. Its connection is not used again."""
        searched = len(self._head)
        self._head = self._head or bytearray()
        self._head += data
        if self._head.find(b"\n", searched) < 0 or (strict := rewrite(bytes(self._head))) is None:
            if len(self._head) > _HEAD:
                self._fail(f"its headers have more than {_HEAD:,} bytes")
            return
        self._rewritten = True
        self._fields.clear()
        self._parser = self._new_parser()
        try:
            self._parser.feed_data(strict)
        except HttpParserUpgrade:
            self._fail("the peer speaks another protocol from here on")
        except HttpParserError as error:
            self._fail(str(error))
        self._odd = False
        if not self.status:
            self._fail("its headers cannot be read")
        elif self.complete:
            self._finish(data)

    def _has_surplus(self, data: bytes | memoryview) -> bool:
        """Whether line ends follow the response, which the parser skips without a word. True where that is not known.

        Any other byte behind a response begins a message, and is noticed there.
        """
        end = bytes(data[-_TAIL:])
        last = self._pieces[-1] if self._pieces and "transfer-encoding" not in self.headers else b""
        spare = end[len(end.rstrip(b"\r\n")) :]
        if last:  # the body's own line ends are no surplus
            return len(spare) > len(last) - len(last.rstrip(b"\r\n")) or (len(spare) == len(end) < len(data))
        if len(spare) == len(data):
            return data not in (b"\n", b"\r\n")
        return spare not in (b"\r\n\r\n", b"\n\n")

    def end(self, said: str = "the peer closed the connection") -> None:
        """The connection is over."""
        self.reusable = False
        if self.complete or self.fault is not None:
            return
        coding = self.headers.get("transfer-encoding", "")
        if self.status and "content-length" not in self.headers and "chunked" not in coding.lower():
            self.complete = True  # the end of the connection is the end of such a body
            self._whole = len(self._pieces)
        else:
            self._fail(f"{said} in the middle of the message" if self.status else said)

    def connection_lost(self, said: str) -> None:
        """The connection broke."""
        self._fail(said)

    def take(self) -> bytes:
        """What has been read of the body since the last time, uncompressed; a part of it where `more` is true then."""
        pieces = self._pieces
        if self._undo is not None and (pieces or self.more):
            return self._undone(self._undo)
        if not pieces:
            return b""
        data = pieces[0] if len(pieces) == 1 else b"".join(pieces)
        pieces.clear()
        self._whole = 0
        return data

    def _undone(self, undo: Undo) -> bytes:
        """One plain piece; what is good is kept, should the rest be spoiled."""
        self.more = True
        try:
            while True:
                for plain in self._plain:
                    return plain
                if not self._pieces:
                    break
                self._plain = undo(self._pieces.pop(0))
                self._whole = max(self._whole - 1, 0)
        except DecodingError as error:
            self._pieces.clear()
            self.complete = False
            self._fail(str(error))
        self.more = False
        self._plain = iter(())
        return b""

    def _fail(self, said: str) -> None:
        self.reusable = False
        if not self.complete and self.fault is None:
            self.fault = said

    # ── called by the parser ─────────────────────────────────────────────────
    def on_message_begin(self) -> None:
        """A response; after a complete one it is one that nobody asked for."""
        self._fields.clear()
        if self.complete:
            self.reusable = False

    def on_status(self, reason: bytes) -> None:
        """The words of a status line."""
        if b"\0" in reason:
            self._fail("its status line holds a NUL")

    def on_header(self, name: bytes, value: bytes) -> None:
        """A header, or what follows a chunked body and is not asked for."""
        if not self.status:
            self._fields.append((name, value))

    def on_headers_complete(self) -> None:
        """The head is there, if it is not that of an interim response."""
        status = self._parser.get_status_code()
        if self.status or self.fault is not None:
            return
        if 100 <= status < 200 and status != 101:  # 101: the peer speaks another protocol from here on
            self._interim = True
            return
        headers = self.headers
        for raw, value in self._fields:
            name = _text(raw).lower()
            said = _text(value).strip(" \t")
            headers[name] = f"{headers[name]}, {said}" if name in headers else said
        if status < 200:
            self._fail(f"{status} answers no request")
        elif headers.get("transfer-encoding", "chunked").lower() != "chunked":
            self._fail("its transfer-encoding is none that was asked for")
        else:
            self.status = status
            self._in_body = True
            self._undo = body_decoder(headers.get("content-encoding"))

    def on_message_complete(self) -> None:
        """The end of the response, unless it was an interim one."""
        if self.status and not self.complete:
            self.complete = True
            self._in_body = False
            self.reusable = not self._rewritten and self._parser.should_keep_alive()
            self._whole = len(self._pieces)


def _text(raw: bytes) -> str:
    try:
        return raw.decode()
    except UnicodeDecodeError:
        return raw.decode("latin-1")
