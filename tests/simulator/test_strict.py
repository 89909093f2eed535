"""What the flags of a model deny is refused: every model of the registry, over every wire that it speaks."""

from __future__ import annotations

import copy
import json
from collections import Counter
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

import msgspec
import pytest
from builtin import BUILTIN
from cases import each
from examples import SHARE, some

import cnllm
from cnllm import CnllmError, ContextTooLong, Message, Plan, Reasoning, Text, ToolCall, ToolResult, engine
from cnllm.jsonpath import set_value
from cnllm.registry.flags import LEVELS, Param
from cnllm.registry.model import Model
from cnllm.registry.param_rules import state
from cnllm.simulator import SimTransport
from cnllm.simulator.check_request import ErrorResponse, check_request
from cnllm.simulator.codec import read_request
from cnllm.simulator.violations import refusals_of

Json = dict[str, Any]
Violation = tuple[str, Plan, Json]
"""The flag, the request before, and the body that breaks the flag."""

RICH: Json = {
    "type": "object",
    "properties": {
        "q": {"type": ["string", "null"], "pattern": "a+", "default": "x", "minLength": 1, "format": "date"},
        "one": {"oneOf": [{"type": "integer", "minimum": 1}, {"$ref": "#/$defs/Node"}]},
        "pair": {"type": "array", "prefixItems": [{"type": "string"}, {"const": 1}], "minItems": 2},
        "all": {"allOf": [{"type": "object", "properties": {"a": {}}}, {"required": ["a"]}]},
        "beside": {"type": "string", "anyOf": [{"minLength": 1}, {"format": "uri"}]},
        "bare": {"enum": [1, "a"]},
    },
    "required": ["q"],
    "additionalProperties": False,
    "$defs": {"Node": {"type": "object", "properties": {"n": {"$ref": "#/$defs/Node"}}}},
}
BREAKS: dict[str, Json] = {
    "inline-refs": {"$ref": "#/$defs/A"},
    "root-refs": {"$ref": "#/properties/x", "description": "beside"},
    "any-of-only": {"oneOf": [{"type": "string"}]},
    "one-type": {"type": ["string", "null"]},
    "branch-types": {"type": "string", "anyOf": [{"type": "string"}]},
    "no-tuples": {"type": "array", "items": [{"type": "string"}]},
    "typed": {"description": "no type"},
}
CALL = ToolCall("abcdefgh1", "search", {}, "{}")
LONG: list[Any] = [
    "hi",
    Message("assistant", (Reasoning("I think"), CALL)),
    Message("tool", (ToolResult("abcdefgh1", "x"),)),
    Message("assistant", (Reasoning("hm"), Text("so"))),
    "and?",
]


def tool(name: str = "search", parameters: Json | None = None, **more: Any) -> Json:
    return {"type": "function", "function": {"name": name, "parameters": parameters or {"type": "object"}, **more}}


def around(schema: Json) -> Json:
    return {"type": "object", "properties": {"x": schema}, "$defs": {"A": {"type": "string"}}}


@cache
def models() -> tuple[Model, ...]:
    """One model in forty and one of each provider, over all wires that it speaks."""
    names = BUILTIN.names()
    first = {name.partition("/")[0]: name for name in reversed(names)}
    sample = sorted({*names[::40], *first.values()})
    return tuple(BUILTIN.resolve(name, protocol=wire) for name in sample for wire in BUILTIN.wires(name))


def plan(model: Model, messages: Any = "hi", **options: Any) -> Plan | None:
    """The engine's request, None where the registry does not know where the endpoint is."""
    try:
        return engine.build_request(model, messages if isinstance(messages, list) else [messages], **options)
    except CnllmError:
        return None


def judged(model: Model, request: Plan, body: Json, *, strict: bool = True, key: str = "k") -> ErrorResponse | None:
    auth = model.flags.auth
    headers = dict(request.headers)
    if auth is not None and auth.header:
        headers[auth.header] = (auth.value or "{key}").replace("{key}", key) if key else ""
    return check_request(model, headers, read_request(model, body, unquote(urlsplit(request.url).path)), strict=strict)


def retired(model: Model) -> bool:
    return model.flags.status is not None and model.flags.status.is_ == "retired"


# ── what cnllm itself sends ──────────────────────────────────────────────────
ASKED: list[tuple[Any, Json]] = [
    ("hi", {}),
    (
        "hi",
        {
            "tools": [tool("search_" * 12, RICH, strict=True), {"type": "function", "function": {"name": "bare"}}],
            "tool_choice": "required",
            "parallel_tool_calls": True,
            "temperature": 0.7,
            "top_p": 0.8,
            "max_tokens": 10**7,
            "stop": ["a"] * 9,
            "seed": 3,
            "reasoning": "high",
        },
    ),
    ("hi", {"reasoning": "off", "stream": True, "tools": [tool()]}),
    ("hi", {"reasoning": 3000, "schema": {"type": "object", "properties": {"a": {"type": "string"}}}}),
    (LONG, {"reasoning": "on"}),
    (LONG, {"reasoning": "off", "tools": [tool()]}),
    ("hi", {"reasoning": "minimal"}),
    ("hi", {"reasoning": "max"}),
]


@pytest.mark.sampled
def test_what_the_engine_sends_is_accepted() -> None:
    accepted = 0
    for number, model in enumerate(models()):
        for messages, options in some(ASKED, number):
            request = plan(model, messages, **options)
            if request is None or (request.flags.stream.required):
                continue
            for strict in (False, True):
                refused = judged(request.model, request, request.body, strict=strict)
                if strict and retired(request.model):
                    assert refused is not None, model
                    assert refused.status in (400, 404, 410), (model, refused)
                    continue
                assert refused is None, (model, options, refused)
            accepted += 1
    assert accepted > (1000 if SHARE == 1 else 250)


# ── what the flags deny ──────────────────────────────────────────────────────
def changed(request: Plan, path: str, value: Any) -> Json:
    body: Json = copy.deepcopy(request.body)
    set_value(body, path, value)
    return body


def of_params(model: Model, request: Plan) -> Iterator[Violation]:
    flags = request.flags
    used = {
        path.partition(".")[0]
        for rule in (flags.params or {}).values()
        if (path := rule.as_ if isinstance(rule, Param) else rule) and isinstance(path, str)
    } | set(request.body)
    for name, rule in (flags.params or {}).items():
        if state(rule) == "ignored":  # no endpoint refuses it
            continue
        path = (rule.as_ or name) if isinstance(rule, Param) else rule
        if rule is False and name not in request.body:
            yield "params: false", request, changed(request, name, 1)
        elif isinstance(path, str) and path != name and name not in used and path not in request.body:
            # A body with the new name may have the old one, too: `test_param_states` says so.
            yield "params: renamed", request, changed(request, name, 1)
        if not isinstance(rule, Param) or not isinstance(path, str):
            continue
        for key, value in (("max", rule.max), ("below", rule.below), ("min", rule.min), ("above", rule.above)):
            if value is not None:
                wrong = value + 1 if key in ("max", "below") else value - 1
                yield f"params.{key}", request, changed(request, path, wrong)
        if rule.fixed is not None:
            yield "params.fixed", request, changed(request, path, 987)
        if rule.items is not None:
            yield "params.items", request, changed(request, path, ["a"] * (rule.items + 1))
        if isinstance(rule.default, int):
            body = copy.deepcopy(request.body)
            body.pop(path, None)
            yield "params.default", request, body
    most = flags.limits.output
    room = (flags.params or {}).get("max_tokens")
    room = room.as_ if isinstance(room, Param) else room
    if most is not None and isinstance(room, str):
        yield "limits.output", request, changed(request, room, most + 1)
    for dropped in flags.body.drop or ():
        yield "body.drop", request, changed(request, dropped, 1)


def of_reasoning(model: Model, request: Plan) -> Iterator[Violation]:
    reasoning = request.flags.reasoning
    effort, budget = reasoning.effort, reasoning.budget
    if effort is not None and effort.at and any(getattr(effort, level) for level in LEVELS):
        yield "reasoning.effort", request, changed(request, effort.at, "colossal")
    if budget is not None and budget.at:
        if budget.max is not None:
            yield "reasoning.budget.max", request, changed(request, budget.at, budget.max + 1)
        yield "reasoning.budget", request, changed(request, budget.at, "plenty")
    if reasoning.mode == "always" and reasoning.off is not None and reasoning.off.set:
        yield "reasoning.mode", request, request.body | reasoning.off.set
    if model.protocol == "openai-chat" and reasoning.replay == "never" and reasoning.fields:
        turn = {"role": "assistant", "content": "so", reasoning.fields[0]: "I think"}
        messages = [*request.body["messages"], turn, {"role": "user", "content": "and?"}]
        yield "reasoning.replay: sent", request, {**request.body, "messages": messages}
    carried = plan(model, LONG[:3], tools=[tool()], reasoning="on")
    kind = reasoning.if_missing
    if (
        model.protocol == "openai-chat"
        and carried is not None
        and carried.flags.reasoning.mode == "always"
        and carried.flags.reasoning.replay in ("tool-turns", "always", "since-user")
        and carried.flags.reasoning.replay_as in (None, "field")
        and kind in ("empty", "space", "error")
    ):
        body = copy.deepcopy(carried.body)
        for message in body["messages"]:
            for field in reasoning.fields or ():
                message.pop(field, None)
        if body != carried.body:
            yield "reasoning.replay: missing", carried, body


def of_tools(model: Model, request: Plan) -> Iterator[Violation]:
    """Requests that the engine sends as they were asked for: on_unsupported="send"."""

    def sent(flag: str, **options: Any) -> Iterator[Violation]:
        made = plan(model, "hi", on_unsupported="send", **options)
        if made is not None and made.body.get("tools"):
            yield flag, made, made.body

    rules = request.flags.tools
    if rules.supported is False and model.protocol == "openai-chat":
        yield "tools.supported", request, {**request.body, "tools": [tool()]}
        return
    if rules.name_max_length is not None:
        yield from sent("tools.name_max_length", tools=[tool("x" * (rules.name_max_length + 1))])
    if rules.name_pattern is not None:
        yield from sent("tools.name_pattern", tools=[tool("look up")])
    if rules.strict is False:
        yield from sent("tools.strict", tools=[tool(strict=True)])
    if rules.parallel is False and (made := plan(model, "hi", tools=[tool()])) is not None:
        yield "tools.parallel", made, {**made.body, "parallel_tool_calls": False}
    for rule in rules.schema or ():
        if rule in BREAKS:
            yield from sent(f"tools.schema: {rule}", tools=[tool(parameters=around(BREAKS[rule]))])
        else:
            yield from sent(f"tools.schema: {rule}", tools=[tool(parameters={"anyOf": [{"type": "object"}]})])
    for keyword in rules.schema_drop or ():
        yield from sent("tools.schema_drop", tools=[tool(parameters=around({"type": "string", keyword: 1}))])
    choice = plan(model, "hi", tools=[tool()])
    allowed = choice.flags.tool_choice.allowed if choice is not None else None
    for word in {"auto", "none", "required", "named"} - set(allowed or ("auto", "none", "required", "named")):
        yield from sent("tool_choice.allowed", tools=[tool()], tool_choice="search" if word == "named" else word)


def of_answers(model: Model, request: Plan) -> Iterator[Violation]:
    methods = request.flags.schema.methods or ()
    places = {"openai-chat": "response_format", "openai-responses": "text.format"}
    place = places.get(model.protocol)
    if place is None or not methods:
        return
    schema = {"name": "a", "schema": {"type": "object"}}
    flat = {"type": "json_schema", **schema}
    if "json_schema" not in methods:
        wire = flat if model.protocol == "openai-responses" else {"type": "json_schema", "json_schema": schema}
        yield "schema.methods: json_schema", request, changed(request, place, wire)
        if "json_object" not in methods:
            yield "schema.methods: json_object", request, changed(request, place, {"type": "json_object"})
    word = request.flags.simulator.json_word
    if word and "json_object" in methods:
        yield "simulator.json_word", request, changed(request, place, {"type": "json_object"})


def of_messages(model: Model, request: Plan) -> Iterator[Violation]:
    rules = request.flags.messages
    if model.protocol != "openai-chat":
        return
    user = {"role": "user", "content": "hi"}

    def told(*messages: Json) -> Json:
        return {**request.body, "messages": list(messages)}

    if not rules.developer:
        yield "messages.developer", request, told({"role": "developer", "content": "x"}, user)
    if rules.system == "user":
        yield "messages.system", request, told({"role": "system", "content": "x"}, user)
    if rules.system == "first":
        yield "messages.system", request, told(user, {"role": "system", "content": "x"})
    if rules.consecutive_roles == "join":
        yield "messages.consecutive_roles", request, told(user, user)
    if rules.after_results:
        function = {"name": "get_weather", "arguments": "{}"}
        call = {
            "role": "assistant",
            "content": "",
            "tool_calls": [{"id": "a23456789", "type": "function", "function": function}],
        }
        result = {"role": "tool", "tool_call_id": "a23456789", "name": "get_weather", "content": "sunny"}
        yield "messages.after_results", request, told(user, call, result, user)
    if rules.first_user:
        yield "messages.first_user", request, told({"role": "assistant", "content": "x"}, user)
    if rules.content == "string":
        yield "messages.content", request, told({"role": "user", "content": [{"type": "text", "text": "hi"}]})
    yield "messages.fields", request, told({**user, "no_such_key": 1})
    if request.flags.input is not None and "audio" not in request.flags.input:
        sound = {"type": "input_audio", "input_audio": {"data": "AA==", "format": "wav"}}
        yield "input", request, told({"role": "user", "content": [{"type": "text", "text": "hi"}, sound]})


def of_results(model: Model, request: Plan) -> Iterator[Violation]:
    """A tool result without the name that the flag demands."""
    called = plan(model, LONG[:3], tools=[tool()])
    if called is None or not called.flags.tools.result_name or called.flags.tools.supported is False:
        return
    body = copy.deepcopy(called.body)
    for message in body.get("messages", ()):
        if message["role"] == "tool":
            del message["name"]
    for content in body.get("contents", ()):
        for part in content["parts"]:
            if "functionResponse" in part:
                del part["functionResponse"]["name"]
    yield "tools.result_name", called, body


def of_head(model: Model, request: Plan) -> Iterator[Violation]:
    for name in model.flags.headers or {}:
        headers = {key: value for key, value in request.headers.items() if key.lower() != name.lower()}
        yield "headers", msgspec.structs.replace(request, headers=headers), request.body
    if retired(model):
        yield "status", request, request.body


def violations(model: Model) -> Iterator[Violation]:
    request = plan(model)
    if request is None or request.model.protocol != model.protocol:
        return
    for source in (of_params, of_reasoning, of_tools, of_answers, of_messages, of_results, of_head):
        yield from source(model, request)
    if request.flags.stream.required and model.protocol != "gemini":
        yield "stream.required", request, {**request.body, "stream": False}
    if model.protocol != "gemini":
        yield "model", request, {**request.body, "model": "no-such-model"}


SHAPES: dict[str, tuple[str, ...]] = {
    "openai-chat": ("message", "type", "param", "code"),
    "openai-responses": ("message", "type", "param", "code"),
    "anthropic-messages": ("type", "message"),
    "gemini": ("code", "message", "status"),
}


def test_every_flag_that_denies_something_is_enforced_on_every_wire() -> None:
    seen: Counter[tuple[str, str]] = Counter()
    for model in models():
        worded = {refusal.body for refusal in refusals_of(model.flags)}
        for flag, request, body in violations(model):
            refused = judged(model, request, body)
            assert refused is not None, (model, flag, body)
            assert 400 <= refused.status < 500, (model, flag)
            seen[flag, model.protocol] += 1
            if not worded and not refusals_of(request.flags):
                error = json.loads(refused.body)["error"]
                assert set(SHAPES[model.protocol]) <= error.keys(), (model, flag, refused)
                assert error["message"], (model, flag)
    flags = {flag for flag, _ in seen}
    assert flags >= {
        "params: false",
        "params: renamed",
        "params.max",
        "params.min",
        "params.fixed",
        "params.items",
        "params.default",
        "limits.output",
        "reasoning.effort",
        "reasoning.budget",
        "reasoning.budget.max",
        "reasoning.replay: sent",
        "reasoning.replay: missing",
        "tools.supported",
        "tools.name_max_length",
        "tools.name_pattern",
        "tools.strict",
        "tools.parallel",
        "tools.schema: inline-refs",
        "tools.schema: any-of-only",
        "tools.schema: root-object",
        "tools.schema_drop",
        "tool_choice.allowed",
        "schema.methods: json_schema",
        "schema.methods: json_object",
        "simulator.json_word",
        "messages.system",
        "messages.fields",
        "input",
        "model",
        "tools.result_name",
        "headers",
        "status",
    }, sorted(flags)
    assert {wire for _, wire in seen} == set(SHAPES)


STRICT = """
[providers.own]
protocol = "{wire}"
base_url = "http://127.0.0.1:9"
keys = []
headers = {{ x-team = "blue", x-features = "a, b" }}
[models."own/m".tools]
result_name = {named}
[models."own/old".status]
is = "retired"
use = "own/m"
"""


@each("wire", SHAPES)
def test_headers_names_of_results_and_retired_models_are_minded_by_a_strict_endpoint(wire: str, tmp_path: Path) -> None:
    overlay = tmp_path / "own.toml"
    for named in ("true", "false"):
        overlay.write_text(STRICT.format(wire=wire, named=named))
        registry = cnllm.Registry.load(overlay)
        model = registry.resolve("own/m", protocol=wire)
        request = engine.build_request(model, LONG[:3], tools=[tool()])
        body = copy.deepcopy(request.body)
        for message in body.get("messages", ()):
            if message["role"] == "tool" and message.pop("name", None) is None:
                message["name"] = "search"
        for content in body.get("contents", ()):
            for part in content["parts"]:
                if named == "true":
                    part.get("functionResponse", {}).pop("name", None)
        has_names = wire in ("openai-chat", "gemini")
        refused = judged(model, request, body)
        assert (refused is not None) is (has_names or body != request.body), (named, refused)
        assert judged(model, request, body, strict=False) is None
        if wire != "gemini" or named == "true":  # its results always have a name, which such a flag denies
            assert judged(model, request, request.body) is None, named

        said: list[tuple[Json, bool]] = [
            ({}, True),
            ({"x-team": None}, False),
            ({"X-TEAM": "blue", "x-team": None}, True),
            ({"x-team": "red"}, False),
            ({"x-features": "b,c, a"}, True),  # more than is demanded
            ({"x-features": "a"}, False),
        ]
        if wire == "gemini" and named == "false":
            continue
        for changes, fits in said:
            headers = {name: value for name, value in {**request.headers, **changes}.items() if value is not None}
            sent = msgspec.structs.replace(request, headers=headers)
            assert judged(model, sent, request.body, strict=False) is None
            refused = judged(model, sent, request.body)
            assert (refused is None) is fits, changes
            if refused is not None:
                assert "x-" in refused.body
                assert not {"blue", "red"} & set(refused.body.replace('"', " ").split()), "a value may be a secret"
        old = registry.resolve("own/old", protocol=wire)
        request = engine.build_request(old, ["hi"])
        assert judged(old, request, request.body, strict=False) is None
        refused = judged(old, request, request.body)
        assert refused is not None
        assert refused.status == 404
        assert "retired" in refused.body


@each("wire", SHAPES)
def test_a_prompt_longer_than_the_window_is_an_overflow_that_the_client_knows(wire: str, tmp_path: Path) -> None:
    overlay = tmp_path / "own.toml"
    overlay.write_text(
        f'[providers.own]\nprotocol = "{wire}"\nbase_url = "http://127.0.0.1:9"\nkeys = []\n'
        'limits = { context = 2000 }\n[models."own/m"]\n'
    )
    model = cnllm.Registry.load(overlay).resolve("own/m")
    for text, fits in (("word " * 2001, False), ("字" * 4100, False), ("word " * 1900, True), ("x", True)):
        request = engine.build_request(model, [text])
        refused = judged(model, request, request.body, strict=False)
        assert (refused is None) == fits, refused
        if refused is not None:
            with pytest.raises(ContextTooLong):
                engine.parse_response(model, refused.status, {}, refused.body.encode(), plan=request)


def test_effort_and_budget_change_how_long_the_reasoning_is() -> None:
    transport = SimTransport(BUILTIN)

    def length(request: Plan) -> int:
        status, _, pieces = transport.send(keyed(request))
        content = b"".join(pieces)
        assert status == 200, content
        reply = engine.parse_response(request.model, status, {}, content, plan=request)
        return reply.usage.reasoning or len(reply.reasoning)

    tried: Counter[str] = Counter()
    for model in models():
        lengths: dict[Any, int] = {}
        for level in ("low", "high"):
            request = plan(model, reasoning=level)
            if request is None or request.flags.reasoning.mode == "never":
                break
            reasoning = request.flags.reasoning
            if request.flags.stream.required:
                break
            effort = reasoning.effort
            if not (effort is not None and effort.at and effort.low and effort.high and effort.low != effort.high):
                break
            if not (reasoning.fields or reasoning.replay_as == "seal" or model.protocol != "openai-chat"):
                break
            lengths[level] = length(request)
        if len(lengths) == 2:
            assert 0 < lengths["low"] < lengths["high"], (model, lengths)
            tried[model.protocol] += 1
    assert tried["openai-chat"] > 10
    assert tried["openai-responses"] > 2
    for name, wire in (("google/gemini-2.5-flash", "gemini"), ("anthropic/claude-sonnet-4-5", "anthropic-messages")):
        model = BUILTIN.resolve(name, protocol=wire)
        few, many = (plan(model, reasoning=tokens, max_tokens=32_000) for tokens in (1024, 16_000))
        assert few is not None
        assert many is not None
        assert 0 < length(few) < length(many), model


def keyed(request: Plan) -> Plan:
    auth = request.model.flags.auth
    if auth is None or not auth.header:
        return request
    headers = {**request.headers, auth.header: (auth.value or "{key}").replace("{key}", "k")}
    return msgspec.structs.replace(request, headers=headers)
