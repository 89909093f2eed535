"""Read registry files: find, parse and check them, and cache the result.

A wheel carries the built-in file in parsed form (`providers.bin`), so that the first start on a machine is as fast as
the next ones. Every other file is parsed once and written to the cache (see `cache`). Both hold plain data and a digest
of the text it came from, so that data of an older text is never used. They only save time: everything works without
them.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator, Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any

import msgspec

from cnllm.errors import RegistryError
from cnllm.registry import cache
from cnllm.registry.documents import Document, parse
from cnllm.registry.files import builtin_file, catalogue_file, data_files, overlay_files
from cnllm.system.files import open_nonblocking, read_descriptor
from cnllm.system.processes import cached_property

__all__ = [
    "builtin_path",
    "catalogue_path",
    "data_paths",
    "load_documents",
    "overlay_paths",
    "packed",
    "read",
    "read_text",
]

_SECTIONS = ("protocols", "families", "providers", "models", "sources")
_FORMAT = b"cnllm-registry-70"  # count up when the cached data changes, or the rules of the checks


class LazyTables(Mapping[str, Any]):
    """A section of a cached file: tables by name, each decoded at its first use.

    A call needs about six of the file's hundreds of tables, and not even the names of some sections.
    """

    def __init__(self, section: msgspec.Raw) -> None:
        self._section = section
        self._tables: dict[str, Any] = {}

    @cached_property
    def _packed(self) -> dict[str, msgspec.Raw]:
        return msgspec.msgpack.decode(self._section, type=dict[str, msgspec.Raw])

    def __getitem__(self, name: str) -> Any:
        table = self._tables.get(name)
        if table is None:
            table = self._tables[name] = msgspec.msgpack.decode(self._packed[name])
        return table

    def __iter__(self) -> Iterator[str]:
        return iter(self._packed)

    def __len__(self) -> int:
        return len(self._packed)

    def __contains__(self, name: object) -> bool:
        return name in self._packed


def builtin_path() -> Path:
    """Return the path of the built-in providers.toml: inside the package, or beside it in a checkout."""
    return Path(builtin_file())


def catalogue_path() -> Path:
    """Return the path of catalogue.toml: models whose behaviour on the wire nobody has described yet."""
    return Path(catalogue_file())


def overlay_paths() -> list[Path]:
    """Return the user's registry files: those in CNLLM_PROVIDERS, or providers.toml in the config folder, or none."""
    return [Path(name) for name in overlay_files()]


def data_paths() -> list[Path]:
    """Return the data files that exist (see `cnllm.registry.files.data_files`)."""
    return [Path(name) for name in data_files()]


def load_documents(overlays: Iterable[str | Path] | None = None) -> list[Document]:
    """Read the built-in file, then the data files and the user's, or the given ones instead. Raises `RegistryError`."""
    data = [read(path, is_data=True) for path in data_paths()] if overlays is None else []
    paths = overlay_paths() if overlays is None else map(Path, overlays)
    return [read(builtin_path(), builtin=True), *data, *map(read, paths)]


def read(path: Path, *, builtin: bool = False, is_data: bool = False) -> Document:
    """Read, parse and (unless built in) check a registry file. Raises `RegistryError` with file and line.

    A data file (`is_data`) may hold less than the user's file, and its cache entry is another one.
    """
    label = path.name if builtin else str(path)
    status, text = _read_bytes(path, label)
    document = Document(path, label, text, {}, builtin=builtin, is_data=is_data, status=status)
    digest = document.digest
    data = _builtin_data(path, text, digest) if builtin else _cached_data(path, label, text, digest, is_data=is_data)
    document.data = dict(data)
    return document


@lru_cache(maxsize=4)  # the two files, and their next version
def _builtin_data(path: Path, text: bytes, digest: bytes) -> dict[str, Any]:
    """Return the data of a built-in file. A registry that is loaded anew shares its tables, which nobody changes."""
    data = _shipped_data(path, digest)
    return _cached_data(path, path.name, text, digest, builtin=True) if data is None else data


def _cached_data(
    path: Path, label: str, text: bytes, digest: bytes, *, builtin: bool = False, is_data: bool = False
) -> dict[str, Any]:
    """Return the data of a text from its cache entry; otherwise parse and check it, and write the entry."""
    entry = _cache_entry(text, digest, b"built-in" if builtin else b"data" if is_data else b"")
    if (payload := cache.read_entry(entry)) is not None:
        return _unpack(payload)
    try:
        data = parse(text, label)
        if not builtin:  # the tests check the built-in file
            from cnllm.registry.check import require_valid

            require_valid(Document(path, label, text, data, builtin=False, is_data=is_data))
    except RegistryError as error:
        if is_data:  # a program wrote it, so that the user has no line to correct
            error.hint = f"bring the file before it back: cnllm registry rollback {path.stem}"
        raise
    encoded = msgspec.msgpack.encode(data)
    cache.write_entry(entry, encoded)
    return _unpack(memoryview(encoded))  # the tables that nobody needs take less memory so


def read_text(path: Path) -> str:
    """Return the text of a registry file. Raises `RegistryError` where there is none, or it is not TOML."""
    _, text = _read_bytes(path, str(path))
    parse(text, str(path))
    return text.decode()


def _read_bytes(path: Path, label: str) -> tuple[os.stat_result, bytes]:
    try:
        descriptor = open_nonblocking(path)
        try:
            return os.fstat(descriptor), read_descriptor(descriptor)
        finally:
            os.close(descriptor)
    except OSError as error:
        raise RegistryError(
            f"cannot be read: {error.strerror}", file=label, hint="name a registry file that exists"
        ) from error


def packed(text: bytes) -> bytes:
    """Return the content of `providers.bin` or `catalogue.bin`: digest of the text, checksum of the data, data.

    The build of a wheel writes it beside the file.
    """
    data = msgspec.msgpack.encode(parse(text, "providers.toml"))
    return cache.digest(b"", text) + cache.checksum(_FORMAT, data) + data


def _shipped_data(path: Path, digest: bytes) -> dict[str, Any] | None:
    """Return the parsed data in the wheel; None where there is none, or it is damaged, or of another text."""
    try:
        blob = memoryview(path.with_suffix(".bin").read_bytes())
    except OSError:
        return None  # a checkout
    size = len(digest)
    mark, data = blob[size : size + cache.CHECKSUM], blob[size + cache.CHECKSUM :]
    return _unpack(data) if blob[:size] == digest and mark == cache.checksum(_FORMAT, data) else None


def _cache_entry(text: bytes, digest: bytes, kind: bytes) -> str | None:
    """Return the path of the cache entry for a text; None for a text that may hold a password.

    The same text as another kind of file, which is checked by other rules, has another entry. A password stays only
    in its owner's file.
    """
    may_have_password = kind != b"built-in" and any(word in text for word in (b"headers", b"auth", b"@"))  # quick test
    if may_have_password and re.search(rb"\bheaders\b|\bauth\b|://[^/?#\"'\s]*@", text):
        return None
    return cache.cache_entry("registry", _FORMAT, digest, person=kind)


def _unpack(payload: memoryview) -> dict[str, Any]:
    top = msgspec.msgpack.decode(payload, type=dict[str, msgspec.Raw])
    return {
        key: LazyTables(packed) if key in _SECTIONS else msgspec.msgpack.decode(packed) for key, packed in top.items()
    }
