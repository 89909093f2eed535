"""The two settings that a command stores in a file: the default model, and whether calls are logged.

The environment (`CNLLM_MODEL`, `CNLLM_LOG`) goes before the file.
"""

from __future__ import annotations

from pathlib import Path

from cnllm.config import paths, settings
from cnllm.config.settings import LogMode
from cnllm.errors import CnllmError
from cnllm.system import files

__all__ = ["VARIABLE", "default_model", "log_mode", "set_default_model", "set_log_mode", "variable_log_mode"]

VARIABLE = "CNLLM_MODEL"
_MODEL_HINT = "cnllm models default M writes it anew"
_LOG_HINT = "run cnllm logs on, or cnllm logs off, to rewrite it"


def default_model() -> tuple[str, str] | None:
    """Return the name of the default model, and the place that sets it; None where nothing does."""
    if name := settings.read_setting("model"):
        return name, VARIABLE
    stored = _read(_model_file(), _MODEL_HINT)
    if stored is None or not stored.strip():
        return None
    return settings.parse_setting("model", stored, _model_file(), _MODEL_HINT), str(_model_file())


def set_default_model(name: str | None) -> None:
    """Store the name of the default model; None removes it."""
    if name is not None or _model_file().exists():
        files.change_file(_model_file(), lambda _: None if name is None else f"{name}\n".encode())


def log_mode() -> LogMode:
    """Return the current mode. Raise `CnllmError` for an unknown word."""
    if (setting := variable_log_mode()) is not None:
        return setting
    stored = _read(_log_file(), _LOG_HINT)
    word: LogMode = "on" if stored is None else settings.parse_setting("log", stored, _log_file(), _LOG_HINT)
    return word


def variable_log_mode() -> LogMode | None:
    """Return the mode that CNLLM_LOG sets, if it sets one. Raise `CnllmError` for an unknown word."""
    word: LogMode | None = settings.read_setting("log")
    return word


def set_log_mode(mode: LogMode) -> None:
    """Store the mode."""
    files.change_file(_log_file(), lambda _: f"{mode}\n".encode())


def _model_file() -> Path:
    return paths.config_dir() / "default-model"


def _log_file() -> Path:
    return paths.data_dir() / "logging"


def _read(file: Path, hint: str) -> str | None:
    """Return the text of a file; None without one."""
    try:
        return files.read_bounded(file).decode("utf-8-sig")
    except (FileNotFoundError, NotADirectoryError):
        return None
    except (OSError, UnicodeDecodeError) as error:
        raise CnllmError(f"{file} cannot be read: {error}", hint=hint) from error
