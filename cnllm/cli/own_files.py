"""Write registry files that belong to a probe, and no other file."""

from __future__ import annotations

from pathlib import Path

from cnllm.cli.output import errors
from cnllm.config import private_files
from cnllm.config.bounded_files import read_bounded

__all__ = ["replace_own", "require_own"]

_MARK = b"# Written by cnllm probe"


def require_own(output: str) -> None:
    """Raise `UsageError` for a file that no probe has written: it may be the user's own."""
    path = Path(output)
    if path.suffix != ".toml":
        raise errors.UsageError(f"-o {output}: the file is a registry file", "give it a name that ends in .toml")
    try:
        text = read_bounded(path) if path.exists() else _MARK
    except OSError as error:
        raise errors.UsageError(f"-o {output}: {error.strerror}") from error
    if not text.startswith(_MARK):
        raise errors.UsageError(f"{output} exists, and no probe has written it", "choose another name")
    if not path.resolve().parent.is_dir():
        raise errors.UsageError(f"-o {output}: there is no such folder", "make the folder first")


def replace_own(path: Path, content: bytes) -> None:
    """Write a file in one step. Raises `CnllmError` where that fails."""
    private_files.change_file(path, lambda _: content, narrow=False)
