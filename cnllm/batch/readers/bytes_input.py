"""The bytes of an input: a file, a gzip file or stdin, and their encoding."""

from __future__ import annotations

import codecs
import gzip
import io
import shutil
import sys
import tempfile
from typing import BinaryIO, cast

from cnllm.errors import CnllmError

__all__ = ["BytesInput"]

_START = 1 << 20
_MARKS = ((codecs.BOM_UTF8, "utf-8"), (codecs.BOM_UTF16_LE, "utf-16"), (codecs.BOM_UTF16_BE, "utf-16"))
_GZIP = b"\x1f\x8b"


class BytesInput:
    """A file that can be opened again, or stdin, which can be read once unless `keep` was called before.

    The encoding is the given one, else that of a byte order mark, else UTF-8 where the first megabyte is UTF-8, else
    GB18030, which every older Chinese encoding is a part of.
    """

    def __init__(self, name: str, encoding: str | None = None) -> None:
        self.name = "stdin" if name == "-" else name
        self._is_stdin = name == "-"
        self._given = encoding
        self._stdin: BinaryIO | None = None
        self._copy: BinaryIO | None = None
        self._start: bytes | None = None
        if encoding is not None:
            try:
                codecs.lookup(encoding)
            except LookupError:
                raise CnllmError(f"there is no encoding {encoding!r}", hint="for example: gb18030") from None
        self.start()

    def open(self) -> BinaryIO:
        """Return the bytes from the start, uncompressed. Raises `CnllmError`."""
        try:
            raw = self._raw()
            return cast(BinaryIO, gzip.open(raw)) if self._head(raw).startswith(_GZIP) else raw
        except OSError as error:
            raise CnllmError(f"{self.name}: {error.strerror or error}", hint="name a file that can be read") from error

    def start(self) -> bytes:
        """Return the first bytes, uncompressed."""
        if self._start is None:
            file = self.open()
            try:
                self._start = file.peek(1)[:_START] if self._is_stdin else file.read(_START)  # type: ignore[attr-defined]
            except (OSError, EOFError) as error:
                raise CnllmError(f"{self.name}: {error}", hint="is it whole?") from error
            finally:
                if not self._is_stdin:
                    file.close()
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

    def count_lines(self) -> int | None:
        """Return the number of lines; None for a pipe."""
        if self._is_stdin:
            return None
        count, last = 0, b"\n"
        with self.open() as file:
            while block := file.read(_START):
                count += block.count(b"\n")
                last = block[-1:]
        return count + (last != b"\n")

    def keep(self) -> None:
        """Copy stdin to a file without a name, so that it can be read again."""
        if not self._is_stdin or self._copy is not None:
            return
        copy = tempfile.TemporaryFile(prefix="cnllm-batch-")  # noqa: SIM115 - it lives as long as this object
        shutil.copyfileobj(self._raw(), copy)
        self._copy = cast(BinaryIO, copy)

    def _raw(self) -> BinaryIO:
        if self._copy is not None:
            self._copy.seek(0)
            return cast(BinaryIO, io.BufferedReader(_Shared(self._copy)))
        if not self._is_stdin:
            return open(self.name, "rb", buffering=1 << 18)
        if self._stdin is None:
            buffer = getattr(sys.stdin, "buffer", None)
            if buffer is None:
                raise CnllmError("stdin is closed", hint="name a file, or pipe the rows in")
            self._stdin = cast(BinaryIO, buffer)
        return self._stdin

    def _head(self, raw: BinaryIO) -> bytes:
        return raw.peek(2)[:2]  # type: ignore[attr-defined, no-any-return]


class _Shared(io.RawIOBase):
    """Reads a file without closing it."""

    def __init__(self, file: BinaryIO) -> None:
        self._file = file

    def readable(self) -> bool:
        """Whether it can be read."""
        return True

    def readinto(self, buffer: bytearray) -> int:  # type: ignore[override]
        """Read bytes into a buffer."""
        data = self._file.read(len(buffer))
        buffer[: len(data)] = data
        return len(data)
