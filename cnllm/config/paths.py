"""The folders of cnllm's files. An environment variable moves each folder. This module creates none."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING

from cnllm.config.settings import read_setting

if TYPE_CHECKING:
    from pathlib import Path

__all__ = ["CONFIG_DIR_HINT", "cache_dir", "config_dir", "data_dir", "folder"]

CONFIG_DIR_HINT = "set CNLLM_CONFIG_DIR to a folder that this user may read"
"""The hint of an error where a file in the config folder cannot be read."""

_XDG = {
    "config": ("XDG_CONFIG_HOME", ".config"),
    "data": ("XDG_DATA_HOME", ".local/share"),
    "cache": ("XDG_CACHE_HOME", ".cache"),
}


def config_dir() -> Path:
    """Return the folder of the user's files: registry overlays and keys (`CNLLM_CONFIG_DIR`)."""
    return _path(folder("config"))


def data_dir() -> Path:
    """Return the folder of cnllm's data: conversations and logs (`CNLLM_DATA_DIR`)."""
    return _path(folder("data"))


def cache_dir() -> Path:
    """Return the folder of files that may be deleted at any time (`CNLLM_CACHE_DIR`)."""
    return _path(folder("cache"))


def folder(kind: str) -> str:
    """Return a folder as text: "config", "data" or "cache". pathlib costs milliseconds, which matter to completion."""
    value: str | None = read_setting(f"{kind}_dir")
    if value is None:
        return _linux_folder(kind) or _platform_folder(kind)
    return os.path.expanduser(value)


def _path(path: str) -> Path:
    from pathlib import Path

    return Path(path)


def _linux_folder(kind: str) -> str | None:
    """Return platformdirs' answer for plain Linux, without its import, which costs milliseconds."""
    if sys.platform != "linux" or "ANDROID_DATA" in os.environ or hasattr(sys, "getandroidapilevel"):
        return None
    variable, default = _XDG[kind]
    base, home = os.environ.get(variable), os.environ.get("HOME", "")
    if not base and home.startswith("/"):
        base = os.path.join(os.path.expanduser("~"), default)
    return os.path.join(base, "cnllm") if base and base.startswith("/") else None


def _platform_folder(kind: str) -> str:
    from platformdirs import PlatformDirs

    dirs = PlatformDirs("cnllm", appauthor=False)
    return {"config": dirs.user_config_dir, "data": dirs.user_data_dir, "cache": dirs.user_cache_dir}[kind]
