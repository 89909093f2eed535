"""The requests by which two endpoints are told apart: everything that a flag of the registry may decide."""

from __future__ import annotations

import copy
import json
from collections.abc import Iterator
from functools import cache
from typing import Any, NamedTuple

from benchmarks.probe.models import described, served
from benchmarks.probe.variants import Tree
from cnllm import Message, Registry, ToolCall, ToolResult, engine
from cnllm.jsonpath import leaves, set_value
from cnllm.protocols import server_codec
from cnllm.registry.model import Model
from cnllm.types import Media, Reasoning, Text

Json = dict[str, Any]
PIXEL = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
KEYS = {"authorization": "Bearer k", "x-api-key": "k", "api-key": "k", "x-goog-api-key": "k"}
VALUES: tuple[Any, ...] = (0, 1, 2, 0.5, 1.5, -1, -3, 21, True, "none", ["a"], list("abcdefg"))
FEW_VALUES: tuple[Any, ...] = (1, 0.5, ["a"])
WEATHER: Json = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
ODD: Json = {
    "type": "object",
    "$defs": {"day": {"type": "string", "format": "date", "pattern": "^[0-9-]+$"}},
    "properties": {
        "day": {"$ref": "#/$defs/day"},
        "count": {"type": ["integer", "null"], "minimum": 1, "exclusiveMaximum": 9, "multipleOf": 2},
        "kind": {"anyOf": [{"const": "a"}, {"enum": ["b", 1]}]},
        "items": {"type": "array", "minItems": 1, "uniqueItems": True, "prefixItems": [{"type": "string"}]},
        "any": {},
    },
    "additionalProperties": {"type": "string"},
}
KEYWORDS: Json = {
    "title": "X",
    "format": "date",
    "pattern": "^a",
    "default": "a",
    "examples": ["a"],
    "uniqueItems": True,
}
"""The values of keywords that are no number."""

ANSWER: Json = {
    "type": "object",
    "properties": {"ok": {"type": "boolean"}},
    "required": ["ok"],
    "additionalProperties": False,
}


class Request(NamedTuple):
    """The bytes of a request, its path and its headers. `own`: nothing in it is known of other endpoints alone."""

    content: bytes
    path: str
    headers: tuple[tuple[str, str], ...]
    own: bool = True


def requests(registry: Registry, model: Model, flags: Tree) -> list[Request]:
    """Return the requests for a model: those of its wire, and those next to its own numbers."""
    made = (_request(model, *parts) for parts in _bodies(registry, model, flags))
    return list({request[:3]: request for request in made}.values())


def _request(model: Model, body: Json, stream: bool, headers: dict[str, str], own: bool = True) -> Request:
    path = server_codec(model.protocol).paths[1 if stream and len(server_codec(model.protocol).paths) > 1 else 0]
    if "{model}" in path:
        path = path.replace("{model}", model.id)
        body = {key: value for key, value in body.items() if key != "model"}
    else:
        path = server_codec(model.protocol).paths[0]
        body = {**body, "model": model.id}
    return Request(json.dumps(body, ensure_ascii=False).encode(), path, tuple(headers.items()), own)


def _bodies(registry: Registry, model: Model, flags: Tree) -> Iterator[tuple[Any, ...]]:
    plain = plain_model(registry, model.protocol)
    whole = [(_build(plain, *args), stream) for stream in (False, True) for args in _histories(plain, stream)]
    additions = {path.partition(".")[0] for path in leaves(plain.flags.body.set or {})}
    base = [({k: v for k, v in body.items() if k not in {*additions, "stream_options"}}, on) for body, on in whole]
    hi, tools = base[0][0], base[1][0]
    for body, stream in (whole[0], whole[1], whole[2], whole[len(whole) // 2]):
        yield body, stream, KEYS
    for body, stream in base:
        yield body, stream, KEYS
    for name in KEYS:
        yield hi, False, {name: KEYS[name]}
    yield hi, False, {}
    for body in _mutated(base[0][0], base[2][0], base[3][0], flags.get("reasoning", {}).get("fields") or []):
        yield body, False, KEYS
    for args in _next_to(flags):
        yield _build(plain, *args), False, KEYS
    for mark in [flags.get("messages", {}).get("prefill", {}).get("set")]:
        if mark:
            yield (
                {**hi, "messages": [*hi["messages"], {"role": "assistant", "content": "(Simulated", **mark}]},
                False,
                KEYS,
            )
    switch_paths = _own_switch_paths(flags)
    known = _switches(registry, model.protocol)
    sides = [flags.get("reasoning", {}).get(side, {}).get("set") for side in ("on", "off")]
    for patch in [*known, *(changes for side in sides if side and (changes := leaves(side)) not in known)]:
        for body, stream in (base[0], base[1], base[3], *base[-len(base) // 2 :][:2], *_choices(base)):
            yield _patched(body, patch), stream, KEYS, not switch_paths.isdisjoint(patch)
    own_paths = _own_paths(flags)
    for path in _paths(registry, model.protocol):
        own = path in own_paths
        for value in [*VALUES, *_near(own_paths[path])] if own else FEW_VALUES:
            yield _patched(hi, {path: value}), False, KEYS, own
        for value in FEW_VALUES:
            yield _patched(tools, {path: value}), False, KEYS, own
    budgets = [table.get("reasoning", {}).get("budget") or {} for table in (flags, *flags.get("when", {}).values())]
    near = list(_near(set().union(*(_numbers(budget) for budget in budgets))))
    for path, low in _budgets(registry, model.protocol):
        for value in near if path in switch_paths else FEW_VALUES:
            yield _patched(hi, {path: value, **low}), False, KEYS, path in switch_paths


# ── bodies that the wire's encoder writes ────────────────────────────────────
def _histories(model: Model, stream: bool) -> Iterator[tuple[list[Message], bool, Json]]:
    """Yield messages with options. The first four are: a prompt, a tool, a result of a call, a thought before it."""
    user = Message.user("Say hello, please. Parallel, 并行.")
    tool = {"name": "get_weather", "description": "The weather.", "parameters": WEATHER}
    other = {"name": "get_time", "parameters": WEATHER}
    call = ToolCall("call_0_abcdefghi", "get_weather", {"city": "Bern"}, '{"city": "Bern"}')
    asked = Message("assistant", (call,), by=model.name)
    thought = Message("assistant", (Reasoning("I think."), call), by=model.name)
    said = Message("assistant", (Reasoning("I think."), Text("Hello.")), by=model.name)
    result = Message("tool", (ToolResult(call.id, "21", "get_weather"),))
    yield [user], stream, {}
    yield [user], stream, {"tools": [tool, other]}
    yield [user, asked, result], stream, {"tools": [tool]}
    yield [user, thought, result], stream, {"tools": [tool]}
    yield [user, said, user], stream, {}
    yield [user, Message.assistant("Hello."), user], stream, {}
    yield [user, user, Message.assistant("a"), Message.assistant("b"), user], stream, {}
    yield [Message.system("Be brief."), user], stream, {}
    yield [user, Message.system("Be brief."), user], stream, {}
    yield [Message.assistant("Hello."), user], stream, {}
    yield [user, Message.assistant("Hel")], stream, {}
    yield [Message.user([Text("?"), Media("image", "image/png", PIXEL)])], stream, {}
    for choice in ("auto", "none", "required", "get_weather"):
        yield [user], stream, {"tools": [tool, other], "tool_choice": choice}
    yield [user], stream, {"tools": [tool], "parallel_tool_calls": False}
    yield [user], stream, {"tools": [{**tool, "strict": True}]}
    for name in ("a" * 65, "a" * 129, "get.weather", "get weather", "7", "天气"):
        yield [user], stream, {"tools": [{**tool, "name": name}]}
    for schema in ({}, {"type": "object"}, ODD, {"type": "string"}, *_single_keywords()):
        yield [user], stream, {"tools": [{**tool, "parameters": schema}]}
    yield [Message.user("Answer as JSON.")], stream, {"schema": ANSWER}
    yield [user], stream, {"schema": ANSWER}
    yield [user], stream, {"schema": ODD}


def _single_keywords() -> Iterator[Json]:
    """Yield schemas with one keyword each, so that each is refused for itself."""
    for key, value in {**ODD["properties"], "extra": {"type": "string", "default": "a", "examples": ["b"]}}.items():
        yield (
            {"type": "object", "properties": {key: value}, "$defs": ODD["$defs"]}
            if "$ref" in value
            else {
                "type": "object",
                "properties": {key: value},
            }
        )
    for inner in (
        {"type": "string", "format": "date"},
        {"type": "string", "pattern": "^a$"},
        {"type": "string", "minLength": 1, "maxLength": 5},
        {"type": "integer", "minimum": 1},
        {"type": "integer", "exclusiveMinimum": 1},
        {"type": "array", "items": {"type": "string"}, "maxItems": 2},
        {"type": ["string", "null"]},
        {"const": "a"},
        {"type": "string", "enum": ["a"]},
        {"oneOf": [{"type": "string"}, {"type": "integer"}]},
        {"allOf": [{"type": "string"}]},
        {"not": {"type": "string"}},
    ):
        yield {"type": "object", "properties": {"x": inner}}
    yield {"type": "object", "properties": {}, "additionalProperties": False}
    yield {"type": "object", "patternProperties": {"^a": {"type": "string"}}}


def _next_to(flags: Tree) -> Iterator[tuple[list[Message], bool, Json]]:
    """Yield messages with options next to the model's own rules for tools: lengths of names and ids, keywords."""
    user, rules = Message.user("Say hello, please."), flags.get("tools", {})
    for length in _near({rules["name_max_length"]} if rules.get("name_max_length") else set()):
        yield [user], False, {"tools": [{"name": "a" * int(length), "parameters": WEATHER}]}
    for keyword in rules.get("schema_drop") or ():
        schema = {"type": "object", "properties": {"x": {"type": "string", keyword: KEYWORDS.get(keyword, 1)}}}
        yield [user], False, {"tools": [{"name": "get_weather", "parameters": schema}]}
    for id in ("abcdefghi", "c" * 40, "c" * 41, "c" * 64, "c" * 65, "call:0/1"):
        call = ToolCall(id, "get_weather", {"city": "Bern"}, '{"city": "Bern"}')
        turns = [user, Message("assistant", (call,)), Message("tool", (ToolResult(id, "21", "get_weather"),))]
        yield turns, False, {"tools": [{"name": "get_weather", "parameters": WEATHER}]}


@cache
def plain_model(registry: Registry, protocol: str) -> Model:
    """Return a model of which nothing but the wire is known."""
    return registry.resolve("openai-compatible/model-1", protocol=protocol, base_url="http://127.0.0.1:9")


def _build(model: Model, messages: list[Message], stream: bool, options: Json) -> Json:
    """Return the body of a request as the wire's encoder writes it."""
    plan = engine.build_request(model, messages, stream=stream, on_unsupported="send", **options)
    body: Json = copy.deepcopy(plan.body)
    return body


def _choices(base: list[tuple[Json, bool]]) -> list[tuple[Json, bool]]:
    """Return the bodies with a choice of tools."""
    return base[12:16]


# ── changes of a body ────────────────────────────────────────────────────────
def _mutated(hi: Json, history: Json, thought: Json, fields: list[str]) -> Iterator[Json]:
    """Yield bodies whose messages were changed: roles, contents, names, thoughts, empty lists of tools."""
    key = next(k for k in ("messages", "contents", "input") if k in hi)
    turns: list[Json] = hi[key] if isinstance(hi[key], list) else [{"role": "user", "content": hi[key]}]
    for role in ("developer", "system", "tool", "function", "assistant", "model", "latest_reminder"):
        yield {**hi, key: [{**turns[0], "role": role}]}
        yield {**hi, key: [{**turns[0], "role": role}, *turns]}
        yield {**hi, key: [*turns, {**turns[0], "role": role}, *turns]}
    for field in ("content", "parts"):
        for value in (
            None,
            "",
            " ",
            [],
            [{"type": "text", "text": ""}],
            [{"text": ""}],
            [{"type": "text", "text": "a"}],
            7,
        ):
            if field in turns[0]:
                yield {**hi, key: [{**turns[0], field: value}]}
                yield {**hi, key: [*turns, {**turns[0], "role": "assistant", field: value}, *turns]}
            for number, turn in enumerate(history[key]):
                if field in turn or turn.get("role") in ("assistant", "model"):
                    yield {**history, key: _replaced(history[key], number, {**turn, field: value})}
    for number, turn in enumerate(history[key]):
        for name in ("name", "reasoning_content", "reasoning", "thinking", "odd", "prefix", "partial"):
            for value in ("get_weather", "I think.", "", True, None):
                yield {**history, key: _replaced(history[key], number, {**turn, name: value})}
        yield {**history, key: _replaced(history[key], number)}
        text = json.dumps(turn)
        for old, new in (
            ('"{\\"city\\": \\"Bern\\"}"', '{"city": "Bern"}'),
            ("call_0_abcdefghi", "x"),
            ("call_0_abcdefghi", "call_0_abcdefghi_but_much_longer_than_most_ids_that_any_endpoint_takes"),
            ('{\\"city\\": \\"Bern\\"}', "{"),
        ):
            if old in text:
                yield {**history, key: _replaced(history[key], number, json.loads(text.replace(old, new)))}
    for old, new in (
        ("call_0_abcdefghi", "x"),
        ("call_0_abcdefghi", "functions.get_weather:0"),
        ("call_0_abcdefghi", "abcdefghi"),
    ):
        yield json.loads(json.dumps(history).replace(old, new))
    for body in (hi, history, thought):
        yield {**body, "tools": []}
        yield {**body, "tool_choice": "required"}
    for number, turn in enumerate(thought[key]):
        for name in dict.fromkeys((*fields, *_REASONING)):
            if turn.get("role") == "assistant" or "reasoning_content" in turn:
                kept = {k: v for k, v in turn.items() if k not in _REASONING}
                for value in ("I think.", [{"type": "reasoning.text", "text": "I think."}], "", " "):
                    yield {**thought, key: _replaced(thought[key], number, _patched(kept, {name: value}))}
                yield {**thought, key: _replaced(thought[key], number, kept)}
    for text in ("<think>I think.</think>Hello.", "Hello."):
        for role in ("assistant", "model"):
            turn = json.loads(json.dumps({**turns[0], "role": role}).replace("Say hello, please. ", text))
            yield {**hi, key: [*turns, turn, *turns]}


_REASONING = ("reasoning_content", "reasoning", "reasoning_details", "thinking", "reasoning_text", "thoughts")


def _replaced(turns: list[Json], number: int, *new: Json) -> list[Json]:
    return [*turns[:number], *new, *turns[number + 1 :]]


def _patched(body: Json, values: Json) -> Json:
    out = copy.deepcopy(body)
    for path, value in values.items():
        set_value(out, path, value)
    return out


# ── what the endpoints of the registry have ──────────────────────────────────
@cache
def _tables(registry: Registry, protocol: str) -> list[Any]:
    """Return the reasoning and params flags of all described models that a wire serves, each once."""
    seen: dict[str, Any] = {}
    for model in served(registry, described(), protocol):
        seen.setdefault(repr((model.flags.reasoning, model.flags.params)), model.flags)
    return list(seen.values())


@cache
def _switches(registry: Registry, protocol: str) -> list[Json]:
    """Return the patches for reasoning on and off, and the efforts, of all endpoints of a wire."""
    out: list[Json] = []
    for flags in _tables(registry, protocol):
        reasoning = flags.reasoning
        patches = [leaves(p.set) for p in (reasoning.on, reasoning.off) if p is not None and p.set]
        if reasoning.effort is not None and reasoning.effort.at:
            patches += [
                {reasoning.effort.at: word}
                for word in ("none", "minimal", "low", "medium", "high", "xhigh", "max", "odd")
            ]
        if reasoning.budget is not None and reasoning.budget.at:
            patches += [{reasoning.budget.at: n} for n in (0, 1, 512, 1024, 2048, 50_000, -1)]
        out += [p for p in patches if p not in out]
    return out


@cache
def _paths(registry: Registry, protocol: str) -> list[str]:
    """Return where the endpoints of a wire have their parameters, and the parameters' own names."""
    out: set[str] = set()
    for flags in _tables(registry, protocol):
        for name, rule in (flags.params or {}).items():
            out.add(name)
            as_ = rule if isinstance(rule, str) else getattr(rule, "as_", None)
            if as_ and as_ != "ignored":
                out.add(as_)
    return sorted(out)


@cache
def _budgets(registry: Registry, protocol: str) -> list[tuple[str, Json]]:
    """Return the paths of budgets, with the values of `under` that let them through."""
    out: list[tuple[str, Json]] = []
    for flags in _tables(registry, protocol):
        budget = flags.reasoning.budget
        if budget is not None and budget.at:
            for low in ({}, {"max_tokens": 4096}, {"max_tokens": 64_000}):
                if (budget.at, low) not in out:
                    out.append((budget.at, low))
    return out


def _own_paths(flags: Tree) -> dict[str, set[float]]:
    """Return the names and the paths of a model's parameters, with the numbers of their rules."""
    out: dict[str, set[float]] = {}
    for table in (flags, *flags.get("when", {}).values()):
        for name, rule in table.get("params", {}).items():
            path = rule.get("as") if isinstance(rule, dict) else rule
            numbers = _numbers(rule) | (_numbers(flags.get("limits")) if name == "max_tokens" else set())
            for key in {name, path} if isinstance(path, str) else {name}:
                out[key] = out.get(key, set()) | numbers
    return out


def _own_switch_paths(flags: Tree) -> set[str]:
    """Return where the model's own switches, efforts and budgets of reasoning stand in a body."""
    out: set[str] = set()
    for table in (flags, *flags.get("when", {}).values()):
        reasoning = table.get("reasoning", {})
        out |= {reasoning.get(name, {}).get("at") or "" for name in ("effort", "budget")}
        for name in ("on", "off"):
            out |= set(leaves(reasoning.get(name, {}).get("set") or {}))
    return out


def _numbers(value: Any) -> set[float]:
    """Return the numbers in a rule, and the lengths of its lists."""
    match value:
        case bool():
            return set()
        case int() | float():
            return {value} if abs(value) < 10_000_000 else set()
        case dict():
            return set().union(*map(_numbers, value.values()))
        case list():
            return set().union({len(value)}, *map(_numbers, value))
    return set()


def _near(numbers: set[float]) -> Iterator[float]:
    """Yield numbers and those beside them: for whole ones the next two, and those within their double."""
    near: set[float] = set()
    for value in numbers:
        if float(value).is_integer():
            near.update((value - 1, value, value + 1, value + 2, value * 2 - 1, value * 2))
        if abs(value) <= 10:
            near.update((value - 0.01, value, value + 0.01))
    yield from sorted(int(n) if float(n).is_integer() else round(n, 4) for n in near)
