"""Compressed bodies, undone as they come, in pieces of a bounded size: a few bytes may stand for a great many."""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterator
from typing import Any

__all__ = ["PIECE", "DecodingError", "Undo", "body_decoder"]

PIECE = 65_536  # bytes of a plain piece
_SLICE = 4096  # compressed bytes of gzip at a time
_GZIP = zlib.MAX_WBITS | 16
_MAGIC = b"\x1f\x8b"

Undo = Callable[[bytes], Iterator[bytes]]
"""The plain pieces of the next compressed bytes; they have to be taken to the last before the next call."""


class DecodingError(ValueError):
    """Bytes that are not what the headers say."""


def body_decoder(coding: str | None) -> Undo | None:
    """What makes plain bytes of a body's pieces, or None where they are plain. It raises `DecodingError`.

    Codings that nobody asked for and that no installed package undoes are left as they are, as httpx does.
    """
    if coding is None:
        return None
    found = [made for name in coding.split(",") if (made := _one(name.strip().lower())) is not None]
    if len(found) < 2:
        return found[0] if found else None

    def every(data: bytes) -> Iterator[bytes]:
        pieces = iter([data])
        for one in reversed(found):
            pieces = _each(one, pieces)
        return pieces

    return every


def _each(one: Undo, pieces: Iterator[bytes]) -> Iterator[bytes]:
    for piece in pieces:
        yield from one(piece)


def _one(name: str) -> Undo | None:
    match name:
        case "gzip" | "x-gzip":
            return _gunzipped()
        case "deflate":
            return _inflated(_deflated)
        case "br":
            return _brotli()
        case "zstd":
            return _zstd()
        case _:
            return None


def _inflated(begin: Callable[[bytes], Any]) -> Undo:
    """What zlib does; `begin` makes its object once the first bytes are there."""
    made: list[Any] = []
    held = b""

    def pieces(data: bytes) -> Iterator[bytes]:
        nonlocal held
        if not made:
            held += data
            if len(held) < 2:  # the two that say whether there is a header
                return
            data = held
            made.append(begin(data))
        yield from _plain(made[0], data)

    return pieces


def _plain(step: Any, data: bytes) -> Iterator[bytes]:
    """What an object of zlib makes of some bytes, in bounded pieces."""
    while True:
        try:
            plain = step.decompress(data, PIECE)
        except zlib.error as error:
            raise DecodingError(str(error)) from error
        if plain:
            yield plain
        data = step.unconsumed_tail
        if step.eof or not (data or len(plain) == PIECE):
            return


def _gunzipped() -> Undo:
    """All members of a gzip body, one after another. What follows the last one and begins none is no part of it."""
    step: Any = zlib.decompressobj(_GZIP)
    held = b""  # behind a member: the first byte of the next one, or of anything else
    over = False

    def pieces(data: bytes) -> Iterator[bytes]:
        nonlocal step, held, over
        for at in range(0, len(data), _SLICE):  # zlib copies what is behind a member: of a slice, that is little
            rest = data[at : at + _SLICE] if len(data) > _SLICE else data
            while rest and not over:
                if step.eof:
                    held += rest
                    if len(held) < len(_MAGIC) and _MAGIC.startswith(held):
                        break
                    if not held.startswith(_MAGIC):
                        over = True
                        break
                    step, rest, held = zlib.decompressobj(_GZIP), held, b""
                yield from _plain(step, rest)
                rest = step.unused_data if step.eof else b""

    return pieces


def _deflated(head: bytes) -> Any:
    """With the zlib header that the standard wants, or without it, as some servers send it."""
    try:
        zlib.decompressobj().decompress(head, 1)
    except zlib.error:
        return zlib.decompressobj(-zlib.MAX_WBITS)
    return zlib.decompressobj()


def _brotli() -> Undo | None:
    for name in ("brotli", "brotlicffi"):
        try:
            package: Any = __import__(name)
        except ImportError:
            continue
        made = package.Decompressor()
        return _sliced(getattr(made, "process", None) or made.decompress, package.error, 1)
    return None


def _zstd() -> Undo | None:
    try:
        package: Any = __import__("zstandard")
    except ImportError:
        return None
    frames = [package.ZstdDecompressor().decompressobj()]

    def step(data: bytes) -> bytes:
        plain: bytes = frames[0].decompress(data)
        while frames[0].eof and (data := frames[0].unused_data):
            frames[0] = package.ZstdDecompressor().decompressobj()
            plain += frames[0].decompress(data)
        if frames[0].eof:
            frames[0] = package.ZstdDecompressor().decompressobj()
        return plain

    return _sliced(step, package.ZstdError, 16)


def _sliced(step: Callable[[bytes], bytes], fault: type[Exception], size: int) -> Undo:
    """What cannot be told when to stop gets so few bytes at a time that it stops of itself, after some megabytes."""

    def pieces(data: bytes) -> Iterator[bytes]:
        for at in range(0, len(data), size):
            try:
                plain = step(data[at : at + size])
            except fault as error:
                raise DecodingError(str(error)) from error
            if plain:
                yield plain

    return pieces
