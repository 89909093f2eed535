"""Find the loaded registry files. Paths are text, because importing pathlib takes too long for shell completion."""

from __future__ import annotations

import os
from errno import EBADF, ENAMETOOLONG, ENOENT, ENOTDIR

from cnllm.config import paths
from cnllm.config.settings import read_setting
from cnllm.errors import RegistryError

__all__ = [
    "RELEASE",
    "UPDATES",
    "builtin_file",
    "catalogue_file",
    "data_files",
    "data_folder",
    "overlay_files",
    "packaged_text",
    "user_file",
]

RELEASE, UPDATES = "release.toml", "updates.toml"
"""The names of the data files: the data release, and the updates, which rank above it."""


def builtin_file() -> str:
    """Return the path of the providers.toml in the package, or beside it in a checkout."""
    return _read_packaged("providers.toml")


def catalogue_file() -> str:
    """Return the path of the catalogue.toml in the package, or beside it in a checkout."""
    return _read_packaged("catalogue.toml")


def packaged_text(name: str) -> str:
    """Return the text of a file in the package, or beside it in a checkout."""
    with open(_read_packaged(name), encoding="utf-8") as file:
        return file.read()


def _read_packaged(name: str) -> str:
    package = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
    inside = os.path.join(package, name)
    return inside if os.path.exists(inside) else os.path.join(os.path.dirname(package), name)


def overlay_files() -> list[str]:
    """List the user's registry files: those of CNLLM_PROVIDERS, otherwise providers.toml in the config folder."""
    listed: str | None = read_setting("providers")
    if listed is not None:
        return [path for path in listed.split(os.pathsep) if path]
    return [path] if _exists(path := user_file()) else []


def user_file() -> str:
    """Return the path of the registry file in the config folder, whether or not it exists."""
    return os.path.join(paths.folder("config"), "providers.toml")


def data_folder() -> str:
    """Return the folder of the data files, whether or not it exists."""
    return os.path.join(paths.folder("config"), "registry")


def data_files() -> list[str]:
    """List the data files: the data release, then the updates. They rank between the built-in file and the user's."""
    folder = data_folder()
    return [path for name in (RELEASE, UPDATES) if _exists(path := os.path.join(folder, name))]


def _exists(path: str) -> bool:
    """Whether a file, or a link in its place, exists. Reading it tells a link that leads nowhere.

    Raises `RegistryError` where that is unknown, so that no file is skipped silently.
    """
    try:
        os.lstat(path)
    except OSError as error:
        if error.errno not in (ENOENT, ENOTDIR, EBADF, ENAMETOOLONG):
            raise RegistryError(f"cannot be read: {error.strerror}", file=path, hint=paths.CONFIG_DIR_HINT) from error
        return False
    except ValueError:  # a null character
        return False
    return True
