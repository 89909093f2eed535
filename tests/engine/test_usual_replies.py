"""A whole body that is read directly gives the reply that the general reader gives."""

from __future__ import annotations

import itertools
from typing import Any

import msgspec
from builtin import BUILTIN
from examples import examples
from hypothesis import given
from hypothesis import strategies as st

from cnllm import CnllmError, Model, Plan, engine
from cnllm.engine.decode.usual_reply import read_usual_reply

REGISTRY = BUILTIN
NAMES = [
    "deepseek/deepseek-flash",
    "zai/glm-5.3",
    "moonshotai/kimi-k3",
    "minimax/MiniMax-M3.1-Flash",
    "openai/gpt-5.4",
    "alibaba/qwen3.8-max",
    "openrouter/deepseek/deepseek-v4.1-flash",
    "baichuan/Baichuan-M3",
    "azure/gpt-5",
    "openai-compatible/any",
]
TOOLS = [
    {"type": "function", "function": {"name": name, "parameters": {"type": "object", "properties": {}}}}
    for name in ("search", "weather", "x" * 70)
]
CALL = {"id": "call_old", "type": "function", "function": {"name": "search", "arguments": "{}"}}
HISTORY = [
    {"role": "user", "content": "Find a <tool_call>."},
    {"role": "assistant", "content": None, "tool_calls": [CALL]},
    {"role": "tool", "tool_call_id": "call_old", "content": "found"},
]
MARKS = [
    *("<think>", "</think>", "◁think▷", "<|open|>response<|sep|>", "<|close|>message<|sep|>", "[THINK]", "<tool_call>"),
    *(
        '{"name": "search", "arguments": {}}',
        "</tool_call>",
        "<",
        "<thi",
        "<｜tool▁calls▁begin｜>",
        "\n\n",
        " ",
        "STOP",
    ),
    *(
        "Hello",
        "你好",
        "\\",
        '"',
        "\ud83d",
        "\ud83d\ude00",
        "\ufeff",
        "\x00",
        "[TOOL_CALLS]",
        "```tool_call",
        "<function=",
    ),
]
texts = st.lists(st.sampled_from(MARKS), max_size=4).map("".join)
plain = st.sampled_from(["Hello", "你好", "It is 21 degrees."])
arguments = st.sampled_from(["{}", '{"q": "a"}', "", "null", "[1]", '{"q":', '{"<a>": 1}', {"q": "a"}, None])


def calls(rare: bool) -> st.SearchStrategy[Any]:
    """Items of tool_calls."""
    function = st.fixed_dictionaries(
        {
            "name": st.sampled_from(["search", "weather", "gone", "", "x" * 64] if rare else ["search", "weather"]),
            "arguments": arguments if rare else st.sampled_from(["{}", '{"q": "a"}']),
        }
    )
    ids = st.sampled_from(["call_1", "call_2", "call_old", "", None, 5] if rare else ["call_1", "call_2"])
    item = st.fixed_dictionaries(
        {"id": ids, "type": st.just("function"), "function": function},
        optional={"index": st.sampled_from([0, 1])} | ({"extra_content": st.just({"a": 1})} if rare else {}),
    )
    return st.lists(item, max_size=3) | st.none()


@st.composite
def bodies(draw: Any) -> dict[str, Any]:
    """Bodies of chat completions: most are usual, at most one place is not."""
    odd = draw(
        st.sampled_from(
            ["", "content", "content", "content", "reasoning", "fields", "calls", "finish", "choice", "body"]
        )
    )
    parts = st.just([{"type": "text", "text": "part"}])
    message = {
        "role": "assistant",
        "content": draw(texts | parts if odd == "content" else plain | st.none()),
        "reasoning_content": draw(texts if odd == "reasoning" else plain | st.none()),
        "tool_calls": draw(calls(odd == "calls")),
    }
    if odd == "fields":
        fields = {
            "reasoning": texts,
            "reasoning_details": st.just([{"type": "reasoning.text", "text": "hm"}]),
            "refusal": st.sampled_from([None, "No."]),
            "function_call": st.sampled_from([None, {"name": "search", "arguments": "{}"}]),
        }
        message |= draw(st.fixed_dictionaries({}, optional=fields))
    usual_finish = "tool_calls" if message["tool_calls"] else "stop"
    finishes = [usual_finish, "stop", "tool_calls", "length", "content_filter", "eos", "", None]
    choice = {
        "index": 0,
        "message": message,
        "finish_reason": draw(st.sampled_from(finishes)) if odd == "finish" else usual_finish,
    }
    if odd == "choice":
        choice |= draw(
            st.sampled_from([{"text": "Hello"}, {"error": {"message": "broken"}}, {"index": 1}, {"index": None}])
        )
    usage = {"prompt_tokens": 5, "completion_tokens": draw(st.sampled_from([3, 3, 100, 100_000])), "total_tokens": 8}
    body = {"id": "r1", "model": "m", "created": draw(st.sampled_from([1763650000, 0, None])), "choices": [choice]}
    part = draw(
        st.sampled_from([{"prompt_tokens": 5}, {"completion_tokens": 3}, {"prompt_tokens": 5, "completion_tokens": 0}])
    )
    body |= draw(st.sampled_from([{}, {"usage": usage}, {"usage": None}, {"usage": part}]))
    if odd == "body":
        two = [choice, {**choice, "index": 1}]
        error = {"error": {"message": "no", "code": "x"}}
        body |= draw(st.sampled_from([error, {"choices": []}, {"choices": two}, {"id": "", "model": 3}]))
    return body


OPTIONS = st.fixed_dictionaries(
    {},
    optional={
        "tools": st.just(TOOLS),
        "max_tokens": st.just(100),
        "stop": st.just(["STOP"]),
        "recover_text_calls": st.sampled_from(["recover", "strip", "keep"]),
        "parallel_tool_calls": st.just(False),
        "tool_choice": st.sampled_from(["none", "required", "search"]),
        "reasoning": st.sampled_from(["on", "off"]),
    },
)


def result(parse: Any) -> Any:
    """The reply, or the error with its reply."""
    try:
        return parse()
    except CnllmError as error:
        return type(error), str(error), error.reply


def encode(body: Any) -> bytes:
    """A body as bytes; half a character is escaped, as endpoints do."""
    try:
        return msgspec.json.encode(body)
    except UnicodeEncodeError:
        import json

        return json.dumps(body).encode()


def both(model: Model, plan: Plan, content: bytes) -> list[Any]:
    """What both readers make of a body."""

    def general() -> Any:
        parser = engine.StreamParser(model, plan=plan, headers={})
        parser.feed(content)
        return parser.close()

    return [result(lambda: engine.parse_response(model, 200, {}, content, plan=plan)), result(general)]


def test_both_readers_give_the_same_for_a_body_of_another_form() -> None:
    model = REGISTRY.resolve("openai-compatible/any", protocol="openai-chat", base_url="http://127.0.0.1:9/v1")
    plan = engine.build_request(model, "Hi")
    messages: list[Any] = [{"content": "Hi"}, None, "Hi", [], 5, {}, {"content": 5}]
    finishes: list[Any] = ["stop", "", None, 5, []]
    for message, finish in itertools.product(messages, finishes):
        for choices in ([{"message": message, "finish_reason": finish}], [message], message):
            quick, general = both(model, plan, encode({"choices": choices}))
            assert quick == general, (message, finish, choices)


@given(name=st.sampled_from(NAMES), body=bodies(), options=OPTIONS, history=st.sampled_from(["Hi", HISTORY]))
@examples(4000)
def test_both_readers_give_the_same_reply(
    name: str, body: dict[str, Any], options: dict[str, Any], history: Any
) -> None:
    model = REGISTRY.resolve(name, protocol="openai-chat", base_url="http://127.0.0.1:9/v1")
    if "tools" not in options:
        options = {key: value for key, value in options.items() if key not in ("tool_choice", "parallel_tool_calls")}
    plan = engine.build_request(model, history, **options)
    quick, general = both(model, plan, encode(body))
    assert quick == general


def called(id: str, name: str = "search", *, is_answered: bool = True) -> list[Any]:
    """A history with a call of this id."""
    call = {"id": id, "type": "function", "function": {"name": name, "arguments": "{}"}}
    turns: list[Any] = [{"role": "user", "content": "Find it."}, {"role": "assistant", "tool_calls": [call]}]
    return [*turns, {"role": "tool", "tool_call_id": id, "content": "found"}] if is_answered else turns


def test_a_call_with_an_id_of_the_conversation_gets_another() -> None:
    ids = ["call_old", "é", 'a"b', "a\\b", "a/b", "x" * 80, "functions.search:0"]
    histories = [(id, called(id)) for id in ids]
    histories += [("call_old", called("call_old", is_answered=False)), ("call_old", called("call_old", ""))]
    histories.append(("call_old", called("call_old")[2:]))  # a result without its call
    for name in [*NAMES, "mistral/mistral-medium-3-5", "openai-compatible/any"]:
        model = REGISTRY.resolve(name, protocol="openai-chat", base_url="http://127.0.0.1:9/v1")
        for (id, history), rest in itertools.product(histories, ([], [{"role": "user", "content": "Again."}])):
            plan = engine.build_request(model, [*history, *rest], tools=TOOLS)
            call = {"id": id, "type": "function", "function": {"name": "search", "arguments": "{}"}}
            choice = {"index": 0, "message": {"content": None, "tool_calls": [call]}, "finish_reason": "tool_calls"}
            quick, general = both(model, plan, encode({"id": "r", "model": "m", "choices": [choice]}))
            assert quick == general, (name, id, history)
            assert model.flags.tools.supported is False or quick.tool_calls[0].id != id, (name, id)


def test_usual_bodies_are_read_directly() -> None:
    page = "<div class='a'>`if a < b: c[0] = 1`</div>\n"
    message = {"role": "assistant", "content": "Hello.", "reasoning_content": "Hm.", "annotations": []}
    calls = [
        {"id": "call_1", "index": 0, "type": "function", "function": {"name": "search", "arguments": '{"q": "a"}'}}
    ]
    for name in NAMES:
        model = REGISTRY.resolve(name, protocol="openai-chat", base_url="http://127.0.0.1:9/v1")
        plan = engine.build_request(model, "Hi", tools=TOOLS, max_tokens=100)
        cases: tuple[tuple[str, Any], ...] = ("stop", {}), ("stop", {"content": page}), ("stop", {"content": page * 50})
        for finish, more in (*cases, ("tool_calls", {"tool_calls": calls})):
            choice = {"index": 0, "message": {**message, **more}, "finish_reason": finish}
            content = encode({"id": "r", "model": "m", "created": 1763650000, "choices": [choice]})
            is_tool_less = model.flags.tools.supported is False
            assert (read_usual_reply(plan, 200, content) is not None) or is_tool_less, (name, finish)
