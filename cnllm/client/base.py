"""The part that both clients share: plans, keys, secrets and telemetry around the steps of a call.

Each client drives the steps in its own way.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NoReturn, Unpack

from msgspec.structs import replace

from cnllm.client import credentials, log_redaction
from cnllm.client.echo import Echo
from cnllm.client.key_holder import hold_key, key_of
from cnllm.client.telemetry import OnEvent, Recovered, Watch, check_callback
from cnllm.client.verb_help import with_options
from cnllm.config import redact, settings
from cnllm.engine.encode.build import build_request
from cnllm.engine.encode.plan import Plan
from cnllm.engine.options import OPTION_NAMES
from cnllm.engine.run.call import Call
from cnllm.engine.run.call_effects import CheckInputs, InputVerdict, Observed, Sleep, UseTarget
from cnllm.errors import ClientClosed, CnllmError, IdleTimeout, StreamCut, TransportError
from cnllm.registry import Registry, tiers
from cnllm.registry.model import Model
from cnllm.types import TOKEN_EVENTS, Event, Message, Note, Reply, Timing, checks
from cnllm.types.convert import as_messages
from cnllm.types.policy import Limits, Retry, Timeouts

if TYPE_CHECKING:
    from cnllm.cassette.raw_log import RawLog
    from cnllm.client.cooldowns import Cooldowns
    from cnllm.client.input_checks import InputChecker
    from cnllm.client.tool_sets import HeldSets
    from cnllm.types.call_options import CallOptions
    from cnllm.types.message_types import Messages
    from cnllm.types.route import Fallback

__all__ = ["BaseClient", "CallDriver", "check_delivery", "is_httpx_transport", "progress_check"]

_NOWHERE = "http://simulated.invalid"
_SIMULATED = Note(
    "simulated", "simulate", "the endpoint", "the built-in simulator: nothing was sent, the answer is made up"
)
_CHATTER = b" \t\r\n:"  # bytes with which white space and comments begin
_NO_KEY = "sk-no-key-is-needed-here"


class BaseClient:
    """Prepares a request, for both clients."""

    def __init__(
        self,
        registry: Registry | None,
        simulate: bool,
        api_key: str | None,
        timeout: float | Timeouts | None,
        retry: Retry | None,
        limits: Limits | None,
        on_event: OnEvent | None,
        raw_log: bool | str | os.PathLike[str] | None = None,
        fallback: Any = None,
    ) -> None:
        self._fallback: Fallback | None = None
        self._cooldowns: Cooldowns | None = None
        self._held_sets: HeldSets | None = None
        self._checker: InputChecker | None = None
        if fallback is not None:
            from cnllm.types.route import Fallback

            self._fallback = Fallback.of(fallback)
        self._closed = False
        self._on_event = check_callback(on_event)
        if registry is not None:
            checks.require_type("registry", registry, Registry, "a cnllm.Registry or None")
        if not isinstance(simulate, bool | int):
            raise checks.wrong_type("simulate", simulate, "True or False")
        if retry is not None:
            checks.require_type("retry", retry, Retry, "a cnllm.Retry or None")
        self.registry = Registry.load() if registry is None else registry
        self.simulate = bool(simulate)
        self._key = hold_key(_check_key(api_key))
        timeouts, default_retry, default_limits = settings.call_settings()
        self._timeouts = timeouts if timeout is None else Timeouts.of(timeout)
        self._retry = default_retry if retry is None else retry
        self._limits = default_limits if limits is None else Limits.of(limits)
        self._raw_log: RawLog | None = None
        if raw_log is None:
            raw_log = settings.read_setting("raw_log") or False
        if raw_log is not False:
            from cnllm.cassette.raw_log import RawLog, raw_log_folder

            folder = raw_log_folder(raw_log)
            self._raw_log = None if folder is None else RawLog(folder)

    def _require_open(self) -> None:
        """Raise `ClientClosed` after `close`."""
        if self._closed:
            raise ClientClosed(
                "this client is closed",
                hint=f"make its calls inside its `with` block, or make a new {type(self).__name__}",
            )

    def _secrets(self) -> tuple[str, ...]:
        """Return the secrets that no log may hold, whatever request carries them."""
        key = key_of(self._key)
        return (*(() if key is None else (key,)), *redact.proxy_secrets())

    def __repr__(self) -> str:
        return (
            f"<{type(self).__name__} {'simulated, ' if self.simulate else ''}{len(self.registry.providers)} providers>"
        )

    def __reduce__(self) -> NoReturn:
        raise TypeError("a client holds a key and connections, which cannot be copied; make a new one instead")

    @with_options
    def plan(
        self, model: str | Model, messages: Messages, *, stream: bool | None = None, **options: Unpack[CallOptions]
    ) -> Plan:
        """Return the request that would be sent, with a note for every change. No key is needed."""
        return self._plan(model, messages, stream, dict(options))

    def _plan(self, model: str | Model, messages: Any, stream: bool | None, options: dict[str, Any]) -> Plan:
        options.pop("fallback", None)
        notes: list[Note] = []
        if type(model) is not Model and not isinstance(model, str):
            checks.require_type("model", model, Model, "a name or a cnllm.Model")
        if isinstance(model, str) and model.startswith(tiers.PREFIX):
            resolved, note = tiers.choose_model(model, messages, options, self.registry, offline=self.simulate)
            notes.append(note)
        else:
            resolved = self.registry.resolve(model) if isinstance(model, str) else model
        if self.simulate and not resolved.flags.base_url:  # nothing is sent, so that no address is needed
            resolved = self.registry.resolve(resolved.name, protocol=resolved.protocol, base_url=_NOWHERE)
        if not OPTION_NAMES.issuperset(options):
            options = self._registry_params(options)
        plan = build_request(resolved, messages, stream=stream, **options)
        timeout = options.get("timeout")
        plan = replace(
            plan,
            timeouts=self._timeouts if timeout is None else Timeouts.of(timeout),
            limits=self._limits if options.get("limits") is None else plan.limits,
        )
        if self.simulate:  # a simulated call costs nothing
            return replace(plan, notes=[*notes, *plan.notes, _SIMULATED], flags=replace(plan.flags, price=None))
        return replace(plan, notes=[*notes, *plan.notes]) if notes else plan

    def _open_sets(self, options: Mapping[str, Any]) -> dict[str, Any]:
        """Return the options with the tools of each set in its place. The sets stay open until the client is closed."""
        from cnllm.client.tool_sets import HeldSets

        if self._held_sets is None:
            self._held_sets = HeldSets()
        return self._held_sets.open_options(options)

    def _input_checker(self) -> InputChecker:
        """Return what checks the inputs of custom tools."""
        if self._checker is None:
            from cnllm.client.input_checks import InputChecker

            self._checker = InputChecker()
        return self._checker

    def _take_held_sets(self) -> HeldSets | None:
        """Return the open sets, which are no longer the client's."""
        held, self._held_sets = self._held_sets, None
        return held

    def _registry_params(self, options: dict[str, Any]) -> dict[str, Any]:
        """Return the options with those in `params` that are parameters of any model in the registry."""
        known = self.registry.parameters() - OPTION_NAMES
        moved = {name: value for name, value in options.items() if name in known and value is not None}
        if not moved:
            return options
        rest = {name: value for name, value in options.items() if name not in known}
        return {**rest, "params": {**(rest.get("params") or {}), **moved}}

    def _start_call(
        self, model: str | Model, messages: Any, stream: bool, options: Mapping[str, Any]
    ) -> tuple[Call, str | None]:
        return self._start_one(model, messages, stream, options, key_of(self._key))

    def _start_route(
        self, model: str | Model, messages: Any, stream: bool, options: Mapping[str, Any]
    ) -> tuple[Call, str | None, dict[int, str | None] | None]:
        """Return a call on several models, with their keys; on one model where there is no other."""
        from cnllm.client.cooldowns import Cooldowns
        from cnllm.client.fallback import start_routed_call
        from cnllm.types.route import Fallback

        options = dict(options)
        given = options.pop("fallback", None)
        rules = self._fallback if given is None else Fallback.of(given)
        if rules is None or not rules.targets:
            return *self._start_call(model, messages, stream, options), None
        if type(model) is not Model and not isinstance(model, str):
            checks.require_type("model", model, Model, "a name or a cnllm.Model")
        if self._cooldowns is None:
            self._cooldowns = Cooldowns()
        call, keys = start_routed_call(
            self, self._start_one, model, messages, stream, options, rules, self._cooldowns, key_of(self._key)
        )
        return call, None, keys

    def _start_one(
        self, model: str | Model, messages: Any, stream: bool, options: Mapping[str, Any], client_key: str | None
    ) -> tuple[Call, str | None]:
        if type(messages) is not list and not isinstance(messages, str | Message | Mapping | Sequence):
            messages = as_messages(messages)  # an iterator is read once, and a correction needs them again
        if "stream" in options:
            raise TypeError("stream is no option here; `stream` and `run_stream` stream, `call` and `run` do not")
        plan = self._plan(model, messages, stream, dict(options))
        api_key = _check_key(options.get("api_key")) or client_key
        key = api_key or _NO_KEY if self.simulate else credentials.key_for(plan, api_key, self.registry)
        call = Call(
            plan,
            retry=self._retry,
            timeouts=plan.timeouts,
            replan=lambda *more, **over: self.plan(
                plan.model,
                [*as_messages(messages), *more] if more else messages,
                **{"stream": False, **options, **over},
            ),
        )
        return call, key


def _check_key(api_key: Any) -> str | None:
    """Return the key that a caller passed. Raise `TypeError` without showing it."""
    if api_key is not None and not isinstance(api_key, str):
        raise checks.wrong_type("api_key", api_key, "a string or None")
    return api_key


def progress_check(seconds: float | None) -> Callable[[bytes], None]:
    """Return a function that takes the pieces of a whole body.

    It raises `IdleTimeout` where only white space and comments came for so many seconds: no bytes of a reply.
    """
    last = time.monotonic()

    def check(chunk: bytes) -> None:
        nonlocal last
        now = time.monotonic()
        if not _is_chatter(chunk):
            last = now
        elif seconds is not None and now - last > seconds:
            raise IdleTimeout(
                f"no part of the reply for {seconds:g} s, although the connection is open",
                hint="raise the timeout, or ask for a shorter answer",
            )

    return check


def _is_chatter(chunk: bytes) -> bool:
    """Whether a piece of a body holds nothing but white space and comments of server-sent events."""
    if chunk[:1] not in _CHATTER:
        return False
    return not chunk.strip() or (
        chunk.endswith((b"\n", b"\r")) and all(line.strip()[:1] in (b"", b":") for line in chunk.splitlines())
    )


class CallDriver:
    """Holds the state of a call that both drivers share."""

    def __init__(
        self,
        transport: Any,
        steps: Any,
        key: str | None,
        watch: Watch | None,
        checker: Callable[[], InputChecker],
    ) -> None:
        self._watch = watch
        self._closed = False
        self._checker = checker
        self._transport = transport
        self._steps = steps
        self.key = key
        self._secrets: tuple[str, ...] = () if key is None else (key,)
        self._needles: tuple[bytes, ...] = ()
        self._echo = Echo(self._secrets)
        self._body: Any = None
        self.finished: Reply | None = None
        self.keys: dict[int, str | None] | None = None  # those of a route's targets
        self._earlier: tuple[str, ...] = ()  # secrets of the targets before
        self._start = time.monotonic()
        self._first: float | None = None  # when the first token arrived

    def _use_target(self, step: UseTarget) -> list[Event]:
        """Send the next requests with the key of another target. Return the events that were held back."""
        assert self.keys is not None
        held = list(self._echo.flush())
        self.key = self.keys[step.number]
        self._earlier = self._secrets
        request = credentials.insert_key(step.plan, self.key)
        self._secrets = self._all_secrets(credentials.plan_secrets(request, self.key))
        self._echo = Echo(self._secrets)
        return held

    def _all_secrets(self, secrets: tuple[str, ...]) -> tuple[str, ...]:
        return tuple(dict.fromkeys((*secrets, *self._earlier)))

    def _insert_key(self, plan: Plan) -> Plan:
        """Return the plan with its key, ready to be sent, and learn which secrets to hide."""
        request = credentials.insert_key(plan, self.key)
        secrets = credentials.plan_secrets(request, self.key)
        if self._earlier:
            secrets = self._all_secrets(secrets)
        if secrets != self._secrets:  # they are the same at every attempt
            self._secrets, self._echo = secrets, Echo(secrets)
        self._needles = credentials.secret_bytes(secrets)
        self._echo.begin_request()
        log_redaction.install_log_filter(lambda: (*self._secrets, *redact.proxy_secrets()))
        if self._watch is not None:
            self._watch.request_sent(plan)
        return request

    def _check_inputs(self, step: CheckInputs) -> list[InputVerdict]:
        """Return the verdicts of checks. It may block for seconds."""
        return self._checker().check(step.checks)

    def _report_start(self, status: int) -> None:
        if self._watch is not None:
            self._watch.response_started(status)

    def _join_body(self, pieces: list[bytes], broken: TransportError | None) -> tuple[bytes, TransportError | None]:
        """Return the result of a `ReadBody`: the body without secrets, and the error that ended it."""
        body = pieces[0] if len(pieces) == 1 else b"".join(pieces)
        if broken is None and self._echo.is_clean_body(body):
            return body, None
        return (credentials.redact_bytes if broken is None else credentials.redact_cut_bytes)(
            self._needles, body
        ), broken

    def _observe_first(self, events: Sequence[Event]) -> None:
        """Record when the first token arrived."""
        if any(type(event) in TOKEN_EVENTS for event in events):
            self._first = time.monotonic()

    def _add_timing(self, reply: Reply) -> Reply:
        """Return a reply with its timing."""
        first = None if self._first is None else round(self._first - self._start, 6)
        return replace(reply, timing=Timing(first=first, total=round(time.monotonic() - self._start, 6)))

    def _finish(self, reply: Reply) -> None:
        """Set the reply of the call."""
        self.finished = self._echo.reply(self._add_timing(reply))

    def _report_retry(self, step: Sleep) -> None:
        if self._watch is not None and step.error is not None:
            self._watch.retry_scheduled(credentials.redact_error(step.error, self._secrets), step.seconds)

    def _report_observed(self, step: Observed) -> None:
        if self._watch is None:
            return
        if step.kind == "cut":
            self._watch.reply_cut(redact.redact(step.reason, self._secrets))
        else:
            self._watch.emit(Recovered)

    def _report_error(self, error: CnllmError) -> CnllmError:
        """Return the error without secrets, and report it."""
        if error.reply is not None:
            error.reply = self._add_timing(error.reply)
        error = credentials.redact_error(error, self._secrets, self._echo)
        if self._watch is not None:
            self._watch.call_failed(error)
        return error

    def redact_reply(self, reply: Reply | None) -> Reply | None:
        """Return the partial reply of an abandoned call without secrets."""
        return None if reply is None else self._echo.reply(self._add_timing(reply))

    def abandon(self, call: Call) -> NoReturn:
        """Raise `StreamCut` for a call that its caller left before the end."""
        raise StreamCut(
            "the call was closed before its end",
            hint="read its events to the end",
            reply=self.redact_reply(call.partial_reply()),
        )

    def _report_end(self) -> None:
        if self._watch is not None:
            self._watch.call_ended(self.finished)


def is_httpx_transport(transport: Any, handle: str) -> bool:
    """Whether a transport is one of httpx's. False for one that has `send`. Raise `TypeError` for anything else."""
    try:
        is_httpx, has_send = hasattr(transport, handle), callable(getattr(transport, "send", None))
    except Exception as error:
        raise checks.unreadable("transport", error) from error
    if isinstance(transport, type) or not (is_httpx or has_send):
        raise checks.wrong_type(
            "transport", transport, f"an object with `send` (cnllm.transports) or `{handle}` (httpx)"
        )
    return is_httpx


def check_delivery(by: str | None) -> None:
    """Raise `ValueError` for an unknown value of `by`."""
    if by is not None:
        from cnllm.sentences import check_by

        check_by(by)
