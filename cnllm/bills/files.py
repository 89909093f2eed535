"""Find the tables of a bill: a file, the files of a folder or those of a ZIP archive. Nothing is unpacked to disk."""

from __future__ import annotations

import codecs
import hashlib
import io
import itertools
import os
import stat
import struct
import zipfile
import zlib
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from functools import partial
from typing import IO, NamedTuple

from cnllm.errors import CnllmError
from cnllm.system.closing import Closing
from cnllm.system.files import explain_errors

__all__ = ["BillFiles", "TableFile"]

_ENDINGS = (".csv", ".tsv", ".txt")
_MOST_FILES = 1000  # of a folder or an archive
_MOST_BYTES = 4 << 30  # of an archive, unpacked
_MOST_RATIO = 200  # of the unpacked bytes to the packed ones, from so many unpacked bytes on:
_LEAST_BOMB = 64 << 20
_MOST_LINE = 1 << 20  # characters
_BLOCK = 1 << 18
_MARKS = ((codecs.BOM_UTF8, "utf-8-sig"), (codecs.BOM_UTF16_LE, "utf-16"), (codecs.BOM_UTF16_BE, "utf-16"))
_ARCHIVE = b"PK\x03\x04"
_DAMAGE = (
    zipfile.BadZipFile,
    zlib.error,
    struct.error,
    EOFError,
    OSError,
    OverflowError,
    ValueError,
    NotImplementedError,
)
"""The errors that `zipfile` raises for an archive with wrong bytes."""
_SAVE_AS_CSV = "save it as CSV, and name that file"


class TableFile(NamedTuple):
    """A file with a table. `open` opens its bytes from the start."""

    name: str
    open: Callable[[], AbstractContextManager[IO[bytes]]]

    def content(self) -> tuple[bytes, str]:
        """Return a digest and the encoding: that of a mark, else UTF-8 where all of the bytes are, else GB18030."""
        digest, decoder, encoding = hashlib.sha256(), codecs.getincrementaldecoder("utf-8")(), "utf-8"
        with self.open() as file:
            first = True
            while block := file.read(_BLOCK):
                digest.update(block)
                if first:
                    encoding = next((name for mark, name in _MARKS if block.startswith(mark)), encoding)
                    first = False
                if encoding == "utf-8":
                    encoding = _still_utf8(decoder, block)
        return digest.digest(), encoding

    def lines(self, encoding: str) -> Iterator[str]:
        """Yield the lines with their ends. Raises `CnllmError` for a line without an end and for a bad byte."""
        with self.open() as file, io.TextIOWrapper(file, encoding, newline="") as text:
            for number in itertools.count(1):
                try:
                    line = text.readline(_MOST_LINE)
                except UnicodeDecodeError:
                    raise CnllmError(f"{self.name}: line {number} is not {encoding}", hint="save it as UTF-8") from None
                if not line:
                    return
                if len(line) == _MOST_LINE:
                    raise CnllmError(f"{self.name}: line {number} is longer than {_MOST_LINE:,} characters", hint=_HINT)
                yield line


_HINT = "is it a table? name a bill that was exported as CSV"


def _still_utf8(decoder: codecs.IncrementalDecoder, block: bytes) -> str:
    try:
        decoder.decode(block)
    except UnicodeDecodeError:
        return "gb18030"
    return "utf-8"


class BillFiles(Closing):
    """The tables of a bill. `others` are the names of files that are no tables."""

    def __init__(self, path: str) -> None:
        self.path = path
        self.others: list[str] = []
        self._stack = ExitStack()

    def close(self) -> None:
        """Close the archives."""
        self._stack.close()

    def tables(self) -> list[TableFile]:
        """Return the tables. Raises `CnllmError` where there is none, or where the archive is not safe to read."""
        with explain_errors(self.path, "name a bill that can be read"):
            tables = self._folder(self.path) if os.path.isdir(self.path) else self._file(self.path)
        if not tables:
            names = f" (it has {', '.join(self.others[:3])})" if self.others else ""
            raise CnllmError(f"{self.path} has no table{names}", hint="export the bill as CSV")
        return tables

    def _folder(self, folder: str) -> list[TableFile]:
        tables: list[TableFile] = []
        count = 0
        for place, folders, names in os.walk(folder):
            folders[:] = sorted(name for name in folders if not _is_hidden(name))
            for name in sorted(names):
                path = os.path.join(place, name)
                if _is_hidden(name) or not os.path.isfile(path):
                    continue
                count += 1
                if count > _MOST_FILES:
                    raise CnllmError(
                        f"{folder} has more than {_MOST_FILES:,} files", hint="name the folder of the bill"
                    )
                if name.lower().endswith((*_ENDINGS, ".zip")):
                    tables += self._file(path)
                else:
                    self.others.append(name)
        return tables

    def _file(self, path: str) -> list[TableFile]:
        def open_file() -> IO[bytes]:
            return open(path, "rb", buffering=_BLOCK)

        if not stat.S_ISREG(os.stat(path).st_mode):
            raise CnllmError(f"{path} is neither a file nor a folder", hint="name a bill that can be read")
        with open_file() as file:
            start = file.read(len(_ARCHIVE))
        if start == _ARCHIVE:
            return self._archive(path)
        return [TableFile(os.path.basename(path), open_file)]

    def _archive(self, path: str) -> list[TableFile]:
        name = os.path.basename(path)
        try:
            archive = self._stack.enter_context(zipfile.ZipFile(path))
        except _DAMAGE as error:
            raise CnllmError(f"{name}: {error}", hint="is it whole? download it again") from error
        members = [member for member in archive.infolist() if not member.is_dir()]
        if any(member.filename == "[Content_Types].xml" for member in members):
            raise CnllmError(f"{name} is a workbook, not a table", hint=_SAVE_AS_CSV)
        if len(members) > _MOST_FILES:
            raise CnllmError(f"{name} has more than {_MOST_FILES:,} files", hint="unpack the bill, and name its folder")
        tables: list[TableFile] = []
        for member in members:
            base = _member_name(member).replace("\\", "/").rpartition("/")[2]
            if _is_hidden(base) or "__MACOSX/" in member.filename:
                continue
            if base.lower().endswith(_ENDINGS):
                tables.append(TableFile(f"{name}: {base}", partial(_open_member, archive, member, name)))
            else:
                self.others.append(base)
        _check_sizes(name, members)
        return tables


def _check_sizes(name: str, members: list[zipfile.ZipInfo]) -> None:
    """Raise `CnllmError` for an archive that would unpack to far more than a bill."""
    for member in members:
        if member.file_size > _LEAST_BOMB and member.file_size > _MOST_RATIO * max(member.compress_size, 1):
            raise CnllmError(f"{name}: a file of it would unpack to {member.file_size:,} bytes", hint=_NOT_READ)
    if (total := sum(member.file_size for member in members)) > _MOST_BYTES:
        raise CnllmError(f"{name} would unpack to {total:,} bytes", hint=_NOT_READ)


_NOT_READ = "unpack it yourself if you trust it, and name its folder"


@contextmanager
def _open_member(archive: zipfile.ZipFile, member: zipfile.ZipInfo, name: str) -> Iterator[IO[bytes]]:
    """Open a file of an archive, no more of it than the archive says. Damage is a `CnllmError`, then and in reading."""
    try:
        file = archive.open(member)
    except (RuntimeError, *_DAMAGE) as error:
        fault = "it has a password" if member.flag_bits & 1 else str(error)
        raise CnllmError(f"{name}: {fault}", hint="unpack it yourself, and name its folder") from error
    try:
        with file:
            yield file
    except _DAMAGE as error:
        raise CnllmError(f"{name}: {error}", hint="is it whole? download it again") from error


def _member_name(member: zipfile.ZipInfo) -> str:
    """Return the name of a file of an archive. Old programs write Chinese names without saying in which encoding."""
    if member.flag_bits & 0x800 or member.filename.isascii():
        return member.filename
    try:
        raw = member.filename.encode("cp437")
    except UnicodeEncodeError:
        return member.filename
    for encoding in ("utf-8", "gb18030"):
        try:
            return raw.decode(encoding)
        except UnicodeDecodeError:
            continue
    return member.filename


def _is_hidden(name: str) -> bool:
    return name.startswith((".", "~$"))
