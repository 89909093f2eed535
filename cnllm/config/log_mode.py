"""Whether calls are logged: set by the environment (`CNLLM_LOG`), else by a file next to the store, else on."""

from __future__ import annotations

from pathlib import Path

from cnllm.config import paths, settings
from cnllm.config.settings import LogMode
from cnllm.errors import CnllmError
from cnllm.system import files
from cnllm.system.files import read_bounded

__all__ = ["mode", "set_mode", "variable_mode"]


def mode() -> LogMode:
    """Return the current mode. Raise `CnllmError` for an unknown word."""
    if (setting := variable_mode()) is not None:
        return setting
    hint = "run cnllm logs on, or cnllm logs off, to rewrite it"
    try:
        stored = read_bounded(_file()).decode("utf-8-sig")
    except (FileNotFoundError, NotADirectoryError):
        return "on"
    except (OSError, UnicodeDecodeError) as error:
        raise CnllmError(f"{_file()} cannot be read: {error}", hint=hint) from error
    word: LogMode = settings.parse_setting("log", stored, _file(), hint)
    return word


def variable_mode() -> LogMode | None:
    """Return the mode that CNLLM_LOG sets, if it sets one. Raise `CnllmError` for an unknown word."""
    word: LogMode | None = settings.read_setting("log")
    return word


def set_mode(mode: LogMode) -> None:
    """Store the mode. The environment goes before it."""
    files.change_file(_file(), lambda _: f"{mode}\n".encode())


def _file() -> Path:
    return paths.data_dir() / "logging"
