"""Prepare requests and calls, in the same way for both clients; each drives the steps of a call in its own way."""

from __future__ import annotations

import os
import warnings
from collections import deque
from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Generic, NoReturn, Self, TypeVar, Unpack
from weakref import WeakKeyDictionary

from msgspec.structs import replace

from cnllm.client import credentials
from cnllm.client.call_driver import CallSetup
from cnllm.client.telemetry import OnEvent, check_callback, watch_call
from cnllm.client.verb_help import with_options
from cnllm.config import redact, settings
from cnllm.engine.encode.build import build_request
from cnllm.engine.encode.plan import Plan
from cnllm.engine.options import OPTION_NAMES
from cnllm.engine.run.call import Call
from cnllm.errors import ClientClosed, KeyMissing, Untrusted
from cnllm.registry import Registry, tiers
from cnllm.registry.flags import Flags
from cnllm.registry.model import Model
from cnllm.registry.sites import choose_site
from cnllm.types import Message, Note, Quote, checks
from cnllm.types.message_memory import LONG, MessageMemory
from cnllm.types.messages import as_messages
from cnllm.types.parts import SYSTEM_ROLES
from cnllm.types.policy import Fallback, Limits, Retry, Timeouts

if TYPE_CHECKING:
    from cnllm.cassette.raw_log import RawLog
    from cnllm.client.call_record import CallLog, CallRecorder
    from cnllm.client.fallback import RouteMemory
    from cnllm.client.input_checks import InputChecker
    from cnllm.client.measurements import RouteChoice
    from cnllm.client.tool_sets import HeldSets
    from cnllm.estimates.tokens import Start
    from cnllm.types.call_options import CallOptions
    from cnllm.types.messages import Messages

__all__ = ["BaseClient", "is_httpx_transport"]

_NOWHERE = "http://simulated.invalid"
_SIMULATED = Note(
    "simulated", "simulate", "the endpoint", "the built-in simulator: nothing was sent, the answer is made up"
)
_NO_KEY = "sk-no-key-is-needed-here"
_MOST_STARTS = 8
"""A client remembers how so many calls of each model began."""


class _KeyHolder:
    """Stands for a client's key, so that a dump of the client does not show it. The key is dropped with this object."""

    __slots__ = ("__weakref__",)


_client_keys: WeakKeyDictionary[_KeyHolder, str] = WeakKeyDictionary()


AnyTransport = TypeVar("AnyTransport")


class BaseClient(Generic[AnyTransport]):
    """Prepares a request, for both clients. `_is_async` says which of the two a client is."""

    _is_async: bool
    _default_transport: Callable[[], Any]
    _connections: Any
    _transport: Any
    _warm: Any

    def __init__(
        self,
        registry: Registry | None = None,
        transport: AnyTransport | None = None,
        simulate: bool = False,
        api_key: str | None = None,
        *,
        timeout: float | Timeouts | None = None,
        retry: Retry | None = None,
        limits: Limits | None = None,
        on_event: OnEvent | None = None,
        raw_log: bool | str | os.PathLike[str] | None = None,
        fallback: list[str] | tuple[str, ...] | Fallback | Mapping[str, Any] | None = None,
        log_calls: bool | CallRecorder | None = None,
    ) -> None:
        self._fallback: Fallback | None = None
        self._route_memory: list[RouteMemory] = []  # one, from the first route on; copies of the client share it
        self._held_sets: HeldSets | None = None
        self._checker: InputChecker | None = None
        self._memory: MessageMemory | None = MessageMemory()
        self._call_starts: dict[str, deque[Start]] = {}  # by model: how the last calls began, for quotes
        if fallback is not None:
            self._fallback = Fallback.of(fallback)
        self._closed = False
        self._on_event = check_callback(on_event)
        if registry is not None:
            checks.require_type("registry", registry, Registry, "a cnllm.Registry or None")
        if not isinstance(simulate, int):
            raise checks.wrong_type("simulate", simulate, "True or False")
        if retry is not None:
            checks.require_type("retry", retry, Retry, "a cnllm.Retry or None")
        self.registry = Registry.load() if registry is None else registry
        self.simulate = bool(simulate)
        _check_key(api_key)
        self._key_holder: _KeyHolder | None = None
        if api_key is not None:
            self._key_holder = _KeyHolder()
            _client_keys[self._key_holder] = api_key
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
        self._recorder: CallRecorder | None = None
        self._call_log: CallLog | None = None  # of this client alone
        self._record_calls(log_calls)
        if transport is not None and is_httpx_transport(transport, is_async=self._is_async):
            from cnllm import transports  # its adapters of httpx take longer to load than a usual client to begin

            adapter: Callable[[Any], Any] = transports.AsyncHttpx if self._is_async else transports.Httpx
            self._connections = adapter(transport)
        else:
            self._connections = transport
        self._open_transport()

    def _record_calls(self, log_calls: bool | CallRecorder | None) -> None:
        """Set what writes the calls down, where they are to be written."""
        if log_calls is None:
            log_calls = bool(settings.read_setting("log_calls"))
        if log_calls is False:
            return
        from cnllm.client.call_record import CallLog, CallRecorder

        if log_calls is True:
            self._call_log = CallLog()
            log_calls = CallRecorder(self._call_log, "simulated" if self.simulate else "endpoint")
        checks.require_type("log_calls", log_calls, CallRecorder, "True, False or None")
        self._recorder = log_calls

    def with_memory(self, memory: MessageMemory | None) -> Self:
        """Return a client with the same settings and connections that remembers long conversations in this memory.

        A client remembers them in a memory of its own; without one it remembers nothing of its calls. Closing one of
        the two closes the connections of both. The other one stays open and makes new ones.
        """
        return self._copy(_memory=memory, _call_starts={})

    def _copy(self, **changes: Any) -> Self:
        """Return a client with the same settings and connections, and with other attributes."""
        client = object.__new__(type(self))
        self._input_checker()  # now, so that both share it
        client.__dict__.update(self.__dict__, **changes)
        return client

    def _open_transport(self) -> None:
        """Set the transport: connections, or the simulator of the registry; with a raw log, what records it."""
        transport: Any = self._connections
        if transport is None and self.simulate:
            from cnllm.simulator import transport as simulators

            transport = (simulators.AsyncSimTransport if self._is_async else simulators.SimTransport)(self.registry)
        elif transport is None:
            transport = self._connections = self._default_transport()
        self._warm = getattr(transport, "warm", None)
        if self._raw_log is not None:
            from cnllm import cassette

            recorder: Any = cassette.AsyncRecorder if self._is_async else cassette.Recorder
            transport = recorder(transport, self._raw_log.write, self._secrets)
        self._transport = transport

    def _begin_close(self) -> HeldSets | None:
        """Refuse later calls, end the checks of inputs, and return the open sets of tools, which are to be released."""
        self._closed = True
        if self._checker is not None:
            self._checker.close()
        sets, self._held_sets = self._held_sets, None
        return sets

    def _require_open(self) -> None:
        """Raise `ClientClosed` after `close`."""
        if self._closed:
            raise ClientClosed(
                "this client is closed",
                hint=f"make its calls inside its `with` block, or make a new {type(self).__name__}",
            )

    def _secrets(self) -> tuple[str, ...]:
        """Return the secrets that no log may hold, whatever request carries them."""
        key = self._client_key()
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
        return self._plan(model, messages, dict(options), stream=stream)

    @with_options
    def quote(self, model: str | Model, messages: Messages, **options: Unpack[CallOptions]) -> Quote:
        """Return the tokens and the bounds of the cost of a call. Nothing is sent, and no key is needed.

        `high` is what the budget of a gateway's key reserves for the call; `low` has one token of output, and takes
        from the cache what the model had before it wrote its last turn in `messages` (`Message.by`), or the tools and
        the system message of an earlier call of this client. With `fallback` each model may be charged, one after the
        other. A simulated client quotes the model's price.
        """
        from cnllm.estimates.worst_case import quote, quote_route

        rules, turns = self._fallback_rules(options), as_messages(messages)
        targets = [model] if rules is None else [model, *rules.targets]
        plans = [self._plan(target, turns, dict(options), stream=False, is_free=False) for target in targets]
        return quote_route([quote(plan, tuple(self._call_starts.get(plan.model.name, ()))) for plan in plans])

    def _plan(
        self,
        model: str | Model,
        messages: Any,
        options: dict[str, Any],
        *,
        stream: bool | None,
        is_free: bool = True,
    ) -> Plan:
        """Return a request. A simulated one that `is_free` has no price."""
        options.pop("fallback", None)
        options.pop("tag", None)
        notes: list[Note] = []
        if type(model) is not Model and not isinstance(model, str):
            checks.require_type("model", model, Model, "a name or a cnllm.Model")
        if isinstance(model, str) and model.startswith(tiers.PREFIX):
            messages = as_messages(messages)  # an iterator is read once
            resolved, note = tiers.choose_model(model, messages, options, self.registry, offline=self.simulate)
            notes.append(note)
        else:
            if isinstance(model, str):
                api_key = options.get("api_key") or self._client_key()
                model = choose_site(self.registry, model, api_key=api_key)
                if model.notes:
                    _warn_of_age(model)
            resolved = model
        if self.simulate and not resolved.flags.base_url:  # nothing is sent, so that no address is needed
            resolved = self.registry.resolve(resolved.name, protocol=resolved.protocol, base_url=_NOWHERE)
        if not OPTION_NAMES.issuperset(options):
            options = self._registry_params(options)
        memory = self._memory if type(messages) is list and len(messages) >= LONG else None
        plan = build_request(resolved, messages, stream=stream, memory=memory, **options)
        plan = replace(
            plan,
            timeouts=self._timeouts if options.get("timeout") is None else plan.timeouts,
            limits=self._limits if options.get("limits") is None else plan.limits,
        )
        if self.simulate:
            notes = [*notes, *plan.notes, _SIMULATED]
            return replace(plan, notes=notes, flags=_without_price(plan.flags) if is_free else plan.flags)
        return replace(plan, notes=[*notes, *plan.notes]) if notes else plan

    def _input_checker(self) -> InputChecker:
        """Return what checks the inputs of custom tools."""
        if self._checker is None:
            from cnllm.client.input_checks import InputChecker

            self._checker = InputChecker()
        return self._checker

    def _registry_params(self, options: dict[str, Any]) -> dict[str, Any]:
        """Return the options with those in `params` that are parameters of any model in the registry."""
        known = self.registry.parameters() - OPTION_NAMES
        moved = {name: value for name, value in options.items() if name in known and value is not None}
        if not moved:
            return options
        rest = {name: value for name, value in options.items() if name not in known}
        return {**rest, "params": {**(rest.get("params") or {}), **moved}}

    def _client_key(self) -> str | None:
        """Return the key that was passed to this client."""
        return None if self._key_holder is None else _client_keys[self._key_holder]

    def _open_call(
        self,
        model: str | Model,
        messages: Any,
        stream: bool,
        options: Mapping[str, Any],
        conversation: str | None = None,
    ) -> CallSetup:
        """Return the setup of a call that has not begun, on several models where there is a fallback.

        `conversation` is that of the call in the log. It may block where the tools hold sets, whose servers start.
        """
        if self._closed:
            self._require_open()
        if isinstance(tools := options.get("tools"), list | tuple) and {*map(type, tools)} - {dict}:
            from cnllm.tools.values import has_sets  # tools in the usual form do not load it

            if has_sets(tools):
                from cnllm.client.tool_sets import HeldSets

                self._held_sets = self._held_sets or HeldSets()
                options = self._held_sets.open_options(options)
        tag = None if (tag := options.get("tag")) is None else checks.as_tag("tag", tag)
        keys: dict[int, str | None] | None = None
        if (self._fallback is not None or "fallback" in options) and (rules := self._fallback_rules(options)):
            key = None
            call, keys = self._start_route(rules, model, messages, options, stream=stream)
        else:
            call, key = self._start_one(model, messages, stream, options, self._client_key())
        steps = call.stream() if stream else call.complete()
        recorder = self._recorder
        if recorder is not None and (tag is not None or conversation is not None):
            place = recorder.conversation or conversation
            recorder = replace(recorder, tag=recorder.tag if tag is None else tag, conversation=place)
        watch = watch_call(self._on_event, None if recorder is None else recorder.record)
        return CallSetup(call, self._transport, steps, key, keys, watch, self._input_checker, self._require_open)

    def _fallback_rules(self, options: Mapping[str, Any]) -> Fallback | None:
        """Return the fallback of a call, or None where it names no other model."""
        value = options.get("fallback")
        rules = self._fallback if value is None else Fallback.of(value)
        return rules if rules is not None and rules.targets else None

    def _start_route(
        self, rules: Fallback, model: str | Model, messages: Any, options: Mapping[str, Any], *, stream: bool
    ) -> tuple[Call, dict[int, str | None]]:
        """Return a call on several models, and the keys of its targets."""
        from cnllm.client.fallback import FallbackRoute, RouteMemory, start_routed_call

        if type(model) is not Model and not isinstance(model, str):
            checks.require_type("model", model, Model, "a name or a cnllm.Model")
        if not self._route_memory:
            self._route_memory.append(RouteMemory())
        memory = self._route_memory[0]
        route = FallbackRoute(rules, self.registry, self._start_one, memory, self._client_key(), self.simulate)
        own = {name: value for name, value in options.items() if name != "fallback"}
        return start_routed_call(route, model, messages, own, stream=stream)

    def _route_choices(self) -> list[RouteChoice]:
        """Return the last choice of each route that is ordered by measurements, the newest first."""
        return [choice for memory in self._route_memory for choice in memory.choices()]

    def _start_one(
        self, model: str | Model, messages: Any, stream: bool, options: Mapping[str, Any], client_key: str | None
    ) -> tuple[Call, str | None]:
        if "stream" in options:
            raise TypeError("stream is not an option here; `stream` and `run_stream` stream, `call` and `run` do not")
        plan = self._plan(model, messages, dict(options), stream=stream)
        if self._memory is not None and plan.messages and plan.messages[0].role in SYSTEM_ROLES:
            if (starts := self._call_starts.get(plan.model.name)) is None:
                starts = self._call_starts.setdefault(plan.model.name, deque(maxlen=_MOST_STARTS))
            if not starts or starts[-1][0] is not plan.messages[0]:
                starts.append((plan.messages[0], plan.tools))
        if (api_key := options.get("api_key")) is not None:
            _check_key(api_key)
        api_key = api_key or client_key
        if self.simulate:
            key: str | None = api_key or _NO_KEY
        elif api_key is None and not getattr(self._transport, "needs_key", True):
            try:
                key = credentials.key_for(plan, self.registry)
            except (KeyMissing, Untrusted):  # nothing is sent
                key = _NO_KEY
        else:
            key = credentials.key_for(plan, self.registry) if api_key is None else api_key
        own = {"stream": False, **options, "system": None}  # the system message is one of the plan's messages

        def replan(*more: Message, **over: Any) -> Plan:  # from what was read once: the caller's list may change
            return self.plan(plan.model, [*plan.messages, *more], **{**own, **over})

        return Call(plan, retry=self._retry, timeouts=plan.timeouts, replan=replan), key


@lru_cache(maxsize=256)
def _without_price(flags: Flags) -> Flags:
    """Return flags without a price, the same ones for each call: what the engine derives from flags is kept by them."""
    return replace(flags, price=None)


def _check_key(api_key: Any) -> None:
    """Raise `TypeError` for a key that is no string, without showing it."""
    if api_key is not None and not isinstance(api_key, str):
        raise checks.wrong_type("api_key", api_key, "a string or None")


def is_httpx_transport(transport: Any, *, is_async: bool) -> bool:
    """Whether a transport is one of httpx's. False for one that has `send`. Raise `TypeError` for anything else."""
    handle = "handle_async_request" if is_async else "handle_request"
    try:
        is_httpx, has_send = hasattr(transport, handle), callable(getattr(transport, "send", None))
    except Exception as error:
        raise checks.unreadable("transport", error) from error
    if isinstance(transport, type) or not (is_httpx or has_send):
        raise checks.wrong_type(
            "transport", transport, f"an object with `send` (cnllm.transports) or `{handle}` (httpx)"
        )
    return is_httpx


def _warn_of_age(model: Model) -> None:
    """Show a warning of old data. Python shows a warning with the same words once a process."""
    from cnllm.registry.age import age_warning

    if (message := age_warning(model)) is not None:
        warnings.warn(message, UserWarning, stacklevel=2)
