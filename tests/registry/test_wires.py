"""One endpoint over several wires: what is said of one wire counts on no other, what is true of the model on all."""

from __future__ import annotations

from pathlib import Path

import pytest
from msgspec.structs import replace

from cnllm import Registry, UnknownModel, engine
from cnllm.protocols import PROTOCOLS
from cnllm.registry.model import conditions

from .support import Files, at

TWO = """
[protocols.second]
path = "/second"
reasoning.replay = "always"
params.max_tokens = "most"

[providers.home]
title    = "A server at home"
protocol = "openai-chat"
base_url = "http://127.0.0.1:9/v1"
keys     = []
messages.system = "user"
params.max_tokens = "max_completion_tokens"
reasoning = { mode = "toggle", default = "on", replay = "never", fields = ["thinking"], tags = ["<t>", "</t>"] }
when.reasoning.params.temperature = false
when.reasoning.limits.output = 10
[providers.home.on.second]
path = "/its/own"
messages.system = "first"

[models."home/m"]
limits.context = 100
tools = { supported = false, parallel = false }
unset = ["reasoning.replay", "reasoning.tags"]
[models."home/m".on.second]
limits.context = 90

[providers.alone]
protocol = "openai-chat"
base_url = "http://127.0.0.1:9/v1"
keys     = []
[models."alone/m"]
"""


def test_what_is_about_one_wire_stays_there(files: Files) -> None:
    registry = files.load(TWO)
    first, second = registry.resolve("home/m"), registry.resolve("home/m", protocol="second")
    assert (first.flags.path, second.flags.path) == ("/chat/completions", "/its/own")
    assert (first.flags.params or {})["max_tokens"] == "max_completion_tokens"
    assert (second.flags.params or {})["max_tokens"] == "most"
    assert second.flags.messages.system == "first"
    assert second.flags.reasoning.fields is None
    assert second.flags.reasoning.replay == "always"  # which only the first wire's tables took away
    assert second.flags.tools.parallel is None


def test_a_model_of_another_protocol_has_nothing_of_its_providers_wire(files: Files) -> None:
    registry = files.load(
        TWO
        + """
[models."home/other"]
protocol = "second"
params.stop = "ends"
[models."home/derived"]
extends = "home/other"
"""
    )
    for name in ("home/other", "home/derived"):
        model = registry.resolve(name)
        assert (model.protocol, model.flags.path) == ("second", "/its/own")
        assert model.flags.base_url == "http://127.0.0.1:9/v1"
        assert model.flags.params == {"max_tokens": "most", "stop": "ends"}
        assert (model.flags.reasoning.mode, model.flags.reasoning.replay) == ("toggle", "always")
        assert model.flags.reasoning.fields is None


def test_what_is_true_of_the_model_holds_on_every_wire(files: Files) -> None:
    model = files.load(TWO).resolve("home/m", protocol="second")
    flags = model.flags
    assert (flags.title, flags.base_url) == ("A server at home", "http://127.0.0.1:9/v1")
    assert (flags.reasoning.mode, flags.reasoning.default, flags.reasoning.tags) == ("toggle", "on", None)
    assert flags.tools.supported is False
    assert flags.limits.context == 90
    under = model.flags_for(conditions(reasoning=True))
    assert under.limits.output == 10
    assert (under.params or {}).get("temperature") is None


def test_what_is_left_of_another_wires_table_still_has_its_line(files: Files) -> None:
    model = files.load(TWO).resolve("home/m", protocol="second")
    assert at(model.where("reasoning.mode"))[1].startswith("reasoning = { mode")
    facts = {fact.flag: fact.layer for fact in model.explain()}
    assert facts["limits.context"] == "models.home/m.on.second"
    assert facts["reasoning.mode"] == "providers.home"
    assert "reasoning.fields" not in facts


def test_a_wire_that_the_endpoint_does_not_have_is_refused_by_name(files: Files) -> None:
    with pytest.raises(UnknownModel) as caught:
        files.load(TWO).resolve("alone/m", protocol="second")
    assert "does not support the protocol second" in str(caught.value)


def test_an_endpoint_that_no_one_described_is_said_to_have_every_wire(files: Files) -> None:
    with pytest.raises(UnknownModel) as caught:
        files.load(TWO).resolve("openai-compatible/m", base_url="http://127.0.0.1:9/v1", protocol="gemni")
    assert caught.value.hint is not None
    assert {"openai-chat", "openai-responses", "anthropic-messages", "gemini"} <= set(
        caught.value.hint.removeprefix("it supports ").split(", ")
    )


ROUTED = """
[providers.home]
protocol = "openai-chat"
base_url = "http://127.0.0.1:9/v1"
keys     = []
[models."home/m"]
reasoning = { mode = "toggle", default = "on", off.set.think = false }
when."reasoning+tools".protocol = "anthropic-messages"
[providers.home.on.anthropic-messages]
path = "/v1/messages"
"""
TOOL = {"type": "function", "function": {"name": "f", "parameters": {"type": "object", "properties": {}}}}


def test_a_caller_who_names_the_wire_is_not_sent_over_another(files: Files) -> None:
    model = files.load(ROUTED).resolve("home/m", protocol="openai-chat")
    plan = engine.build_request(model, "Hi", tools=[TOOL])
    assert plan.url.endswith("/chat/completions")
    assert "wire-routed" not in [note.code for note in plan.notes]


def test_a_combination_that_another_wire_takes_goes_over_that_one_with_a_note(files: Files) -> None:
    model = files.load(ROUTED).resolve("home/m")
    assert engine.build_request(model, "Hi").url.endswith("/chat/completions")
    assert engine.build_request(model, "Hi", tools=[TOOL], reasoning="off").url.endswith("/chat/completions")
    plan = engine.build_request(model, "Hi", tools=[TOOL])
    assert plan.url.endswith("/v1/messages")
    assert plan.model.protocol == "anthropic-messages"
    note = next(note for note in plan.notes if note.code == "wire-routed")
    assert "anthropic-messages" in note.did
    assert at(note.where)[1].startswith('when."reasoning+tools"')


def test_the_wires_of_a_model_can_be_asked_for_its_own_first(files: Files) -> None:
    registry = files.load(TWO)
    assert registry.wires("home/m") == ["openai-chat", "second"]
    assert registry.wires("alone/m") == ["openai-chat"]
    anywhere = registry.wires("openai-compatible/any")
    assert anywhere[0] == "openai-chat"
    assert {"second"} <= set(anywhere)


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_a_provider_of_another_wire_has_that_wires_flags_of_the_one_it_extends(tmp_path: Path, protocol: str) -> None:
    base, overlay = "http://127.0.0.1:9/v1", tmp_path / "own.toml"
    overlay.write_text(
        f'[providers.mine]\nextends = "openai-compatible"\nprotocol = "{protocol}"\nbase_url = "{base}"\n'
    )
    registry = Registry.load(str(overlay))
    mine, same = registry.resolve("mine/x"), registry.resolve("openai-compatible/x", protocol=protocol, base_url=base)
    assert mine.protocol == protocol
    assert replace(mine.flags, protocol=None) == replace(same.flags, protocol=None)


@pytest.mark.parametrize("table", ['models."home/m"', "providers.home"])
def test_an_overlay_that_names_another_wire_has_the_flags_of_that_wire(files: Files, table: str) -> None:
    asked = files.load(TWO).resolve("home/m", protocol="second")
    own = f'[{table}]\nprotocol = "second"\nparams.seed = "grain"\n'
    named = files.load(TWO, own).resolve("home/m")
    assert named.protocol == "second"
    assert named.flags.params == {**(asked.flags.params or {}), "seed": "grain"}  # the overlay's own are of that wire
    assert replace(named.flags, protocol=None, params=None) == replace(asked.flags, protocol=None, params=None)
    for mode in (conditions(reasoning=True), conditions()):
        assert replace(named.flags_for(mode), protocol=None, params=None) == replace(
            asked.flags_for(mode), protocol=None, params=None
        )


@pytest.mark.parametrize("table", ['models."alone/m"', "providers.alone"])
def test_flags_of_the_wire_before_are_none_of_a_wire_that_nobody_described(files: Files, table: str) -> None:
    own = TWO + 'params.max_tokens = "max_completion_tokens"\nlimits.context = 100\n'
    model = files.load(own, f'[{table}]\nprotocol = "second"\n').resolve("alone/m")
    assert (model.flags.params or {})["max_tokens"] == "most"
    assert model.flags.limits.context == 100


@pytest.mark.parametrize("table", ['models."openai/gpt-5.6-sol"', "providers.openai"])
def test_a_built_in_model_that_an_overlay_puts_on_another_wire_sends_what_that_wire_sends(
    files: Files, table: str
) -> None:
    asked = files.load("").resolve("openai/gpt-5.6-sol", protocol="openai-responses")
    named = files.load(f'[{table}]\nprotocol = "openai-responses"\n').resolve("openai/gpt-5.6-sol")
    for reasoning in (None, "off", "low"):
        plans = [engine.build_request(m, "Hi", tools=[TOOL], max_tokens=9, reasoning=reasoning) for m in (asked, named)]
        assert plans[0].content == plans[1].content
        assert plans[0].url == plans[1].url
