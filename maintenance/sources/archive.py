"""Read the files of a package or a repository without unpacking it."""

from __future__ import annotations

import tarfile
import zipfile
from collections.abc import Iterator, Mapping
from pathlib import Path, PurePosixPath

__all__ = ["LARGEST_FILE", "open_archive"]

LARGEST_FILE = 256 * 1024**2
"""The size of a file in bytes that is read at most. A larger one is left out, whatever the archive says of its size."""

_MOST_FILES = 200_000


class _Archive(Mapping[str, bytes]):
    """The files of an archive by their path. Each is read into memory when it is asked for; nothing is written."""

    def __init__(self, path: Path, root: int) -> None:
        self._members: dict[str, zipfile.ZipInfo | tarfile.TarInfo] = {}
        self._zip, self._tar = None, None
        if zipfile.is_zipfile(path):
            self._zip = zipfile.ZipFile(path)
            for entry in self._zip.infolist()[:_MOST_FILES]:
                if not entry.is_dir():
                    self._add(entry.filename, entry.file_size, entry, root)
        else:
            self._tar = tarfile.open(path)  # noqa: SIM115 (it stays open as long as the mapping)
            for member in self._tar.getmembers()[:_MOST_FILES]:
                if member.isfile() or member.issym():  # the target of a link is looked up in the archive alone
                    self._add(member.name, member.size, member, root)

    def _add(self, name: str, size: int, member: zipfile.ZipInfo | tarfile.TarInfo, root: int) -> None:
        """Take up a file, unless its name leads out of the archive or it is too large."""
        parts = PurePosixPath(name.replace("\\", "/")).parts
        outside = ".." in parts or (parts and parts[0] == "/") or name[1:2] == ":"
        if size <= LARGEST_FILE and not outside and len(parts) > root:
            self._members["/".join(parts[root:])] = member

    def __getitem__(self, path: str) -> bytes:
        member = self._members[path]
        if isinstance(member, zipfile.ZipInfo):
            assert self._zip is not None
            with self._zip.open(member) as file:
                return _read(file.read(LARGEST_FILE + 1), path)
        assert self._tar is not None
        stream = self._tar.extractfile(member)
        if stream is None:
            raise KeyError(path)
        with stream:
            return _read(stream.read(LARGEST_FILE + 1), path)

    def __iter__(self) -> Iterator[str]:
        return iter(self._members)

    def __len__(self) -> int:
        return len(self._members)


def open_archive(path: Path, root: int = 0) -> Mapping[str, bytes]:
    """Return the files of a wheel or a tarball without their first `root` folders. Raises `OSError`, `ValueError`.

    Looking up a file raises `KeyError` where a link leads to none, and `ValueError` where it is too large.
    """
    try:
        return _Archive(path, root)
    except (tarfile.TarError, zipfile.BadZipFile, EOFError) as error:
        raise ValueError(f"{path.name} is no wheel and no tarball: {error}") from error


def _read(data: bytes, path: str) -> bytes:
    """Return what was read of a file. Raises `ValueError` where there is more."""
    if len(data) > LARGEST_FILE:
        raise ValueError(f"{path} is larger than {LARGEST_FILE} bytes")
    return data
