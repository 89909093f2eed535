"""Client: a thin driver of the steps in `cnllm.engine.run.call`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Unpack, overload

from cnllm.client.base import BaseClient
from cnllm.client.sync_stream import Stream
from cnllm.client.verb_help import with_options, with_run_options
from cnllm.registry.model import Model
from cnllm.system.closing import Closing
from cnllm.transports import Transport, default_transport
from cnllm.types import Reply

if TYPE_CHECKING:
    import httpx

    from cnllm.client.sync_run import Run
    from cnllm.types.call_options import Answer, CallOptions, RunOptions, TextUnit, TypedOptions, TypedRunOptions
    from cnllm.types.messages import Messages

    HttpTransport = Transport | httpx.BaseTransport
else:
    HttpTransport = Any

__all__ = ["Client", "Stream"]


class Client(BaseClient[HttpTransport], Closing):
    """Calls models. Safe to share between threads; close it, or use `with`.

    `transport` is an httpx transport or anything with `send(plan)` (see `cnllm.transports`). `simulate` answers from
    the registry, without key or network. `api_key` goes with every call, to any endpoint; without it the key comes
    from the environment or the keys file. `timeout` is a number of seconds or `Timeouts`, `limits` say how many bytes
    of a reply are read; a setting without an argument comes from CNLLM_TIMEOUT, CNLLM_ATTEMPTS, CNLLM_MAX_REPLY_BYTES
    and the like (see `cnllm.config.settings`). `on_event` is called with each event of `cnllm.client.telemetry`.
    `raw_log`, or CNLLM_RAW_LOG, keeps every exchange as recorded bytes, without secrets (`cnllm.cassette.raw_log`):
    True for the data folder, or a folder. `fallback` names the models that take over where the first one fails: a list
    of names, or a `cnllm.Fallback`; it is an option of every call, too. `api_key` does not go to those
    at another endpoint. `log_calls`, or CNLLM_LOG_CALLS, writes what each call costs to the file of `cnllm logs`,
    without a word of it; it is off by default.
    """

    _is_async = False
    _default_transport = staticmethod(default_transport)

    @overload
    def call(
        self, model: str | Model, messages: Messages, **options: Unpack[TypedOptions[Answer]]
    ) -> Reply[Answer]: ...

    @overload
    def call(self, model: str | Model, messages: Messages, **options: Unpack[CallOptions]) -> Reply[Any]: ...

    @with_options
    def call(self, model: str | Model, messages: Messages, **options: Unpack[CallOptions]) -> Reply[Any]:
        """Return the whole reply. Raise `EndpointError`, `TransportError`, `KeyMissing`, and the errors of `plan`."""
        stream: Stream[Any] = Stream(self._open_call(model, messages, False, options))  # a subscript costs a call
        return stream.reply

    @overload
    def stream(
        self, model: str | Model, messages: Messages, *, by: TextUnit = None, **options: Unpack[TypedOptions[Answer]]
    ) -> Stream[Answer]: ...

    @overload
    def stream(
        self, model: str | Model, messages: Messages, *, by: TextUnit = None, **options: Unpack[CallOptions]
    ) -> Stream[Any]: ...

    @with_options
    def stream(
        self, model: str | Model, messages: Messages, *, by: TextUnit = None, **options: Unpack[CallOptions]
    ) -> Stream[Any]:
        """Return a context manager over the reply's events. Nothing is sent before it is read.

        With `by="sentence"` its `TextDelta`s hold whole sentences (see `cnllm.sentences`).
        """
        return Stream(self._open_call(model, messages, True, options), by)

    @overload
    def run(
        self, model: str | Model, messages: Messages, **options: Unpack[TypedRunOptions[Answer]]
    ) -> Run[Answer]: ...

    @overload
    def run(self, model: str | Model, messages: Messages, **options: Unpack[RunOptions]) -> Run[Any]: ...

    @with_run_options
    def run(self, model: str | Model, messages: Messages, **options: Unpack[RunOptions]) -> Run[Any]:
        """Call the model, execute the tools it calls, send back their results, and repeat until it has finished.

        Raise `LoopStopped(run)` when it has not: after `max_steps` calls of the model, or when the same calls gave the
        same results `max_repeats` times in a row, or when its last reply is not whole. `run.stopped` gives the reason,
        and `run.messages` is a history that can be continued. Other errors are those of `call`, and carry the run as
        `.run`; so do the errors of `approve` and `on_step`.

        `tools` are functions, or `cnllm.Tool`s with one: async ones are awaited, others get a thread, at most
        `max_parallel` at a time. A tool that takes longer than its `timeout` (or `tool_timeout` seconds) is abandoned.
        The error of a call goes to the model as its result. `approve(call)` is called before a tool runs and returns
        True, False, or a reason for refusing. `on_step(step)` is called after each step. Other options are as for
        `call`.
        """
        # a call needs nothing of the loop
        from cnllm.client.runs import loop_stopped_error, prepare_loop
        from cnllm.client.sync_run import Run

        with Run(prepare_loop(self._open_call, self._on_event, model, messages, options, stream=False)) as run:
            for _ in run:
                pass
        if run.stopped != "done":
            raise loop_stopped_error(run)
        return run

    @overload
    def run_stream(
        self, model: str | Model, messages: Messages, *, by: TextUnit = None, **options: Unpack[TypedRunOptions[Answer]]
    ) -> Run[Answer]: ...

    @overload
    def run_stream(
        self, model: str | Model, messages: Messages, *, by: TextUnit = None, **options: Unpack[RunOptions]
    ) -> Run[Any]: ...

    @with_run_options
    def run_stream(
        self, model: str | Model, messages: Messages, *, by: TextUnit = None, **options: Unpack[RunOptions]
    ) -> Run[Any]:
        """Return `run` as a context manager over the events of every step; each step ends with a `Finished`.

        It ends without an error when the loop was stopped: `run.stopped` gives the reason. `run.cancel()` ends it from
        anywhere; so does leaving the `with` block. A step whose stream is cut is repeated without streaming, and only
        the missing part is delivered. With `by="sentence"` its text comes in whole sentences.
        """
        # as in `run`
        from cnllm.client.runs import prepare_loop
        from cnllm.client.sync_run import Run

        return Run(prepare_loop(self._open_call, self._on_event, model, messages, options, stream=True, by=by))

    def prepare(
        self, model: str | Model, messages: Messages, *, stream: bool, **options: Unpack[CallOptions]
    ) -> Stream[Any]:
        """Return a call whose request is built and not sent. A whole reply has its events at its end."""
        return Stream(self._open_call(model, messages, stream, options))

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
        if (sets := self._begin_close()) is not None:
            sets.release()
        close = getattr(self._transport, "close", None)
        if close is not None:
            close()
        if self._call_log is not None:
            self._call_log.close()
