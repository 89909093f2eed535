"""Remember which registry files may name origins for keys: by path and content, in the config folder."""

from __future__ import annotations

import hashlib
import json
import os
import stat
import tempfile
from pathlib import Path

from cnllm.config import paths, private_files
from cnllm.errors import RegistryError

__all__ = ["is_trusted", "is_trusted_content", "trust"]


def trust(path: str | os.PathLike[str]) -> None:
    """Trust a registry file with its present content; an edit ends the trust. Raises `RegistryError`."""
    file = Path(path).resolve()
    try:
        if not stat.S_ISREG(file.stat().st_mode) and not file.is_dir():
            raise OSError(0, "it is not a regular file")
        text = file.read_bytes()
    except OSError as error:
        raise RegistryError(f"cannot be read: {error.strerror}", file=str(path)) from error
    target = _trust_file()
    private_files.make_private_folder(target.parent)
    digests = {**_trusted_digests(), str(file): hashlib.blake2b(text, digest_size=32).hexdigest()}
    handle, name = tempfile.mkstemp(dir=target.parent)
    with os.fdopen(handle, "w") as out:
        json.dump(digests, out, indent=1)
    os.replace(name, target)


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
        with _trust_file().open() as file:
            status = os.fstat(file.fileno())
            if os.name != "nt" and status.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
                raise ValueError("other users can write it")
            if os.name != "nt" and status.st_uid not in (os.geteuid(), 0):
                raise ValueError("it belongs to another user")
            digests: dict[str, str] = json.loads(file.read())
        if type(digests) is not dict:
            raise ValueError("it is no JSON object")
    except FileNotFoundError:
        return {}
    except (OSError, ValueError) as error:
        raise RegistryError(
            f"cannot be read: {error}", file=str(_trust_file()), hint="delete it and trust again"
        ) from error
    return digests
