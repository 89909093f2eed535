"""Transports: they send plans and return responses. Everything else in cnllm is free of network I/O.

A transport is any object with `send(plan)`, which sends a plan (its method, url, headers and content, within its
timeouts) and returns (status, headers with names in lower case, an iterator of the body's bytes); for `AsyncClient` an
`async send` and an async iterator. It raises `TransportError`, before and while the body is read. If the iterator has
`close`/`aclose`, the client calls it when it reads no more. If it has `set_read_deadline(seconds)`, reading ends after
that time, as if the body had ended. If it has `has_ended`, nothing more is read where that is true. If it has
`drain()`, the client calls it before `close` when a reply is complete: it reads the last bytes, so that the connection
can serve again, and ignores errors. A transport may have `interrupt(plan)`, for another thread or task than the one
that waits in `send`: the send of that plan, the same object, ends with a `TransportError`. `set_read_deadline(0)` may
come from another one, too.

There are two adapters: httpx (`Httpx`, `AsyncHttpx`), and one over httptools that takes a fraction of its time
(`cnllm.transports.fast`). The extra `fast` installs it, and it is used where it is installed.
CNLLM_TRANSPORT selects one: `httpx`, `httpx2` (httpx's successor, if it is installed) or `fast`.

In a forked child both open their own connections. A connection with unread bytes after its response is not used again.
A caller's httpx transport is not checked for unread bytes, and a child refuses one that its parent created the client
with.
"""

from __future__ import annotations

import functools
from collections.abc import AsyncIterator, Iterator, Mapping
from importlib import import_module
from typing import TYPE_CHECKING, Any, Protocol

from cnllm.config.distribution import install_command
from cnllm.config.settings import read_setting
from cnllm.engine.encode.plan import Plan
from cnllm.errors import CnllmError

if TYPE_CHECKING:
    from cnllm.transports.httpx_adapter import Httpx
    from cnllm.transports.httpx_async import AsyncHttpx

__all__ = ["AsyncHttpx", "AsyncTransport", "Httpx", "Transport", "default_async_transport", "default_transport"]


class Transport(Protocol):
    """A transport for `Client`; see the module."""

    def send(self, plan: Plan, /) -> tuple[int, Mapping[str, str], Iterator[bytes]]:
        """Send a plan. Return status, headers and an iterator of the body's bytes."""


class AsyncTransport(Protocol):
    """A transport for `AsyncClient`; see the module."""

    async def send(self, plan: Plan, /) -> tuple[int, Mapping[str, str], AsyncIterator[bytes]]:
        """Send a plan. Return status, headers and an async iterator of the body's bytes."""


def __getattr__(name: str) -> Any:
    """Load an adapter of httpx at its first use: the fast one needs neither."""
    module = {"Httpx": "httpx_adapter", "AsyncHttpx": "httpx_async"}.get(name)
    if module is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{module}"), name)


def default_transport() -> Transport:
    """Return the default transport of a `Client`. Raise `CnllmError` when CNLLM_TRANSPORT is not available."""
    if (name := _adapter()) != "fast":
        from cnllm.transports.httpx_adapter import Httpx

        return Httpx(family=name)
    from cnllm.transports.fast_sync import Fast  # not from `fast`, which imports asyncio

    return Fast(idle=read_setting("idle_connections"))


def default_async_transport() -> AsyncTransport:
    """Return the default transport of an `AsyncClient`. Raise as `default_transport` does."""
    if (name := _adapter()) != "fast":
        from cnllm.transports.httpx_async import AsyncHttpx

        return AsyncHttpx(family=name)
    from cnllm.transports.fast_async import AsyncFast

    return AsyncFast(idle=read_setting("idle_connections"))


def _adapter() -> str:
    """Return the adapter that is used: "fast", or a family of httpx."""
    name: str | None = read_setting("transport")
    if name in ("httpx", "httpx2"):
        return name
    if _has_httptools():
        return "fast"
    if name == "fast":
        raise CnllmError(
            "CNLLM_TRANSPORT=fast: httptools, which it needs, is not installed",
            hint=f"{install_command('fast')}, or CNLLM_TRANSPORT=httpx",
        )
    return "httpx"


@functools.cache
def _has_httptools() -> bool:
    """Whether a usable httptools is installed. Old releases lack a needed method."""
    try:
        from httptools import HttpResponseParser
    except ImportError:
        return False
    return hasattr(HttpResponseParser, "set_dangerous_leniencies")
