"""Ask for calls of tools: whether they come, and which choices of a tool are obeyed."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from msgspec.structs import replace

from cnllm.jsonpath import get, set_value
from cnllm.probe.exchange import Ask
from cnllm.probe.question import TIME, WEATHER, Finding, ProbeContext, Steps, offers_tools, question
from cnllm.types import Message

__all__ = ["choice", "choice_reasoning", "tools"]

_TEXT = "What is the weather in Bern? Use the tool."
_SMALL_TALK = "Say hello in one short sentence. No tool is needed."
_ORDER = ("auto", "none", "required", "named")


@question("tools", "tools.supported", requests=1, by_model=True, capable=True)
def tools(context: ProbeContext) -> Steps:
    """Offer a tool without any choice: a forced one makes models that reason look as if they had no tools.

    Proof: a call of an offered tool comes on the wire, without a forced choice; a refusal of the tools.
    """
    answer = yield context.ask(
        [Message("user", _TEXT)], why="tools without a choice", tools=(WEATHER, TIME), control=context.run == 1
    )
    if answer.refused:
        return [Finding("tools.supported", False, "refused", answer.message)]
    if answer.calls and set(answer.calls) <= {WEATHER.name, TIME.name}:
        return [Finding("tools.supported", True, "works")]
    return []


def _choices(context: ProbeContext, flag: str, patch: Mapping[str, Any] | None) -> Steps:
    """Ask with each choice of a tool."""
    allowed: list[str] = []
    quote = ""

    def request(choice: str | None, text: str = _TEXT, why: str = "") -> Ask:
        return context.ask(
            [Message("user", text)],
            why=why or f"tool_choice {choice}",
            tools=(WEATHER, TIME),
            choice=choice,
            tool_name=TIME.name if choice == "named" else None,
            control=choice is None,
            patch=patch,
        )

    control = yield request(None, why="tools without a choice")
    if not control.calls:
        return []
    auto = yield replace(request("auto"), control=context.run > 1)
    if auto.refused:
        quote = auto.message
    elif auto.calls:
        allowed.append("auto")
    none = yield request("none")
    if none.refused:
        quote = quote or none.message
    elif not none.calls:
        allowed.append("none")
    named = yield request("named")
    if named.refused:
        quote = quote or named.message
    elif named.calls == [TIME.name] and control.calls != [TIME.name]:
        allowed.append("named")
    required = yield request("required")
    if required.refused:
        quote = quote or required.message
    elif required.calls:
        idle = yield request(None, _SMALL_TALK, "small talk, with tools")
        forced = "none" in allowed or "named" in allowed  # it calls anyway, and obeys what can be seen
        if not idle.calls:
            talk = yield request("required", _SMALL_TALK, "tool_choice required, small talk")
            forced = bool(talk.calls)
        elif not forced and not quote:
            nonsense = yield _nonsense(request("required", why="a tool_choice that does not exist"))
            if not nonsense.refused:
                return []  # nothing tells it from auto
            forced = True
        if forced:
            allowed.append("required")
    value = [choice for choice in _ORDER if choice in allowed]
    return [Finding(flag, value, "works", quote)]


def _nonsense(ask: Ask) -> Ask:
    """Return the request with a choice that no endpoint has."""
    body = dict(ask.body or {})
    for path in ("toolConfig.functionCallingConfig.mode", "tool_choice.type", "tool_choice"):
        if get(body, path) is not None:
            set_value(body, path, "sometimes")
            break
    return replace(ask, body=body)


@question("tool_choice", "tool_choice.allowed", requests=6, by_model=True, capable=True, applies=offers_tools)
def choice(context: ProbeContext) -> Steps:
    """Ask with each choice of a tool.

    Proof: auto calls, none does not, a named tool is the one called, required calls where auto does not.
    """
    return _choices(context, "tool_choice.allowed", context.plain)


@question(
    "tool_choice while it reasons",
    "when.reasoning.tool_choice.allowed",
    requests=6,
    by_model=True,
    capable=True,
    applies=lambda c: offers_tools(c) and c.known.get("reasoning.mode") == "toggle" and c.on is not None,
)
def choice_reasoning(context: ProbeContext) -> Steps:
    """Ask with each choice of a tool while the model reasons.

    Proof: the same, with reasoning on.
    """
    return _choices(context, "when.reasoning.tool_choice.allowed", context.on)
