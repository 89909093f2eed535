"""Client: a thin driver of the steps in `cnllm.engine.run.call`."""

from __future__ import annotations

import os
from collections.abc import Mapping
from types import TracebackType
from typing import TYPE_CHECKING, Any, Literal, Self, Unpack, cast, overload

from cnllm.client.base import BaseClient, is_httpx_transport
from cnllm.client.call_driver import CallSetup
from cnllm.client.sync_run import RunMethods
from cnllm.client.sync_stream import Stream
from cnllm.client.telemetry import OnEvent
from cnllm.client.tool_sets import has_set_options
from cnllm.client.verb_help import with_options
from cnllm.engine.run.call import Call
from cnllm.registry import Registry
from cnllm.registry.model import Model
from cnllm.transports import Httpx, Transport, default_transport
from cnllm.types import Reply
from cnllm.types.policy import Limits, Retry, Timeouts

if TYPE_CHECKING:
    import httpx

    from cnllm.types.call_options import Answer, BaseOptions, CallOptions
    from cnllm.types.message_types import Messages
    from cnllm.types.route import Fallback

__all__ = ["Client", "Stream"]


class Client(BaseClient, RunMethods):
    """Calls models. Safe to share between threads; close it, or use `with`.

    `transport` is an httpx transport or anything with `send(plan)` (see `cnllm.transports`). `simulate` answers from
    the registry, without key or network. `api_key` goes with every call, to any endpoint; without it the key comes
    from the environment or the keys file. `timeout` is a number of seconds or `Timeouts`, `limits` say how many bytes
    of a reply are read; a setting without an argument comes from CNLLM_TIMEOUT, CNLLM_ATTEMPTS, CNLLM_MAX_REPLY_BYTES
    and the like (see `cnllm.config.settings`). `on_event` is called with each event of `cnllm.client.telemetry`.
    `raw_log`, or CNLLM_RAW_LOG, keeps every exchange as recorded bytes, without secrets (`cnllm.cassette.raw_log`):
    True for the data folder, or a folder. `fallback` names the models that take over where the first one fails: a list
    of names, or a `cnllm.Fallback`; it is an option of every call, too. `api_key` does not go to those
    at another endpoint.
    """

    def __init__(
        self,
        registry: Registry | None = None,
        transport: Transport | httpx.BaseTransport | None = None,
        simulate: bool = False,
        api_key: str | None = None,
        *,
        timeout: float | Timeouts | None = None,
        retry: Retry | None = None,
        limits: Limits | None = None,
        on_event: OnEvent | None = None,
        raw_log: bool | str | os.PathLike[str] | None = None,
        fallback: list[str] | tuple[str, ...] | Fallback | Mapping[str, Any] | None = None,
    ) -> None:
        super().__init__(registry, simulate, api_key, timeout, retry, limits, on_event, raw_log, fallback)
        if simulate and transport is None:
            from cnllm.simulator.transport import SimTransport

            transport = SimTransport(self.registry)
        elif transport is not None and is_httpx_transport(transport, "handle_request"):
            transport = Httpx(cast("httpx.BaseTransport", transport))
        self._transport: Any = default_transport() if transport is None else transport
        self._warm = getattr(self._transport, "warm", None)
        if self._raw_log is not None:
            from cnllm.cassette import Recorder

            self._transport = Recorder(cast("Any", self._transport), self._raw_log.write, self._secrets)

    @overload
    def call(
        self,
        model: str | Model,
        messages: Messages,
        *,
        schema: type[Answer] | None = None,
        **options: Unpack[BaseOptions],
    ) -> Reply[Answer]: ...

    @overload
    def call(self, model: str | Model, messages: Messages, **options: Unpack[CallOptions]) -> Reply[Any]: ...

    @with_options
    def call(self, model: str | Model, messages: Messages, **options: Unpack[CallOptions]) -> Reply[Any]:
        """Return the whole reply. Raise `EndpointError`, `TransportError`, `KeyMissing`, and the errors of `plan`."""
        stream: Stream[Any] = Stream(*self._open_call(model, messages, False, options))  # a subscript costs a call
        return stream.reply

    @overload
    def stream(
        self,
        model: str | Model,
        messages: Messages,
        *,
        by: Literal["sentence"] | None = None,
        schema: type[Answer] | None = None,
        **options: Unpack[BaseOptions],
    ) -> Stream[Answer]: ...

    @overload
    def stream(
        self,
        model: str | Model,
        messages: Messages,
        *,
        by: Literal["sentence"] | None = None,
        **options: Unpack[CallOptions],
    ) -> Stream[Any]: ...

    @with_options
    def stream(
        self,
        model: str | Model,
        messages: Messages,
        *,
        by: Literal["sentence"] | None = None,
        **options: Unpack[CallOptions],
    ) -> Stream[Any]:
        """Return a context manager over the reply's events. Nothing is sent before it is entered or iterated.

        With `by="sentence"` its `TextDelta`s hold whole sentences (see `cnllm.sentences`).
        """
        return Stream(*self._open_call(model, messages, True, options), by)

    def prepare(
        self, model: str | Model, messages: Messages, *, stream: bool, **options: Unpack[CallOptions]
    ) -> Stream[Any]:
        """Return a call whose request is built and not sent. A whole reply has its events at its end."""
        return Stream(*self._open_call(model, messages, stream, options))

    def _open_call(
        self, model: str | Model, messages: Any, stream: bool, options: Mapping[str, Any]
    ) -> tuple[Call, CallSetup]:
        if "tools" in options and has_set_options(options):
            if self._closed:
                self._require_open()
            options = self._open_sets(options)
        return super()._open_call(model, messages, stream, options)

    def warm(self, model: str | Model) -> None:
        """Open a connection to a model's endpoint, so that the first call need not wait for it.

        Raise `TransportError` if that fails. Only the fast transport does it; other transports do nothing.
        """
        self._require_open()
        warm = self._warm
        if warm is not None:
            warm(self.plan(model, "hi"))

    def close(self) -> None:
        """Close the connections, and the servers of tools. A later call raises `ClientClosed`."""
        self._closed = True
        if self._checker is not None:
            self._checker.close()
        if (held := self._take_held_sets()) is not None:
            held.release()
        close = getattr(self._transport, "close", None)
        if close is not None:
            close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
