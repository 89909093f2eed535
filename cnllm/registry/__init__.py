"""Load models from registry files. The registry knows no wire."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from cnllm.registry.registry import Registry

__all__ = ["Registry"]


def __getattr__(name: str) -> Any:
    """Return `Registry` at its first use: a cached listing does not need it."""
    if name != "Registry":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from cnllm.registry.registry import Registry

    globals()[name] = Registry
    return Registry
