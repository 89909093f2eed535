"""The registry: files → Models. It knows nothing of any wire."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from cnllm.registry.registry import Registry

__all__ = ["Registry"]


def __getattr__(name: str) -> Any:
    """`Registry` when it is first used: a listing that is kept ready needs none of it."""
    if name != "Registry":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from cnllm.registry.registry import Registry

    globals()[name] = Registry
    return Registry
