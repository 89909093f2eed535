"""Hold the state of a call, its secrets and its telemetry, for the drivers of `Client` and `AsyncClient`."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterable, Sequence
from functools import cache
from typing import TYPE_CHECKING, Any, NoReturn

from msgspec import Struct
from msgspec.structs import replace

from cnllm.client.secret_removal import Echo, redact_bytes, redact_error
from cnllm.client.telemetry import Recovered, Watch
from cnllm.config import redact
from cnllm.engine.decode.framing import BLANK, detect_mode
from cnllm.engine.encode.plan import Plan
from cnllm.engine.run.call import Call
from cnllm.engine.run.effects import (
    CheckInputs,
    HideSecrets,
    InputVerdict,
    Observed,
    ReadBody,
    SetReadDeadline,
    Sleep,
    UseTarget,
)
from cnllm.errors import BadKey, ClientClosed, CnllmError, EmptyReply, IdleTimeout, StreamCut, TransportError
from cnllm.types import TOKEN_EVENTS, Event, Reply, Timing

if TYPE_CHECKING:
    from cnllm.client.input_checks import InputChecker

__all__ = ["BodyPieces", "CallDriver", "CallSetup"]

_CLOSED = "the call was closed before its end"
_UNREAD = "the reply is not complete: its events were not read to their end"
_CHATTER = b" \t\r\n:"  # bytes with which white space and comments begin


class CallSetup(Struct, frozen=True):
    """Holds a call, and what a client gives its driver beside it.

    `steps` are those of the call, which has not begun. `key` is the key of the endpoint, `keys` hold those of a route's
    targets. `checker` returns what checks the inputs of custom tools. `require_open` raises `ClientClosed` where the
    client was closed since.
    """

    call: Call
    transport: Any
    steps: Any
    key: str | None
    keys: dict[int, str | None] | None
    watch: Watch | None
    checker: Callable[[], InputChecker]
    require_open: Callable[[], None] | None = None

    def __repr__(self) -> str:  # without the keys
        return f"<CallSetup of {self.call.plan!r}>"


class CallDriver:
    """Holds the state of a call that both drivers share. The error of a call that was left has what arrived."""

    def __init__(self, setup: CallSetup) -> None:
        self.key = setup.key
        self.call = setup.call
        self.finished: Reply | None = None
        self._setup = setup
        self._transport = setup.transport
        self._watch = setup.watch
        self._closed = False
        self.takes_empty_turns = False  # see `Stream.take_empty_turns`
        self._request: Plan | None = None  # whose response has not begun
        self.is_charged = False  # an endpoint may charge what was sent
        self._was_charged = False  # the same, before the last request
        self._echo = Echo(() if setup.key is None else (setup.key,))
        self._body: Any = None
        self._has_key = True
        self._start = time.monotonic()
        self._first: float | None = None  # when the first token arrived
        self._error: CnllmError | None = None  # that ended the call

    @property
    def plan(self) -> Plan:
        """Return the plan of the call. On a route its notes tell the errors of targets, which may echo a secret."""
        plan = self.call.plan
        return plan if self._setup.keys is None else self._echo.plan(plan)

    def _apply(self, step: Any) -> Any:
        """Carry out a step that waits for nothing."""
        match step:
            case SetReadDeadline() if hasattr(self._body, "set_read_deadline"):
                self._body.set_read_deadline(step.seconds)
            case UseTarget():  # with its key; the result are the events that were held back
                assert self._setup.keys is not None
                self.key = self._setup.keys[step.number]
                return self._echo.use_target(step.plan, self.key)
            case HideSecrets():
                return self._echo.reply(step.reply)
            case Observed() if self._watch is not None:
                if step.kind == "cut":
                    self._watch.reply_cut(redact.redact(step.reason, self._echo.secrets))
                else:
                    self._watch.emit(Recovered)
        return None

    def _begin_request(self, plan: Plan) -> Plan:
        """Return the plan with its key, ready to be sent. Raise `ClientClosed` after the end of the client."""
        if self._setup.require_open is not None:
            try:
                self._setup.require_open()
            except ClientClosed as error:
                if self.is_charged:  # for an attempt before this one
                    error.add_attempts([None])
                raise
        request = self._echo.begin_request(plan, self.key)
        self._has_key = self.key is not None or any(map(redact.is_secret_name, request.headers))
        if "logging" in sys.modules:
            _install_log_filter(lambda: (*self._echo.secrets, *redact.proxy_secrets()))
        if self._watch is not None:
            self._watch.request_sent(plan)
        self._request = request
        self._require_open()  # `leave` may have been called before there was a request to interrupt
        self._was_charged, self.is_charged = self.is_charged, True
        return request

    def _take_response(self, status: int, headers: Any, body: Any) -> tuple[int, Any]:
        """Take the response to a request, whose body is read next. Return status and headers."""
        if self._watch is not None:
            self._watch.response_started(status)
        self._body = body
        if self._closed:  # `leave` was called during the send
            self.leave()
        return status, headers

    def leave(self) -> None:
        """End the call while another thread or task reads it, as soon as possible. No further request is sent."""
        self._closed = True
        request, body = self._request, self._body
        if request is not None and hasattr(self._transport, "interrupt"):
            self._transport.interrupt(request)
        if hasattr(body, "set_read_deadline"):
            body.set_read_deadline(0)

    def _body_bytes(self, pieces: BodyPieces, broken: TransportError | None) -> tuple[bytes, TransportError | None]:
        """Return what was read of a body, without secrets, and the error that ended it."""
        self._require_open()
        if pieces.is_stream:
            return redact_bytes(self._echo.needles, b"".join(pieces.all)), None
        return self._echo.body(pieces.all, broken)

    def _require_open(self) -> None:
        if self._closed:
            raise TransportError(_CLOSED)

    def _check_inputs(self, step: CheckInputs) -> list[InputVerdict]:
        """Return the verdicts of checks. It may block for seconds."""
        return self._setup.checker().check(step.checks)

    def _observe_first(self, events: Sequence[Event]) -> None:
        """Record when the first token arrived."""
        if not {*map(type, events)}.isdisjoint(TOKEN_EVENTS):
            self._first = time.monotonic()

    def _add_timing(self, reply: Reply) -> Reply:
        """Return a reply with its timing."""
        first = None if self._first is None else round(self._first - self._start, 6)
        return replace(reply, timing=Timing(first=first, total=round(time.monotonic() - self._start, 6)))

    def _finish(self, reply: Reply) -> None:
        """Set the reply of the call."""
        self.finished = self._echo.reply(self._add_timing(reply))

    def _finish_empty_turn(self, error: CnllmError) -> bool:
        """Set the reply of a call whose model ended its turn without a word. Whether the error is no failure.

        One of a route is: several models were asked.
        """
        is_turn = self.takes_empty_turns and isinstance(error, EmptyReply) and error.ends_turn
        if not is_turn or error.reply is None or len(error.targets) > 1:
            return False
        self._finish(error.reply)
        return True

    def _report_end(self) -> None:
        """Report the end of the call, with what had arrived of one that its caller closed."""
        if self._watch is not None:
            has_ended = self.finished is not None or self._error is not None
            self._watch.call_ended(self.finished, None if has_ended else self.partial_reply())

    def _begin_wait(self, step: Sleep) -> None:
        """Take note of the request that failed before a wait, and report the wait."""
        if step.error is not None and not step.error.costs:
            self.is_charged = self._was_charged
        if self._watch is not None and step.error is not None:
            self._watch.retry_scheduled(redact_error(step.error, self._echo.secrets), step.seconds)

    def _report_error(self, error: CnllmError) -> CnllmError:
        """Return the error without secrets, and report it."""
        if self._closed:
            error.reply = self.call.partial_reply()
        if error.reply is not None:
            error.reply = self._add_timing(error.reply)
        if isinstance(error, BadKey) and not self._has_key:  # an address of this machine is asked without a key
            error.hint = "no key was sent; --key-env NAME (in Python api_key=) sends one"
        error = self._error = redact_error(error, self._echo.secrets, self._echo)
        if self._watch is not None:
            self._watch.call_failed(error)
        return error

    def partial_reply(self) -> Reply | None:
        """Return what has arrived of the call, without secrets; None where nothing has."""
        reply = self.call.partial_reply()
        return None if reply is None else self._echo.reply(self._add_timing(reply))

    def abandon(self) -> NoReturn:
        """Raise the error that ended the call; `StreamCut` where its caller left it before the end."""
        if self._error is not None:
            raise self._error
        raise StreamCut(
            _UNREAD,
            hint="read the events of the call first, or take what `stop()` returns",
            reply=self.partial_reply(),
        )


class BodyPieces:
    """Collects the pieces of a body for a step.

    `is_stream`: the body turned out to be a stream of events, and this step does not read on. Where only white space
    and comments come for too long, `take` raises `IdleTimeout`: they are no bytes of a reply.
    """

    def __init__(self, step: ReadBody) -> None:
        self.all: list[bytes] = []
        self.is_stream = False
        self._seconds, self._remaining, self._last = step.progress, step.most, time.monotonic()
        self._head: bytes | None = b"" if step.is_reply else None  # until it is known what the body is

    def take(self, chunk: bytes) -> bool:
        """Add a piece, and return whether more may be read."""
        self.all.append(chunk)
        now = time.monotonic()
        if chunk[:1] not in _CHATTER or not _is_chatter(chunk):
            self._last = now
        elif self._seconds is not None and now - self._last > self._seconds:
            raise IdleTimeout(
                f"no part of the reply for {self._seconds:g} s, although the connection is open",
                hint="raise the timeout, or ask for a shorter answer",
            )
        self._remaining -= len(chunk)
        if self._head is not None:
            self._head = (self._head + chunk).lstrip(BLANK)
            mode = detect_mode(self._head)
            self._head = self._head.rstrip(BLANK) if mode is None else None
            self.is_stream = mode == "sse"
        return self._remaining >= 0 and not self.is_stream


def _is_chatter(chunk: bytes) -> bool:
    """Whether a piece of a body holds nothing but white space and comments of server-sent events."""
    return not chunk.strip() or (
        chunk.endswith((b"\n", b"\r")) and all(line.strip()[:1] in (b"", b":") for line in chunk.splitlines())
    )


# ── the DEBUG logs of httpx's packages ───────────────────────────────────────
# They hold the endpoint's output and headers, and an endpoint may echo a key. Nothing is done unless a logger listens.

_PACKAGES = ("httpcore", "httpcore2")
_LOGGERS = ("connection", "http11", "http2", "proxy", "socks")
_MOST = 64  # number of secrets that are remembered; older requests log nothing any more
_DEBUG = 10  # logging's level. This module does not import logging: a program that listens has done so.
_secrets: dict[str, None] = {}


def _redact_record(record: Any) -> bool:
    """Redact a record before any handler sees it. Always return True: the record is logged."""
    message = record.getMessage()
    redacted = redact.redact(message, tuple(_secrets))
    if redacted != message:
        record.msg, record.args = redacted, ()
    return True


@cache
def _package_loggers() -> Any:
    import logging

    return [logging.getLogger(name) for name in _PACKAGES]


def _install_log_filter(secrets: Callable[[], Iterable[str]]) -> None:
    """Redact these secrets in all later log lines of httpx's packages.

    `secrets` is called only where such lines are written.
    """
    for logger in _package_loggers():
        if logger.isEnabledFor(_DEBUG):
            break
    else:
        return
    import logging

    _secrets.update(dict.fromkeys(secrets()))
    for secret in list(_secrets)[:-_MOST]:
        _secrets.pop(secret, None)
    for package in _PACKAGES:
        for name in _LOGGERS:
            logging.getLogger(f"{package}.{name}").addFilter(_redact_record)  # once: the same filter is not added again
