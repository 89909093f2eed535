"""Read text files for a prompt: files, patterns and stdin."""

from __future__ import annotations

import glob
import os
from collections.abc import Iterator
from pathlib import Path

from cnllm.cli.output.errors import UsageError
from cnllm.config.bounded_files import read_bounded
from cnllm.types.documents import as_document

__all__ = ["read_files"]

_MAX_BYTES = 50_000_000
"""The most bytes of one file. No model reads as much; a device would never end."""


def read_files(patterns: tuple[str, ...]) -> str:
    """Return the text of all files, each between marks with its name. A pattern stands for the files that match it."""
    names = list(dict.fromkeys(name for pattern in patterns for name in _expand(pattern)))
    return "\n\n".join(as_document(_shown_name(name), _read(name)) for name in names)


def _shown_name(name: str) -> str:
    """Return the name that the model sees: a path below the current folder, else the file's name alone."""
    path = Path(os.path.normpath(name))
    if not path.is_absolute() and path.parts[:1] != ("..",):
        return path.as_posix()
    folder = Path.cwd()
    return path.relative_to(folder).as_posix() if path.is_relative_to(folder) else path.name


def _expand(pattern: str) -> Iterator[str]:
    if pattern == "-":
        raise UsageError("-f - is not needed", "stdin goes into the prompt without it")
    if not pattern.strip():
        raise UsageError("-f names no file", "name a text file, or a pattern such as '*.md'")
    if pattern.lower().startswith(("http://", "https://")):
        raise UsageError(f"-f {pattern}: -f reads files of this machine", "curl URL | cnllm call … - reads an address")
    path = Path(pattern).expanduser()
    if path.exists() or not glob.has_magic(pattern):
        if path.is_dir():
            raise UsageError(f"-f {pattern}: this is a folder", f"name its files: -f '{pattern.rstrip('/')}/**/*.md'")
        yield str(path)
        return
    # only reads
    names = [name for name in sorted(glob.glob(str(path), recursive=True)) if not Path(name).is_dir()]
    if not names:
        raise UsageError(f"-f {pattern}: no file has such a name", "** finds files in all folders below")
    yield from names


def _read(name: str) -> str:
    try:
        data = read_bounded(name, _MAX_BYTES)
    except OSError as error:
        raise UsageError(f"-f {name}: {error.strerror}", "name a text file that can be read") from error
    if data.startswith(b"%PDF-"):  # some have no byte that text lacks
        raise UsageError(f"-f {name}: this is a PDF", f"attach it: -a {name}")
    try:
        if b"\0" in data:
            raise UnicodeDecodeError("utf-8", data, 0, 1, "NUL")
        return data.decode("utf-8-sig")
    except UnicodeDecodeError:
        raise UsageError(
            f"-f {name}: this is no text in UTF-8",
            f"attach a picture, a PDF or a sound with -a {name}; convert text first: iconv -f GB18030 -t UTF-8",
        ) from None
