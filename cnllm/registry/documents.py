"""Read registry files: find, parse and check them, and cache the result.

A wheel carries the built-in file in parsed form (`providers.bin`), so that the first start on a machine is as fast as
the next ones. Every other file is parsed once and written to the cache (see `cache`). Both hold plain data and a digest
of the text it came from, so that data of an older text is never used. They only save time: everything works without
them.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import msgspec

from cnllm.config.bounded_files import open_nonblocking, read_descriptor
from cnllm.errors import RegistryError
from cnllm.fork import cached_property
from cnllm.registry import cache
from cnllm.registry.files import builtin_file, catalogue_file, data_files, overlay_files
from cnllm.registry.toml_lines import Lines, key_lines, line_of

__all__ = [
    "CATALOGUE",
    "Document",
    "builtin_path",
    "catalogue_path",
    "data_paths",
    "layer_tables",
    "overlay_paths",
    "packed",
    "read",
    "read_text",
]

CATALOGUE = "catalogue.toml"
"""The name of the second built-in file."""

_SECTIONS = ("protocols", "families", "providers", "models", "sources")
_FORMAT = b"cnllm-registry-42"  # count up when the cached data changes, or the rules of the checks
_MAX_SINGLE_LOOKUPS = 8  # the lines of more keys are computed together
_MAX_CACHED_LINES = 4  # texts
_LINES_BY_TEXT: dict[bytes, Lines] = {}  # so that a registry that is loaded anew has them at once


class Document:
    """A registry file: its data, and on request the line of each key. `label` is its name in messages.

    `is_data` marks a data file (see `cnllm.registry.data_rules`).
    """

    def __init__(
        self,
        path: Path,
        label: str,
        text: bytes,
        data: dict[str, Any],
        *,
        builtin: bool,
        is_data: bool = False,
        status: os.stat_result | None = None,
    ) -> None:
        self.path = path
        self.label = label
        self.text = text
        self.data = data
        self.builtin = builtin
        self.is_data = is_data
        self._status = status  # of the open file, when its text was read
        self._sought = 0

    @cached_property
    def lines(self) -> Lines:
        """Return the line of each key."""
        lines = _LINES_BY_TEXT.get(self.text)
        if lines is None:
            lines = key_lines(self.source)
            while len(_LINES_BY_TEXT) >= _MAX_CACHED_LINES:
                _LINES_BY_TEXT.pop(next(iter(_LINES_BY_TEXT), b""), None)
            _LINES_BY_TEXT[self.text] = lines
        return lines

    @cached_property
    def source(self) -> str:
        """Return the text with newlines as TOML counts them."""
        return _decoded(self.text)

    @cached_property
    def digest(self) -> str:
        """Return the digest of the content, by which trust identifies a file."""
        import hashlib

        return hashlib.blake2b(self.text, digest_size=32).hexdigest()

    @cached_property
    def is_own(self) -> bool:
        """Whether this is the file in the config folder, and only its user can write it: such a file is trusted."""
        from cnllm.registry import ownership

        return (
            self._status is not None
            and ownership.is_user_file(self.path)
            and ownership.ownership_fault(self.path, self._status) is None
        )

    def line(self, path: list[str]) -> int | None:
        """Return the line of a key, or of the nearest table around it."""
        self._sought += 1
        if self._sought <= _MAX_SINGLE_LOOKUPS and self.text not in _LINES_BY_TEXT:
            return line_of(self.source, path)
        lines = self.lines
        return next((lines[k] for n in range(len(path), 0, -1) if (k := "\0".join(path[:n])) in lines), None)


class LazyTables(Mapping[str, Any]):
    """A section of a cached file: tables by name, each decoded at its first use.

    A call needs about six of the file's hundreds of tables.
    """

    def __init__(self, packed: dict[str, msgspec.Raw]) -> None:
        self._packed = packed
        self._tables: dict[str, Any] = {}

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


def read(path: Path, *, builtin: bool = False, is_data: bool = False) -> Document:
    """Read, parse and (unless built in) check a registry file. Raises `RegistryError` with file and line.

    A data file (`is_data`) may hold less than the user's file, and its cache entry is another one.
    """
    label = path.name if builtin else str(path)
    status, text = _read_bytes(path, label)
    data = _shipped_data(path, text) if builtin else None
    kind = b"built-in" if builtin else b"data" if is_data else b""
    entry = _cache_entry(text, kind) if data is None else None
    if data is None:
        data = _cached_data(entry)
    if data is None:
        data = parse(text, label)
        if not builtin:  # the tests check the built-in file
            from cnllm.registry.check import require_valid

            try:
                require_valid(Document(path, label, text, data, builtin=False, is_data=is_data))
            except RegistryError as error:
                if is_data:
                    error.hint = f"bring the file before it back: cnllm registry rollback {path.stem}"
                raise
        cache.write_entry(entry, msgspec.msgpack.encode(data))
    return Document(path, label, text, data, builtin=builtin, is_data=is_data, status=status)


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


def parse(text: bytes, label: str) -> dict[str, Any]:
    """Parse TOML text to plain data; dates become text. Raises `RegistryError` with the line."""
    import tomllib

    from cnllm.config.toml_text import parse_toml

    try:
        source = _decoded(text)
        data = parse_toml(source)
    except UnicodeDecodeError as error:
        line = text.count(b"\n", 0, error.start) + 1
        raise RegistryError("is not UTF-8", file=label, line=line, hint="save it as UTF-8") from error
    except tomllib.TOMLDecodeError as error:
        raise _syntax_error(error, source, label) from error
    except (ValueError, RecursionError) as error:  # a number with thousands of digits, or a thousand brackets
        raise RegistryError(f"cannot be read: {error}", file=label, hint="fix the file") from error
    try:
        plain: dict[str, Any] = msgspec.to_builtins(data)
        msgspec.msgpack.encode(plain)
    except (OverflowError, RecursionError) as error:
        value_line = _line_of_value(data, source)
        message = f"cannot be stored: {error}"
        raise RegistryError(message, file=label, line=value_line, hint="fix the file") from error
    return plain


def layer_tables(data: dict[str, Any]) -> Iterator[tuple[list[str], dict[str, Any]]]:
    """Yield (path, table) for the table of each layer in a file's data."""
    layers = [(["defaults"], data["defaults"])] if "defaults" in data else []
    for section in ("protocols", "families", "providers", "models"):
        layers += [([section, name], table) for name, table in data.get(section, {}).items()]
    for path, table in layers:
        yield from _with_inner_layers(path, table)


def _with_inner_layers(path: list[str], table: dict[str, Any]) -> Iterator[tuple[list[str], dict[str, Any]]]:
    yield path, table
    for kind in ("on", "families"):
        for name, inner in table.get(kind, {}).items():
            yield from _with_inner_layers([*path, kind, name], inner)


def packed(text: bytes) -> bytes:
    """Return the content of `providers.bin` or `catalogue.bin`: digests of the text and of the data, then the data.

    The build of a wheel writes it beside the file.
    """
    data = msgspec.msgpack.encode(parse(text, "providers.toml"))
    return cache.digest(_FORMAT, text) + cache.digest(_FORMAT, data) + data


def _shipped_data(path: Path, text: bytes) -> dict[str, Any] | None:
    """Return the parsed data in the wheel; None where there is none, or it is damaged, or of another text."""
    try:
        blob = memoryview(path.with_suffix(".bin").read_bytes())
    except OSError:
        return None  # a checkout
    size = cache.DIGEST
    data = blob[2 * size :]
    is_valid = blob[:size] == cache.digest(_FORMAT, text) and blob[size : 2 * size] == cache.digest(_FORMAT, data)
    return _unpack(data) if is_valid else None


def _decoded(text: bytes) -> str:
    """Return the text of a file, with newlines as TOML counts them, without the mark that some editors put first."""
    return text.decode().removeprefix("\ufeff").replace("\r\n", "\n")


def _syntax_error(error: Exception, source: str, label: str) -> RegistryError:
    """Return the error for a text that is not TOML, with the corrected line where one is known."""
    import tomllib

    from cnllm.config.toml_text import parse_toml
    from cnllm.registry.problem import write_hint
    from cnllm.registry.toml_advice import advice

    def failure(text: str) -> int | None:
        try:
            parse_toml(text)
        except tomllib.TOMLDecodeError as fault:
            return _error_line(fault, text)
        return None

    line = _error_line(error, source)
    found = advice(source, line, failure)
    if found is None:
        reason = str(error).split(" (at ")[0]
        return RegistryError(f"not TOML: {reason}", file=label, line=line, hint="correct this line")
    hint = write_hint(found.corrected) if found.corrected else "correct this line"
    return RegistryError(f"not TOML: {found.cause}", file=label, line=found.line, hint=hint)


def _error_line(error: Exception, source: str) -> int:
    import re

    match = re.search(r"at line (\d+)", str(error))
    return int(match[1]) if match else source.count("\n") + 1


def _line_of_value(data: Any, source: str) -> int | None:
    """Return the line of the first number that is too large, or of the first value that is nested too deeply."""
    stack: list[tuple[list[str], Any]] = [([], data)]
    while stack:
        path, value = stack.pop()
        is_large = type(value) is int and not -(2**63) <= value < 2**64
        if is_large or len(path) > 100:
            keys = path if is_large else path[:3]
            return next((n for size in range(len(keys), 0, -1) if (n := line_of(source, keys[:size]))), None)
        inner = value.items() if type(value) is dict else enumerate(value) if type(value) is list else ()
        stack += [([*path, str(key)], item) for key, item in inner]
    return None


def _cache_entry(text: bytes, kind: bytes) -> str | None:
    """Return the path of the cache entry for a text; None for a text that may hold a password.

    The same text as another kind of file, which is checked by other rules, has another entry. A password stays only
    in its owner's file.
    """
    if kind != b"built-in" and any(
        word in text for word in (b"headers", b"auth", b"@")
    ):  # quick test: most files have none
        import re

        if re.search(rb"\bheaders\b|\bauth\b|://[^/?#\"'\s]*@", text):
            return None
    return cache.cache_entry("registry", _FORMAT, text, person=kind)


def _cached_data(entry: str | None) -> dict[str, Any] | None:
    payload = cache.read_entry(entry)
    return None if payload is None else _unpack(payload)


def _unpack(payload: memoryview) -> dict[str, Any]:
    top = msgspec.msgpack.decode(payload, type=dict[str, msgspec.Raw])
    return {
        key: LazyTables(msgspec.msgpack.decode(packed, type=dict[str, msgspec.Raw]))
        if key in _SECTIONS
        else msgspec.msgpack.decode(packed)
        for key, packed in top.items()
    }
