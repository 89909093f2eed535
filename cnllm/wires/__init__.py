"""The wire protocols: plain functions, one module a wire and direction, found by the protocol's name."""

from __future__ import annotations

from typing import Any

from cnllm.errors import RegistryError
from cnllm.wires import chat_read, chat_write

__all__ = ["reader", "writer"]

_READERS = {"openai-chat": chat_read.chunk}
_WRITERS = {"openai-chat": chat_write}
_QUICK = {"openai-chat": chat_read.quick_names}


def reader(protocol: str) -> Any:
    """What reads a decoded body or chunk of a wire. Raises `RegistryError` for a wire nobody here speaks."""
    return _spoken(_READERS, protocol)


def writer(protocol: str) -> Any:
    """The module that writes the shapes of a wire's request."""
    return _spoken(_WRITERS, protocol)


def quick_names(protocol: str) -> Any:
    """Which names the fast reading of a wire's chunks must heed, as a function of the flags; None: it has none."""
    return _QUICK.get(protocol)


def _spoken(wires: dict[str, Any], protocol: str) -> Any:
    if protocol not in wires:
        raise RegistryError(f"nobody here speaks {protocol}", hint=f"protocol is one of {', '.join(sorted(wires))}")
    return wires[protocol]
