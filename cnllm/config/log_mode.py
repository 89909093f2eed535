"""Is a call written down? The environment says so (`CNLLM_LOG`), else a file beside the store, else it is."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Literal, get_args

from cnllm.config import paths, private_files
from cnllm.errors import CnllmError

__all__ = ["Mode", "mode", "set_mode"]

Mode = Literal["on", "no-exchanges", "off"]
"""Everything; conversations without the requests and responses as they were on the wire; nothing."""


def mode() -> Mode:
    """What is in force. Raises `CnllmError` for a word that means nothing."""
    said = os.environ.get("CNLLM_LOG")
    if said:
        return _known(said.strip().lower(), f"CNLLM_LOG={said}")
    try:
        kept = _file().read_text().strip()
    except (FileNotFoundError, NotADirectoryError):
        return "on"
    except (OSError, UnicodeDecodeError) as error:
        raise CnllmError(f"{_file()} cannot be read: {error}", hint="cnllm logs on, or off, writes it anew") from error
    return _known(kept, str(_file()), "cnllm logs on, or off, writes it anew")


def set_mode(chosen: Mode) -> None:
    """From now on it is so, unless the environment says otherwise."""
    file = _file()
    try:
        private_files.make_private_folder(file.parent)
        with open(os.open(file, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w") as opened:
            opened.write(f"{chosen}\n")
    except OSError as error:
        raise CnllmError(f"{file} cannot be written: {error.strerror}") from error


def _file() -> Path:
    return paths.data_dir() / "logging"


def _known(word: str, place: str, hint: str | None = None) -> Mode:
    for one in get_args(Mode):
        if word == one:
            return one  # type: ignore[no-any-return]
    raise CnllmError(f"{place}: {word!r} is none of {', '.join(get_args(Mode))}", hint=hint)
