"""Compressed bodies, undone as they come."""

from __future__ import annotations

import zlib
from collections.abc import Callable
from typing import Any

__all__ = ["Spoiled", "Undo", "undo"]

Undo = Callable[[bytes], bytes]


class Spoiled(ValueError):
    """Bytes that are not what the headers say."""


def undo(coding: str | None) -> Undo | None:
    """What makes plain bytes of a body's pieces, or None where they are plain. It raises `Spoiled`.

    Codings that nobody asked for and that no installed package undoes are left as they are, as httpx does.
    """
    if coding is None:
        return None
    found = [made for name in coding.split(",") if (made := _one(name.strip().lower())) is not None]
    if len(found) < 2:
        return found[0] if found else None

    def every(data: bytes) -> bytes:
        for one in reversed(found):
            data = one(data)
        return data

    return every


def _one(name: str) -> Undo | None:
    match name:
        case "gzip" | "x-gzip":
            return _safe(zlib.decompressobj(zlib.MAX_WBITS | 16).decompress, zlib.error)
        case "deflate":
            return _deflated()
        case "br":
            return _brotli()
        case _:
            return None


def _safe(step: Undo, fault: type[Exception]) -> Undo:
    def one(data: bytes) -> bytes:
        try:
            return step(data)
        except fault as error:
            raise Spoiled(str(error)) from error

    return one


def _deflated() -> Undo:
    """With the zlib header that the standard wants, or without it, as some servers send it."""
    wrapped, bare = zlib.decompressobj(), zlib.decompressobj(-zlib.MAX_WBITS)
    chosen: list[Undo] = []

    def step(data: bytes) -> bytes:
        if chosen:
            return chosen[0](data)
        try:
            plain = wrapped.decompress(data)
            chosen.append(wrapped.decompress)
        except zlib.error:
            plain = bare.decompress(data)
            chosen.append(bare.decompress)
        return plain

    return _safe(step, zlib.error)


def _brotli() -> Undo | None:
    for name in ("brotli", "brotlicffi"):
        try:
            package: Any = __import__(name)
        except ImportError:
            continue
        made = package.Decompressor()
        return _safe(getattr(made, "process", None) or made.decompress, package.error)
    return None
