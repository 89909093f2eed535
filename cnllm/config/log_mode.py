"""Whether calls are logged: set by the environment (`CNLLM_LOG`), else by a file next to the store, else on."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

from cnllm.config import environment, paths, private_files
from cnllm.config.bounded_files import read_bounded
from cnllm.errors import CnllmError

__all__ = ["Mode", "mode", "set_mode", "variable_mode"]

Mode = Literal["on", "no-exchanges", "off"]
"""Log everything; log conversations without raw requests and responses; log nothing."""


def mode() -> Mode:
    """Return the current mode. Raise `CnllmError` for an unknown word."""
    if (setting := variable_mode()) is not None:
        return setting
    hint = "run cnllm logs on, or cnllm logs off, to rewrite it"
    try:
        stored = read_bounded(_file()).decode()
    except (FileNotFoundError, NotADirectoryError):
        return "on"
    except (OSError, UnicodeDecodeError) as error:
        raise CnllmError(f"{_file()} cannot be read: {error}", hint=hint) from error
    word: Mode = environment.parse_setting("log", stored, _file(), hint)
    return word


def variable_mode() -> Mode | None:
    """Return the mode that CNLLM_LOG sets, if it sets one. Raise `CnllmError` for an unknown word."""
    word: Mode | None = environment.read_setting("log")
    return word


def set_mode(mode: Mode) -> None:
    """Store the mode. The environment goes before it."""
    private_files.change_file(_file(), lambda _: f"{mode}\n".encode())


def _file() -> Path:
    return paths.data_dir() / "logging"
