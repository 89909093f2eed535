"""Registry files: found, read, checked, and kept parsed.

A wheel carries the built-in file parsed (`providers.bin`), so that the first start on a machine is as fast as the next
ones. Every other file is parsed once and kept in the cache (see `cache`). Both are plain data that name the content
they were made from, so that an edited file never meets old data. They only save time: everything works without them.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import msgspec

from cnllm.config.process import cached_property
from cnllm.errors import RegistryError
from cnllm.registry import cache
from cnllm.registry.files import builtin_file, overlay_files
from cnllm.registry.toml_lines import Lines, key_lines, line_of

__all__ = ["Document", "builtin_path", "overlay_paths", "packed", "read"]

_SECTIONS = ("protocols", "families", "providers", "models")
_FORMAT = b"cnllm-registry-18"  # a change of what is cached, or of what the checks accept, changes this
_LINES_SIZE = 4
_LINES: dict[bytes, Lines] = {}  # of the texts whose lines were all found: a registry that is loaded anew has them
_FEW = 8  # so many lines are looked for one by one; for more, all are found at once


class Document:
    """One registry file: its data, and on demand the line of every key. `shown` is what messages call it."""

    def __init__(
        self,
        path: Path,
        shown: str,
        text: bytes,
        data: dict[str, Any],
        *,
        builtin: bool,
        status: os.stat_result | None = None,
    ) -> None:
        self.path = path
        self.shown = shown
        self.text = text
        self.data = data
        self.builtin = builtin
        self._status = status  # of the very file that the text was read from
        self._sought = 0

    @cached_property
    def lines(self) -> Lines:
        """The line of every key."""
        lines = _LINES.get(self.text)
        if lines is None:
            lines = key_lines(self._source)
            while len(_LINES) >= _LINES_SIZE:
                _LINES.pop(next(iter(_LINES), b""), None)
            _LINES[self.text] = lines
        return lines

    @cached_property
    def _source(self) -> str:
        return self.text.decode().replace("\r\n", "\n")

    @cached_property
    def digest(self) -> str:
        """Names this very content (for trust)."""
        import hashlib

        return hashlib.blake2b(self.text, digest_size=32).hexdigest()

    @cached_property
    def is_own(self) -> bool:
        """Whether this is the file in the config folder, and nobody but its user can write it (for trust)."""
        from cnllm.registry import ownership

        return (
            self._status is not None
            and ownership.is_user_file(self.path)
            and ownership.ownership_fault(self.path, self._status) is None
        )

    def line(self, path: list[str]) -> int | None:
        """The line of a key, or of the nearest table around it."""
        self._sought += 1
        if self._sought <= _FEW and self.text not in _LINES:
            return line_of(self._source, path)
        lines = self.lines
        return next((lines[k] for n in range(len(path), 0, -1) if (k := "\0".join(path[:n])) in lines), None)


class LazyTables(Mapping[str, Any]):
    """A section of a cached file: tables by name, each decoded when it is first asked for.

    A call needs half a dozen of the file's hundreds of tables.
    """

    def __init__(self, packed: dict[str, msgspec.Raw]) -> None:
        self._packed = packed
        self._tables: dict[str, Any] = {}

    def __getitem__(self, name: str) -> Any:
        found = self._tables.get(name)
        if found is None:
            found = self._tables[name] = msgspec.msgpack.decode(self._packed[name])
        return found

    def __iter__(self) -> Iterator[str]:
        return iter(self._packed)

    def __len__(self) -> int:
        return len(self._packed)

    def __contains__(self, name: object) -> bool:
        return name in self._packed


def builtin_path() -> Path:
    """The providers.toml that came with the package: inside it, or beside it in a checkout."""
    return Path(builtin_file())


def overlay_paths() -> list[Path]:
    """The user's registry files: those CNLLM_PROVIDERS lists, else providers.toml in the config folder if it exists."""
    return [Path(place) for place in overlay_files()]


def read(path: Path, *, builtin: bool = False) -> Document:
    """A registry file, parsed and (unless built in) checked. Raises `RegistryError` with file and line."""
    shown = "providers.toml" if builtin else str(path)
    try:
        with path.open("rb") as opened:
            status = os.fstat(opened.fileno())
            text = opened.read()
    except OSError as error:
        raise RegistryError(
            f"cannot be read: {error.strerror}", file=shown, hint="name a registry file that exists"
        ) from error
    data = _shipped(path, text) if builtin else None
    entry = _entry(text, builtin) if data is None else None
    if data is None:
        data = _recall(entry)
    if data is None:
        data = parse(text, shown)
        if not builtin:  # the built-in file is checked by the tests, not by every user again
            from cnllm.registry.check import require_valid

            require_valid(Document(path, shown, text, data, builtin=False))
        cache.write_entry(entry, msgspec.msgpack.encode(data))
    return Document(path, shown, text, data, builtin=builtin, status=status)


def parse(text: bytes, shown: str) -> dict[str, Any]:
    """TOML text as plain data (dates as text)."""
    import tomllib

    try:
        source = text.decode()
        data = tomllib.loads(source.replace("\r\n", "\n"))
    except UnicodeDecodeError as error:
        line = text.count(b"\n", 0, error.start) + 1
        raise RegistryError("is not UTF-8", file=shown, line=line, hint="save it as UTF-8") from error
    except tomllib.TOMLDecodeError as error:
        line = _line_of(error, source)
        said = str(error).split(" (at ")[0]
        raise RegistryError(f"not TOML: {said}", file=shown, line=line, hint="fix this line") from error
    except (ValueError, RecursionError) as error:  # a number of thousands of digits, a thousand brackets
        raise RegistryError(f"cannot be read: {error}", file=shown, hint="fix the file") from error
    try:
        plain: dict[str, Any] = msgspec.to_builtins(data)
        msgspec.msgpack.encode(plain)
    except (OverflowError, RecursionError) as error:
        place = _line_of_value(data, source)
        raise RegistryError(f"cannot be kept: {error}", file=shown, line=place, hint="fix the file") from error
    return plain


def packed(text: bytes) -> bytes:
    """Return the content of `providers.bin` for a built-in file: digests of its text and of its data, then the data.

    The build of a wheel writes it beside the file.
    """
    data = msgspec.msgpack.encode(parse(text, "providers.toml"))
    return cache.digest(_FORMAT, text) + cache.digest(_FORMAT, data) + data


def _shipped(path: Path, text: bytes) -> dict[str, Any] | None:
    """Return the data that came with the wheel; None where none came, or where it is damaged or of another text."""
    try:
        blob = memoryview(path.with_suffix(".bin").read_bytes())
    except OSError:
        return None  # a checkout
    size = cache.DIGEST
    data = blob[2 * size :]
    whole = blob[:size] == cache.digest(_FORMAT, text) and blob[size : 2 * size] == cache.digest(_FORMAT, data)
    return _unpacked(data) if whole else None


def _line_of(error: Exception, source: str) -> int:
    import re

    found = re.search(r"at line (\d+)", str(error))
    return int(found[1]) if found else source.count("\n") + 1


def _line_of_value(data: Any, source: str) -> int | None:
    """The line of the first number that is too large, or of the first value that is nested too deeply."""
    todo: list[tuple[list[str], Any]] = [([], data)]
    while todo:
        path, value = todo.pop()
        large = type(value) is int and not -(2**63) <= value < 2**64
        if large or len(path) > 100:
            keys = path if large else path[:3]
            return next((n for size in range(len(keys), 0, -1) if (n := line_of(source, keys[:size]))), None)
        inner = value.items() if type(value) is dict else enumerate(value) if type(value) is list else ()
        todo += [([*path, str(key)], one) for key, one in inner]
    return None


def _entry(text: bytes, builtin: bool) -> str | None:
    """Where a file of this content is kept; apart for the built-in one, which nobody checked.

    One that may hold a password is kept nowhere else than where its owner put it.
    """
    if not builtin and any(sign in text for sign in (b"headers", b"auth", b"@")):  # which most have none of
        import re

        if re.search(rb"\bheaders\b|\bauth\b|://[^/?#\"'\s]*@", text):
            return None
    return cache.cache_entry("registry", _FORMAT, text, person=b"built-in" if builtin else b"")


def _recall(entry: str | None) -> dict[str, Any] | None:
    payload = cache.read_entry(entry)
    return None if payload is None else _unpacked(payload)


def _unpacked(payload: memoryview) -> dict[str, Any]:
    top = msgspec.msgpack.decode(payload, type=dict[str, msgspec.Raw])
    return {
        key: LazyTables(msgspec.msgpack.decode(packed, type=dict[str, msgspec.Raw]))
        if key in _SECTIONS
        else msgspec.msgpack.decode(packed)
        for key, packed in top.items()
    }
