"""The user's default model: set by the environment (`CNLLM_MODEL`), else by a file in the config folder."""

from __future__ import annotations

from pathlib import Path

from cnllm.config import paths, settings
from cnllm.errors import CnllmError
from cnllm.system import files
from cnllm.system.files import read_bounded

__all__ = ["VARIABLE", "default_model", "set_default_model"]

VARIABLE = "CNLLM_MODEL"


def default_model() -> tuple[str, str] | None:
    """Return the name of the default model, and the place that sets it; None where nothing does."""
    if name := settings.read_setting("model"):
        return name, VARIABLE
    file = _file()
    try:
        stored = read_bounded(file).decode("utf-8-sig")
    except (FileNotFoundError, NotADirectoryError):
        return None
    except (OSError, UnicodeDecodeError) as error:
        raise CnllmError(f"{file} cannot be read: {error}", hint="cnllm models default M writes it anew") from error
    if not stored.strip():
        return None
    return settings.parse_setting("model", stored, file, "cnllm models default M writes it anew"), str(file)


def set_default_model(name: str | None) -> None:
    """Store the name of the default model; None removes it. The environment goes before it."""
    if name is not None or _file().exists():
        files.change_file(_file(), lambda _: None if name is None else f"{name}\n".encode())


def _file() -> Path:
    return paths.config_dir() / "default-model"
