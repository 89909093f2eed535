"""The built-in registry, whatever files the writer of the manual has of their own."""

from __future__ import annotations

from functools import cache

from cnllm.registry import Registry
from cnllm.registry.documents import builtin_path, read

__all__ = ["registry"]


@cache
def registry() -> Registry:
    """Return the registry of providers.toml alone."""
    return Registry([read(builtin_path(), builtin=True)])
