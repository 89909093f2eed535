"""Every option and every key of a message with every odd value; nothing leaves, for the simulator answers."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import cnllm
from cnllm import Role, engine

from .judge import Input
from .surface import client, model, registry, tool, weather, wire_model
from .values import VALUES

__all__ = ["messages", "options", "parts", "tools"]

NAMES = [
    "reasoning",
    "tools",
    "tool_choice",
    "parallel_tool_calls",
    "temperature",
    "top_p",
    "max_tokens",
    "stop",
    "seed",
    "schema",
    "extra_body",
    "extra_headers",
    "api_key",
    "timeout",
    "limits",
    "on_unsupported",
    "if_cut",
    "recover_text_calls",
    "corrections",
    "stream",
]
RUN = ["tools", "max_steps", "max_repeats", "max_parallel", "tool_timeout", "on_step", "approve"]
MODELS = ("openai-chat", "anthropic-messages", "gemini", "openai-responses")
KEYS = [
    "role",
    "content",
    "tool_calls",
    "tool_call_id",
    "name",
    "reasoning",
    "reasoning_content",
    "by",
    "parts",
    "refusal",
    "error",
    "extra_key",
]
SHAPES: dict[str, dict[str, Any]] = {
    "user": {"role": "user", "content": "x"},
    "system": {"role": "system", "content": "x"},
    "assistant": {
        "role": "assistant",
        "content": "x",
        "tool_calls": [{"id": "a", "type": "function", "function": {"name": "weather", "arguments": "{}"}}],
    },
    "tool": {"role": "tool", "tool_call_id": "a", "content": "x"},
}
CONTENT: dict[str, dict[str, Any]] = {
    "text": {"type": "text", "text": "x"},
    "image_url": {"type": "image_url", "image_url": {"url": "http://a/b.png", "detail": "low"}},
    "video_url": {"type": "video_url", "video_url": {"url": "http://a/b.mp4"}},
    "input_audio": {"type": "input_audio", "input_audio": {"data": "AAAA", "format": "wav"}},
    "other": {"type": "other", "other": "x"},
}
PARTS: dict[str, dict[str, Any]] = {
    "Text": {"text": "x", "seal": None, "extra": None},
    "Reasoning": {"text": "x", "seal": None},
    "Media": {"type": "image/png", "data": "AAAA", "url": None, "seal": None, "extra": None},
    "ToolCall": {
        "id": "a",
        "name": "weather",
        "arguments": {},
        "raw": "",
        "via": "wire",
        "problem": None,
        "seal": None,
    },
    "ToolResult": {"id": "a", "text": "x", "name": None, "error": False, "media": (), "seal": None},
    "Opaque": {"data": {"type": "x"}, "seal": None},
    "Seal": {"protocol": "openai-chat", "provider": "zai", "model": "glm-4.7", "data": None},
}


def described() -> list[str]:
    """Return the parameters that the registry knows beside the options with names of their own."""
    found = {n for name in registry().names() for n in (registry().resolve(name).flags.params or {})}
    return sorted(found - set(NAMES))


def options(values: dict[str, Callable[[], Any]] = VALUES) -> Iterator[Input]:
    """Yield every option, as `call`, `plan` and `run` take it, over every wire."""
    for at, (odd, make) in enumerate(values.items()):
        for number, option in enumerate(NAMES):
            if option == "stream":
                continue
            name = MODELS[(at + number) % len(MODELS)]
            label = f"Client.call({name}, {option}={odd})"
            yield Input(label, (option,), partial(_call, name, option, make))
            if option != "timeout":
                yield Input(f"build_request({option}={odd})", (option,), partial(_build, name, option, make))
            yield Input(f"Client.stream({option}={odd})", (option,), partial(_stream, name, option, make))
        for option in described():
            yield Input(f"build_request({option}={odd})", (option,), partial(_build, "openai-chat", option, make))
        for option in RUN:
            if option in ("on_step", "approve") and callable(make()):
                continue  # what a caller's own function raises is the caller's
            yield Input(f"Client.run({option}={odd})", (option,), partial(_run, option, make))


def _beside(option: str) -> dict[str, Any]:
    return {"tools": [tool()]} if option in ("tool_choice", "parallel_tool_calls") else {}


def _call(name: str, option: str, make: Callable[[], Any]) -> None:
    client().call(wire_model(name), "hi", **{**_beside(option), option: make()})


def _stream(name: str, option: str, make: Callable[[], Any]) -> None:
    with client().stream(wire_model(name), "hi", **{**_beside(option), option: make()}) as events:
        list(events)


def _build(name: str, option: str, make: Callable[[], Any]) -> None:
    plan = engine.build_request(wire_model(name), "hi", **{**_beside(option), option: make()})
    repr(plan), plan.shown_headers(), plan.turns


def _run(option: str, make: Callable[[], Any]) -> None:
    given = {"tools": [weather], option: make()}
    client().run("glm-4.7", "hi", tool_choice="none", **given)


def messages(values: dict[str, Callable[[], Any]] = VALUES) -> Iterator[Input]:
    """Yield every key of every shape of message, and of every content part, with every odd value."""
    for at, (odd, make) in enumerate(values.items()):
        name = MODELS[at % len(MODELS)]
        for shape, given in SHAPES.items():
            for key in KEYS:
                words: tuple[str, ...] = (key, "messages[0]", "messages[1]")
                message = partial(_with, given, key, make)
                yield Input(f"messages {shape}.{key}={odd}", words, partial(_sent, name, message))
                yield Input(f"Message.from_dict {shape}.{key}={odd}", (key,), partial(_read, message))
        for shape, given in CONTENT.items():
            for key in given:
                words = (key, "content", "messages[0]")
                part = partial(_with, given, key, make)
                yield Input(f"content {shape}.{key}={odd}", words, partial(_part_sent, name, part))
                inner = given[key]
                for below in inner if isinstance(inner, dict) else ():
                    nested = partial(_with, given, key, partial(_with, inner, below, make))
                    yield Input(f"content {shape}.{key}.{below}={odd}", words, partial(_part_sent, name, nested))
        for place in ("id", "type", "function", "name", "arguments"):
            words = ("tool_calls", "messages[0]")
            yield Input(f"tool_calls.{place}={odd}", words, partial(_calls_sent, name, place, make))
        yield Input(f"messages=[{odd}]", ("messages",), partial(_item_sent, name, make))
        yield Input(f"messages={odd}", ("messages",), partial(_all_sent, name, make))


def _with(given: dict[str, Any], key: str, make: Callable[[], Any]) -> dict[str, Any]:
    return {**given, key: make()}


def _sent(name: str, message: Callable[[], Any]) -> None:
    messages: list[Any] = [message(), {"role": "user", "content": "y"}]
    engine.build_request(wire_model(name), messages, tools=[tool()])


def _read(message: Callable[[], Any]) -> None:
    made = cnllm.Message.from_dict(message())
    assert made.text is not None
    made.to_dict()


def _part_sent(name: str, part: Callable[[], Any]) -> None:
    engine.build_request(wire_model(name), [{"role": "user", "content": [part()]}])


def _calls_sent(name: str, place: str, make: Callable[[], Any]) -> None:
    function = {"name": "weather", "arguments": "{}"}
    call = {"id": "a", "type": "function", "function": function}
    (function if place in function else call)[place] = make()
    said: list[Any] = [{"role": "assistant", "content": None, "tool_calls": [call]}, {"role": "user", "content": "x"}]
    engine.build_request(wire_model(name), said)


def _item_sent(name: str, make: Callable[[], Any]) -> None:
    engine.build_request(wire_model(name), [make()])


def _all_sent(name: str, make: Callable[[], Any]) -> None:
    client().call(wire_model(name), make())


def parts(values: dict[str, Callable[[], Any]] = VALUES) -> Iterator[Input]:
    """Yield every field of every part, in a message that is sent, written as a dict and read again."""
    for at, (odd, make) in enumerate(values.items()):
        name = MODELS[at % len(MODELS)]
        for kind, given in PARTS.items():
            for key in given:
                words = (key, "parts", "messages[0]", "messages[1]")
                yield Input(f"{kind}({key}={odd}) sent", words, partial(_made, name, kind, key, make, "send"))
                yield Input(f"{kind}({key}={odd}) to_dict", words, partial(_made, name, kind, key, make, "dict"))
        for key in ("role", "parts", "by", "name", "extra"):
            places = (key, "messages[0]")
            yield Input(f"Message({key}={odd}) sent", places, partial(_message, name, key, make))


def _made(name: str, kind: str, key: str, make: Callable[[], Any], then: str) -> None:
    fields = {**PARTS[kind], key: make()}
    if kind == "Media" and key == "url":
        fields["data"] = None
    made = getattr(cnllm, kind)(**fields)
    if kind == "Seal":
        made = cnllm.Text("x", made)
    role: Role = (
        "tool" if kind == "ToolResult" else "assistant" if kind in ("ToolCall", "Reasoning", "Seal") else "user"
    )
    message = cnllm.Message(role, (made,))
    if then == "dict":
        cnllm.Message.from_dict(message.to_dict())
        return
    engine.build_request(wire_model(name), [message, {"role": "user", "content": "x"}], tools=[tool()])


def _message(name: str, key: str, make: Callable[[], Any]) -> None:
    fields: dict[str, Any] = {"role": "user", "parts": (cnllm.Text("x"),), key: make()}
    engine.build_request(wire_model(name), [cnllm.Message(**fields)])


DEFINITION: dict[str, Any] = {"name": "f", "description": "d", "parameters": {"type": "object"}, "strict": False}
FIELDS = ["name", "description", "parameters", "function", "strict", "timeout", "definition", "extra"]


def tools(values: dict[str, Callable[[], Any]] = VALUES) -> Iterator[Input]:
    """Yield every field of a tool and of its definitions; every annotation and default that is odd."""
    for odd, make in values.items():
        for key in FIELDS:
            words: tuple[str, ...] = (key, "tools[0]", "tools")
            yield Input(f"Tool({key}={odd}) sent", words, partial(_tool_sent, key, make))
            yield Input(f"Tool({key}={odd}) run", words, partial(_tool_run, key, make))
            yield Input(f"Tool({key}={odd}) checked", (key, "tool", "call"), partial(_tool_checked, key, make))
        for key in DEFINITION:
            words = (key, "tools[0]", "tools")
            yield Input(f"definition {key}={odd}", words, partial(_definition, key, make, False))
            yield Input(f"definition function.{key}={odd}", words, partial(_definition, key, make, True))
        for key in ("type", "properties", "required", "items", "$ref", "enum", "pattern", "anyOf"):
            words = ("parameters", "tools", "tool", "schema")
            yield Input(f"parameters.{key}={odd}", words, partial(_schema, key, make))
            yield Input(f"schema.{key}={odd}", ("schema",), partial(_answer, key, make))
        yield Input(f"as_tools([{odd}])", ("items[0]", "tools[0]"), partial(_as_tools, make))
        yield Input(f"tools=[{odd}]", ("tools[0]", "tools"), partial(_tools, make))
        yield Input(f"tool(annotation {odd})", ("parameter", "function"), partial(_annotated, make, False))
        yield Input(f"tool(default {odd})", ("parameter", "function"), partial(_annotated, make, True))
        yield Input(f"ToolCall.arguments={odd}", ("arguments", "call"), partial(_arguments, make))
        yield Input(f"tool returns {odd}", ("value",), partial(_shown, make))


def _tool_sent(key: str, make: Callable[[], Any]) -> None:
    fields: dict[str, Any] = {"name": "f", "parameters": {"type": "object"}, key: make()}
    engine.build_request(model(), "hi", tools=[cnllm.Tool(**fields)])


def _tool_run(key: str, make: Callable[[], Any]) -> None:
    fields: dict[str, Any] = {"name": "f", "parameters": {"type": "object"}, "function": weather, key: make()}
    client().run("glm-4.7", "hi", tools=[cnllm.Tool(**fields)], tool_choice="none")


def _tool_checked(key: str, make: Callable[[], Any]) -> None:
    from cnllm.tools import bound, problem_with

    fields: dict[str, Any] = {"name": "f", "parameters": {"type": "object"}, "function": weather, key: make()}
    made = cnllm.Tool(**fields)
    call = cnllm.ToolCall("a", "f", {"city": "x"}, "{}")
    problem_with(made, call)
    bound(made, {"city": "x"})


def _definition(key: str, make: Callable[[], Any], wrapped: bool) -> None:
    said = {**DEFINITION, key: make()}
    engine.build_request(model(), "hi", tools=[{"type": "function", "function": said} if wrapped else said])


def _schema(key: str, make: Callable[[], Any]) -> None:
    parameters = {"type": "object", "properties": {"a": {"type": "string"}}, key: make()}
    for name in MODELS:
        engine.build_request(wire_model(name), "hi", tools=[{"name": "f", "parameters": parameters}])


def _answer(key: str, make: Callable[[], Any]) -> None:
    schema = {"type": "object", "properties": {"a": {"type": "string"}}, key: make()}
    for name in MODELS:
        engine.build_request(wire_model(name), "hi", schema=schema)


def _as_tools(make: Callable[[], Any]) -> None:
    from cnllm.tools import as_tools

    as_tools([make()])


def _tools(make: Callable[[], Any]) -> None:
    engine.build_request(model(), "hi", tools=[make()])


def _annotated(make: Callable[[], Any], default: bool) -> None:
    value = make()

    def function(odd: int = 1) -> None:
        """Do it."""

    if default:
        function.__defaults__ = (value,)
    else:
        function.__annotations__ = {"odd": value}
    made = cnllm.tool(function)
    engine.build_request(model(), "hi", tools=[made])


def _arguments(make: Callable[[], Any]) -> None:
    from cnllm.tools import bound, problem_with

    problem_with(tool(), cnllm.ToolCall("a", "weather", make()))
    bound(tool(), make())


def _shown(make: Callable[[], Any]) -> None:
    from cnllm.tools import shown

    assert isinstance(shown(make()), str)
    assert isinstance(shown([make()]), str)
