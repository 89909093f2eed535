"""Whether calls are logged: set by the environment (`CNLLM_LOG`), else by a file next to the store, else on."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Literal, get_args

from cnllm.config import paths, private_files
from cnllm.errors import CnllmError

__all__ = ["Mode", "mode", "set_mode"]

Mode = Literal["on", "no-exchanges", "off"]
"""Log everything; log conversations without raw requests and responses; log nothing."""


def mode() -> Mode:
    """Return the current mode. Raise `CnllmError` for an unknown word."""
    variable = os.environ.get("CNLLM_LOG")
    if variable:
        return _parse_mode(variable.strip().lower(), f"CNLLM_LOG={variable}")
    try:
        stored = _file().read_text().strip()
    except (FileNotFoundError, NotADirectoryError):
        return "on"
    except (OSError, UnicodeDecodeError) as error:
        raise CnllmError(
            f"{_file()} cannot be read: {error}", hint="run cnllm logs on, or cnllm logs off, to rewrite it"
        ) from error
    return _parse_mode(stored, str(_file()), "run cnllm logs on, or cnllm logs off, to rewrite it")


def set_mode(mode: Mode) -> None:
    """Store the mode. The environment goes before it."""
    file = _file()
    try:
        private_files.make_private_folder(file.parent)
        with open(os.open(file, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w") as stream:
            stream.write(f"{mode}\n")
    except OSError as error:
        raise CnllmError(f"{file} cannot be written: {error.strerror}") from error


def _file() -> Path:
    return paths.data_dir() / "logging"


def _parse_mode(word: str, place: str, hint: str | None = None) -> Mode:
    """Return the mode of this name. Raise `CnllmError` for an unknown word."""
    for mode in get_args(Mode):
        if word == mode:
            return mode  # type: ignore[no-any-return]
    raise CnllmError(f"{place}: {word!r} is not one of {', '.join(get_args(Mode))}", hint=hint)
