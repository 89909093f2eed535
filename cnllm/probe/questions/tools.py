"""Ask for calls of tools: whether they come, and which choices of a tool are obeyed."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from msgspec.structs import replace

from cnllm.jsonpath import get, set_value
from cnllm.probe.exchange import Ask
from cnllm.probe.facts import Finding
from cnllm.probe.question import (
    ASK_WEATHER,
    SAME,
    TIME,
    WEATHER,
    ProbeContext,
    Steps,
    need,
    offers_tools,
    question,
    reasons_by_choice,
)
from cnllm.types import Message

__all__ = ["choice", "choice_reasoning", "tools"]

_SMALL_TALK = "Say hello in one short sentence. No tool is needed."
_ORDER = ("auto", "none", "required", "named")


@question("tools", "tools.supported", requests=1, by_model=True, capable=True, opens=True)
def tools(context: ProbeContext) -> Steps:
    """Offer a tool without any choice: a forced one makes models that reason look as if they had no tools.

    Proof: a call of an offered tool comes on the wire, without a forced choice; a refusal of the tools.
    """
    answer = yield context.ask(
        [ASK_WEATHER], why="tools without a choice", tools=(WEATHER, TIME), control=context.run == 1
    )
    if answer.refused:
        return [Finding("tools.supported", False, "refused", answer.message)]
    need(answer.calls and set(answer.calls) <= {WEATHER.name, TIME.name})
    return [Finding("tools.supported", True, "works")]


def _request(
    context: ProbeContext, choice: str | None, patch: Mapping[str, Any], text: str = ASK_WEATHER.text, why: str = ""
) -> Ask:
    return context.ask(
        [Message("user", text)],
        why=why or f"tool_choice {choice}",
        tools=(WEATHER, TIME),
        choice=choice,
        tool_name=TIME.name if choice == "named" else None,
        control=choice in (None, "auto", "required"),  # that it is taken is proven by one answer
        patch=patch,
    )


def _nonsense(ask: Ask) -> Ask:
    """Return the request with a choice that no endpoint has."""
    body = dict(ask.body)
    for path in ("toolConfig.functionCallingConfig.mode", "tool_choice.type", "tool_choice"):
        if get(body, path) is not None:
            set_value(body, path, "sometimes")
            break
    return replace(ask, body=body)


@question("tool_choice", "tool_choice.allowed", requests=6, by_model=True, capable=True, applies=offers_tools)
def choice(context: ProbeContext) -> Steps:
    """Ask with each choice of a tool.

    Proof: auto calls, none does not, a named tool is the one called, required calls where auto does not; where the
    model calls anyway, required passes and another choice, or one that does not exist, is refused.
    """
    plain = context.plain
    control = yield _request(context, None, plain, why="tools without a choice")
    need(control.calls and control.calls != [TIME.name])
    answers = {}
    for word in ("auto", "none", "named"):
        answers[word] = yield _request(context, word, plain)
    need(answers["auto"].calls or not answers["auto"].passed)
    obeyed = {"auto": True, "none": not answers["none"].calls, "named": answers["named"].calls == [TIME.name]}
    required = answers["required"] = yield _request(context, "required", plain)
    if required.passed:
        idle = yield _request(context, None, plain, _SMALL_TALK, "small talk, with tools")
        if idle.calls:  # it calls anyway, so that only the words can be checked
            checks = any(answer.refused for answer in answers.values())
            if not checks:
                why = "a tool_choice that does not exist"
                checks = (yield _nonsense(_request(context, "required", plain, why=why))).refused
            if not checks:  # which of them are obeyed does not show; in another mode one may be refused
                return [Finding("_choices", [word for word in _ORDER if answers[word].passed], "works")]
            obeyed["required"] = True
        else:
            talk = yield _request(context, "required", plain, _SMALL_TALK, "tool_choice required, small talk")
            obeyed["required"] = bool(talk.calls)
    quote = next((answer.message for answer in answers.values() if answer.refused), "")
    allowed = [word for word in _ORDER if answers[word].passed and obeyed[word]]
    return [Finding("tool_choice.allowed", allowed, "works", quote)]


def _accepted_choices(context: ProbeContext) -> list[str]:
    """Return the choices that the endpoint accepts in the plain mode."""
    return context.known.get("tool_choice.allowed") or context.known.get("_choices") or []


@question(
    "tool_choice while it reasons",
    "when.reasoning.tool_choice.allowed",
    requests=5,
    applies=lambda c: offers_tools(c) and reasons_by_choice(c) and bool(_accepted_choices(c)),
)
def choice_reasoning(context: ProbeContext) -> Steps:
    """Ask with each choice that was taken, while the model reasons.

    Proof: a choice that is taken without reasoning is refused with it; that one answer takes it is enough.
    """
    on = context.on or {}
    control = yield _request(context, None, on, why="tools without a choice")
    need(control.passed)
    flag = "when.reasoning.tool_choice.allowed"
    choices, quote = [], ""
    for word in _accepted_choices(context):
        answer = yield _request(context, word, on)
        if answer.passed:
            choices.append(word)
        quote = quote or (answer.message if answer.refused else "")
    return [Finding(flag, choices, "refused", quote)] if quote else [Finding(f"{SAME}tool_choice.", True, "works")]
