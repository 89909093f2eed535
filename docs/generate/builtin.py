"""The built-in registry, without the registry files of the person who builds the manual."""

from __future__ import annotations

from functools import cache

from cnllm.registry import Registry
from cnllm.registry.read import builtin_path, read

__all__ = ["registry"]


@cache
def registry() -> Registry:
    """Return the registry of providers.toml alone."""
    return Registry([read(builtin_path(), builtin=True)])
