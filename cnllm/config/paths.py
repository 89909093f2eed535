"""Where cnllm keeps its files. An environment variable moves each folder; nothing is created here."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

__all__ = ["cache_dir", "config_dir", "data_dir", "folder"]

_XDG = {
    "config": ("XDG_CONFIG_HOME", ".config"),
    "data": ("XDG_DATA_HOME", ".local/share"),
    "cache": ("XDG_CACHE_HOME", ".cache"),
}


def config_dir() -> Path:
    """What a user writes: overlays of the registry, and the keys (`CNLLM_CONFIG_DIR`)."""
    return _path(folder("config"))


def data_dir() -> Path:
    """What cnllm keeps for a user: conversations and logs (`CNLLM_DATA_DIR`)."""
    return _path(folder("data"))


def cache_dir() -> Path:
    """What may be deleted at any time (`CNLLM_CACHE_DIR`)."""
    return _path(folder("cache"))


def folder(kind: str) -> str:
    """The same as text, "config", "data" or "cache"; pathlib costs milliseconds that a completion saves."""
    chosen = os.environ.get(f"CNLLM_{kind.upper()}_DIR")
    if not chosen:
        return _plain(kind) or _platform(kind)
    if not chosen.startswith("~"):
        return chosen
    place = os.path.expanduser(chosen)
    if place.startswith("~"):
        from cnllm.errors import CnllmError

        raise CnllmError(f"CNLLM_{kind.upper()}_DIR={chosen}: no such user has a home", hint="name the folder itself")
    return place


def _path(place: str) -> Path:
    from pathlib import Path

    return Path(place)


def _plain(kind: str) -> str | None:
    """What platformdirs says on Linux where there is no doubt; importing it costs milliseconds."""
    if sys.platform != "linux" or "ANDROID_DATA" in os.environ or hasattr(sys, "getandroidapilevel"):
        return None
    variable, place = _XDG[kind]
    base, home = os.environ.get(variable), os.environ.get("HOME", "")
    if not base and home.startswith("/"):
        base = os.path.join(os.path.expanduser("~"), place)
    return os.path.join(base, "cnllm") if base and base.startswith("/") else None


def _platform(kind: str) -> str:
    from platformdirs import PlatformDirs

    dirs = PlatformDirs("cnllm", appauthor=False)
    return {"config": dirs.user_config_dir, "data": dirs.user_data_dir, "cache": dirs.user_cache_dir}[kind]
