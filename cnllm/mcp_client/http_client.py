"""The HTTP client for MCP servers: what a server sends is bounded, and a text may be cut inside a character."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import TYPE_CHECKING, Any

from cnllm.transports.address import client_context, proxy_for, through_proxy
from cnllm.transports.content_encoding import DecodingError, body_decoder
from cnllm.transports.httpx_async import plain_pieces
from cnllm.types.json_form import mend_halves

if TYPE_CHECKING:
    import httpx2

__all__ = ["MAX_MESSAGE", "http_client"]

MAX_MESSAGE = 64 * 1024 * 1024
"""Bytes of one message, in an event or in JSON; a picture is one message."""
_HTTP_TIMEOUT = 30.0  # seconds, as in the package mcp: to connect, and to send
_HTTP_SILENCE = 300.0  # seconds that a stream of events may be silent
_MAX_VALUES = 300_000  # lists and objects of one message; decoded, each takes up to fifty times its bytes
_EVENT_ENDS = (b"\n\n", b"\r\n\r\n", b"\r\r")


def http_client(url: str, headers: dict[str, str]) -> httpx2.AsyncClient:
    """Return a client with our bounds on what it decodes, and our reading of NO_PROXY: its own leaves out ranges."""
    import httpx2

    async def bound(response: httpx2.Response) -> None:
        response.stream = _bounded_stream(response)
        response.headers.pop("content-encoding", None)  # the stream is plain

    address = httpx2.URL(url)
    proxy = proxy_for(address.scheme, address.host, address.port)
    return through_proxy(
        httpx2,
        proxy,
        lambda: httpx2.AsyncClient(
            headers=headers,
            timeout=httpx2.Timeout(_HTTP_TIMEOUT, read=_HTTP_SILENCE),
            proxy=proxy,
            verify=client_context(),
            trust_env=False,
            event_hooks={"response": [bound]},
        ),
    )


def _bounded_stream(response: httpx2.Response) -> httpx2.AsyncByteStream:
    """Return the plain body of a response. A body of JSON is one message, and has its limit."""
    import httpx2

    raw: Any = response.stream
    is_stream = response.headers.get("content-type", "").lower().startswith("text/event-stream")
    decode = body_decoder(response.headers.get("content-encoding"))

    class Bounded(httpx2.AsyncByteStream):
        async def __aiter__(self) -> AsyncIterator[bytes]:
            size = values = 0
            line: list[bytes] = []  # the pieces of one that has not ended: an escape may be in two of them
            try:
                async for piece in raw if decode is None else plain_pieces(raw, decode, _HTTP_SILENCE):
                    size += len(piece)
                    if size > MAX_MESSAGE and not is_stream:
                        raise httpx2.StreamError(f"it has more than {MAX_MESSAGE:,} bytes")
                    start = max(piece.rfind(end) for end in _EVENT_ENDS) if is_stream else -1
                    values = 0 if start >= 0 else values
                    values += sum(piece.count(begin, max(start, 0)) for begin in (b"[", b"{"))  # lists and objects
                    if values > _MAX_VALUES:
                        raise httpx2.StreamError(f"it has more than {_MAX_VALUES:,} lists and objects")
                    is_long = size > MAX_MESSAGE  # the package refuses it
                    end = len(piece) if is_long else max(piece.rfind(b"\n"), piece.rfind(b"\r")) + 1
                    if end:
                        yield mend_halves(b"".join((*line, piece[:end])))
                        line, size = [piece[end:]], len(piece) - end if is_stream else size
                    else:
                        line.append(piece)
                yield mend_halves(b"".join(line))
            except (DecodingError, TimeoutError) as error:
                raise httpx2.StreamError(str(error)) from error

        async def aclose(self) -> None:
            await raw.aclose()

    return Bounded()
