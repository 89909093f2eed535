"""What the user says: text from the command line and from stdin, and images."""

from __future__ import annotations

import base64
import os
import select
import stat
import sys
from pathlib import Path
from typing import BinaryIO

from cnllm.cli.output import stdio
from cnllm.cli.output.errors import UsageError
from cnllm.types import Media, Message, Part, Text

__all__ = ["decode_argument", "read_image", "read_messages", "read_text"]

PATIENCE = 3.0
"""Seconds after which a user is told what the program waits for."""

_HOW = 'say it in quotes: cnllm call --model M "Why?", or pipe it in'
_MAGIC = (
    (b"\x89PNG\r\n\x1a\n", "image/png"),
    (b"\xff\xd8\xff", "image/jpeg"),
    (b"GIF87a", "image/gif"),
    (b"GIF89a", "image/gif"),
    (b"BM", "image/bmp"),
)


def read_messages(said: str, system: str | None, images: tuple[str, ...]) -> list[Message]:
    """The conversation that a call begins with."""
    parts: list[Part] = [*([Text(said)] if said else []), *map(read_image, images)]
    turns = [Message("user", parts)]
    if system:
        turns.insert(0, Message("system", [Text(decode_argument(system, "--system"))]))
    return turns


def read_text(argument: str | None, *, needed: bool = True) -> str:
    """TEXT, or stdin where that is absent or `-`; of both, one after the other with a blank line between."""
    if argument == "-":
        found = _stdin(sys.stdin, wait=True)
    elif argument is None:
        typing = sys.stdin is not None and sys.stdin.isatty()
        if typing and needed:
            raise UsageError("there is no text", _HOW)
        found = "" if typing else _stdin(sys.stdin, wait=True)
    else:
        piped = _stdin(sys.stdin, wait=False)
        found = decode_argument(argument, "the text")
        if piped.strip():
            found = f"{found}\n\n{piped}" if found.strip() else piped
    if needed and not found.strip():
        raise UsageError("the prompt is empty", _HOW)
    return found if found.strip() else ""


def _stdin(stream: object, *, wait: bool) -> str:
    """All of stdin. Without `wait`, only what is a pipe or a file: anything else was not meant for us."""
    raw: BinaryIO | None = getattr(stream, "buffer", None)
    if raw is None:
        return ""
    if not wait and not _was_piped(raw):
        return ""
    _tell_if_silent(raw)
    data = raw.read()
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise UsageError(
            f"stdin is not UTF-8: byte 0x{data[error.start]:02x} in line {line}",
            "convert it first, for example: iconv -f GB18030 -t UTF-8",
        ) from None


def _was_piped(raw: BinaryIO) -> bool:
    mode = os.fstat(raw.fileno()).st_mode
    return stat.S_ISFIFO(mode) or stat.S_ISREG(mode) or stat.S_ISSOCK(mode)


def _tell_if_silent(raw: BinaryIO) -> None:
    """Says that stdin is being waited for, once that has taken a while."""
    if os.name == "nt" or not _was_piped(raw):
        return
    ready, _, _ = select.select([raw], [], [], PATIENCE)
    if not ready:
        stdio.print_line("cnllm: waiting for stdin (use < /dev/null if nothing comes)")


def decode_argument(argument: str, what: str) -> str:
    """The argument; bytes that were no UTF-8 arrive in arguments as lone surrogates, which cannot be sent."""
    try:
        argument.encode()
    except UnicodeEncodeError:
        raise UsageError(f"{what} is not UTF-8", "set LANG to a UTF-8 locale, or pipe UTF-8 in") from None
    return argument


def read_image(source: str) -> Media:
    """A file as a part of a message; a URL goes as it is."""
    if source.startswith(("http://", "https://")):
        return Media("image", url=source)
    try:
        data = Path(source).read_bytes()
    except OSError as error:
        raise UsageError(f"--image {source}: {error.strerror}", "name a file that can be read") from error
    return Media(_kind(source, data), data=base64.b64encode(data).decode())


def _kind(source: str, data: bytes) -> str:
    for magic, kind in _MAGIC:
        if data.startswith(magic):
            return kind
    if data[:4] == b"RIFF" and data[8:12] == b"WEBP":
        return "image/webp"
    from mimetypes import guess_type  # reads the system's tables, so only for the rare kinds

    guessed = guess_type(source)[0] if data else None
    if guessed is None or not guessed.startswith("image/") or guessed in dict(_MAGIC).values():
        raise UsageError(
            f"--image {source}: this is no image", "PNG, JPEG, GIF, WebP and BMP are known by their content"
        )
    return guessed
