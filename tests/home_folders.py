"""Where the files of one test are: a config and a data folder below its home, and a cache that all tests share."""

from __future__ import annotations

import os
import sys
from pathlib import Path

__all__ = ["SHARED_CACHE", "cache_dir", "config_dir", "data_dir", "variables"]

SHARED_CACHE = "TEST_CACHE_OF_CNLLM"  # the folder, for all processes of one run


def config_dir(home: Path) -> Path:
    return home / "config" / "cnllm"


def data_dir(home: Path) -> Path:
    return home / "data" / "cnllm"


def cache_dir() -> Path:
    return Path(os.environ[SHARED_CACHE]) / "cnllm"


def variables(home: Path) -> dict[str, str]:
    """Return the variables of the environment that name the folders: the system's own where it has them."""
    folders = {"CONFIG": config_dir(home), "DATA": data_dir(home), "CACHE": cache_dir()}
    if sys.platform == "linux":
        return {f"XDG_{kind}_HOME": str(path.parent) for kind, path in folders.items()}
    return {f"CNLLM_{kind}_DIR": str(path) for kind, path in folders.items()}
