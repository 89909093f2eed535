"""The transport of blocking SDKs: a request of httpx is answered by `cnllm.Client`."""

from __future__ import annotations

import contextlib
import inspect
from collections.abc import Generator, Iterator
from itertools import chain
from typing import Any

from cnllm.client.sync_client import Client
from cnllm.client.sync_stream import Stream
from cnllm.gateway.state import SyncState
from cnllm.protocols.event_order import reply_events
from cnllm.sdk.service import FAILURES, SdkRequest
from cnllm.sdk.transport import TransportBase, subclass
from cnllm.types import Reply

__all__ = ["SdkTransport"]


class SdkTransport(TransportBase):
    """Answers requests of httpx."""

    _client: Client
    make_state = SyncState

    def handle_request(self, request: Any) -> Any:
        """Answer a request of httpx."""
        sdk_request = self._sdk_request(request)
        try:
            return self._state.run(self._answer(request, sdk_request, request.read))
        except FAILURES as error:
            return self._response(request, sdk_request.failed(error))

    def _reply(self, call: Stream) -> Reply:
        """Return the reply of a call."""
        with call:
            return call.reply

    def _body(self, sdk_request: SdkRequest, call: Stream, *, is_whole: bool) -> Any:
        """Return the body of a streamed response."""
        items = _events(call, is_whole=is_whole)
        own = subclass("SdkStream", _SdkBody, self._httpx.SyncByteStream)
        return own(call, self._pieces(sdk_request, items), self._httpx.RemoteProtocolError)

    def _pieces(self, sdk_request: SdkRequest, items: Generator[Any, None, None]) -> Generator[bytes | str, None, None]:
        """Yield the bytes of a stream, and why it failed if it did. Raises an error before the first piece."""
        try:
            with contextlib.closing(items):
                for item in items:
                    if type(item) is Reply:
                        self._state.run(sdk_request.keep(item))
                        yield sdk_request.last_piece(item)
                    elif data := sdk_request.piece([item]):
                        yield data
        except FAILURES as error:
            failure = sdk_request.last_failure(error)
            if failure is None:
                raise
            yield from failure

    def close(self) -> None:
        """Close the connections to endpoints, and a store that this transport opened."""
        self._client.close()
        if self._owns_store:
            self._state.close()


class _SdkBody:
    """The body of a streamed response. Closing it, from any thread, ends the call."""

    def __init__(self, call: Stream, pieces: Generator[bytes | str, None, None], broken: Any) -> None:
        self._call = call
        self._pieces = pieces
        self._broken = broken
        self._first: bytes | str | None = None
        self._cancelled = False  # by another thread, while one reads

    def begin(self) -> None:
        """Wait for the first piece. Raises the error of a call that has none."""
        try:
            self._first = next(self._pieces)
        except BaseException:
            self.close()
            raise

    def __iter__(self) -> Iterator[bytes]:
        first, self._first = self._first, None
        for piece in chain(() if first is None else (first,), self._pieces):
            if self._cancelled:
                self._pieces.close()
                raise self._broken("the response was closed")
            if type(piece) is not bytes:  # a program that overlooks the failure must not take this for the end
                raise self._broken(piece)
            yield piece

    def close(self) -> None:
        """End the call."""
        if inspect.getgeneratorstate(self._pieces) != inspect.GEN_RUNNING:
            self._pieces.close()
        else:
            self._cancelled = True
            self._call.cancel()


def _events(call: Stream, *, is_whole: bool) -> Generator[Any, None, None]:
    """Yield the events of a call, and then its reply. `is_whole`: the reply comes before its events."""
    with call:
        yield from reply_events(call.reply) if is_whole else call
        yield call.reply
