"""Tell which registry files may name origins for keys: those that the user trusted, and the user's own.

The trusted ones are remembered by path and content, in the config folder. The registry file there counts only if nobody
but the user can change it: then its own providers get keys without a confirmation.
"""

from __future__ import annotations

import json
import os
import stat
from pathlib import Path

from cnllm.config import paths
from cnllm.errors import RegistryError
from cnllm.registry import cache
from cnllm.registry.files import user_file
from cnllm.system import files
from cnllm.system.files import read_bounded

__all__ = [
    "is_trusted",
    "is_user_file",
    "ownership_advice",
    "ownership_fault",
    "trust",
]


_WRITABLE_BY_OTHERS = stat.S_IWGRP | stat.S_IWOTH


def trust(path: str | os.PathLike[str]) -> None:
    """Trust a registry file with its present content; an edit ends the trust. Raises `RegistryError`."""
    file = Path(path).resolve()
    try:
        if not stat.S_ISREG(file.stat().st_mode) and not file.is_dir():
            raise OSError(0, "it is not a regular file")
        text = read_bounded(file)
        text.decode()
    except OSError as error:
        raise RegistryError(f"cannot be read: {error.strerror}", file=str(path)) from error
    except UnicodeDecodeError as error:  # its addresses cannot be read, so nobody can trust them
        raise RegistryError("is not UTF-8", file=str(path), hint="save it as UTF-8") from error
    files.change_file(
        _trust_file(), lambda _: json.dumps({**_trusted_digests(), str(file): _digest(text)}, indent=1).encode()
    )


def is_trusted(path: Path, content: bytes) -> bool:
    """Whether the user trusts this file with this content."""
    return _trusted_digests().get(str(path.resolve())) == _digest(content)


def _digest(content: bytes) -> str:
    return cache.digest(b"", content).hex()


def _trust_file() -> Path:
    """Return the path of the file that lists the trusted files."""
    return paths.config_dir() / "trusted.json"


def _trusted_digests() -> dict[str, str]:
    """Return the digest of each trusted file. Raises `RegistryError` for a list that is not safe to use."""
    try:
        content = files.read_safe_file(_trust_file())
        digests: dict[str, str] = {} if content is None else json.loads(content)
        if type(digests) is not dict:
            raise ValueError("it is not a JSON object")
    except (OSError, ValueError, RecursionError) as error:
        raise RegistryError(
            f"cannot be read: {error}", file=str(_trust_file()), hint="delete it and trust again"
        ) from error
    return digests


# ── the user's own file ──────────────────────────────────────────────────────


def is_user_file(path: Path) -> bool:
    """Whether a path is that of the user's own registry file."""
    return os.path.abspath(path) == os.path.abspath(user_file())


def ownership_fault(path: Path, status: os.stat_result) -> str | None:
    """Return why somebody else can change a file; None where nobody can. `status` is that of the open file.

    The check covers the file, every folder above it, and, for a link, the folders above its target.
    """
    if (user := files.user_id()) is None:
        return None
    if not stat.S_ISREG(status.st_mode):
        return f"{path} is not a regular file"
    if status.st_uid != user and (status.st_uid != 0 or status.st_mode & stat.S_IWUSR):
        return f"{path} belongs to another user"
    if status.st_mode & _WRITABLE_BY_OTHERS:
        return f"other users can write {path}"
    real = Path(os.path.realpath(path))
    for folder in dict.fromkeys([*Path(os.path.abspath(path)).parents, *real.parents]):
        try:
            folder_status = folder.stat()
        except OSError as error:
            return f"{folder} cannot be checked: {error.strerror}"
        if folder_status.st_uid not in (user, 0):
            return f"{folder} belongs to another user"
        if folder_status.st_mode & _WRITABLE_BY_OTHERS and not folder_status.st_mode & stat.S_ISVTX:
            return f"other users can write {folder}"
    return None


def ownership_advice(file: str) -> str:
    """Return a hint where the file is the user's own but others can change it; empty otherwise."""
    path = Path(file)
    if not file or not is_user_file(path):
        return ""
    try:
        fault = ownership_fault(path, path.stat())
    except OSError:
        return ""
    return f"; {fault}" if fault is not None else ""
