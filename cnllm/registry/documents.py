"""A registry file: its data, and the line of each key."""

from __future__ import annotations

import contextlib
import datetime
import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Struct

from cnllm.errors import RegistryError
from cnllm.registry import cache
from cnllm.registry.problem import write_hint
from cnllm.registry.toml_lines import Lines, decode, key_lines, line_of
from cnllm.system.processes import cached_property

__all__ = ["CATALOGUE", "Document", "layer_tables", "parse", "read_sources"]

CATALOGUE = "catalogue.toml"
"""The name of the second built-in file."""

_MAX_SINGLE_LOOKUPS = 8  # the lines of more keys are computed together
_MAX_CACHED_LINES = 4  # texts
_LINES: dict[bytes, Lines] = {}  # by the digest of the text, so that a registry that is loaded anew has them at once


class Document(Struct, eq=False, dict=True):
    """A registry file: its data, and on request the line of each key. `label` is its name in messages.

    `is_data` marks a data file (see `cnllm.registry.data_rules`). `status` is that of the open file when its text was
    read, `lookups` the number of lines that were looked up.
    """

    path: Path
    label: str
    text: bytes
    data: dict[str, Any]
    builtin: bool
    is_data: bool = False
    status: os.stat_result | None = None
    lookups: int = 0

    def __repr__(self) -> str:  # without the text, which may hold a password
        return f"<Document {self.label}>"

    @cached_property
    def lines(self) -> Lines:
        """Return the line of each key."""
        lines = _LINES.get(self.digest)
        if lines is None:
            lines = key_lines(self.source)
            while len(_LINES) >= _MAX_CACHED_LINES:
                _LINES.pop(next(iter(_LINES), b""), None)
            _LINES[self.digest] = lines
        return lines

    @cached_property
    def digest(self) -> bytes:
        """Return the digest of the text."""
        return cache.digest(b"", self.text)

    @cached_property
    def source(self) -> str:
        """Return the text with newlines as TOML counts them."""
        return decode(self.text)

    @cached_property
    def is_own(self) -> bool:
        """Whether this is the file in the config folder, and only its user can write it: such a file is trusted."""
        from cnllm.registry import trusted_files

        return (
            self.status is not None
            and trusted_files.is_user_file(self.path)
            and trusted_files.ownership_fault(self.path, self.status) is None
        )

    def place(self, path: list[str]) -> str:
        """Return the "file:line" of a key; the file alone where no line names it."""
        line = self.line(path)
        return f"{self.label}:{line}" if line else self.label

    def line(self, path: list[str]) -> int | None:
        """Return the line of a key, or of the nearest table around it."""
        self.lookups += 1
        if self.lookups <= _MAX_SINGLE_LOOKUPS and self.digest not in _LINES:
            return line_of(self.text, path)
        lines = self.lines
        return next((lines[k] for n in range(len(path), 0, -1) if (k := "\0".join(path[:n])) in lines), None)


def read_sources(data: dict[str, Any]) -> dict[str, Any]:
    """Return the data of a file with each named source as a table, also where it is one text."""
    sources: Any = data.get("sources")
    for name, value in sources.items() if isinstance(sources, dict) else ():
        if isinstance(value, str):
            how, _, rest = value.partition(" ")
            day, _, rest = rest.partition(" ")
            url, _, path = rest.partition(" ")
            with contextlib.suppress(ValueError):  # text of another form is a fault that the check names
                seen = datetime.date.fromisoformat(day)
                sources[name] = {"url": url, "seen": seen, "how": how} | ({"path": path} if path else {})
    return data


def parse(text: bytes, label: str) -> dict[str, Any]:
    """Parse TOML text to plain data; dates become text. Raises `RegistryError` with the line."""
    import tomllib

    from cnllm.config.toml_text import parse_toml

    try:
        source = decode(text)
        data = read_sources(parse_toml(source))
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
        value_line = _line_of_value(data, text)
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


def _syntax_error(error: Exception, source: str, label: str) -> RegistryError:
    """Return the error for a text that is not TOML, with the corrected line where one is known."""
    import tomllib

    from cnllm.config.toml_text import parse_toml
    from cnllm.registry.toml_advice import advice

    def failure(text: str) -> int | None:
        try:
            parse_toml(text)
        except tomllib.TOMLDecodeError as fault:
            return _error_line(fault, text)
        except (ValueError, RecursionError):  # as in `parse`
            return 0
        return None

    line = _error_line(error, source)
    found = advice(source, line, failure)
    if found is None:
        reason = str(error).split(" (at ")[0]
        return RegistryError(f"not TOML: {reason}", file=label, line=line, hint="correct this line")
    hint = write_hint(found.corrected) if found.corrected else "correct this line"
    return RegistryError(f"not TOML: {found.cause}", file=label, line=found.line, hint=hint)


def _error_line(error: Exception, source: str) -> int:
    match = re.search(r"at line (\d+)", str(error))
    return int(match[1]) if match else source.count("\n") + 1


def _line_of_value(data: Any, text: bytes) -> int | None:
    """Return the line of the first number that is too large, or of the first value that is nested too deeply."""
    stack: list[tuple[list[str], Any]] = [([], data)]
    while stack:
        path, value = stack.pop()
        is_large = type(value) is int and not -(2**63) <= value < 2**64
        if is_large or len(path) > 100:
            keys = path if is_large else path[:3]
            return next((n for size in range(len(keys), 0, -1) if (n := line_of(text, keys[:size]))), None)
        inner = value.items() if type(value) is dict else enumerate(value) if type(value) is list else ()
        stack += [([*path, str(key)], item) for key, item in inner]
    return None
