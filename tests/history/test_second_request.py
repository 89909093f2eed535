"""Tool call, result, next turn: what every kind of model in the registry wants to see again, streamed and whole."""

from __future__ import annotations

from typing import Any

import pytest
from cases import each
from examples import SHARE

import cnllm
from cnllm import Message, Reasoning, Text
from cnllm.registry.reasoning_form import form, place

from .support import PROVIDERS, USER, Json, exchange, of, plan, results


def replayed(request: cnllm.Plan, message: Json) -> str | None:
    """The reasoning that a wire message carries, read by the declared form; None: none."""
    rules = request.flags.reasoning
    field = place(rules) or "reasoning"
    content: Any = message.get("content")
    match form(rules):
        case "details" | "details-and-field":
            listed = message.get(field)
            return None if listed is None else "".join(d.get("text", "") for d in listed)
        case "tags":
            assert rules.tags is not None
            first, last = rules.tags[:2]
            return content.split(first)[1].split(last)[0] if isinstance(content, str) and first in content else None
        case "content-parts":
            parts = content if isinstance(content, list) else []
            found = [t["text"] for p in parts if p["type"] == rules.part for t in p[str(rules.part)]]
            return "".join(found) if found else None
        case _:
            return message.get(field)


def carried(request: cnllm.Plan, turns: list[tuple[Message, bool, bool]]) -> None:
    """Each of the model's turns has just the reasoning it is to have. A turn: message, has calls, since the user."""
    rules = request.flags.reasoning
    wire = [m for m in request.body["messages"] if m["role"] == "assistant"]
    assert len(wire) == len(turns), request.model
    for sent, (message, calls, recent) in zip(wire, turns, strict=True):
        scope = {"always": True, "tool-turns": calls, "since-user": recent}.get(rules.replay or "never", False)
        found = replayed(request, sent)
        if not scope:
            assert found is None, (request.model, sent)
        elif message.reasoning:
            assert found == message.reasoning, (request.model, sent)
        else:
            assert found is None or not found.strip(), (request.model, sent)
        keys = list(sent)
        for later in ("content", "tool_calls"):
            if found is not None and later in keys and form(rules) in ("field", "details"):
                field = place(rules) or "reasoning"
                assert keys.index(field) < keys.index(later), (request.model, keys)
        if "tool_calls" in keys:
            assert keys[-1] == "tool_calls", request.model


def switched(request: cnllm.Plan) -> None:
    """The switch that makes the endpoint heed what goes back is set where something goes back."""
    rules = request.flags.reasoning
    keep = rules.replay_patch.set if rules.replay_patch is not None else None
    goes = any((replayed(request, m) or "").strip() for m in request.body["messages"] if m["role"] == "assistant")
    if keep and goes:
        for key, value in keep.items():
            said = request.body[key]
            assert value.items() <= said.items() if isinstance(value, dict) else said == value, request.model


@pytest.mark.sampled
@each("stream", [False, True], ids=["whole", "stream"])
@each("provider", PROVIDERS)
def test_the_second_request_is_taken_and_carries_what_is_declared(provider: str, stream: bool) -> None:
    for number, model in enumerate(of(provider), PROVIDERS.index(provider)):
        if SHARE > 1 and number % 2 != stream:
            continue  # a usual run asks each kind whole or in a stream
        history = [Message("user", [Text(USER)])]
        one = exchange(plan(model, history, stream=stream))
        history += [one.message, *results(one)]
        second = plan(model, history, stream=stream)
        carried(second, [(one.message, bool(one.tool_calls), True)])
        switched(second)
        two = exchange(second)
        history += [two.message, Message("user", [Text("And tomorrow?")])]
        third = plan(model, history, stream=stream)
        carried(third, [(one.message, bool(one.tool_calls), False), (two.message, bool(two.tool_calls), False)])
        switched(third)
        exchange(third)
        assert all(n.code not in ("reasoning-foreign", "block-foreign") for n in [*second.notes, *third.notes]), model


@each("provider", PROVIDERS)
def test_thinking_stays_on_though_a_turn_has_lost_its_reasoning(provider: str) -> None:
    for model in of(provider):
        history = [Message("user", [Text(USER)])]
        one = exchange(plan(model, history, reasoning="on"))
        bare = Message("assistant", [p for p in one.message.parts if type(p) is not Reasoning], by=one.message.by)
        kept = plan(model, [*history, one.message, *results(one)], reasoning="on")
        lost = plan(model, [*history, bare, *results(one)], reasoning="on")
        exchange(lost)
        rules = lost.flags.reasoning
        switches = rules.replay_patch.set if rules.replay_patch is not None and rules.replay_patch.set else {}
        for key in kept.body.keys() - {"messages"} - switches.keys():
            assert lost.body[key] == kept.body[key], (model, key)
        must = rules.replay not in (None, "never") and rules.if_missing in ("empty", "space")
        if must and one.tool_calls:
            assert [n.flag for n in lost.notes if n.code == "reasoning-filled"] == ["reasoning.if_missing"], model
