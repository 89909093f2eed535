"""The built-in registry alone, read once for all tests of a process: what many tests make of its models is kept."""

from __future__ import annotations

from cnllm.registry import Registry
from docs.generate.builtin import registry

__all__ = ["BUILTIN"]

BUILTIN: Registry = registry()
