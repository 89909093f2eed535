"""Strict tools go out in the form that strict mode demands, and arguments come back in the form of the caller's."""

import functools
import json
import tempfile
from pathlib import Path
from typing import Any, NotRequired, TypedDict

import pytest
from builtin import BUILTIN
from cases import each
from client.peer import Peer, reply

import cnllm
from cnllm import Client, Model, Registry, engine
from cnllm.registry.read import builtin_path, read
from cnllm.tools import bound, problem_with

Json = dict[str, Any]
ADDRESS: Json = {"type": "object", "properties": {"zip": {"type": "string"}, "no": {"type": "integer"}}}
ADDRESS |= {"required": ["zip"]}
PERSON: Json = {
    "type": "object",
    "properties": {
        "name": {"type": "string"},
        "age": {"type": ["integer", "null"]},
        "nick": {"type": "string", "enum": ["a", "b"], "description": "short"},
        "homes": {"type": "array", "items": ADDRESS},
        "work": {"$ref": "#/$defs/Work"},
        "pet": {"anyOf": [{"type": "object", "properties": {"cat": {"type": "string"}}}, {"type": "string"}]},
    },
    "required": ["name"],
    "$defs": {"Work": {"type": "object", "properties": {"at": {"type": "string"}, "boss": {"$ref": "#/$defs/Work"}}}},
}


@functools.cache
def registry() -> Registry:
    return BUILTIN


def home(url: str = "http://127.0.0.1:9", wire: str = "openai-chat", more: str = "") -> Model:
    """A model of an endpoint that takes strict."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "home.toml"
        provider = f'[providers.home]\nprotocol = "{wire}"\nbase_url = "{url}"\nkeys = []\ntools.strict = true\n'
        path.write_text(provider + more + '[models."home/m"]\n')
        return Registry([read(builtin_path(), builtin=True), read(path)]).resolve("home/m")


def tool(name: str = "f", parameters: Any = PERSON, strict: bool | None = True) -> Json:
    return {"type": "function", "function": {"name": name, "parameters": parameters, "strict": strict}}


def plan(model: str | Model, *tools: Json, **options: Any) -> cnllm.Plan:
    found = registry().resolve(model) if isinstance(model, str) else model
    return engine.build_request(found, "hi", tools=list(tools), **options)


def offered(made: cnllm.Plan) -> list[Json]:
    return [t.get("function", t) for t in made.body["tools"]]


def codes(made: cnllm.Plan) -> list[str]:
    return [note.code for note in made.notes if note.code.startswith("strict")]


def is_strict(node: Any) -> bool:
    """Whether every object in a schema is closed and demands all that it lists."""
    if isinstance(node, list):
        return all(map(is_strict, node))
    if not isinstance(node, dict):
        return True
    listed = node.get("properties")
    closed = node.get("additionalProperties") is False
    if isinstance(listed, dict) and "type" in node and not (closed and node.get("required") == list(listed)):
        return False
    return all(map(is_strict, node.values()))


WIRES = ["openai-chat", "openai-responses", "anthropic-messages"]


@each("wire", WIRES)
def test_a_strict_definition_goes_out_in_the_required_form(wire: str) -> None:
    model = home(wire=wire)
    before = json.dumps(PERSON)
    made = plan(model, tool())
    sent = offered(made)[0]
    schema = sent.get("parameters") or sent["input_schema"]
    assert json.dumps(PERSON) == before
    assert sent["strict"] is True
    assert is_strict(schema)
    assert schema["properties"]["age"] == {"type": ["integer", "null"]}
    assert {"type": "null"} in schema["properties"]["nick"]["anyOf"]
    assert schema["properties"]["name"] == {"type": "string"}
    assert codes(made) == ["strict-form"]
    assert "tools.strict" in [note.flag for note in made.notes]
    assert codes(plan(model, tool(strict=None))) == codes(plan(model, tool(strict=False))) == []


def test_what_is_in_the_form_already_is_not_touched() -> None:
    closed: Json = {"type": "object", "properties": {"a": {"type": "string"}}, "required": ["a"]}
    closed |= {"additionalProperties": False}
    made = plan("gpt-5.2", tool(parameters=closed))
    assert (offered(made)[0]["parameters"], codes(made)) == (closed, [])


OPEN: list[Any] = [
    {"type": "object", "additionalProperties": {"type": "integer"}},
    {"type": "object", "properties": {"a": {"type": "object"}}},
    {"type": "object", "properties": {"a": {"type": "array", "items": {"type": "object"}}}},
    {"type": "object", "properties": {"a": {"anyOf": [{"type": "object"}, {"type": "null"}]}}},
    {"type": "object", "properties": {"a": {"$ref": "#/$defs/D"}}, "$defs": {"D": {"type": "object"}}},
    {"anyOf": [{"type": "object", "properties": {"a": {"type": "string"}}}]},
    {"type": "object", "properties": {"a": {"type": "object", "patternProperties": {"x": {}}}}},
]


def test_what_has_no_strict_form_goes_without_strict() -> None:
    for parameters in OPEN:
        made = plan("gpt-5.2", tool("open", parameters), tool("closed"))
        by_name = {t["name"]: t for t in offered(made)}
        assert not by_name["open"].get("strict"), parameters
        assert by_name["closed"]["strict"] is True
        assert "strict-dropped" in codes(made)
        with pytest.raises(cnllm.CannotSend):
            plan("gpt-5.2", tool("open", parameters), on_unsupported="error")


@each("wire", WIRES)
def test_one_grammar_for_answers_and_calls_takes_closed_objects_without_bounds(wire: str) -> None:
    """https://platform.claude.com/docs/en/agents-and-tools/tool-use/strict-tool-use"""
    bounded: Json = {"type": "object", "properties": {"n": {"type": "integer", "minimum": 1}, "to": ADDRESS}}
    bounded["required"] = ["n"]
    model = home(wire=wire, more='schema.rules = ["any-of-only", "closed"]\nschema.drop = ["minimum"]\n')
    made = plan(model, tool(parameters=bounded), tool("loop"), tool("open", OPEN[0]), tool("usual", bounded, False))
    sent = {t["name"]: t for t in offered(made)}
    schema = sent["f"].get("parameters") or sent["f"]["input_schema"]
    assert (schema["required"], schema["additionalProperties"]) == (["n"], False)
    assert schema["properties"]["to"] == {**ADDRESS, "additionalProperties": False}
    assert "minimum" not in schema["properties"]["n"]
    assert "minimum: 1" in schema["properties"]["n"]["description"]
    assert [bool(sent[name].get("strict")) for name in ("f", "loop", "open", "usual")] == [True, False, False, False]
    assert (sent["usual"].get("parameters") or sent["usual"]["input_schema"]) == bounded
    assert sorted(codes(made)) == ["strict-dropped", "strict-form"]
    assert "schema.rules" in [note.flag for note in made.notes]


def test_strict_tools_beyond_the_limits_of_a_request_go_without_strict() -> None:
    """https://platform.claude.com/docs/en/build-with-claude/structured-outputs: 20 tools, 24 optional, 16 unions."""

    def object_of(optional: int, unions: int) -> Json:
        kinds: Json = {f"u{n}": {"type": ["string", "null"]} for n in range(unions)}
        nested: Json = {"type": "object", "properties": {"x": {"type": "string"}}, "required": ["x"]}
        nested["properties"] |= {f"o{n}": {"type": "string"} for n in range(optional)}
        return {"type": "object", "properties": {**kinds, "in": nested}, "required": [*kinds, "in"]}

    def strict(*parameters: Json) -> list[bool]:
        made = plan("anthropic/claude-opus-5-5", *[tool(f"t{n}", each) for n, each in enumerate(parameters)])
        notes = [note for note in made.notes if note.flag == "tools.strict_limits"]
        sent = [bool(t.get("strict")) for t in made.body["tools"]]
        assert [note.code for note in notes] == ["strict-dropped"] * (False in sent)
        assert [name for name, is_strict in zip(("t0", "t1", "t2"), sent, strict=False) if not is_strict] == [
            name for name in ("t0", "t1", "t2") if any(name in note.said.split(", ") for note in notes)
        ]
        return sent

    assert strict(*[object_of(0, 0)] * 22) == [True] * 20 + [False] * 2
    assert strict(object_of(20, 0), object_of(5, 0), object_of(4, 0)) == [True, False, True]
    assert strict(object_of(0, 10), object_of(0, 6), object_of(0, 1)) == [True, True, False]


def test_claude_gets_strict_tools_closed() -> None:
    for name in ("anthropic/claude-haiku-4-5", "anthropic/claude-opus-5-5"):
        made = plan(name, tool(parameters=ADDRESS))
        assert made.body["tools"][0]["input_schema"] == {**ADDRESS, "additionalProperties": False}


def test_all_or_none_where_the_endpoint_wants_that() -> None:
    made = plan("deepseek/deepseek-flash", tool("a"), tool("b", strict=None), reasoning="off")
    assert [t.get("strict") for t in offered(made)] == [True, True]
    assert all(is_strict(t["parameters"]) for t in offered(made))
    assert "strict-added" in codes(made)
    assert made.url == "https://api.deepseek.com/beta/chat/completions"
    made = plan("deepseek/deepseek-flash", tool("a"), tool("b", OPEN[0], strict=None), reasoning="off")
    assert [t.get("strict") for t in offered(made)] == [None, None]
    assert offered(made)[0]["parameters"]["required"] == ["name"]
    assert codes(made) == ["strict-dropped"]
    assert made.url == "https://api.deepseek.com/chat/completions"


def test_where_strict_is_not_taken_it_is_left_out_with_a_note() -> None:
    model = next(m for m in registry().names() if registry().resolve(m).flags.tools.strict is False)
    made = plan(model, tool())
    assert "strict" not in offered(made)[0]
    assert codes(made) == ["strict-dropped"]
    with pytest.raises(cnllm.CannotSend):
        plan(model, tool(), on_unsupported="error")
    assert offered(plan(model, tool(), on_unsupported="send"))[0]["strict"] is True


def test_what_nobody_knows_is_sent_as_it_is() -> None:
    model = registry().resolve("openai-compatible/m", base_url="http://127.0.0.1:9")
    made = plan(model, tool())
    assert (offered(made)[0]["parameters"], codes(made)) == (PERSON, [])


def test_sent_as_it_is_where_the_caller_says_so() -> None:
    made = plan("gpt-5.2", tool(), on_unsupported="send")
    assert offered(made)[0]["parameters"] == PERSON


# ── the way back ─────────────────────────────────────────────────────────────
FILLED = {
    "name": "Li",
    "age": None,
    "nick": None,
    "homes": [{"zip": "1", "no": None}, {"zip": "2", "no": 3}],
    "work": {"at": None, "boss": {"at": "x", "boss": None}},
    "pet": {"cat": None},
}
MEANT = {
    "name": "Li",
    "age": None,
    "homes": [{"zip": "1"}, {"zip": "2", "no": 3}],
    "work": {"boss": {"at": "x"}},
    "pet": {},
}


def answer(arguments: Json) -> list[bytes]:
    function = {"name": "f", "arguments": json.dumps(arguments)}
    calls = [{"id": "c1", "type": "function", "function": function}]
    return [reply(None, finish="tool_calls", tool_calls=calls)]  # type: ignore[arg-type]


def test_null_for_what_may_be_left_out_is_left_out_again() -> None:
    seen: list[Json] = []

    def f(**arguments: Any) -> str:
        seen.append(arguments)
        return "ok"

    with Peer(answer(FILLED), [reply("Done.")]) as peer, Client(registry()) as client:
        made = cnllm.Tool("f", "d", PERSON, function=f, strict=True)
        run = client.run(home(peer.url), "hi", tools=[made])
        assert (seen, run.reply.text) == ([MEANT], "Done.")
        sent = peer.received[1].json()["messages"][1]["tool_calls"][0]["function"]["arguments"]
        assert json.loads(sent) == FILLED
    with Peer(answer(FILLED)) as peer, Client(registry()) as client:
        got = client.call(home(peer.url), "hi", tools=[tool()]).tool_calls[0]
        assert (got.arguments, json.loads(got.raw), got.problem) == (MEANT, FILLED, None)
    with Peer(answer({**FILLED, "name": None})) as peer, Client(registry()) as client:
        assert client.call(home(peer.url), "hi", tools=[tool()]).tool_calls[0].arguments == {**MEANT, "name": None}


def test_the_default_of_a_python_function_is_used() -> None:
    seen: list[Any] = []

    def f(city: str, days: int = 3, unit: str | None = "C") -> str:
        seen.append((city, days, unit))
        return "ok"

    with Peer(answer({"city": "Oslo", "days": None, "unit": None}), [reply("Done.")]) as peer, Client(registry()) as c:
        c.run(home(peer.url), "hi", tools=[cnllm.tool(f, strict=True)])
    assert seen[0][:2] == ("Oslo", 3)


class Stop(TypedDict):
    name: str
    minutes: NotRequired[int]


def test_null_is_left_out_again_in_the_values_of_a_dict_and_in_a_tuple() -> None:
    def f(by_day: dict[str, Stop], way: tuple[Stop, int], many: list[tuple[Stop, ...]]) -> object:
        return by_day, way, many

    made, stop = cnllm.tool(f, strict=True), {"name": "Bern", "minutes": None}
    arguments = {"by_day": {"Monday": stop}, "way": [stop, 1], "many": [[stop]]}
    assert problem_with(made, cnllm.ToolCall("c", "f", arguments, json.dumps(arguments))) is None
    meant = {"name": "Bern"}
    assert made(**bound(made, arguments)) == ({"Monday": meant}, (meant, 1), [(meant,)])


def test_without_strict_a_null_is_a_null() -> None:
    with Peer(answer(FILLED)) as peer, Client(registry()) as client:
        assert client.call(home(peer.url), "hi", tools=[tool(strict=None)]).tool_calls[0].arguments == FILLED
