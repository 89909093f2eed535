"""Every kind of endpoint that the registry describes, over each wire it has: second requests and others' histories."""

from __future__ import annotations

import json
from functools import cache

import pytest
from builtin import BUILTIN
from cases import each
from examples import some
from history.support import answered, conversation, exchange, plan, signature, takes_tools
from history.test_pairs import shapes

from cnllm import Message, Plan, Text
from cnllm.registry.model import Model

WIRES = ["anthropic-messages", "gemini", "openai-responses"]
SIGNED = ("signature", "thoughtSignature", "encrypted_content")


@cache
def kinds(wire: str) -> tuple[Model, ...]:
    """One model of each way to treat a history, over one wire."""
    found: dict[bytes, Model] = {}
    for name in BUILTIN.names():
        if wire in BUILTIN.wires(name):
            known = BUILTIN.resolve(name).flags.base_url
            model = BUILTIN.resolve(name, protocol=wire, base_url=None if known else "http://127.0.0.1:9")
            found.setdefault(signature(model), model)
    return tuple(found.values())


def taken(request: Plan) -> None:
    status, _, content = answered(request)
    assert status == 200, (request.model, content.decode(), request.body)


def signatures(history: tuple[Message, ...]) -> set[str]:
    """What an endpoint gave to be brought back to it alone."""
    seals = [p.seal for m in history for p in m.parts if getattr(p, "seal", None) is not None]
    data = [seal.data for seal in seals if seal is not None and isinstance(seal.data, dict)]
    return {str(one[key]) for one in data for key in SIGNED if key in one}


@pytest.mark.sampled
@each("stream", [False, True], ids=["whole", "stream"])
@each("wire", WIRES)
def test_the_second_request_and_the_third(wire: str, stream: bool) -> None:
    assert len(kinds(wire)) > 1
    for model in some(kinds(wire), stream):
        history = conversation(model, stream)
        again = plan(model, [*history, Message("user", [Text("And tomorrow?")])], stream=stream)
        exchange(again)
        if takes_tools(model):
            assert any(m.tool_calls for m in history), model


@pytest.mark.sampled
@each("wire", WIRES)
def test_the_histories_of_all_wires_go_to_every_kind(wire: str) -> None:
    sources = [*shapes(), *(kinds(w)[0] for w in WIRES), *(kinds(w)[-1] for w in WIRES)]
    question = Message("user", [Text("And tomorrow?")])
    for number, target in enumerate(some(kinds(wire))):
        for source in some(sources, number):
            history = conversation(source)
            request = plan(target, [*history, question])
            taken(request)
            if (source.name, source.protocol) != (target.name, target.protocol):
                content = request.content.decode()
                assert not any(json.dumps(one)[1:-1] in content for one in signatures(history)), (source, target)
        taken(plan(target, [*(m for source in some(sources, number) for m in conversation(source)), question]))


@each("wire", WIRES)
def test_a_tool_loop_that_another_began_is_gone_on_with(wire: str) -> None:
    for target in kinds(wire):
        for source in shapes()[:4]:
            if takes_tools(source):
                taken(plan(target, conversation(source)[:-1]))


@pytest.mark.sampled
@each("wire", WIRES)
def test_what_was_said_over_a_wire_goes_on_over_chat(wire: str) -> None:
    question = Message("user", [Text("And tomorrow?")])
    for number, source in enumerate(some(kinds(wire))):
        for target in some(shapes(), number):
            taken(plan(target, [*conversation(source), question]))
