"""Decompress response bodies piece by piece. Pieces have a bounded size, because a few bytes may expand a lot."""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterator
from typing import Any

__all__ = ["PIECE", "Decoder", "DecodingError", "body_decoder"]

PIECE = 65_536  # bytes of a plain piece
_SLICE = 4096  # compressed bytes of gzip at a time
_GZIP = zlib.MAX_WBITS | 16
_MAGIC = b"\x1f\x8b"

Decoder = Callable[[bytes], Iterator[bytes]]
"""Yields the plain pieces of the next compressed bytes. The caller must read all of them before the next call."""


class DecodingError(ValueError):
    """Bytes that do not match the content-encoding header."""


def body_decoder(coding: str | None) -> Decoder | None:
    """Return the decoder of a body's pieces, or None for a plain body. The decoder raises `DecodingError`.

    A coding that was not requested and that no installed package decodes is passed through, as httpx does.
    """
    if coding is None:
        return None
    decoders = [decoder for name in coding.split(",") if (decoder := _decoder(name.strip().lower())) is not None]
    if len(decoders) < 2:
        return decoders[0] if decoders else None

    def decode(data: bytes) -> Iterator[bytes]:
        pieces = iter([data])
        for decoder in reversed(decoders):
            pieces = _decode_pieces(decoder, pieces)
        return pieces

    return decode


def _decode_pieces(decoder: Decoder, pieces: Iterator[bytes]) -> Iterator[bytes]:
    for piece in pieces:
        yield from decoder(piece)


def _decoder(name: str) -> Decoder | None:
    match name:
        case "gzip" | "x-gzip":
            return _gzip_decoder()
        case "deflate":
            return _zlib_decoder(_deflate_inflater)
        case "br":
            return _brotli_decoder()
        case "zstd":
            return _zstd_decoder()
        case _:
            return None


def _zlib_decoder(begin: Callable[[bytes], Any]) -> Decoder:
    """Return a decoder of zlib's formats. `begin` makes the zlib object from the first bytes."""
    inflaters: list[Any] = []
    pending = b""

    def pieces(data: bytes) -> Iterator[bytes]:
        nonlocal pending
        if not inflaters:
            pending += data
            if len(pending) < 2:  # two bytes show whether there is a header
                return
            data = pending
            inflaters.append(begin(data))
        yield from _inflate_pieces(inflaters[0], data)

    return pieces


def _inflate_pieces(inflater: Any, data: bytes) -> Iterator[bytes]:
    """Yield the plain bytes of a zlib object, in bounded pieces."""
    while True:
        try:
            plain = inflater.decompress(data, PIECE)
        except zlib.error as error:
            raise DecodingError(str(error)) from error
        if plain:
            yield plain
        data = inflater.unconsumed_tail
        if inflater.eof or not (data or len(plain) == PIECE):
            return


def _gzip_decoder() -> Decoder:
    """Return a decoder of all members of a gzip body. Trailing bytes that begin no member are ignored."""
    inflater: Any = zlib.decompressobj(_GZIP)
    pending = b""  # the bytes after a member: the next member, or something else
    ended = False

    def pieces(data: bytes) -> Iterator[bytes]:
        nonlocal inflater, pending, ended
        for start in range(0, len(data), _SLICE):  # zlib copies all bytes after a member; a slice keeps that small
            rest = data[start : start + _SLICE] if len(data) > _SLICE else data
            while rest and not ended:
                if inflater.eof:
                    pending += rest
                    if len(pending) < len(_MAGIC) and _MAGIC.startswith(pending):
                        break
                    if not pending.startswith(_MAGIC):
                        ended = True
                        break
                    inflater, rest, pending = zlib.decompressobj(_GZIP), pending, b""
                yield from _inflate_pieces(inflater, rest)
                rest = inflater.unused_data if inflater.eof else b""

    return pieces


def _deflate_inflater(head: bytes) -> Any:
    """Return an inflater with the zlib header of the standard, or without it, as some servers send it."""
    try:
        zlib.decompressobj().decompress(head, 1)
    except zlib.error:
        return zlib.decompressobj(-zlib.MAX_WBITS)
    return zlib.decompressobj()


def _brotli_decoder() -> Decoder | None:
    for name in ("brotli", "brotlicffi"):
        try:
            package: Any = __import__(name)
        except ImportError:
            continue
        decompressor = package.Decompressor()
        return _sliced_decoder(getattr(decompressor, "process", None) or decompressor.decompress, package.error, 1)
    return None


def _zstd_decoder() -> Decoder | None:
    try:
        package: Any = __import__("zstandard")
    except ImportError:
        return None
    frames = [package.ZstdDecompressor().decompressobj()]

    def decompress(data: bytes) -> bytes:
        plain: bytes = frames[0].decompress(data)
        while frames[0].eof and (data := frames[0].unused_data):
            frames[0] = package.ZstdDecompressor().decompressobj()
            plain += frames[0].decompress(data)
        if frames[0].eof:
            frames[0] = package.ZstdDecompressor().decompressobj()
        return plain

    return _sliced_decoder(decompress, package.ZstdError, 16)


def _sliced_decoder(decompress: Callable[[bytes], bytes], error_class: type[Exception], size: int) -> Decoder:
    """Return a decoder of small slices, for packages without an output limit. Each slice expands to a few megabytes."""

    def pieces(data: bytes) -> Iterator[bytes]:
        for start in range(0, len(data), size):
            try:
                plain = decompress(data[start : start + size])
            except error_class as error:
                raise DecodingError(str(error)) from error
            if plain:
                yield plain

    return pieces
