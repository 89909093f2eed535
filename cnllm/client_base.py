"""What both clients do around the steps of a call, which each of them drives in its own way."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NoReturn

from msgspec.structs import replace

from cnllm import redact, secrets, tiers
from cnllm.engine.plan import Plan, build_request
from cnllm.engine.steps import Call, Saw, Sleep
from cnllm.errors import StreamCut
from cnllm.messages import as_messages
from cnllm.model import Model
from cnllm.policy import Limits, Retry, Timeouts
from cnllm.registry import Registry
from cnllm.settings import from_environment
from cnllm.types import Message, Note, Reply
from cnllm.watch import OnEvent, Recovered, Watch, checked

__all__ = ["Base", "check", "left", "retries", "saw"]

_SIMULATED = Note(
    "simulated", "simulate", "the endpoint", "the built-in simulator: nothing was sent, the answer is made up"
)
_NO_KEY = "sk-no-key-is-needed-here"


class Base:
    """What both clients do before anything is sent."""

    def __init__(
        self,
        registry: Registry | None,
        simulate: bool,
        api_key: str | None,
        timeout: float | Timeouts | None,
        retry: Retry | None,
        limits: Limits | None,
        on_event: OnEvent | None,
    ) -> None:
        self._on_event = checked(on_event)
        self.registry = registry or Registry.load()
        self.simulate = simulate
        self._key = api_key
        settings = from_environment()
        self._timeouts = settings.timeouts if timeout is None else Timeouts.of(timeout)
        self._retry = retry or settings.retry
        self._limits = settings.limits if limits is None else Limits.of(limits)

    def __repr__(self) -> str:
        return (
            f"<{type(self).__name__} {'simulated, ' if self.simulate else ''}{len(self.registry.providers)} providers>"
        )

    def __reduce__(self) -> NoReturn:
        raise TypeError("a client holds a key and connections, which do not travel; make one where it is needed")

    def plan(self, model: str | Model, messages: Any, *, stream: bool | None = None, **options: Any) -> Plan:
        """The request that would be sent, with every change to what was asked. No key is needed."""
        notes: list[Note] = []
        if isinstance(model, str) and model.startswith(tiers.PREFIX):
            found, note = tiers.chosen(model, messages, options, self.registry, offline=self.simulate)
            notes.append(note)
        else:
            found = self.registry.resolve(model) if isinstance(model, str) else model
        plan = build_request(found, messages, stream=stream, **options)
        timeout = options.get("timeout")
        plan = replace(
            plan,
            timeouts=self._timeouts if timeout is None else Timeouts.of(timeout),
            limits=self._limits if options.get("limits") is None else plan.limits,
        )
        if self.simulate:  # nobody is paid for it
            return replace(plan, notes=[*notes, *plan.notes, _SIMULATED], flags=replace(plan.flags, price=None))
        return replace(plan, notes=[*notes, *plan.notes]) if notes else plan

    def _begin(
        self, model: str | Model, messages: Any, stream: bool, options: dict[str, Any]
    ) -> tuple[Call, str | None]:
        if not isinstance(messages, str | Message | Mapping | Sequence):
            messages = list(messages)  # they may be needed once more
        plan = self.plan(model, messages, stream=stream, **options)
        given = options.get("api_key") or self._key
        key = given or _NO_KEY if self.simulate else secrets.key_for(plan, given, self.registry)
        call = Call(
            plan,
            retry=self._retry,
            timeouts=plan.timeouts,
            again=lambda *more: self.plan(
                plan.model, [*as_messages(messages), *more] if more else messages, stream=False, **options
            ),
        )
        return call, key


def retries(watch: Watch | None, step: Sleep, hidden: tuple[str, ...]) -> None:
    if watch is not None and step.why is not None:
        watch.retrying(secrets.cleaned(step.why, hidden), step.seconds)


def saw(watch: Watch, step: Saw, hidden: tuple[str, ...]) -> None:
    if step.what == "cut":
        watch.cut(redact.redact(step.why, hidden))
    else:
        watch.tell(Recovered)


def check(by: str | None) -> None:
    if by is not None:
        from cnllm.sentences import check_by

        check_by(by)


def left(call: Call) -> Reply:
    raise StreamCut("the call was left before its end", hint="read its events to the end", reply=call.so_far())
