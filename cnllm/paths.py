"""Where cnllm keeps its files. An environment variable moves each folder; nothing is created here."""

from __future__ import annotations

import os
from pathlib import Path

__all__ = ["cache_dir", "config_dir", "data_dir"]


def config_dir() -> Path:
    """What a user writes: overlays of the registry, and the keys (`CNLLM_CONFIG_DIR`)."""
    return _chosen("CNLLM_CONFIG_DIR") or _platform("config")


def data_dir() -> Path:
    """What cnllm keeps for a user: conversations and logs (`CNLLM_DATA_DIR`)."""
    return _chosen("CNLLM_DATA_DIR") or _platform("data")


def cache_dir() -> Path:
    """What may be deleted at any time (`CNLLM_CACHE_DIR`)."""
    return _chosen("CNLLM_CACHE_DIR") or _platform("cache")


def _chosen(variable: str) -> Path | None:
    value = os.environ.get(variable)
    return Path(value).expanduser() if value else None


def _platform(kind: str) -> Path:
    from platformdirs import PlatformDirs  # costs milliseconds that a set variable saves

    dirs = PlatformDirs("cnllm", appauthor=False)
    return Path({"config": dirs.user_config_dir, "data": dirs.user_data_dir, "cache": dirs.user_cache_dir}[kind])
