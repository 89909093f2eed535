"""The bytes of an input: a file, a gzip file or stdin, and their encoding."""

from __future__ import annotations

import codecs
import errno
import gzip
import io
import os
import shutil
import stat
import sys
import tempfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, BinaryIO, cast

from cnllm.errors import CnllmError
from cnllm.system.files import explain_errors

__all__ = ["BytesInput", "name_damage", "text_of"]

_START = 1 << 20
_MARKS = ((codecs.BOM_UTF8, "utf-8"), (codecs.BOM_UTF16_LE, "utf-16"), (codecs.BOM_UTF16_BE, "utf-16"))
_GZIP = b"\x1f\x8b"


@contextmanager
def name_damage(name: str) -> Iterator[None]:
    """Raise `CnllmError` with the name of a file that cannot be read to its end."""
    try:
        yield
    except UnicodeDecodeError as error:  # of UTF-16 and UTF-32: a byte of no character has no place in their text
        raise CnllmError(f"{name}: it is not in {error.encoding}", hint="--encoding E names another one") from error
    except (OSError, EOFError, zlib.error) as error:
        reason = getattr(error, "strerror", None) or error
        raise CnllmError(f"{name}: {reason}", hint="is it whole?") from error


class BytesInput:
    """A file that can be opened again, or a pipe (`is_pipe`), which is read once unless `keep` was called before.

    stdin counts as a pipe, whatever it is; so does what `<(…)` of a shell names.

    The encoding is the given one, else that of a byte order mark, else UTF-8 where the first megabyte is UTF-8, else
    GB18030, which every older Chinese encoding is a part of.
    """

    def __init__(self, name: str, encoding: str | None = None) -> None:
        self.name = "stdin" if name == "-" else name
        self.is_pipe = name == "-" or _is_pipe(name)
        self._is_stdin = name == "-"
        self._given = encoding
        self._source: Any = None  # the pipe
        self._pipe: Any = None  # the same, uncompressed
        self._copy: BinaryIO | None = None
        self._start: bytes | None = None
        if encoding is not None:
            try:
                codecs.lookup(encoding)
            except LookupError:
                raise CnllmError(f"there is no encoding {encoding!r}", hint="for example: gb18030") from None
        self.start()

    @contextmanager
    def open(self) -> Iterator[BinaryIO]:
        """Open the bytes from the start, uncompressed. Raises `CnllmError`."""
        with explain_errors(self.name, "name a file that can be read"):
            file = self._raw()
            if not self.is_pipe and file.peek(2)[:2].startswith(_GZIP):  # type: ignore[attr-defined]
                file.close()
                file = cast(BinaryIO, gzip.open(self.name))  # noqa: SIM115 - closed below
        try:
            yield file
        finally:
            if not self.is_pipe:  # it is read on, or its copy is read again
                file.close()

    def start(self) -> bytes:
        """Return the first bytes, uncompressed."""
        if self._start is None:
            with self.open() as file, name_damage(self.name):
                self._start = file.peek(1)[:_START] if self.is_pipe else file.read(_START)  # type: ignore[attr-defined]
        return self._start

    def encoding(self) -> str:
        """Return the encoding of the text."""
        if self._given is not None:
            return self._given
        start = self.start()
        for mark, encoding in _MARKS:
            if start.startswith(mark):
                return encoding
        try:
            codecs.getincrementaldecoder("utf-8")().decode(start)
        except UnicodeDecodeError:
            return "gb18030"
        return "utf-8"

    def lines(self) -> Iterator[tuple[int, bytes]]:
        """Yield the lines that are not blank, in UTF-8, with their numbers. A byte of no character stays as it is."""
        encoding = self.encoding()
        is_utf8 = codecs.lookup(encoding).name in ("utf-8", "utf-8-sig", "ascii")
        with self.open() as file, name_damage(self.name):
            for number, line in enumerate(file if is_utf8 else _as_utf8(file, encoding), 1):
                content = line.strip(b"\r\n")
                if number == 1:
                    content = content.removeprefix(codecs.BOM_UTF8)
                if content.strip():
                    yield number, content

    def count_lines(self) -> int | None:
        """Return the number of lines; None for a pipe."""
        if self.is_pipe:
            return None
        count, last = 0, b"\n"
        with self.open() as file, name_damage(self.name):
            while block := file.read(_START):
                count += block.count(b"\n")
                last = block[-1:]
        return count + (last != b"\n")

    def keep(self) -> None:
        """Copy a pipe to a file without a name, so that it can be read again."""
        if not self.is_pipe or self._copy is not None:
            return
        copy = tempfile.TemporaryFile(prefix="cnllm-batch-")  # noqa: SIM115 - it lives as long as this object
        with name_damage(self.name):
            shutil.copyfileobj(self._raw(), copy)
        self._copy = cast(BinaryIO, copy)

    def close(self) -> None:
        """Close the pipe and its copy, where there are such. stdin stays open: others read it."""
        if self._copy is not None:
            self._copy.close()
        if self._source is not None and not self._is_stdin:
            self._source.close()

    def _raw(self) -> BinaryIO:
        if self._copy is not None:
            self._copy.seek(0)
            return self._copy
        if not self.is_pipe:
            return self._opened()
        if self._pipe is None:
            buffer: Any = getattr(sys.stdin, "buffer", None) if self._is_stdin else self._opened()
            if buffer is None:
                raise CnllmError("stdin is closed", hint="name a file, or pipe the rows in")
            buffer = buffer if hasattr(buffer, "peek") else io.BufferedReader(buffer)
            self._source = buffer
            self._pipe = gzip.GzipFile(fileobj=buffer) if buffer.peek(2)[:2].startswith(_GZIP) else buffer
        return cast(BinaryIO, self._pipe)

    def _opened(self) -> BinaryIO:
        file = open(self.name, "rb", buffering=1 << 18)  # noqa: SIM115 - the caller closes it
        mode = os.fstat(file.fileno()).st_mode
        if stat.S_ISCHR(mode) or stat.S_ISBLK(mode):  # a line of it may never end
            file.close()
            raise OSError(errno.ENODEV, "it is a device, not a file")
        return file


def _is_pipe(name: str) -> bool:
    """Whether a path names a pipe. What is read from it does not come again."""
    try:
        return stat.S_ISFIFO(os.stat(name).st_mode)
    except (OSError, ValueError):  # opening it says what is wrong
        return False


@contextmanager
def text_of(file: BinaryIO, encoding: str, newline: str) -> Iterator[io.TextIOWrapper]:
    """Read a file as text, and leave it open. A byte of no character becomes a surrogate."""
    text = io.TextIOWrapper(file, encoding, errors="surrogateescape", newline=newline)
    try:
        yield text
    finally:
        text.detach()  # it would close the file, which has an owner


def _as_utf8(file: BinaryIO, encoding: str) -> Iterator[bytes]:
    with text_of(file, encoding, "\n") as text:
        for line in text:
            yield line.encode("utf-8", "surrogateescape")
