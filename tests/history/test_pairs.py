"""Every kind of model's turns, handed to every other kind: the simulator refuses what the endpoint refuses."""

from __future__ import annotations

import re

import pytest
from cases import each
from examples import SHARE, changes, some

import cnllm
from cnllm import Message, Text
from cnllm.registry.model import Model
from cnllm.registry.reasoning_form import form, place

from .support import PROVIDERS, answered, conversation, distinct, exchange, of, plan, takes_tools, walk

BOOKKEEPING = {"by", "parts", "kind", "seal", "via", "raw", "problem", "error", "provider", "protocol", "extra"}


def shape(model: Model) -> tuple[tuple[str, ...], ...]:
    """What kinds of parts and seals the turns of a model are made of."""
    turns = [m for m in conversation(model) if m.role == "assistant"]
    return tuple(tuple(f"{type(p).__name__}:{type(p.seal and p.seal.data).__name__}" for p in m.parts) for m in turns)


def shapes() -> list[Model]:
    """A model for each shape of turns there is."""
    return list({shape(model): model for model in distinct()}.values())


def goes_on(*sources: Model) -> list[Message]:
    """The conversations of several models, one after the other, and a new question."""
    return [*(m for source in sources for m in conversation(source)), Message("user", [Text("And tomorrow?")])]


def legal(request: cnllm.Plan) -> None:
    """What holds for the messages of any request."""
    wire = request.body["messages"]
    calls = [c["id"] for m in wire for c in m.get("tool_calls", ())]
    assert len(set(calls)) == len(calls), request.model
    assert [m["tool_call_id"] for m in wire if m["role"] == "tool"] == calls, request.model
    pattern = request.flags.tools.call_id_pattern
    assert all(re.fullmatch(pattern or r"[\s\S]+", one) for one in calls), request.model
    keys = [key for m in wire for name, value in m.items() for key in [name, *walk(value)]]
    assert not BOOKKEEPING.intersection(keys), request.model
    status, _, content = answered(request)
    assert status == 200, (request.model, content.decode(), wire)


LONG = 64_000  # tokens: the history of all kinds takes 33,000


@pytest.mark.sampled
@each("provider", PROVIDERS)
def test_a_history_of_all_kinds_of_models_goes_to_every_kind(provider: str) -> None:
    for target in of(provider):
        sources = distinct()
        sources = sources[sources.index(target) % SHARE :: SHARE]  # all of them, over all targets
        window = target.flags.limits.context or LONG
        few = len(sources) if window >= LONG else 4  # a small window takes them in parts
        for at in range(0, len(sources), few):
            legal(plan(target, goes_on(*sources[at : at + few])))


@pytest.mark.sampled
@each("provider", PROVIDERS)
def test_each_kind_of_turn_alone_goes_to_every_kind(provider: str) -> None:
    for number, target in enumerate(of(provider)):
        for source in some(shapes(), number):
            request = plan(target, goes_on(source))
            legal(request)
            thoughts = [m.reasoning for m in conversation(source) if m.reasoning]
            if not target.is_author(source.name):
                rules = request.flags.reasoning
                if rules.if_foreign != "text":
                    assert all(t not in request.content.decode() for t in thoughts), (source, target)
                told = [n for n in request.notes if n.code == "reasoning-foreign"]
                assert changes(told) == len(thoughts), (source, target)


@each("provider", PROVIDERS)
def test_the_same_history_gives_the_same_bytes_and_a_longer_one_begins_with_them(provider: str) -> None:
    for target in of(provider)[:2]:
        sources = shapes()
        request = plan(target, goes_on(*sources))
        assert request.content == plan(target, goes_on(*sources)).content
        ids = [c["id"] for m in request.body["messages"] for c in m.get("tool_calls", ())]
        longer = plan(target, [*goes_on(*sources), *goes_on(*sources)])
        assert [c["id"] for m in longer.body["messages"] for c in m.get("tool_calls", ())][: len(ids)] == ids


def test_a_conversation_comes_back_to_who_began_it_with_its_own_reasoning_as_it_was() -> None:
    for model in distinct():
        other = next(m for m in distinct() if m.provider != model.provider and takes_tools(m))
        own = [m for m in conversation(model) if m.reasoning]
        request = plan(model, goes_on(model, other))
        exchange(request)
        rules = request.flags.reasoning
        if own and rules.replay == "always" and form(rules) == "field":
            field = place(rules) or "reasoning"
            assert [m[field] for m in request.body["messages"] if (m.get(field) or "").strip()] == [
                m.reasoning for m in own
            ], model
