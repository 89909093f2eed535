"""Decompress response bodies piece by piece.

A few bytes may expand a lot, and many bytes may expand to nothing. So pieces have a bounded size, and so has what a
coding takes without giving content: empty members, blocks and frames. A body ends where its coding ends.
"""

from __future__ import annotations

import contextlib
import importlib
import zlib
from collections.abc import Callable, Generator, Iterable, Iterator
from typing import Any

__all__ = ["MAX_SILENT_BYTES", "PIECE", "CodingEnd", "Decoder", "DecodingError", "body_decoder"]

PIECE = 65_536  # bytes of a plain piece
MAX_SILENT_BYTES = 262_144  # bytes that arrive without content; a block of zstd is half of it
_MAX_CODINGS = 5  # as in urllib3
_YIELD = 64  # bytes that may arrive for one byte of content, besides `MAX_SILENT_BYTES`
_SLICE = 4096  # compressed bytes between two looks at the clock
_GZIP = zlib.MAX_WBITS | 16
_GZIP_MAGIC = b"\x1f\x8b"
_ZSTD_MAGIC = b"\x28\xb5\x2f\xfd"
_SKIPPABLE = b"\x2a\x4d\x18"  # the last bytes of the magic number of a skippable frame

Decoder = Callable[[bytes], Iterator[bytes]]
"""Yields the plain pieces of the next compressed bytes. The caller must read all of them before the next call.

An empty piece is a turn to look at the clock and to let other tasks run. Raises `CodingEnd` at bytes after the end.
"""
_Rest = Generator[bytes, None, bytes | None]
"""Yields plain pieces. Returns the bytes after the end of the frame; None while it has not ended."""


class DecodingError(ValueError):
    """Bytes that do not match the content-encoding header, or that hold no content."""


class CodingEnd(Exception):
    """Bytes follow the end of the coding. They belong to nobody, and the body is complete."""


def body_decoder(coding: str | None) -> Decoder | None:
    """Return the decoder of a body's pieces, or None for a plain body. The decoder raises `DecodingError`.

    A coding that was not requested and that no installed package decodes is passed through, as httpx does.
    """
    if coding is None:
        return None
    names = [name for part in coding.split(",") if (name := part.strip().lower()) not in ("", "identity")]
    if len(names) > _MAX_CODINGS:
        return _refuse(f"its content-encoding names {len(names)} codings, and at most {_MAX_CODINGS} are decoded")
    layers = [layer for name in reversed(names) if (layer := _layer(name)) is not None]
    if not layers:
        return None

    def decode(data: bytes) -> Iterator[bytes]:
        pieces: Iterator[bytes] = iter((data,))
        for layer in layers:
            pieces = layer.decode(pieces)
        return pieces

    return decode


def _refuse(reason: str) -> Decoder:
    def decode(data: bytes) -> Iterator[bytes]:
        raise DecodingError(reason)

    return decode


class _Layer:
    """One coding of a body: frame after frame.

    `begin(head, is_first)` returns the decompressor of a frame, None while the bytes are too few to know it, or raises
    `CodingEnd`. `expand(frame, data)` yields the plain bytes.
    """

    def __init__(self, begin: Callable[[bytes, bool], Any], expand: Callable[[Any, bytes], _Rest]) -> None:
        self._begin = begin
        self._expand = expand
        self._frame: Any = None
        self._head = b""  # the first bytes of the next frame
        self._is_first = True
        self._credit = MAX_SILENT_BYTES  # bytes that may still come without content

    def decode(self, pieces: Iterable[bytes]) -> Iterator[bytes]:
        """Yield the plain pieces of compressed ones, and an empty one after each slice."""
        for piece in pieces:
            for start in range(0, len(piece), _SLICE):  # zlib copies all bytes after a frame: a slice keeps that small
                part = piece[start : start + _SLICE] if len(piece) > _SLICE else piece
                self._credit -= len(part)
                for plain in self._frames(part):
                    if plain:
                        self._credit = min(self._credit + _YIELD * len(plain), MAX_SILENT_BYTES)
                        yield plain
                if self._credit < 0:
                    raise DecodingError(f"more than {MAX_SILENT_BYTES:,} compressed bytes hold no content")
                yield b""
            if not piece:
                yield piece

    def _frames(self, data: bytes) -> Iterator[bytes]:
        rest: bytes | None = data
        while rest:
            if self._frame is None:
                self._head += rest
                self._frame = self._begin(self._head, self._is_first)
                if self._frame is None:
                    return
                rest, self._head, self._is_first = self._head, b"", False
            rest = yield from self._expand(self._frame, rest)
            if rest is not None:
                self._frame = None


def _layer(name: str) -> _Layer | None:
    match name:
        case "gzip" | "x-gzip":
            return _Layer(_begin_gzip, _inflate)
        case "deflate":
            return _Layer(_begin_deflate, _inflate)
        case "br":
            return _brotli_layer()
        case "zstd":
            return _zstd_layer()
        case _:
            return None


def _inflate(inflater: Any, data: bytes) -> _Rest:
    """Yield the plain bytes of a zlib object, in bounded pieces."""
    while True:
        try:
            plain = inflater.decompress(data, PIECE)
        except zlib.error as error:
            raise DecodingError(str(error)) from error
        yield plain
        data = inflater.unconsumed_tail
        if inflater.eof:
            rest: bytes = inflater.unused_data
            return rest
        if not (data or len(plain) == PIECE):
            return None


def _begin_gzip(head: bytes, is_first: bool) -> Any:
    """Return an inflater for a member of gzip. Later bytes that begin no member are its end."""
    if is_first or head.startswith(_GZIP_MAGIC):
        return zlib.decompressobj(_GZIP)
    if _GZIP_MAGIC.startswith(head):
        return None
    raise CodingEnd


def _begin_deflate(head: bytes, is_first: bool) -> Any:
    """Return an inflater with the zlib header of the standard, or without it, as some servers send it."""
    if not is_first:
        raise CodingEnd
    if len(head) < 2:  # two bytes show whether there is a header
        return None
    try:
        zlib.decompressobj().decompress(head, 1)
    except zlib.error:
        return zlib.decompressobj(-zlib.MAX_WBITS)
    return zlib.decompressobj()


def _package(*names: str) -> Any:
    """Return the first of these packages that is installed, or None."""
    for name in names:
        with contextlib.suppress(ImportError):
            return importlib.import_module(name)
    return None


def _brotli_layer() -> _Layer | None:
    package = _package("brotli", "brotlicffi")

    def begin(head: bytes, is_first: bool) -> Any:
        if not is_first:
            raise CodingEnd
        return package.Decompressor()

    def expand(frame: Any, data: bytes) -> _Rest:
        decompress = getattr(frame, "process", None) or frame.decompress
        for index in range(len(data)):  # one byte expands to megabytes, and there is no limit
            try:
                if plain := decompress(data[index : index + 1]):
                    yield plain
            except package.error as error:
                raise DecodingError(str(error)) from error
            if frame.is_finished():
                return data[index + 1 :]
        return None

    return None if package is None else _Layer(begin, expand)


def _zstd_layer() -> _Layer | None:
    package = _package("zstandard")
    if package is None:
        return None
    decompressor = package.ZstdDecompressor()

    def begin(head: bytes, is_first: bool) -> Any:
        if is_first or head.startswith(_ZSTD_MAGIC) or (len(head) > 3 and head[1:4] == _SKIPPABLE):
            return decompressor.decompressobj()
        if len(head) < 4 and (_ZSTD_MAGIC.startswith(head) or _SKIPPABLE.startswith(head[1:])):
            return None
        raise CodingEnd

    def expand(frame: Any, data: bytes) -> _Rest:
        for start in range(0, len(data), 16):  # sixteen bytes expand to half a megabyte, and there is no limit
            try:
                yield frame.decompress(data[start : start + 16])
            except package.ZstdError as error:
                raise DecodingError(str(error)) from error
            if frame.eof:
                rest: bytes = frame.unused_data + data[start + 16 :]
                return rest
        return None

    return _Layer(begin, expand)
