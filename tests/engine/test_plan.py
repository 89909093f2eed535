"""Requests: the same bytes each time, every change noted with its line, and nothing sent that was not meant to be."""

from __future__ import annotations

import base64
import copy
import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from builtin import BUILTIN
from cases import each
from examples import changes
from hypothesis import given
from hypothesis import strategies as st
from note_rules import check_notes

import cnllm
from cnllm import Message, Reasoning, Seal, Text, ToolCall, ToolResult, engine

from .conftest import Home
from .support import Json, anything, delta, finish, read, sse, times, words

PLACE = re.compile(r"^(?P<file>.*\.toml):(?P<line>\d+)$")
OMITTED = object()


def build(model: cnllm.Model, messages: Any = "hello", **options: Any) -> engine.Plan:
    return engine.build_request(model, messages, **options)


def tool(name: str = "search", **more: Any) -> Json:
    parameters = {"type": "object", "properties": {"q": {"type": "string", "title": "Q"}}}
    return {"type": "function", "function": {"name": name, "description": "Looks.", "parameters": parameters, **more}}


def check_note(note: cnllm.Note) -> None:
    check_notes([note])
    if note.where:
        place = PLACE.match(note.where)
        assert place
        path = Path("providers.toml") if place["file"] == "providers.toml" else Path(place["file"])
        path = path if path.exists() else Path(cnllm.__file__).parent.parent / "providers.toml"
        line = path.read_text(encoding="utf-8").splitlines()[int(place["line"]) - 1]
        if note.code not in ("unknown-model", "retired"):
            assert any(word in line for word in note.flag.split(".")), (note, line)


# ── the same each time ───────────────────────────────────────────────────────

options = st.fixed_dictionaries(
    {},
    optional={
        "stream": st.booleans(),
        "reasoning": st.sampled_from(
            ["off", "on", "minimal", "low", "medium", "high", "xhigh", "max", 0, 1, 5000, 10**6]
        ),
        "tools": st.just([tool(), tool("a_very_long_name_for_a_function_" + "x" * 60, strict=True)]),
        "tool_choice": st.sampled_from(["auto", "none", "required", "search", {"type": "any"}]),
        "parallel_tool_calls": st.booleans(),
        "temperature": st.sampled_from([0, 0.0, 0.5, 1, 1.5, 2.0, 7, -1]),
        "top_p": st.sampled_from([0, 0.5, 1, 2]),
        "max_tokens": st.sampled_from([1, 100, 10**7]),
        "stop": st.sampled_from(["x", ["x"], [str(n) for n in range(20)]]),
        "seed": st.integers(0, 9),
        "schema": st.just({"type": "object", "properties": {"a": {"type": "string"}}}),
        "extra_body": st.dictionaries(words, anything, max_size=2),
        "extra_headers": st.just({"X-Test": "1"}),
    },
)


def usable(options: Json) -> Json:
    """A choice wants tools."""
    return options if "tools" in options else {k: v for k, v in options.items() if k != "tool_choice"}


@pytest.fixture(scope="module")
def registry(home: Home) -> cnllm.Registry:
    folder = Path(os.environ["HOME"])
    (folder / "none.toml").write_text("schema = 1\n", encoding="utf-8")
    return cnllm.Registry.load(str(folder / "none.toml"))


@times(100)
@given(options, st.data())
def test_any_request_to_any_model_is_the_same_twice_and_each_change_is_noted_with_its_line(
    registry: cnllm.Registry, options: Json, data: st.DataObject
) -> None:
    names = [n for n in registry.names() if registry.resolve(n).protocol == "openai-chat"]
    model = registry.resolve(data.draw(st.sampled_from(names)))
    given_options = usable(options)
    before = copy.deepcopy(given_options)
    try:
        plan = build(model, **given_options)
    except cnllm.CannotSend as error:
        check_note(error.note)
        return
    assert given_options == before
    assert build(model, **before).content == plan.content
    assert json.loads(plan.content) == json.loads(json.dumps(plan.body))
    assert plan.body["model"] == model.id
    for note in plan.notes:
        check_note(note)
        assert note.where == "" or note.where.startswith("providers.toml:")
    for key, value in options.get("extra_body", {}).items():
        assert key in plan.body
        if not isinstance(value, dict):
            assert plan.body[key] == value


@times(100)
@given(options, st.data())
def test_what_may_not_be_adjusted_is_refused_or_needs_no_adjusting(
    registry: cnllm.Registry, options: Json, data: st.DataObject
) -> None:
    names = [n for n in registry.names() if registry.resolve(n).protocol == "openai-chat"]
    model = registry.resolve(data.draw(st.sampled_from(names)))
    try:
        strictly = build(model, **usable(options), on_unsupported="error")
    except cnllm.CannotSend as error:
        check_note(error.note)
        return
    assert strictly.content == build(model, **usable(options)).content


def test_hashes_of_another_process_make_no_other_bytes(home: Home) -> None:
    code = (
        "import cnllm, sys\n"
        "m = cnllm.Registry.load(sys.argv[1]).resolve('home/m')\n"
        "p = cnllm.engine.build_request(m, 'x', tools=[{'name': 'f' * 80}], temperature=1, top_p=1, seed=3,\n"
        "    stop=['a'], schema={'title': 'T', 'type': 'object'}, extra_body={'z': 1, 'a': {}}, reasoning='high')\n"
        "sys.stdout.buffer.write(p.content + repr(sorted(p.headers)).encode() + repr(p.notes).encode())"
    )
    path = Path(os.environ["HOME"]) / "hash.toml"
    path.write_text(
        '[providers.home]\ntitle = "H"\nprotocol = "openai-chat"\nbase_url = "http://x/v1"\nkeys = []\n'
        'tools.name_max_length = 20\nbody.set = { b = 1, a = 2 }\n[models."home/m"]\n',
        encoding="utf-8",
    )
    said = {
        subprocess.run(
            [sys.executable, "-c", code, str(path)],
            env={**os.environ, "PYTHONHASHSEED": seed},
            capture_output=True,
            check=True,
        ).stdout
        for seed in ("1", "2")
    }
    assert len(said) == 1


# ── every kind of change ─────────────────────────────────────────────────────

LOOSE = tool(strict=True)
NAMED = {"type": "function", "function": {"name": "search"}}
EFFORT = 'reasoning.effort = { at = "e", low = "low", high = "high" }'
RANGE = 'reasoning.budget = { at = "b", min = 100, max = 1000 }'
HOT = "params.temperature"
ONE_ONLY = 'tool_choice = { allowed = ["auto"], otherwise = "narrow" }'


def forced(choice: Any, *tools: Json) -> Json:
    return {"tools": [tool(), *tools], "tool_choice": choice}


CHANGES: list[tuple[str, Json, str, str, Any, Any]] = [
    # flags, options, code and flag, where in the body, what is there when adjusted, and when sent all the same
    (f"{HOT} = false", {"temperature": 0.5}, f"param-dropped {HOT}", "temperature", OMITTED, 0.5),
    (f"{HOT} = {{ max = 1.0 }}", {"temperature": 1.5}, f"param-clamped {HOT}", "temperature", 1, 1.5),
    (f"{HOT} = {{ min = 0.1 }}", {"temperature": 0}, f"param-clamped {HOT}", "temperature", 0.1, 0),
    (f"{HOT} = {{ above = 0.0 }}", {"temperature": 0}, f"param-clamped {HOT}", "temperature", 0.01, 0),
    (f"{HOT} = {{ fixed = 1.0 }}", {"temperature": 0.2}, f"param-fixed {HOT}", "temperature", OMITTED, 0.2),
    (
        f'{HOT} = {{ max = 1, otherwise = "drop" }}',
        {"temperature": 2},
        f"param-dropped {HOT}",
        "temperature",
        OMITTED,
        2,
    ),
    ("params.top_p = { below = 1.0, step = 0.1 }", {"top_p": 1}, "param-clamped params.top_p", "top_p", 0.9, 1),
    ("params.stop = { items = 1 }", {"stop": ["a", "b"]}, "param-clamped params.stop", "stop", ["a"], ["a", "b"]),
    ("limits.output = 100", {"max_tokens": 101}, "param-clamped limits.output", "max_tokens", 100, 101),
    ("tools.supported = false", {"tools": [LOOSE]}, "tools-unsupported tools.supported", "tools", OMITTED, [LOOSE]),
    ("tools.strict = false", {"tools": [LOOSE]}, "strict-dropped tools.strict", "tools", [tool()], [LOOSE]),
    (
        "tools.parallel = false",
        {"tools": [tool()], "parallel_tool_calls": False},
        "param-dropped tools.parallel",
        *("parallel_tool_calls", OMITTED, False),
    ),
    (
        'tool_choice.allowed = ["auto", "none"]',
        forced("required"),
        "tool-choice tool_choice.allowed",
        *("tool_choice", "auto", "required"),
    ),
    (
        'tool_choice.allowed = ["auto"]',
        forced("none"),
        "tool-choice tool_choice.allowed",
        *("tool_choice", OMITTED, "none"),
    ),
    (
        'tool_choice.allowed = ["auto", "required"]',
        forced("search", tool("b")),
        "tool-choice tool_choice.allowed",
        *("tool_choice", "required", NAMED),
    ),
    (
        ONE_ONLY,
        forced("search", tool("b")),
        "tool-choice tool_choice.allowed",
        *("tools", [tool()], [tool(), tool("b")]),
    ),
    (
        'reasoning.mode = "never"\nreasoning.on.set.t = true',
        {"reasoning": "high"},
        *("reasoning-unsupported reasoning.mode", "t", OMITTED, True),
    ),
    (
        'reasoning.mode = "always"\nreasoning.off.set.t = false',
        {"reasoning": "off"},
        *("reasoning-always reasoning.mode", "t", OMITTED, False),
    ),
    (EFFORT, {"reasoning": "max"}, "reasoning-level reasoning.effort", "e", "high", "max"),
    (EFFORT, {"reasoning": "medium"}, "reasoning-level reasoning.effort", "e", "high", "medium"),
    (RANGE, {"reasoning": 5}, "reasoning-budget reasoning.budget", "b", 100, 5),
    (RANGE, {"reasoning": 5000}, "reasoning-budget reasoning.budget", "b", 1000, 5000),
    (
        'reasoning.budget = { at = "b", under = "max_tokens" }',
        {"reasoning": 500, "max_tokens": 400},
        *("reasoning-budget reasoning.budget.under", "b", 399, 500),
    ),
]


@each(
    "flags, options",
    [
        ("limits.output = 100", {"max_tokens": 100}),
        (f"{HOT} = {{ min = 0.1, max = 1.0 }}", {"temperature": 0.1}),
        (f"{HOT} = {{ min = 0.1, max = 1.0 }}", {"temperature": 1.0}),
        (f"{HOT} = {{ above = 0.0, below = 1.0 }}", {"temperature": 0.01}),
        ("params.stop = { items = 2 }", {"stop": ["a", "b"]}),
        (RANGE, {"reasoning": 100}),
        (RANGE, {"reasoning": 1000}),
    ],
)
def test_what_is_just_within_a_limit_is_sent_as_it_is(home: Home, flags: str, options: Json) -> None:
    plan = engine.build_request(home(flags), "hi", **options)
    assert [note for note in plan.notes if note.flag != "models"] == []
    assert next(iter(options.values())) in [plan.body.get(key) for key in ("max_tokens", "temperature", "stop", "b")]


KINDS = pytest.mark.parametrize(
    ("flags", "options", "what", "key", "adjusted", "sent"), CHANGES, ids=[f"{c[2]} {n}" for n, c in enumerate(CHANGES)]
)


@KINDS
def test_what_is_not_supported_is_adjusted_and_noted_with_its_line(
    home: Home, flags: str, options: Json, what: str, key: str, adjusted: Any, sent: Any
) -> None:
    plan = build(home(flags), **options)
    assert plan.body.get(key, OMITTED) == adjusted
    [note] = [n for n in plan.notes if f"{n.code} {n.flag}" == what]
    check_note(note)
    place = PLACE.match(note.where)
    assert place
    line = Path(place["file"]).read_text(encoding="utf-8").splitlines()[int(place["line"]) - 1]
    assert line in flags.splitlines()


@KINDS
def test_what_is_not_supported_is_refused_where_the_caller_says_so(
    home: Home, flags: str, options: Json, what: str, key: str, adjusted: Any, sent: Any
) -> None:
    with pytest.raises(cnllm.CannotSend) as caught:
        build(home(flags), **options, on_unsupported="error")
    assert f"{caught.value.note.code} {caught.value.note.flag}" == what
    assert caught.value.note.where in str(caught.value)
    assert caught.value.note.did in str(caught.value)
    assert caught.value.hint


@KINDS
def test_what_is_not_supported_is_sent_where_the_caller_says_so(
    home: Home, flags: str, options: Json, what: str, key: str, adjusted: Any, sent: Any
) -> None:
    plan = build(home(flags), **options, on_unsupported="send")
    assert plan.body[key] == sent
    assert plan.notes == []


@KINDS
def test_what_is_not_unsupported_is_not_touched(
    home: Home, flags: str, options: Json, what: str, key: str, adjusted: Any, sent: Any
) -> None:
    assert build(home(), **{k: v for k, v in options.items() if k != "reasoning"}).notes == []
    assert build(home(flags), on_unsupported="error").notes == []


def test_a_keyword_that_is_left_out_is_noted_with_its_line(home: Home) -> None:
    plan = build(home('tools.schema_drop = ["title"]'), tools=[tool()])
    [note] = [n for n in plan.notes if n.code == "schema-adapted"]
    assert PLACE.match(note.where)


@pytest.mark.parametrize("rule", ['default = "on"', 'mode = "always"', "on = { set = { think = true } }"])
def test_reasoning_is_turned_on_without_a_level_where_it_is_on_already_or_has_a_switch(home: Home, rule: str) -> None:
    plan = build(
        home(f'reasoning = {{ {rule}, effort = {{ at = "e", low = "low", medium = "medium" }} }}'), reasoning="on"
    )
    assert "e" not in plan.body
    assert not plan.notes


def test_a_number_of_tokens_is_not_silently_made_a_level(home: Home) -> None:
    model = home('reasoning.effort = { at = "e", low = "low", high = "high" }')
    plan = build(model, reasoning=5000, on_unsupported="send")
    assert plan.body.get("e", 5000) == 5000 or plan.notes


def test_a_value_out_of_range_is_sent_where_the_caller_says_so(home: Home) -> None:
    model = home('params.top_p = { max = 0.5, otherwise = "error" }')
    assert build(model, top_p=1, on_unsupported="send").body["top_p"] == 1


def test_a_value_out_of_range_is_refused_where_the_registry_says_so(home: Home) -> None:
    with pytest.raises(cnllm.CannotSend) as caught:
        build(home('params.top_p = { max = 0.5, otherwise = "error" }'), top_p=1)
    assert PLACE.match(caught.value.note.where)


def test_a_tuple_of_stops_has_as_many_items_as_a_list(home: Home) -> None:
    assert len(build(home("params.stop = { items = 1 }"), stop=("a", "b")).body["stop"]) == 1


def test_a_note_names_the_stop_texts_without_a_character(home: Home) -> None:
    plan = build(home(more='protocol = "anthropic-messages"'), stop=["END", "\n", " "])
    assert plan.body["stop_sequences"] == ["END"]
    [note] = [note for note in plan.notes if note.flag == "params.stop"]
    assert (note.code, note.said) == ("param-dropped", "['\\n', ' ']")


@times(150)
@given(
    st.floats(-3, 3),
    st.fixed_dictionaries({}, optional={"min": st.sampled_from([0.1, 0.0]), "max": st.sampled_from([1.0, 2.0])}),
    st.fixed_dictionaries({}, optional={"above": st.just(0.0), "below": st.sampled_from([1.5, 2.0])}),
)
def test_a_clamped_value_is_in_range_and_a_value_in_range_is_not_clamped(
    home: Home, value: float, closed: dict[str, float], opened: dict[str, float]
) -> None:
    table = ", ".join(f"{k} = {v}" for k, v in {**closed, **opened}.items())
    sent = build(home(f"params.temperature = {{ {table} }}"), temperature=value).body["temperature"]
    both = {**closed, **opened}
    assert sent >= both.get("min", sent)
    assert sent <= both.get("max", sent)
    assert sent > both.get("above", sent - 1)
    assert sent < both.get("below", sent + 1)
    legal = both.get("min", value) <= value <= both.get("max", value) and both.get(
        "above", value - 1
    ) < value < both.get("below", value + 1)
    assert not legal or sent == value


def test_parameters_go_where_the_endpoint_takes_them(home: Home) -> None:
    model = home(
        'params.max_tokens = "limit.tokens"\nparams.seed = { as = "random_seed" }\n'
        "params.top_p = true\nparams.temperature = { default = 0.7 }"
    )
    plan = build(model, max_tokens=5, seed=3, top_p=0.5)
    said = {k: v for k, v in plan.body.items() if k not in ("model", "messages")}
    assert said == {"limit": {"tokens": 5}, "random_seed": 3, "top_p": 0.5, "temperature": 0.7}
    assert [n.code for n in plan.notes] == ["param-default"]


# ── what the caller adds ─────────────────────────────────────────────────────


@times(100)
@given(st.dictionaries(st.sampled_from(["temperature", "x", "stream", "tools", "y", "model"]), anything, max_size=4))
def test_the_extra_body_comes_last_as_it_is(home: Home, extra: Json) -> None:
    before = copy.deepcopy(extra)
    model = home("body.set = { x = 1, y = { a = 1 } }\nparams.temperature = false")
    body = build(model, temperature=1, tools=[tool()], extra_body=extra).body
    assert extra == before
    for key, value in extra.items():
        if isinstance(value, dict):
            assert body[key].items() >= value.items()
        else:
            assert body[key] == value


def test_the_extra_body_is_not_shared_with_the_body(plain: cnllm.Model) -> None:
    extra: Json = {"a": {"b": [1]}, "c": [1]}
    body = build(plain, extra_body=extra).body
    body["a"]["b"].append(2)
    body["c"].append(2)
    assert extra == {"a": {"b": [1]}, "c": [1]}


def test_extra_headers_win_in_whatever_case(home: Home) -> None:
    model = home('headers = { X-Title = "a", X-Other = "b" }')
    headers = build(model, extra_headers={"x-title": "c", "AUTHORIZATION": "Bearer mine", "X-Number": 5}).headers
    assert headers["x-title"] == "c"
    assert headers["x-other"] == "b"
    assert headers["x-number"] == "5"
    assert headers["authorization"] == "Bearer mine"
    assert all(name == name.lower() for name in headers)


def test_no_key_is_in_a_plan(plain: cnllm.Model) -> None:
    plan = build(plain, api_key="sk-secret", extra_headers={"Authorization": "Bearer sk-secret"})
    assert plan.shown_headers()["authorization"] == "[redacted]"
    assert "sk-secret" not in repr(plan)
    assert b"sk-secret" not in plan.content
    bare = build(plain, api_key="sk-secret")
    assert bare.headers["authorization"] == bare.shown_headers()["authorization"] == "Bearer {key}"
    assert "sk-secret" not in str([getattr(bare, name) for name in bare.__struct_fields__])


@each(
    "wrong, meant",
    [("temprature", "temperature"), ("max_token", "max_tokens"), ("tool", "tools"), ("reasonning", "reasoning")],
)
def test_an_unknown_option_is_a_type_error_that_says_what_was_meant(plain: cnllm.Model, wrong: str, meant: str) -> None:
    with pytest.raises(TypeError, match=rf"'{wrong}'.*'{meant}'"):
        build(plain, **{wrong: 1})


@each("internal", ["choice", "tool_name", "other_params", "schema_name", "stop_sequences", "n"])
def test_what_is_no_option_is_none(plain: cnllm.Model, internal: str) -> None:
    with pytest.raises(TypeError, match="extra_body"):
        build(plain, **{internal: 1})


@each("option, value", [
        ("reasoning", "much"), ("reasoning", -1), ("reasoning", 0.5), ("reasoning", "²"), ("reasoning", []),
        ("tools", {"name": "f"}), ("tools", "f"), ("tools", [5]), ("tools", [{}]),
        ("tools", [{"function": {"name": 5}}]),
        ("tools", [{"name": "f", "parameters": 5}]), ("tool_choice", 5), ("extra_body", []), ("extra_headers", 5),
        ("schema", 5), ("schema", "x"), ("on_unsupported", "maybe"), ("if_cut", "maybe"),
    ])  # fmt: skip
def test_an_option_that_means_nothing_is_named(plain: cnllm.Model, option: str, value: Any) -> None:
    with pytest.raises((TypeError, ValueError), match=option):
        build(plain, **{option: value})


def test_text_that_no_utf8_can_hold_is_named_or_mended(plain: cnllm.Model) -> None:
    try:
        build(plain, ["ok", "\ud800"])
    except ValueError as error:
        assert "messages[1]" in str(error)  # noqa: PT017


def test_a_named_tool_that_is_not_offered_is_a_mistake(plain: cnllm.Model) -> None:
    with pytest.raises(ValueError, match="search"):
        build(plain, tools=[tool()], tool_choice="other")
    with pytest.raises(ValueError, match=r"for some of them pass tools="):
        build(plain, tools=[tool()], tool_choice={"type": "allowed_tools", "allowed_tools": {"tools": [tool()]}})


def test_defaults_of_a_model_hold_unless_the_caller_says_otherwise(home: Home) -> None:
    model = home(
        more='call = { temperature = 0.3, top_p = 0.4, extra_body = { a = 1 }, reasoning = "off" }\n'
        "reasoning.off.set.t = false"
    )
    body = build(model, temperature=0.9, top_p=None).body
    assert (body["temperature"], body["top_p"], body["a"], body["t"]) == (0.9, 0.4, 1, False)
    assert "t" not in build(model, reasoning="on").body


# ── reasoning ────────────────────────────────────────────────────────────────

TOGGLE = """
reasoning.mode = "toggle"
reasoning.on = { set = { t = { on = true } } }
reasoning.off = { set = { t = { on = false } }, drop = ["x"] }
"""
LADDER = 'reasoning.effort = { at = "r.effort", minimal = "none", low = "low", high = "high" }'
BUDGET = """
reasoning.budget = { at = "r.tokens", min = 10, max = 20_000 }
reasoning.effort_budgets = { low = 2000, high = 16_000, max = 90_000 }
"""


@each(
    "flags, asked, expected, codes",
    [
        (TOGGLE, None, {}, []),
        (TOGGLE, "on", {"t": {"on": True}}, []),
        (TOGGLE, True, {"t": {"on": True}}, []),
        (TOGGLE, "off", {"t": {"on": False}}, []),
        (TOGGLE, False, {"t": {"on": False}}, []),
        (TOGGLE, 0, {"t": {"on": False}}, []),
        (TOGGLE, "none", {"t": {"on": False}}, []),
        (TOGGLE, "high", {"t": {"on": True}}, ["reasoning-level"]),
        (TOGGLE, 512, {"t": {"on": True}}, ["reasoning-level"]),
        (LADDER, None, {}, []),
        (LADDER, "low", {"r": {"effort": "low"}}, []),
        (LADDER, "minimal", {"r": {"effort": "none"}}, ["reasoning-level"]),
        (LADDER, "medium", {"r": {"effort": "high"}}, ["reasoning-level"]),
        (LADDER, "xhigh", {"r": {"effort": "high"}}, ["reasoning-level"]),
        (LADDER, 20_000, {"r": {"effort": "high"}}, ["reasoning-level"]),
        (LADDER, 3, {"r": {"effort": "none"}}, ["reasoning-level"]),
        (LADDER, "on", {"r": {"effort": "high"}}, []),
        (LADDER, "off", {}, ["reasoning-unknown"]),
        (BUDGET, 500, {"r": {"tokens": 500}}, []),
        (BUDGET, 1, {"r": {"tokens": 10}}, ["reasoning-budget"]),
        (BUDGET, "low", {"r": {"tokens": 2000}}, []),
        (BUDGET, "max", {"r": {"tokens": 20000}}, []),
        ("", None, {}, []),
        ("", "high", {}, ["reasoning-unknown"]),
        ("", "on", {}, ["reasoning-unknown"]),
        ("", "off", {}, ["reasoning-unknown"]),
        ("", 700, {}, ["reasoning-unknown"]),
        ('reasoning.mode = "never"', "off", {}, []),
        ('reasoning.mode = "never"', "on", {}, ["reasoning-unsupported"]),
        ('reasoning.mode = "always"', "on", {}, []),
        ('reasoning.mode = "always"', "off", {}, ["reasoning-always"]),
        ('reasoning.mode = "always"', "high", {}, ["reasoning-level"]),
        ('reasoning.default = "off"', "off", {}, []),
        ('reasoning.default = "on"', "on", {}, []),
    ],
)
def test_reasoning_is_asked_for_as_each_endpoint_takes_it(
    home: Home, flags: str, asked: Any, expected: Json, codes: list[str]
) -> None:
    plan = build(home(flags), reasoning=asked)
    assert {k: v for k, v in plan.body.items() if k not in ("model", "messages")} == expected
    assert [n.code for n in plan.notes] == codes
    if codes:
        with pytest.raises(cnllm.CannotSend):
            build(home(flags), reasoning=asked, on_unsupported="error")


def test_the_note_on_a_budget_names_the_word_that_is_sent(home: Home) -> None:
    plan = build(home('reasoning.effort = { at = "e", minimal = "low", high = "high" }'), reasoning=700)
    [note] = plan.notes
    assert (plan.body["e"], note.said, note.did) == ("low", "700 tokens", "low: it takes levels, not tokens")


def test_a_note_on_a_level_names_the_flag_that_turns_reasoning_on_or_off(home: Home) -> None:
    for flags, level, code, flag in (
        ('reasoning.mode = "always"', "high", "reasoning-level", "reasoning.mode"),
        ('reasoning = { mode = "toggle", on = { set = { t = true } } }', "high", "reasoning-level", "reasoning.on"),
        (LADDER, "off", "reasoning-unknown", "reasoning.off"),
        ("", "on", "reasoning-unknown", "reasoning.on"),
    ):
        [note] = build(home(flags), reasoning=level).notes
        assert (note.code, note.flag, note.said) == (code, flag, level)
        check_note(note)


def test_extra_body_may_differ_from_a_fixed_value_under_its_name_on_the_wire(home: Home) -> None:
    model = home('params.top_p = { as = "sampling.p", fixed = 0.5 }')
    plan = build(model, extra_body={"sampling": {"p": 0.1}})
    assert plan.body["sampling"] == {"p": 0.1}
    assert [(note.code, note.flag) for note in plan.notes] == [("param-verbatim", "params.top_p")]
    assert build(model, extra_body={"sampling": {"p": 0.5}}).notes == []


def test_what_turns_reasoning_off_takes_away_what_it_must(home: Home) -> None:
    plan = build(home("body.set = { x = 1, y = 2 }\n" + TOGGLE), reasoning="off")
    assert "x" not in plan.body
    assert plan.body["y"] == 2


def test_a_forced_tool_may_turn_reasoning_off(home: Home) -> None:
    flags = (
        'reasoning = { mode = "toggle", default = "on", off = { set = { t = false } }, on = { set = { t = true } } }\n'
        'when.reasoning.tool_choice = { allowed = ["auto"], otherwise = "reasoning-off" }\n'
        "when.no-reasoning.body.set.calm = true"
    )
    plan = build(home(flags), tools=[tool()], tool_choice="required", reasoning="high")
    assert (plan.body["tool_choice"], plan.body["t"], plan.body["calm"]) == ("required", False, True)
    [note] = plan.notes
    assert note.code == "tool-choice"
    assert PLACE.match(note.where)


# ── who is known ─────────────────────────────────────────────────────────────


def test_a_model_that_nobody_described_is_called_with_a_note(home: Home) -> None:
    plan = build(home(id="someone-else"))
    assert [n.code for n in plan.notes] == ["unknown-model"]
    assert "home/someone-else" in plan.notes[0].said
    check_note(plan.notes[0])
    assert build(home()).notes == []
    reply = read(home(id="someone-else"), sse(delta(content="a"), finish()), plan=plan).said
    assert [n.code for n in reply.notes] == ["unknown-model"]


def test_a_note_counts_the_messages_whose_key_is_left_out(home: Home) -> None:
    message = Message("user", [Text("a")], extra={"mood": "calm"})
    for count, words_ in ((1, "messages[].mood"), (2, "messages[].mood (2 times)")):
        assert [note.said for note in build(home(), [message] * count).notes] == [words_]


# ── names ────────────────────────────────────────────────────────────────────


@times(100)
@given(st.lists(st.text("abc_-", min_size=1, max_size=60), min_size=1, max_size=4, unique=True), st.integers(10, 64))
def test_long_names_are_shortened_and_come_back(home: Home, names: list[str], longest: int) -> None:
    model = home(f"tools.name_max_length = {longest}")
    history = [
        "go",
        Message("assistant", [ToolCall(f"id{n}", name, {}) for n, name in enumerate(names)]),
        *(Message("tool", [ToolResult(f"id{n}", "x", name)]) for n, name in enumerate(names)),
    ]
    plan = build(model, history, tools=[tool(name) for name in names], tool_choice=names[-1])
    wire = [t["function"]["name"] for t in plan.body["tools"]]
    assert all(len(name) <= longest for name in wire)
    assert len(set(wire)) == len(wire)
    assert [plan.renamed.get(w, w) for w in wire] == names
    assert [w == name for w, name in zip(wire, names, strict=True)] == [len(name) <= longest for name in names]
    assert plan.body["tool_choice"]["function"]["name"] == wire[-1]
    assert [c["function"]["name"] for c in plan.body["messages"][1]["tool_calls"]] == wire
    said = [{"index": n, "id": f"x{n}", "function": {"name": w, "arguments": "{}"}} for n, w in enumerate(wire)]
    outcome = read(model, sse(delta(tool_calls=said), finish("tool_calls")), plan=plan)
    assert [c.name for c in outcome.said.tool_calls] == names
    assert [e.name for e in outcome.of(cnllm.ToolCallStart)] == names
    assert sorted(n.said for n in plan.notes) == sorted(name for name in names if len(name) > longest)


def test_tools_may_be_written_as_others_write_them(plain: cnllm.Model) -> None:
    schema = {"type": "object", "properties": {}}
    for given_tool in (
        {"type": "function", "function": {"name": "f", "parameters": schema}},
        {"name": "f", "parameters": schema},
        {"name": "f", "inputSchema": schema},
        {"name": "f", "input_schema": schema},
    ):
        wire = build(plain, tools=[given_tool]).body["tools"]
        assert wire == [{"type": "function", "function": {"name": "f", "parameters": schema}}]
    own = {"type": "web_search", "web_search": {"depth": 1}}
    assert build(plain, tools=[own]).body["tools"] == [own]


# ── replay ───────────────────────────────────────────────────────────────────


def own(*parts: Any, by: str | None = "home/m") -> Message:
    return Message("assistant", parts, by=by)


def talk(reasoning: str | None = "hm") -> list[Any]:
    """Plain answer; new question, call, result, answer."""

    def thought(n: int) -> list[Any]:
        return [] if reasoning is None else [Reasoning(f"{reasoning}{n}")]

    return [
        "one",
        own(*thought(1), Text("first")),
        "two",
        own(*thought(2), ToolCall("c", "f", {})),
        Message("tool", [ToolResult("c", "x")]),
        own(*thought(3), Text("third")),
    ]


CARRIED = {"never": [], "tool-turns": [3], "since-user": [3, 5], "always": [1, 3, 5]}
scopes = pytest.mark.parametrize("scope", CARRIED)


def replay(**flags: str) -> str:
    return "\n".join(f'reasoning.{k} = "{v}"' for k, v in flags.items())


@scopes
def test_reasoning_goes_back_with_the_turns_that_are_to_carry_it(home: Home, scope: str) -> None:
    plan = build(home(replay(replay=scope, replay_field="rc")), talk())
    carried = {n: m["rc"] for n, m in enumerate(plan.body["messages"]) if "rc" in m}
    assert carried == {n: f"hm{(n + 1) // 2}" for n in CARRIED[scope]}
    assert "hm" not in json.dumps([{k: v for k, v in m.items() if k != "rc"} for m in plan.body["messages"]])
    assert plan.notes == []


@scopes
@pytest.mark.parametrize(("missing", "filler"), [("omit", None), ("empty", ""), ("space", " ")])
def test_a_turn_that_must_carry_reasoning_and_has_none_carries_what_is_declared(
    home: Home, scope: str, missing: str, filler: str | None
) -> None:
    plan = build(home(replay(replay=scope, replay_field="rc", if_missing=missing)), talk(None))
    carried = {n: m["rc"] for n, m in enumerate(plan.body["messages"]) if "rc" in m}
    turns = [
        n for n in CARRIED[scope] if scope != "since-user" or n == 3
    ]  # an answer ends a turn: nothing is missing there
    assert carried == ({} if filler is None else dict.fromkeys(turns, filler))
    assert changes(plan.notes) == len(carried)
    for note in plan.notes:
        assert (note.code, note.flag) == ("reasoning-filled", "reasoning.if_missing")
        check_note(note)
        assert PLACE.match(note.where)


@scopes
@pytest.mark.parametrize("policy", ["adjust", "error"])
def test_reasoning_that_must_be_there_is_demanded_where_the_registry_says_so(
    home: Home, scope: str, policy: str
) -> None:
    model = home(replay(replay=scope, if_missing="error"))
    build(model, talk(), on_unsupported=policy)
    if scope == "never":
        build(model, talk(None), on_unsupported=policy)
        return
    with pytest.raises(cnllm.CannotSend, match=r"messages\[\d\]"):
        build(model, talk(None), on_unsupported=policy)


@pytest.mark.share(2)
@scopes
@pytest.mark.parametrize("missing", ["omit", "empty", "space"])
@pytest.mark.parametrize("form", ["details", "tags", "content-parts"])
def test_reasoning_goes_back_in_each_form_to_just_the_turns_that_carry_it(
    home: Home, scope: str, missing: str, form: str
) -> None:
    flags = replay(replay=scope, replay_as=form, if_missing=missing, replay_field="rd", part="thinking")
    model = home(flags + '\nreasoning.tags = ["<t>", "</t>"]')
    bare = home()
    for reasoning in ("hm", None):
        wire = build(model, talk(reasoning)).body["messages"]
        for n, (message, plain) in enumerate(zip(wire, build(bare, talk(None)).body["messages"], strict=True)):
            text = f"hm{(n + 1) // 2}" if n in CARRIED[scope] and reasoning else ""
            if not text:
                if n not in CARRIED[scope]:
                    assert message == plain
                continue
            was = plain["content"] or ""
            match form:
                case "details":
                    assert message["rd"] == [{"type": "reasoning.text", "text": text}]
                    assert message["content"] == plain["content"]
                case "tags":
                    assert message["content"] == f"<t>{text}</t>{was}"
                case _:
                    said = [{"type": "text", "text": was}] if was else []
                    inner = {"type": "thinking", "thinking": [{"type": "text", "text": text}]}
                    assert message["content"] == [inner, *said]


@pytest.mark.parametrize("form", ["field", "details", "tags", "content-parts"])
@pytest.mark.parametrize("foreign", ["drop", "text"])
@scopes
def test_another_models_reasoning_is_left_out_or_sent_as_text(home: Home, scope: str, foreign: str, form: str) -> None:
    flags = replay(replay=scope, replay_as=form, if_foreign=foreign, replay_field="rc", part="thinking")
    model = home(flags + '\nreasoning.tags = ["<t>", "</t>"]')
    history = ["one", own(Reasoning("theirs", Seal("openai-chat", "zai", "x", ["s"])), Text("said"), by="zai/x"), "two"]
    plan = build(model, history)
    message = plan.body["messages"][1]
    assert json.dumps(plan.body).count("theirs") == (foreign == "text")
    if foreign == "text":
        assert "theirs" in json.dumps(message["content"])
    assert "said" in json.dumps(message["content"])
    [note] = plan.notes
    assert (note.code, note.flag) == ("reasoning-foreign", "reasoning.if_foreign")
    check_note(note)


@times(100)
@given(
    st.builds(
        Seal,
        st.sampled_from(["openai-chat", "gemini"]),
        st.sampled_from(["home", "zai"]),
        st.sampled_from(["m", "n"]),
        st.just([{"secret": 1}]),
    ),
    st.sampled_from([None, "home/m", "home/n", "zai/m"]),
    st.sampled_from(["never", "always"]),
)
def test_a_seal_goes_to_its_origin_only(home: Home, seal: Seal, by: str | None, scope: str) -> None:
    model = home(replay(replay=scope, replay_as="details", replay_field="rd"))
    call = ToolCall("c", "f", {}, seal=cnllm.Seal(seal.protocol, seal.provider, seal.model, {"extra": {"secret": 1}}))
    block = cnllm.Opaque({"type": "block", "secret": 1}, seal)
    history = [
        "one",
        own(Reasoning("hm", seal), Text("a"), block, call, by=by),
        Message("tool", [ToolResult("c", "x")]),
    ]
    text = json.dumps(build(model, history).body)
    if seal == Seal("openai-chat", "home", "m", seal.data):
        assert text.count("secret") == 2 + (scope == "always" and by != "zai/m")
    else:
        assert "secret" not in text


def test_details_go_back_as_they_came(home: Home) -> None:
    model = home(replay(replay="always", replay_as="details", replay_field="reasoning_details"))
    details = [{"type": "reasoning.text", "index": 0, "text": "h"}, {"type": "reasoning.encrypted", "data": "zz"}]
    reply = read(model, sse(*(delta(reasoning_details=[d]) for d in details), delta(content="a"), finish())).said
    wire = build(model, ["one", reply.message, "two"]).body["messages"][1]
    assert wire == {"role": "assistant", "reasoning_details": details, "content": "a"}


@each(
    "first, second, is_one",
    [
        ({"id": "a"}, {}, True),
        ({"id": "a"}, {"id": "a"}, True),
        ({}, {"id": "a"}, True),
        ({"id": "a"}, {"id": "b"}, False),
    ],
)
def test_fragments_of_one_item_of_details_go_back_as_one_item(
    home: Home, first: Json, second: Json, is_one: bool
) -> None:
    model = home(replay(replay="always", replay_as="details", replay_field="reasoning_details"))
    item = {"type": "reasoning.text", "index": 0}
    details = [{**item, **first, "text": "h"}, {**item, **second, "text": "m"}]
    reply = read(model, sse(*(delta(reasoning_details=[d]) for d in details), delta(content="a"), finish())).said
    wire = build(model, ["one", reply.message, "two"]).body["messages"][1]
    assert wire["reasoning_details"] == ([{**item, "id": "a", "text": "hm"}] if is_one else details)


def test_what_stands_between_texts_of_a_thought_goes_back_in_its_place(home: Home) -> None:
    model = home(replay(replay="always", replay_as="content-parts", part="thinking"))
    inner = [{"type": "text", "text": "h"}, {"type": "reference", "reference_ids": [1]}, {"type": "text", "text": "m"}]
    thoughts = [delta(content=[{"type": "thinking", "thinking": [one]}]) for one in inner]
    reply = read(model, sse(*thoughts, delta(content="a"), finish())).said
    assert (reply.reasoning, reply.text) == ("hm", "a")
    thought, answer = build(model, ["one", reply.message, "two"]).body["messages"][1]["content"]
    assert (thought["thinking"], answer) == (inner, {"type": "text", "text": "a"})


@each("at", ["start", "start-open", "anywhere"])
def test_tagged_thinking_goes_back_as_it_was_written(home: Home, at: str) -> None:
    flags = replay(replay="always", replay_as="tags", tags_at=at) + '\nreasoning.tags = ["<t>", "</t>"]'
    text = "<t>\nhm\n</t>\n\nyes"
    reply = read(home(flags), sse(*(delta(content=c) for c in text), finish())).said
    assert (reply.reasoning, reply.text) == ("\nhm\n", "yes")
    assert build(home(flags), ["one", reply.message, "two"]).body["messages"][1]["content"] == text


def test_a_switch_goes_along_only_where_reasoning_goes_back(home: Home) -> None:
    model = home(replay(replay="tool-turns") + "\nreasoning.replay_patch.set.preserve = true")
    assert build(model, talk()).body["preserve"] is True
    assert "preserve" not in build(model, talk(None)).body
    assert "preserve" not in build(model, talk()[:3]).body


# ── the rest ─────────────────────────────────────────────────────────────────


def test_messages_that_are_joined_keep_their_keys(home: Home) -> None:
    model = home('messages = { consecutive_roles = "join", fields = ["a", "b"] }')
    turns = [{"role": "user", "content": "one", "a": 1, "b": 1}, {"role": "user", "content": "two", "b": 2}]
    [message] = build(model, turns).body["messages"]
    assert message == {"role": "user", "content": "one\n\ntwo", "a": 1, "b": 2}


def test_two_texts_of_a_message_stay_parts_where_the_endpoint_takes_them(home: Home) -> None:
    parts = [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]
    for form, expected in (("parts", parts), ("string", "a\n\nb")):
        [message] = build(home(f'messages.content = "{form}"'), [{"role": "user", "content": parts}]).body["messages"]
        assert message["content"] == expected


def test_texts_of_a_question_stay_apart_in_one_string_and_those_of_an_answer_are_one(home: Home) -> None:
    def parts(*texts: str) -> list[dict[str, Any]]:
        return [{"type": "text", "text": text} for text in texts]

    turns = [
        {"role": "system", "content": parts("Be brief.", "Rhyme.")},
        {"role": "user", "content": parts("Look: ", "a", "", "b\n", "c")},
        {"role": "assistant", "content": parts("It is", "land.")},
        {"role": "user", "content": "And now?"},
    ]
    contents = [turn["content"] for turn in build(home('messages.content = "string"'), turns).body["messages"]]
    assert contents == ["Be brief.\n\nRhyme.", "Look: a\n\nb\nc", "It island.", "And now?"]
    [first, _, _] = build(home('messages = { content = "string", system = "user" }'), turns).body["messages"]
    assert first["content"] == "Be brief.\n\nRhyme.\n\nLook: a\n\nb\nc"
    two = [turns[0], {"role": "system", "content": "In French."}, *turns[1:]]
    [first, *_] = build(home('messages = { content = "string", system = "first" }'), two).body["messages"]
    assert first["content"] == "Be brief.\n\nRhyme.\n\nIn French."


@each("form, value", [("text", "Hm."), ("texts", ["Hm."]), ("parts", [{"type": "text", "text": "Hm."}])])
def test_reasoning_that_another_wire_brought_is_written_as_the_parts_of_this_one(
    home: Home, form: str, value: Any
) -> None:
    flags = f'shape = "content-parts", part = "musing", part_form = "{form}", mode = "always", replay = "always"'
    said = Message("assistant", (Reasoning("Hm."), Text("Yes.")), by="home/m")
    turns = [Message.user("Is it?"), said, Message.user("Sure?")]
    _, second, _ = build(home(f"reasoning = {{ {flags} }}"), turns).body["messages"]
    assert second["content"][0] == {"type": "musing", "musing": value}


@each(
    "name, did, header",
    [
        ("anthropic/claude", "sent as `authorization: Basic`", "Basic " + base64.b64encode(b"ann:pa ss").decode()),
        ("openai/gpt", "left out: the key goes into the same header", "Bearer {key}"),
    ],
)
def test_a_password_in_the_address_is_sent_where_no_key_takes_its_place(name: str, did: str, header: str) -> None:
    plan = build(BUILTIN.resolve(name, base_url="https://ann:pa%20ss@api.home.example/v1"))
    assert plan.headers["authorization"] == header
    assert [(n.did, n.flag) for n in plan.notes if n.code == "address-password"] == [(did, "base_url")]
    assert plan.url.startswith("https://api.home.example/")


def test_the_stream_is_what_the_endpoint_can_do(home: Home) -> None:
    whole = build(home("stream.tools = false"), stream=True, tools=[tool()])
    assert (whole.stream, whole.body.get("stream")) == (False, None)
    assert [n.code for n in whole.notes] == ["stream-whole"]
    collected = build(home("stream.required = true"))
    assert (collected.stream, collected.body["stream"]) == (True, True)
    assert [n.code for n in collected.notes] == ["stream-collected"]
    for note in [*whole.notes, *collected.notes]:
        check_note(note)


def test_the_mode_is_that_of_the_stream_on_the_wire(home: Home) -> None:
    mode = "when.stream.body.set.of_a_stream = true\nwhen.no-stream.body.set.of_a_whole_reply = true\n"
    for stream, flags, options in (
        (True, "stream.tools = false", {"tools": [tool()]}),
        (True, "stream.tools = false\nschema.methods = ['tool']", {"schema": {"type": "object"}}),
        (False, "stream.required = true", {}),
        (False, "when.reasoning.stream.required = true\nreasoning.mode = 'always'", {}),
    ):
        request = build(home(mode + flags), stream=stream, **options)
        assert request.stream is not stream
        assert request.body.get("of_a_stream", False) is request.stream
        assert request.body.get("of_a_whole_reply", False) is not request.stream
        assert ("stream_options" in request.body) is request.stream  # refused without a stream, and needed for usage


def test_tools_are_unsupported_in_a_mode_alone(home: Home) -> None:
    picture = {"type": "image_url", "image_url": {"url": "data:image/png;base64,iVBORw0KGgo="}}
    turns: list[Any] = [{"role": "user", "content": [{"type": "text", "text": "hi"}, picture]}]
    model = home("input = ['text', 'image']\nwhen.images.tools.supported = false")
    assert "tools" in build(model, tools=[tool()]).body
    request = build(model, turns, tools=[tool()])
    assert "tools" not in request.body
    [note] = [note for note in request.notes if note.code == "tools-unsupported"]
    assert note.where.endswith(".toml:7"), note
    prompted = build(
        home("when.stream.tools = { supported = false, otherwise = 'prompt' }"), stream=True, tools=[tool()]
    )
    assert prompted.prompted
    assert "tools" not in prompted.body


@each(
    "schema",
    [
        {"title": "Answer 1", "type": "object"},
        {"type": "json_schema", "json_schema": {"name": "Answer 1", "schema": {"title": "Answer 1", "type": "object"}}},
        {"name": "Answer 1", "schema": {"title": "Answer 1", "type": "object"}},
    ],
)
@each("method", ["json_schema", "json_object", "prompt"])
def test_a_schema_is_asked_for_as_the_endpoint_takes_it(home: Home, schema: Json, method: str) -> None:
    model = home(f'schema.methods = ["{method}"]')
    plan = build(model, [{"role": "system", "content": "be"}, {"role": "user", "content": "x"}], schema=schema)
    bare = {"title": "Answer 1", "type": "object"}
    assert plan.schema == bare
    asked = plan.body.get("response_format")
    if method == "json_schema":
        assert asked == {"type": "json_schema", "json_schema": {"name": "Answer_1", "schema": bare}}
        assert plan.notes == []
        return
    assert asked == ({"type": "json_object"} if method == "json_object" else None)
    system = json.dumps(plan.body["messages"][0]["content"])
    assert "be" in system
    assert "JSON" in system
    assert [n.code for n in plan.notes] == ["schema-in-prompt"]


def test_ids_that_the_endpoint_refuses_are_renamed_the_same_way_each_time(home: Home) -> None:
    model = home('tools.call_id_pattern = "[a-zA-Z0-9]{9}"')
    history = [
        "go",
        own(ToolCall("call_very-long", "f", {}), ToolCall("abcdefghi", "g", {})),
        Message("tool", [ToolResult("call_very-long", "x")]),
        Message("tool", [ToolResult("abcdefghi", "y")]),
    ]
    wire = build(model, history).body["messages"]
    ids = [c["id"] for c in wire[1]["tool_calls"]]
    assert all(re.fullmatch("[a-zA-Z0-9]{9}", one) for one in ids)
    assert ids[1] == "abcdefghi"
    assert [m["tool_call_id"] for m in wire[2:]] == ids
    assert build(model, history).body["messages"] == wire


def test_ids_fit_whatever_the_pattern(home: Home) -> None:
    model = home('tools.call_id_pattern = "[a-z]{9}"')
    history = ["go", own(ToolCall("call_1", "f", {})), Message("tool", [ToolResult("call_1", "x")])]
    try:
        wire = build(model, history).body["messages"]
    except cnllm.CannotSend:
        return
    assert re.fullmatch("[a-z]{9}", wire[1]["tool_calls"][0]["id"])


@pytest.mark.parametrize("inner", ["object", "array"])
def test_a_schema_that_only_refers_to_an_object_is_that_object(home: Home, inner: str) -> None:
    node = {
        "object": {"type": "object", "properties": {"next": {"$ref": "#/$defs/Node"}}},
        "array": {"type": "array", "items": {"$ref": "#/$defs/Node"}},
    }[inner]
    plan = build(home('schema.methods = ["json_schema"]'), schema={"$ref": "#/$defs/Node", "$defs": {"Node": node}})
    sent = plan.body["response_format"]["json_schema"]["schema"]
    assert sent["type"] == "object"
    assert ("next" in sent["properties"]) is (inner == "object")  # a list stands inside of an object


def test_a_schema_of_properties_without_a_type_is_one_of_an_object(home: Home) -> None:
    schema = {"properties": {"city": {"type": "string"}}}
    plan = build(home('schema.methods = ["json_schema"]'), schema=schema)
    assert plan.body["response_format"]["json_schema"]["schema"]["properties"] == schema["properties"]


@each("key", ["thinking", "template.thinking"])
def test_a_client_s_own_key_for_reasoning_is_left_out_where_the_model_has_none(home: Home, key: str) -> None:
    levels = f'{{ at = "{key}.effort", low = "low", high = "high" }}'
    model = home(f'reasoning.mode = "never"\nreasoning.effort = {levels}')
    turns = [{"role": "user", "content": "Hi"}]
    thinking = {"thinking": {"effort": "high", "summary": "short"}}
    keys = thinking if key == "thinking" else {"template": {**thinking, "bos": True}}
    request = engine.decode_request("openai-chat", {"messages": turns, **keys})
    plan = engine.build_request(model, request.messages, **request.options)
    assert plan.body.get("template") == (None if key == "thinking" else {"bos": True})
    assert "thinking" not in plan.body
    assert ("param-dropped", "reasoning.mode") in [(note.code, note.flag) for note in plan.notes]


def test_a_model_of_another_type_is_named() -> None:
    wrong: Any = "home/m"
    with pytest.raises(TypeError, match=r"^model\b"):
        engine.build_request(wrong, "hi")


# ── the codes of notes ───────────────────────────────────────────────────────
NAMELESS = own(ToolCall("", "f", {}))
REPAIRS: list[tuple[str, str, list[Any]]] = [
    ("ids-absent messages", "", ["go", NAMELESS, Message("tool", [ToolResult("", "x")])]),
    ("result-paired messages", "", ["go", own(ToolCall("c1", "f", {})), Message("tool", [ToolResult("", "x")])]),
    ("nothing-left messages", "", [Message.assistant("")]),
    ("turns-joined messages.consecutive_roles", 'messages.consecutive_roles = "join"', ["a", "b"]),
    ("role-developer messages.developer", "messages.developer = false", [Message("developer", [Text("d")]), "a"]),
    ("system-as-user messages.system", 'messages.system = "user"', [Message.system("s"), "a"]),
]


@pytest.mark.parametrize(("what", "flags", "history"), REPAIRS, ids=[what for what, _, _ in REPAIRS])
def test_a_program_can_tell_each_repair_of_a_history_by_its_code(
    home: Home, what: str, flags: str, history: list[Any]
) -> None:
    assert what in [f"{note.code} {note.flag}" for note in build(home(flags), history).notes]


def test_notes_on_messages_stand_in_the_order_of_the_messages(home: Home) -> None:
    call, result = own(ToolCall("call_1", "f", {})), Message("tool", [ToolResult("call_1", "x")])
    model = home('messages.developer = false\ntools.call_id_pattern = "[a-z]{9}"')
    notes = build(model, ["go", call, result, Message("developer", [Text("d")]), "And?"]).notes
    assert [(note.code, note.said[:11]) for note in notes if note.said.startswith("messages[")] == [
        ("ids-renamed", "messages[1]"),
        ("role-developer", "messages[3]"),
    ]


@pytest.mark.parametrize(
    ("what", "flags", "options"),
    [
        ("param-range params.top_p", 'params.top_p = { max = 0.5, otherwise = "error" }', {"top_p": 1}),
        ("tool-choice-alone tool_choice", "", {"tool_choice": "required"}),
        ("bad-model-id path", 'path = "/{model}/chat"', {}),
    ],
)
def test_a_program_can_tell_each_reason_why_nothing_is_sent_by_its_code(
    home: Home, what: str, flags: str, options: Json
) -> None:
    model = home(flags, id="../m" if "{model}" in flags else "m")
    with pytest.raises(cnllm.CannotSend) as caught:
        build(model, **options)
    assert f"{caught.value.note.code} {caught.value.note.flag}" == what


def test_an_id_of_private_characters_stands_in_a_path(home: Home) -> None:
    assert build(home('path = "/{model}/chat"', id="m\ue000")).url == "http://127.0.0.1:9/v1/m%EE%80%80/chat"


def test_a_long_name_of_a_tool_is_made_short_under_a_code(home: Home) -> None:
    plan = build(home("tools.name_max_length = 12"), tools=[tool("a_very_long_name")])
    assert [f"{note.code} {note.flag} {note.said}" for note in plan.notes] == [
        "tool-renamed tools.name_max_length a_very_long_name"
    ]


# ── notes on many messages ───────────────────────────────────────────────────
@pytest.mark.parametrize("count", [1, 2, 200])
def test_one_change_to_many_messages_is_one_note_with_their_number(home: Home, count: int) -> None:
    model = home(
        'reasoning.fields = ["reasoning_content"]\nreasoning.replay = "always"\nreasoning.if_missing = "empty"'
    )
    turns = [message for _ in range(count) for message in (Message.user("Hi"), Message.assistant("Hello"))]
    [note] = [note for note in build(model, [*turns, Message.user("And?")]).notes if note.code == "reasoning-filled"]
    more = f"; {count - 1} more, the last in messages[{2 * count - 1}]" if count > 1 else ""
    assert note.said == f"messages[1] has no reasoning{more}"
    assert note.did == "sent as ''"


@pytest.mark.parametrize("end", ["", "/", "/chat/completions", "/chat/completions/"])
@pytest.mark.parametrize(
    ("protocol", "path"),
    [("openai-chat", "/chat/completions"), ("openai-responses", "/responses"), ("anthropic-messages", "/v1/messages")],
)
def test_an_address_of_requests_is_sent_there(protocol: str, path: str, end: str) -> None:
    end = end.replace("/chat/completions", path)
    model = cnllm.Registry.load().resolve(
        "openai-compatible/m", protocol=protocol, base_url=f"http://127.0.0.1:9/a{end}"
    )
    plan = build(model, "Hi", max_tokens=9)
    assert plan.url == f"http://127.0.0.1:9/a{path}"
    assert ("address-path" in [note.code for note in plan.notes]) == (path in end)


def test_options_that_are_known_from_other_messages_are_read_by_the_same_rules(home: Home) -> None:
    picture = {"type": "image_url", "image_url": {"url": "data:image/png;base64,AA=="}}
    seen: list[Any] = [{"role": "user", "content": [{"type": "text", "text": "See"}, picture]}]
    model = home('params.warmth = { max = 5 }\ninput = ["text", "image"]')
    options: dict[str, Any] = {"warmth": 9}
    turns: list[Any] = ["hi", seen, "hi", seen]
    for messages in turns:
        plan = engine.build_request(model, messages, **options)
        assert plan.body["warmth"] == 5
        assert [note.code for note in plan.notes] == ["param-clamped"]


def test_a_name_and_a_password_in_the_address_are_a_header() -> None:
    registry = cnllm.Registry.load()
    model = registry.resolve("openai-compatible/x", base_url="http://me:se%40cret@127.0.0.1:9/v1")
    plan = engine.build_request(model, "Hi")
    assert plan.url == "http://127.0.0.1:9/v1/chat/completions"
    assert plan.headers["authorization"] == f"Basic {base64.b64encode(b'me:se@cret').decode()}"
    assert "cret" not in plan.url + str(plan.notes)
