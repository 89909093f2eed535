"""Remember which registry files may name origins for keys: by path and content, in the config folder."""

from __future__ import annotations

import hashlib
import json
import os
import stat
from pathlib import Path

from cnllm.config import paths
from cnllm.errors import RegistryError
from cnllm.system import files
from cnllm.system.files import read_bounded

__all__ = ["is_trusted", "is_trusted_content", "trust"]


def trust(path: str | os.PathLike[str]) -> None:
    """Trust a registry file with its present content; an edit ends the trust. Raises `RegistryError`."""
    file = Path(path).resolve()
    try:
        if not stat.S_ISREG(file.stat().st_mode) and not file.is_dir():
            raise OSError(0, "it is not a regular file")
        text = read_bounded(file)
    except OSError as error:
        raise RegistryError(f"cannot be read: {error.strerror}", file=str(path)) from error
    digest = hashlib.blake2b(text, digest_size=32).hexdigest()
    files.change_file(_trust_file(), lambda _: json.dumps({**_trusted_digests(), str(file): digest}, indent=1).encode())


def is_trusted(path: Path, digest: str) -> bool:
    """Whether the user trusts this file with this content."""
    return _trusted_digests().get(str(path.resolve())) == digest


def is_trusted_content(path: Path, content: bytes) -> bool:
    """Whether the user trusts this file with these bytes."""
    return is_trusted(path, hashlib.blake2b(content, digest_size=32).hexdigest())


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
    except (OSError, ValueError) as error:
        raise RegistryError(
            f"cannot be read: {error}", file=str(_trust_file()), hint="delete it and trust again"
        ) from error
    return digests
