"""Describe what went wrong with an MCP server: the reason in words, and the last lines that it wrote to stderr."""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
from collections.abc import Iterable
from typing import TextIO

from cnllm.config import redact
from cnllm.system.processes import loop_reads_pipes

__all__ = ["StderrTail", "leaf_error", "reason_of"]

_MAX_REASON = 1000  # characters
_KEY_SHAPE = re.compile(r"(?<![\w/\\.-])(?=[\w-]*\d)(?=[\w-]*[A-Za-z])[\w-]{20,}(?![\w/\\.-])")
"""A word like a key: long, of letters and digits, and no part of a path or a dotted name."""
_MAX_BYTES = 16_384
_MAX_LINES = 5
_MAX_LINE = 300  # characters
_WAIT = 0.5  # seconds for the end of stderr; a process that the server left behind may keep it open


def leaf_error(error: BaseException) -> BaseException:
    """Return the first error in a group of errors, or the error itself."""
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return error


def reason_of(error: BaseException | None, secrets: Iterable[str]) -> str:
    """Return the reason of a failure, without secrets."""
    text = redact.redact(_reason(error), secrets)
    return text if len(text) <= _MAX_REASON else f"{text[:_MAX_REASON]}…"


def _reason(error: BaseException | None) -> str:
    if error is None:
        return "it ended"
    if isinstance(error, FileNotFoundError):
        return f"there is no {error.filename or 'such program'}"
    if isinstance(error, PermissionError):
        return f"{error.filename or 'the program'} may not be run"
    if isinstance(error, TimeoutError | ConnectionError) and error.args and isinstance(error.args[0], str):
        return error.args[0]
    code = getattr(error, "code", None)
    message = getattr(error, "message", None)
    if type(code) is int and isinstance(message, str):  # an error that the server, or the transport for it, returned
        from mcp_types import CONNECTION_CLOSED

        return "it has ended, or closed the connection" if code == CONNECTION_CLOSED else message
    if type(error).__name__ == "ValidationError":  # its text shows what the server sent
        return "its answer has another form than the protocol's"
    return f"{type(error).__name__}: {error}" if str(error) else type(error).__name__


class StderrTail(asyncio.Protocol):
    """The end of a server's stderr. `file` is the end for the server, which `close_file` closes on this side."""

    def __init__(self) -> None:
        self._data = b""
        self._ended = asyncio.Event()
        self._transport: asyncio.BaseTransport | None = None
        if loop_reads_pipes():
            out, into = os.pipe()
            self._out: int | None = out
            self.file: TextIO = os.fdopen(into, "w")
        else:
            self._out = None
            self.file = open(os.devnull, "w")  # noqa: SIM115
            self._ended.set()

    @property
    def has_ended(self) -> bool:
        """Whether the server closed its stderr, which mostly means that it ended."""
        return self._out is not None and self._ended.is_set()

    async def start(self) -> None:
        """Begin to read."""
        if self._out is not None:
            source = os.fdopen(self._out, "rb", buffering=0)
            self._transport, _ = await asyncio.get_running_loop().connect_read_pipe(lambda: self, source)

    def data_received(self, data: bytes) -> None:
        """Keep the end of what was read."""
        self._data = (self._data + data)[-_MAX_BYTES:]

    def connection_lost(self, exc: Exception | None) -> None:
        """Note the end."""
        self._ended.set()

    def close_file(self) -> None:
        """Close the server's end on this side."""
        self.file.close()

    async def lines(self, secrets: Iterable[str]) -> tuple[str, ...]:
        """Return the last lines, without secrets, once the server has ended."""
        self.close_file()
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._ended.wait(), _WAIT)
        data = self._data
        if len(data) == _MAX_BYTES:
            data = data.partition(b"\n")[2]  # the first line may begin in the middle of a secret
        text = _KEY_SHAPE.sub(redact.MARK, redact.redact(data.decode("utf-8", "replace"), secrets))
        lines = [line for line in map(_printable, text.splitlines()) if line]
        return tuple(line if len(line) <= _MAX_LINE else f"{line[:_MAX_LINE]}…" for line in lines[-_MAX_LINES:])

    def close(self) -> None:
        """Stop reading."""
        self.close_file()
        if self._transport is not None:
            self._transport.close()


def _printable(line: str) -> str:
    """Return a line without control characters, which a terminal would carry out."""
    return "".join(char if char.isprintable() else " " for char in line).strip()
