"""Three states, each read off a flag that can be named."""

from __future__ import annotations

import subprocess
import sys

import pytest

from cnllm import Registry
from cnllm.model_facts.capabilities import KINDS, capabilities

from .conftest import Load

# (capability, flags of a model, yes, no or unknown, the flag that settles it)
CASES: list[tuple[str, str, bool | None, str]] = [
    ("tools", "", None, ""),
    ("tools", "tools.supported = true", True, "tools.supported"),
    ("tools", "tools.supported = false\ntool_choice.allowed = ['auto']", False, "tools.supported"),
    ("tools", "tool_choice.allowed = ['auto']", True, "tool_choice.allowed"),
    ("tools", "tool_choice.allowed = ['none']", None, ""),
    ("forced-tool", "", None, ""),
    ("forced-tool", "tool_choice.allowed = ['auto', 'none']", False, "tool_choice.allowed"),
    ("forced-tool", "tool_choice.allowed = ['auto', 'required']", True, "tool_choice.allowed"),
    ("forced-tool", "tool_choice.allowed = ['named']", True, "tool_choice.allowed"),
    ("forced-tool", "tools.supported = false\ntool_choice.allowed = ['named']", False, "tools.supported"),
    ("forced-tool-reasoning", "tool_choice.allowed = ['named']", None, ""),
    ("forced-tool-reasoning", "tool_choice.allowed = ['named']\nreasoning.mode = 'never'", False, "reasoning.mode"),
    (
        "forced-tool-reasoning",
        "tool_choice.allowed = ['named']\nreasoning.mode = 'toggle'",
        True,
        "tool_choice.allowed",
    ),
    ("parallel-tools", "", None, ""),
    ("parallel-tools", "tools.parallel = true", True, "tools.parallel"),
    ("parallel-tools", "tools.parallel = false", False, "tools.parallel"),
    ("web-search", "", None, ""),
    ("web-search", "web_search.tool.type = 'find'", True, "web_search.tool"),
    ("web-search", "web_search.set.find = true", True, "web_search.set"),
    ("strict-tools", "", None, ""),
    ("strict-tools", "tools.strict = true", True, "tools.strict"),
    ("strict-tools", "tools.strict = true\ntools.supported = false", False, "tools.supported"),
    ("stream-tools", "", None, ""),
    ("stream-tools", "stream.tools = false", False, "stream.tools"),
    ("reasoning", "", None, ""),
    ("reasoning", "reasoning.mode = 'unknown'", None, ""),
    ("reasoning", "reasoning.mode = 'toggle'", True, "reasoning.mode"),
    ("reasoning", "reasoning.mode = 'always'", True, "reasoning.mode"),
    ("reasoning", "reasoning.mode = 'never'", False, "reasoning.mode"),
    ("reasoning-off", "", None, ""),
    ("reasoning-off", "reasoning.mode = 'never'", True, "reasoning.mode"),
    ("reasoning-off", "reasoning.mode = 'always'", False, "reasoning.mode"),
    ("reasoning-off", "reasoning = { mode = 'toggle', default = 'on' }", None, ""),
    ("reasoning-off", "reasoning = { mode = 'toggle', default = 'off' }", True, "reasoning.default"),
    ("reasoning-off", "reasoning = { mode = 'toggle', off = { set = { think = false } } }", True, "reasoning.off"),
    ("reasoning-default", "reasoning.mode = 'toggle'", None, ""),
    ("reasoning-default", "reasoning = { mode = 'toggle', default = 'on' }", True, "reasoning.default"),
    ("reasoning-default", "reasoning = { mode = 'toggle', default = 'off' }", False, "reasoning.default"),
    ("reasoning-default", "reasoning.mode = 'always'", True, "reasoning.mode"),
    ("reasoning-levels", "reasoning.mode = 'always'", None, ""),
    ("reasoning-levels", "reasoning.mode = 'never'", False, "reasoning.mode"),
    ("reasoning-levels", "reasoning.effort = { at = 'e', low = 'l', high = 'h' }", True, "reasoning.effort"),
    ("reasoning-levels", "reasoning.effort = { low = 'l', high = 'h' }", None, ""),
    ("reasoning-levels", "reasoning.effort = { at = 'e', high = 'h' }", None, ""),
    ("reasoning-budget", "reasoning.mode = 'always'", None, ""),
    ("reasoning-budget", "reasoning.budget.at = 'b'", True, "reasoning.budget.at"),
    ("reasoning-budget", "reasoning.mode = 'never'\nreasoning.budget.at = 'b'", False, "reasoning.mode"),
    ("images", "", None, ""),
    ("images", "input = ['text']", False, "input"),
    ("images", "input = ['text', 'image']", True, "input"),
    ("audio", "input = ['audio']", True, "input"),
    ("audio", "input = ['text']", False, "input"),
    ("video", "input = ['video']", True, "input"),
    ("video", "input = ['text']", False, "input"),
    ("files", "input = ['text']", False, "input"),
    ("files", "input = ['text', 'file']", True, "input"),
    ("schema", "", None, ""),
    ("schema", "schema.methods = ['json_schema']", True, "schema.methods"),
    ("schema", "schema.methods = ['json_object', 'prompt']", False, "schema.methods"),
    ("json", "", None, ""),
    ("json", "schema.methods = ['json_object']", True, "schema.methods"),
    ("json", "schema.methods = ['prompt']", False, "schema.methods"),
    ("whole", "", None, ""),
    ("whole", "stream.required = true", False, "stream.required"),
    ("whole", "stream.required = false", True, "stream.required"),
]


@pytest.mark.share(2)
@pytest.mark.parametrize(("name", "flags", "value", "flag"), CASES)
def test_each_capability_goes_by_its_flags(load: Load, name: str, flags: str, value: bool | None, flag: str) -> None:
    found = capabilities(load(f'[models."home/m"]\n{flags}\n').resolve("home/m"))[name]
    assert found.value is value
    if value is None:
        assert found.fact is None
    else:
        assert found.state.flag == flag
        assert found.fact is not None
        assert found.fact.where.partition(":")[0].endswith("overlay.toml")


def test_every_capability_has_cases_unknown_among_them() -> None:
    assert {name for name, *_ in CASES} == set(KINDS)
    for name in KINDS:
        values = {value for said, _, value, _ in CASES if said == name}
        assert len(values) > 1, name
        assert None in values or name in ("audio", "video", "files"), name


def test_a_mode_that_can_be_had_is_enough_for_a_yes_and_the_fact_is_that_modes(load: Load) -> None:
    flags = """[models."home/m"]
reasoning = { mode = "toggle", default = "on" }
tool_choice.allowed = ["auto", "none", "required", "named"]
when.reasoning.tool_choice.allowed = ["auto", "none"]
when.reasoning.stream.required = true
[models."home/m".sources]
forced = { url = "https://example.org/f", seen = 2026-11-20, how = "issue", backs = ["when.reasoning.tool_choice"] }
"""
    found = capabilities(load(flags).resolve("home/m"))
    assert (found["forced-tool"].value, found["forced-tool-reasoning"].value) == (True, False)
    whole, fact = found["forced-tool"].fact, found["forced-tool-reasoning"].fact
    assert whole is not None
    assert whole.source is None
    assert fact is not None
    assert fact.source == "https://example.org/f"
    assert fact.flag == "when.reasoning.tool_choice.allowed"
    assert found["whole"].value is None, "required while it reasons, and nobody said what holds without"


def test_a_model_that_always_reasons_is_judged_by_that_mode(load: Load) -> None:
    flags = """[models."home/m"]
reasoning.mode = "always"
tool_choice.allowed = ["auto", "required"]
when.reasoning.tool_choice.allowed = ["auto"]
when.reasoning.stream.required = true
"""
    found = capabilities(load(flags).resolve("home/m"))
    assert [found[name].value for name in ("forced-tool", "forced-tool-reasoning", "whole")] == [False, False, False]


def test_tools_are_judged_on_the_wire_that_takes_them(load: Load) -> None:
    flags = """[providers.home.on.openai-responses]
path = "/responses"
[models."home/m"]
reasoning.mode = "MODE"
tool_choice.allowed = ["auto"]
when."reasoning+tools".protocol = "openai-responses"
on.openai-chat.tools.supported = false
on.openai-responses.tool_choice.allowed = ["auto", "required"]
"""
    names = ("tools", "forced-tool")
    found = capabilities(load(flags.replace("MODE", "always")).resolve("home/m"))
    assert [found[name].value for name in names] == [True, True]
    found = capabilities(load(flags.replace("MODE", "toggle")).resolve("home/m"))
    assert [found[name].value for name in names] == [False, False], "some calls with tools stay on the chat wire"


def test_what_only_the_defaults_say_is_unknown(load: Load) -> None:
    model = load('[defaults.schema]\nmethods = ["json_schema"]\n[models."home/m"]\n').resolve("home/m")
    assert capabilities(model)["schema"].value is None


def test_every_state_of_a_built_in_model_has_a_place_and_a_source() -> None:
    registry = Registry.load()
    bare = [
        (name, one)
        for name in registry.names()
        for one in capabilities(registry.resolve(name)).values()
        if one.value is not None
        and not (one.fact is not None and one.fact.where.startswith("providers.toml:") and one.fact.source)
    ]
    assert bare == []


def test_capabilities_import_no_transport_and_no_engine() -> None:
    code = (
        "import sys; from cnllm.registry import Registry; from cnllm.model_facts.capabilities import capabilities; "
        "r = Registry.load(); [c.value for n in r.names() for c in capabilities(r.resolve(n)).values()]; "
        "print([m for m in sys.modules if m.startswith(('httpx', 'cnllm.engine', 'cnllm.client', 'cnllm.protocols'))])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"
