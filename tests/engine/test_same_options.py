"""Requests with the options of an earlier one are those of a model that has built no request yet."""

from __future__ import annotations

import copy
from typing import Any

import pytest
from builtin import BUILTIN
from examples import examples
from hypothesis import given
from hypothesis import strategies as st

from cnllm import CannotSend, Plan, engine
from cnllm.protocols import PROTOCOLS
from cnllm.registry.model import Model

from .conftest import Home

REGISTRY = BUILTIN
NAMES = st.deferred(
    lambda: st.sampled_from([name for name in REGISTRY.names() if REGISTRY.resolve(name).flags.base_url])
)
PARAMETERS = {"type": "object", "properties": {"q": {"type": ["string", "null"], "format": "x"}}, "required": ["q"]}
TOOLS = [
    {"type": "function", "function": {"name": name, "description": "Find it.", "parameters": PARAMETERS}}
    for name in ("search", "x" * 70)
]
CALL = {"id": "call:1", "type": "function", "function": {"name": "search", "arguments": '{"q": "a"}'}}
PICTURE = {"type": "image_url", "image_url": {"url": "data:image/png;base64,AA=="}}
CONVERSATIONS: list[Any] = [
    "Hi",
    [{"role": "system", "content": "Be short."}, {"role": "user", "content": "Hi"}],
    [{"role": "user", "content": [{"type": "text", "text": "See"}, PICTURE]}],
    [
        {"role": "user", "content": "Find a."},
        {"role": "assistant", "content": None, "reasoning_content": "Hm.", "tool_calls": [CALL]},
        {"role": "tool", "tool_call_id": "call:1", "content": "found"},
    ],
    [
        {"role": "user", "content": "Find a."},
        {"role": "assistant", "content": None, "tool_calls": [CALL]},
        {"role": "tool", "tool_call_id": "call:1", "content": "found"},
        {"role": "user", "content": "And b?"},
    ],
]


def test_what_is_kept_of_a_request_with_other_messages_is_no_object_of_the_caller(home: Home) -> None:
    model = home(more='input = ["text", "image"]')
    mine: list[Any] = copy.deepcopy(TOOLS[:1])
    own = copy.deepcopy(TOOLS[:1])
    picture = CONVERSATIONS[2]
    engine.build_request(model, "Hi", tools=mine)
    engine.build_request(model, picture, tools=mine)
    mine[0]["function"]["parameters"]["properties"]["q"]["type"] = "integer"
    later = engine.build_request(model, picture, tools=own)
    assert [tool.parameters for tool in later.tools] == [PARAMETERS]


OPTIONS = st.fixed_dictionaries(
    {},
    optional={
        "tools": st.sampled_from([TOOLS, TOOLS[:1], []]),
        "tool_choice": st.sampled_from(["auto", "none", "required", "search"]),
        "parallel_tool_calls": st.booleans(),
        "temperature": st.sampled_from([0, 0.0, 1, 1.0, True, 3]),
        "max_tokens": st.sampled_from([1, 100, 10_000_000]),
        "stop": st.sampled_from(["x", ["x"], ["a", "b", "c", "d", "e", "f"]]),
        "seed": st.sampled_from([1, None]),
        "reasoning": st.sampled_from(["off", "on", "high", 0, 4096]),
        "schema": st.sampled_from([PARAMETERS, {"title": "A", "type": "array", "items": {"type": "integer"}}]),
        "params": st.sampled_from([{"top_k": 5}, {"user": "me"}]),
        "extra_body": st.sampled_from([{"metadata": {"a": [1]}}, {"enable_thinking": True}]),
        "extra_headers": st.just({"X-A": "b"}),
        "on_unsupported": st.sampled_from(["adjust", "error", "send"]),
        "prefill": st.just(True),
    },
)


def request(model: Model, messages: Any, options: dict[str, Any], stream: bool) -> Any:
    """What a caller gets: the plan as values, or the error."""
    try:
        plan = engine.build_request(model, messages, stream=stream, **options)
    except (CannotSend, ValueError, TypeError) as error:
        return type(error), str(error)
    return seen(plan)


def seen(plan: Plan) -> Any:
    """All values of a plan that its body and its reply depend on."""
    values = {name: getattr(plan, name) for name in plan.__struct_fields__ if name not in ("model", "flags")}
    return {**values, "model": plan.model.name, "wire": plan.model.protocol, "flags": plan.flags}


@given(
    name=NAMES,
    options=OPTIONS,
    conversations=st.lists(st.sampled_from(CONVERSATIONS), min_size=2, max_size=4),
    stream=st.booleans(),
)
@examples(1500)
def test_a_request_does_not_depend_on_those_before_it(
    name: str, options: dict[str, Any], conversations: list[Any], stream: bool
) -> None:
    model = REGISTRY.resolve(name)
    alone = []
    for messages in conversations:
        model.memo.clear()
        alone.append(request(model, messages, options, stream))
    model.memo.clear()
    assert [request(model, messages, options, stream) for messages in conversations] == alone


@pytest.mark.parametrize("wire", PROTOCOLS)
def test_what_a_caller_changes_afterwards_changes_no_later_request(wire: str, home: Home) -> None:
    model = home(more=f'protocol = "{wire}"')
    options: dict[str, Any] = {"tools": copy.deepcopy(TOOLS), "stop": ["x"], "schema": copy.deepcopy(PARAMETERS)}
    first = engine.build_request(model, "Hi", **options)
    content, body = first.content, copy.deepcopy(first.body)
    options["tools"][0]["function"]["parameters"]["properties"]["q"]["type"] = "integer"
    options["stop"].append("y")
    changed = engine.build_request(model, "Hi", **options)
    assert changed.content != content
    for plan in (first, changed):
        spoil(plan.body)
        plan.headers["x-spoiled"] = "yes"
    again = engine.build_request(model, "Hi", tools=TOOLS, stop=["x"], schema=PARAMETERS)
    assert again.content == content
    assert again.body == body
    assert "x-spoiled" not in again.headers


def spoil(value: Any) -> None:
    """Change every list and dict of a body."""
    inner = list(value.values()) if isinstance(value, dict) else list(value) if isinstance(value, list) else []
    for one in inner:
        spoil(one)
    if isinstance(value, dict):
        value["spoiled"] = True
    elif isinstance(value, list):
        value.append("spoiled")


def test_numbers_of_another_type_are_other_options(plain: Model) -> None:
    bodies = [engine.build_request(plain, "Hi", temperature=value).content for value in (1, 1.0)]
    assert [body.partition(b'"temperature":')[2] for body in bodies] == [b"1}", b"1.0}"]
    values: list[Any] = [1, True]
    bodies = [engine.build_request(plain, "Hi", logprobs=value).content for value in values]
    assert [body.partition(b'"logprobs":')[2] for body in bodies] == [b"1}", b"true}"]


def test_a_model_keeps_a_bounded_number_of_options(plain: Model) -> None:
    for number in range(1000):
        engine.build_request(plain, "Hi", max_tokens=number + 1)
    assert len(plain.memo) <= 64
