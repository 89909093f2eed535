"""The only step that touches the world.

A transport is any object with `send(plan)`, which sends a plan (its method, url, headers and content, within its
timeouts) and returns (status, headers with names in lower case, an iterator of the body's bytes); for `AsyncClient` an
`async send` and an async iterator. It raises `TransportError`, before and while the body is read. If the iterator has
`close`/`aclose`, it is called when no more is read. If it has `set_read_deadline(seconds)`, reading ends after that
time, as if the body did. If it has `drain()`, it is called before `close` when a reply is complete, so that what little
may follow is read and the connection can serve again. Nothing that happens there is an error.

Two adapters come with it: httpx (`Httpx`, `AsyncHttpx`), and one over httptools that takes a fraction of its time
(`cnllm.transports.fast`), which the extra `cnllm[fast]` installs and which is used where it is there. CNLLM_TRANSPORT,
`httpx`, `httpx2` (httpx's successor, if it is installed) or `fast`, says which it must be.

In a forked child each of them begins with connections of its own. A connection with anything unread behind its
response is not used again. A transport of httpx that the caller brings is the caller's: whether its connections hold
unread bytes is not checked, and a child refuses one that its parent made the client with.
"""

from __future__ import annotations

import functools
import os
from collections.abc import AsyncIterator, Iterator, Mapping
from typing import Protocol

from cnllm.engine.encode.plan import Plan
from cnllm.errors import CnllmError
from cnllm.transports.httpx_adapter import AsyncHttpx, Httpx

__all__ = ["AsyncHttpx", "AsyncTransport", "Httpx", "Transport", "default_async_transport", "default_transport"]

_VARIABLE = "CNLLM_TRANSPORT"


class Transport(Protocol):
    """See the module."""

    def send(self, plan: Plan, /) -> tuple[int, Mapping[str, str], Iterator[bytes]]: ...


class AsyncTransport(Protocol):
    """See the module."""

    async def send(self, plan: Plan, /) -> tuple[int, Mapping[str, str], AsyncIterator[bytes]]: ...


def default_transport() -> Transport:
    """The transport a `Client` uses unless it is given one. Raises `CnllmError` when the one asked for is not there."""
    if not _fast():
        return Httpx(family=_family())
    from cnllm.transports.fast_sync import Fast  # not by way of `fast`, which brings asyncio along

    return Fast()


def default_async_transport() -> AsyncTransport:
    """The same for an `AsyncClient`."""
    if not _fast():
        return AsyncHttpx(family=_family())
    from cnllm.transports.fast_async import AsyncFast

    return AsyncFast()


def _fast() -> bool:
    asked = os.environ.get(_VARIABLE, "")
    if asked not in ("", "httpx", "httpx2", "fast"):
        hint = f"{_VARIABLE} is httpx, httpx2 or fast"
        raise CnllmError(f"{_VARIABLE}={asked}: there is no such transport", hint=hint)
    if asked == "fast" and not _installed():
        raise CnllmError(
            f"{_VARIABLE}=fast: httptools, which it needs, is not installed",
            hint="pip install 'cnllm[fast]', or CNLLM_TRANSPORT=httpx",
        )
    return asked not in ("httpx", "httpx2") and _installed()


def _family() -> str:
    return "httpx2" if os.environ.get(_VARIABLE) == "httpx2" else "httpx"


@functools.cache
def _installed() -> bool:
    """Is the extra there? A release of httptools that is too old is not it."""
    try:
        from httptools import HttpResponseParser
    except ImportError:
        return False
    return hasattr(HttpResponseParser, "set_dangerous_leniencies")
