"""Which registry files are in force. Text instead of `Path`s, for whoever has no time for pathlib."""

from __future__ import annotations

import os
from errno import EBADF, ELOOP, ENAMETOOLONG, ENOENT, ENOTDIR

from cnllm.config import paths

__all__ = ["builtin_file", "overlay_files"]


def builtin_file() -> str:
    """The providers.toml that came with the package: inside it, or beside it in a checkout."""
    package = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
    inside = os.path.join(package, "providers.toml")
    return inside if os.path.exists(inside) else os.path.join(os.path.dirname(package), "providers.toml")


def overlay_files() -> list[str]:
    """The user's registry files: those CNLLM_PROVIDERS lists, else providers.toml in the config folder if it exists."""
    named = os.environ.get("CNLLM_PROVIDERS")
    if named is not None:
        return [place for place in named.split(os.pathsep) if place]
    own = os.path.join(paths.folder("config"), "providers.toml")
    return [own] if _exists(own) else []


def _exists(place: str) -> bool:
    """Is it there? What cannot be told is an error, lest a file be left out in silence."""
    try:
        os.stat(place)
    except OSError as error:
        if error.errno not in (ENOENT, ENOTDIR, EBADF, ELOOP, ENAMETOOLONG):
            raise
        return False
    except ValueError:  # a null character
        return False
    return True
