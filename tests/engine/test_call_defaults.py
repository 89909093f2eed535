"""`call` tables: what is sent where a call says nothing, and what becomes of a default that cannot be had."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest
from cases import each

import cnllm
from cnllm import engine
from cnllm.engine.options import _KNOWN
from cnllm.registry.flags import CallFlags

from .conftest import Home
from .support import Json, overlay_text

TOOL = {"name": "look", "parameters": {"type": "object", "properties": {}}}
POLICIES = ("adjust", "error", "send")
REASONS = """
reasoning = { mode = "toggle", default = "on", on = { set = { think = true } }, off = { set = { think = false } } }
"""


def build(model: cnllm.Model, **options: Any) -> engine.Plan:
    return engine.build_request(model, "hello", **options)


def body(model: cnllm.Model, **options: Any) -> Json:
    plan = build(model, **options)
    assert plan.notes == []
    return {k: v for k, v in plan.body.items() if k not in ("model", "messages", "stream_options", "tools")}


def call(table: str) -> str:
    return f"call = {{ {table} }}"


# ── what they are, and who wins ──────────────────────────────────────────────


@pytest.mark.parametrize(
    ("table", "sent", "given", "instead"),
    [
        ("temperature = 0.3", {"temperature": 0.3}, {"temperature": 0}, {"temperature": 0}),
        ("top_p = 0.9", {"top_p": 0.9}, {"top_p": 0.1}, {"top_p": 0.1}),
        ("max_tokens = 9", {"max_tokens": 9}, {"max_tokens": 1}, {"max_tokens": 1}),
        ("stop = 'a'", {"stop": "a"}, {"stop": []}, {"stop": []}),
        ("stop = ['a', 'b']", {"stop": ["a", "b"]}, {"stop": "c"}, {"stop": "c"}),
        ("seed = 7", {"seed": 7}, {"seed": 0}, {"seed": 0}),
        ("reasoning = 'off'", {"think": False}, {"reasoning": "on"}, {"think": True}),
        ("reasoning = 'on'", {"think": True}, {"reasoning": False}, {"think": False}),
        ("stream = true", {"stream": True}, {"stream": False}, {}),
        ("stream = false", {}, {"stream": True}, {"stream": True}),
        ("extra_body = { a = 1 }", {"a": 1}, {"extra_body": {"a": 2}}, {"a": 2}),
    ],
)
def test_a_default_is_sent_unless_the_call_names_its_own(
    home: Home, table: str, sent: Json, given: Json, instead: Json
) -> None:
    model = home(REASONS, more=call(table))
    assert body(model) == sent
    assert body(model, **dict.fromkeys(given)) == sent  # None is as if not given
    assert body(model, **given) == instead


def test_defaults_about_tools_hold_where_there_are_tools(home: Home) -> None:
    model = home(more=call("tool_choice = 'required', parallel_tool_calls = false"))
    assert body(model) == {}
    assert body(model, tools=[TOOL]) == {"tool_choice": "required", "parallel_tool_calls": False}
    given = body(model, tools=[TOOL], tool_choice="auto", parallel_tool_calls=True)
    assert given == {"tool_choice": "auto", "parallel_tool_calls": True}


def test_tools_a_schema_and_policies_may_be_defaults_too(home: Home) -> None:
    model = home(
        'params.seed = { as = "seed", max = 5, otherwise = "error" }',
        more="[models.'home/m'.call]\ntools = [{ name = 'look' }]\nschema = { title = 'x', type = 'object' }\n"
        "on_unsupported = 'error'\nif_cut = 'keep'\nextra_headers = { X-Plan = 'a' }\n",
    )
    plan = build(model)
    assert [t["function"]["name"] for t in plan.body["tools"]] == ["look"]
    assert plan.schema == {"title": "x", "type": "object"}
    assert plan.if_cut == "keep"
    assert plan.headers["x-plan"] == "a"
    with pytest.raises(cnllm.CannotSend):
        build(model, seed=9)
    assert build(model, seed=9, on_unsupported="send").body["seed"] == 9
    assert build(model, if_cut="error", extra_headers={"x-plan": "b"}).headers["x-plan"] == "b"


def test_tools_among_the_defaults_are_adjusted_whatever_the_policy(home: Home) -> None:
    table = "tools = [{ name = 'look', strict = true, parameters = { type = 'object', properties = {} } }]"
    model = home("tools.strict = false", more=call(table))
    for policy in (None, *POLICIES):
        plan = build(model, on_unsupported=policy)
        [note] = plan.notes
        assert (note.code, note.flag) == ("strict-dropped", "tools.strict")
        assert note.said.endswith("(a default)")
        assert "strict" not in plan.body["tools"][0]["function"]
    with pytest.raises(cnllm.CannotSend, match="strict"):
        build(model, tools=[{**TOOL, "strict": True}], on_unsupported="error")


def test_tables_merge_and_nothing_is_shared_with_the_registry(home: Home) -> None:
    model = home(more=call("extra_body = { a = { b = 1, c = 2 }, d = [1] }"))
    mine = {"a": {"c": 3}}
    plan = build(model, extra_body=mine)
    assert (plan.body["a"], plan.body["d"], mine) == ({"b": 1, "c": 3}, [1], {"a": {"c": 3}})
    plan.body["d"].append(2)
    assert build(model).body["d"] == [1]


def test_headers_of_the_call_stand_beside_those_of_the_registry(home: Home) -> None:
    model = home(more=call("extra_headers = { x-a = '1', x-b = '2' }"))
    sent = build(model, extra_headers={"x-b": "3"}).headers
    assert (sent["x-a"], sent["x-b"]) == ("1", "3")


def test_what_the_call_puts_into_the_body_itself_is_its_own_word(home: Home) -> None:
    model = home('params.max_tokens = "max_completion_tokens"', more=call("max_tokens = 9, temperature = 0.3"))
    assert body(model, extra_body={"max_tokens": 5}) == {"temperature": 0.3, "max_tokens": 5}


def test_defaults_come_from_every_layer_and_a_users_file_goes_before_the_built_in_one(tmp_path: Path) -> None:
    path = tmp_path / "providers.toml"
    path.write_text(
        "[families.minimax]\ncall = { seed = 1, top_p = 0.5 }\n"
        "[providers.ollama]\ncall = { seed = 2, max_tokens = 8 }\n"
        "[models.'ollama/minimax-m2.5']\nunset = ['call.max_tokens']\ncall.stop = 'x'\n",
        encoding="utf-8",
    )
    registry = cnllm.Registry.load(str(path))
    sent = build(registry.resolve("ollama/minimax-m2.5")).body
    assert {k: sent[k] for k in ("seed", "top_p", "temperature", "stop")} == {
        "seed": 2,
        "top_p": 0.95,  # the built-in file says so of this provider's family, which is nearer
        "temperature": 1,
        "stop": "x",
    }
    assert "max_tokens" not in sent
    assert build(registry.resolve("ollama/other")).body["max_tokens"] == 8


def test_defaults_can_be_taken_away(tmp_path: Path) -> None:
    path = tmp_path / "providers.toml"
    path.write_text("[models.'ollama/minimax-m2.5']\nunset = ['call']\n", encoding="utf-8")
    sent = build(cnllm.Registry.load(str(path)).resolve("ollama/minimax-m2.5")).body
    assert "temperature" not in sent
    assert "top_p" not in sent


# ── by mode ──────────────────────────────────────────────────────────────────

BY_MODE = REASONS + "when.reasoning.call.temperature = 0.6\nwhen.no-reasoning.call = { temperature = 0.7, top_p = 0.8 }"


def test_a_mode_has_defaults_of_its_own(home: Home) -> None:
    model = home(BY_MODE, more=call("top_p = 0.9, seed = 1"))
    assert body(model) == {"temperature": 0.6, "top_p": 0.9, "seed": 1}
    assert body(model, reasoning="off") == {"think": False, "temperature": 0.7, "top_p": 0.8, "seed": 1}
    assert body(model, reasoning="off", top_p=0.1, temperature=0)["top_p"] == 0.1


def test_a_default_reasoning_decides_the_mode(home: Home) -> None:
    assert body(home(BY_MODE, more=call("reasoning = 'off'")))["temperature"] == 0.7


def test_where_reasoning_is_unknown_neither_modes_defaults_hold(home: Home) -> None:
    model = home("when.reasoning.call.seed = 1\nwhen.no-reasoning.call.seed = 2")
    assert body(model) == {}


def test_a_choice_that_turns_reasoning_off_brings_the_defaults_of_that_mode(home: Home) -> None:
    model = home(BY_MODE + "\nwhen.reasoning.tool_choice = { allowed = ['auto'], otherwise = 'reasoning-off' }")
    sent = build(model, tools=[TOOL], tool_choice="required").body
    assert (sent["think"], sent["temperature"], sent["tool_choice"]) == (False, 0.7, "required")


# ── what the endpoint cannot do ──────────────────────────────────────────────

UNABLE = [
    ("params.seed = false", "seed = 1", "params.seed", {}),
    ("params.seed = { as = 'seed', max = 5, otherwise = 'error' }", "seed = 9", "params.seed", {}),
    ("params.seed = { as = 'seed', max = 5, otherwise = 'drop' }", "seed = 9", "params.seed", {}),
    ("params.seed = { as = 'seed', max = 5 }", "seed = 9", "params.seed", {"seed": 5}),
    ("params.top_p = { as = 'top_p', fixed = 1 }", "top_p = 0.5", "params.top_p", {}),
    ("limits.output = 10", "max_tokens = 99", "limits.output", {"max_tokens": 10}),
    ("params.stop = { as = 'stop', items = 1 }", "stop = ['a', 'b']", "params.stop", {"stop": ["a"]}),
    ("reasoning.mode = 'never'", "reasoning = 'high'", "reasoning.mode", {}),
    ("reasoning.mode = 'always'", "reasoning = 'off'", "reasoning.mode", {}),
    ("reasoning.effort = { at = 'e', low = 'low' }", "reasoning = 'max'", "reasoning.effort", {"e": "low"}),
    ("reasoning.budget = { at = 'b', max = 9 }", "reasoning = 99", "reasoning.budget", {"b": 9}),
    ("tools.parallel = false", "parallel_tool_calls = true", "tools.parallel", {}),
    (
        "tool_choice = { allowed = ['auto'] }",
        "tool_choice = 'required'",
        "tool_choice.allowed",
        {"tool_choice": "auto"},
    ),
    (
        "tool_choice = { allowed = ['auto'], otherwise = 'error' }",
        "tool_choice = 'required'",
        "tool_choice.allowed",
        {},
    ),
    ("tool_choice.allowed = ['auto']", "tool_choice = 'none'", "tool_choice.allowed", {}),
    ("", "tool_choice = 'other'", "call.tool_choice", {}),
]


@each("policy", POLICIES)
@each("flags, table, flag, sent", UNABLE)
def test_a_default_that_cannot_be_had_gives_way_with_a_note(
    home: Home, flags: str, table: str, flag: str, sent: Json, policy: str
) -> None:
    """Whatever the policy: it is about what the caller asks for, and the caller asked for none of this."""
    plan = build(home(flags, more=call(table)), tools=[TOOL], on_unsupported=policy)
    left = {k: v for k, v in plan.body.items() if k not in ("model", "messages", "tools")}
    (note,) = plan.notes
    assert (left, note.flag) == (sent, flag)
    assert note.said.endswith("(a default)")
    assert note.did
    assert note.where.endswith(".toml:6" if flags else ".toml:9")  # the endpoint's flag, or the default itself


def test_the_callers_own_word_is_still_under_the_policy(home: Home) -> None:
    model = home("params.seed = false\nparams.top_p = false", more=call("seed = 1"))
    with pytest.raises(cnllm.CannotSend, match="top_p"):
        build(model, top_p=0.5, on_unsupported="error")
    with pytest.raises(cnllm.CannotSend, match="seed"):
        build(model, seed=1, on_unsupported="error")
    sent = build(model, top_p=0.5, on_unsupported="send").body
    assert sent["top_p"] == 0.5
    assert "seed" not in sent


@each("policy", POLICIES)
def test_default_tools_are_left_out_where_none_are_taken(home: Home, policy: str) -> None:
    model = home("tools.supported = false", more=call("tools = [{ name = 'look' }], tool_choice = 'look'"))
    plan = build(model, on_unsupported=policy)
    assert "tools" not in plan.body
    assert [n.code for n in plan.notes] == ["tools-unsupported"]


def test_a_default_budget_stays_below_what_it_must(home: Home) -> None:
    model = home("reasoning.budget = { at = 'b', under = 'max_tokens' }", more=call("reasoning = 500"))
    plan = build(model, max_tokens=100, on_unsupported="error")
    assert plan.body["b"] == 99
    assert [n.flag for n in plan.notes] == ["reasoning.budget.under"]


def test_no_default_turns_reasoning_off(home: Home) -> None:
    rule = "\nwhen.reasoning.tool_choice = { allowed = ['auto'], otherwise = 'reasoning-off' }"
    plan = build(home(REASONS + rule, more=call("tool_choice = 'required'")), tools=[TOOL], reasoning="on")
    assert (plan.body["think"], plan.body["tool_choice"]) == (True, "auto")


def test_a_choice_of_the_caller_goes_before_a_default_reasoning(home: Home) -> None:
    rule = "\nwhen.reasoning.tool_choice = { allowed = ['auto'], otherwise = 'reasoning-off' }"
    model = home(REASONS + rule, more=call("reasoning = 'on'"))
    plan = build(model, tools=[TOOL], tool_choice="required", on_unsupported="error")
    assert (plan.body["think"], plan.body["tool_choice"]) == (False, "required")
    assert [n.code for n in plan.notes] == ["tool-choice"]


# ── what a default can be, and what not ───────────────────────────────────────────────────


def test_whatever_a_call_may_say_may_be_a_default_but_for_keys_and_the_transports_business() -> None:
    assert {f.encode_name for f in msgspec.structs.fields(CallFlags)} == {"stream", *_KNOWN} - {
        "api_key",
        "fallback",
        "limits",
        "timeout",
        "prefill",  # what a continued reply is asked for with
        "recovery",  # has a table of its own
        "tag",  # names a call of the caller's
    }


@each(
    "table, said",
    [
        ("temperatur = 1", "Did you mean 'temperature'"),
        ("api_key = 'x'", "has no flag 'api_key'"),
        ("reasoning = 'hihg'", "it is one of off, on, minimal"),
        ("temperature = 'hot'", "call.temperature = 'hot'"),
    ],
)
def test_what_is_no_option_is_refused_with_its_line(tmp_path: Path, table: str, said: str) -> None:
    path = tmp_path / "providers.toml"
    path.write_text(overlay_text(more=call(table)), encoding="utf-8")
    with pytest.raises(cnllm.RegistryError) as caught:
        cnllm.Registry.load(str(path))
    assert said in str(caught.value)
    assert caught.value.line == 9


@each("table", ["reasoning = 'off'", "stream = true", "schema = {}", "tools = []", "tool_choice = 'auto'"])
def test_what_decides_the_mode_cannot_depend_on_one(tmp_path: Path, table: str) -> None:
    path = tmp_path / "providers.toml"
    path.write_text(overlay_text(f"when.tools.call = {{ {table} }}"), encoding="utf-8")
    with pytest.raises(cnllm.RegistryError, match="decides the mode") as caught:
        cnllm.Registry.load(str(path))
    assert caught.value.line == 6


# ── those of the built-in file ───────────────────────────────────────────────


@each(
    "name, reasoning, sent",
    [
        ("tencent/hy3", None, {"temperature": 0.9, "top_p": 1}),
        ("groq/qwen/qwen3-32b", "on", {"temperature": 0.6, "top_p": 0.95}),
        ("groq/qwen/qwen3-32b", "off", {"temperature": 0.7, "top_p": 0.8}),
        ("groq/qwen/qwen3.6-27b", "on", {"temperature": 1, "top_p": 0.95}),
        ("groq/qwen/qwen3-32b", None, {}),
        ("ollama/minimax-m2.5", None, {"temperature": 1, "top_p": 0.95}),
        ("ollama/kimi-k2.5", "off", {"temperature": 0.6}),
        ("moonshotai/kimi-k2.6", "off", {}),
    ],
)
def test_what_a_vendor_recommends_is_sent(name: str, reasoning: str | None, sent: Json) -> None:
    model = cnllm.Registry.load().resolve(name)
    found = build(model, reasoning=reasoning).body
    assert {k: found[k] for k in ("temperature", "top_p") if k in found} == sent
    assert build(model, reasoning=reasoning, temperature=0.2, on_unsupported="send").body["temperature"] == 0.2


def test_every_built_in_default_is_taken_where_it_is_sent() -> None:
    """A default that its own endpoint refuses would put a note on every call."""
    registry = cnllm.Registry.load()
    named = [n for n in registry.names() if registry.resolve(n).flags.call is not None]
    assert named
    for name in named:
        model = registry.resolve(name)
        for reasoning in (None, "on", "off"):
            notes = build(model, reasoning=reasoning).notes
            assert not [n for n in notes if n.said.endswith("(a default)")], name
