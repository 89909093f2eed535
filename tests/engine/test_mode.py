"""The circle of options, mode and flags: it is gone round until nothing changes, and never for ever."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

import cnllm
from cnllm import engine
from cnllm.engine.adjustments import Ledger
from cnllm.engine.encode.mode import MOST_PASSES, Draft, draft, settle
from cnllm.engine.options import read_options
from cnllm.types.messages import as_messages

from .support import times

MODEL = cnllm.Registry.load().resolve("openai-compatible/mode-test", base_url="http://127.0.0.1:1/v1")
TOOL = {"type": "function", "function": {"name": "look", "parameters": {"type": "object", "properties": {}}}}


def start(**options: object) -> tuple[Draft, Ledger]:
    """A draft with a tool, a schema and reasoning, for steps to take away from."""
    given = {"tools": [TOOL], "tool_choice": "required", "reasoning": "on", "schema": {"type": "object"}, **options}
    request = draft(MODEL, as_messages("Hi"), read_options(given), stream=False, images=False)
    return request, Ledger(MODEL, "adjust")


Change = dict[str, object]
REMOVALS: dict[str, Change] = {
    "reasoning": {"reasoning": "off"},
    "tools": {"tools": (), "choice": None},
    "schema": {"schema": None},
    "forced": {"choice": "auto"},
}


def removal(wanted: str, condition: str | None) -> Callable[[Draft, Ledger], Draft]:
    """A step that takes something away, in modes with `condition` alone."""

    def step(request: Draft, ledger: Ledger) -> Draft:
        assert ledger.mode == request.mode
        if wanted not in request.mode or (condition is not None and condition not in request.mode):
            return request
        return request.with_options(replace(request.options, **REMOVALS[wanted]))

    return step


ATOMS = st.sampled_from([None, *REMOVALS, *(f"no-{name}" for name in REMOVALS)])


@times(300)
@given(st.lists(st.tuples(st.sampled_from(sorted(REMOVALS)), ATOMS), max_size=4))
def test_steps_that_take_something_away_settle(rules: list[tuple[str, str | None]]) -> None:
    request, ledger = start()
    steps = [removal(*rule) for rule in rules]
    settled = settle(request, steps, ledger)
    assert ledger.mode == settled.mode
    assert settled.mode == draft(MODEL, [], settled.options, stream=False, images=False).mode
    assert settled.flags == MODEL.flags_for(settled.mode)
    assert [step(settled, ledger).mode for step in steps] == [settled.mode] * len(steps)


def test_steps_that_disagree_end_all_the_same() -> None:
    runs: list[str] = []

    def step(request: Draft, ledger: Ledger) -> Draft:
        runs.append("step")
        reasoning = "off" if "reasoning" in request.mode else "on"
        return request.with_options(replace(request.options, reasoning=reasoning))

    request, ledger = start()
    settled = settle(request, [step], ledger)
    assert len(runs) == MOST_PASSES
    assert settled.mode == ledger.mode == draft(MODEL, [], settled.options, stream=False, images=False).mode


def test_a_mode_that_stays_costs_one_pass() -> None:
    runs: list[str] = []

    def step(request: Draft, ledger: Ledger) -> Draft:
        runs.append("step")
        return request

    request, ledger = start()
    assert settle(request, [step, step], ledger) is request
    assert len(runs) == 2


CONTRARY = """
[providers.contrary]
protocol = "openai-chat"
base_url = "http://127.0.0.1:9/v1"
[models."contrary/m"]
reasoning = { on = { set = { think = true } }, off = { set = { think = false } } }
tools = { supported = true }
tool_choice = { allowed = ["auto", "none"], otherwise = "reasoning-off" }
"""


def test_a_choice_that_no_mode_takes_is_not_sent(tmp_path: Path) -> None:
    """Reasoning is turned off for the choice; where that does not help either, the choice goes."""
    file = tmp_path / "contrary.toml"
    file.write_text(CONTRARY)
    model = cnllm.Registry.load(file).resolve("contrary/m")
    for reasoning in ("on", "off", None):
        plan = engine.build_request(model, "Hi", tools=[TOOL], tool_choice="required", reasoning=reasoning)
        assert plan.body.get("tool_choice") in (None, "auto"), reasoning
        assert [note.did for note in plan.notes if note.code == "tool-choice"][-1] == "auto"


@pytest.mark.parametrize(("choice", "did"), [(None, []), ("required", ["auto"])])
@pytest.mark.parametrize("effort", ["high", None])
@pytest.mark.parametrize("kind", ['mode = "always"', 'default = "on"'])
def test_reasoning_that_cannot_be_turned_off_stays_as_it_was_asked_for(
    tmp_path: Path, kind: str, choice: str | None, did: list[str], effort: Literal["high"] | None
) -> None:
    file = tmp_path / "always.toml"
    rules = f'{kind}, if_missing = "reasoning-off", effort = {{ at = "effort", high = "high" }}'
    file.write_text(CONTRARY.replace("reasoning = {", f"reasoning = {{ {rules} }} #"))
    call = {"id": "a", "type": "function", "function": {"name": "look", "arguments": "{}"}}
    turns: list[Any] = [
        {"role": "user", "content": "Hi"},
        {"role": "assistant", "content": None, "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "a", "content": "x"},
    ]
    model = cnllm.Registry.load(file).resolve("contrary/m")
    plan = engine.build_request(model, turns, tools=[TOOL], tool_choice=choice, reasoning=effort)
    assert plan.body.get("effort") == effort
    assert [note.did for note in plan.notes] == did


@pytest.mark.parametrize("choice", ["required", "look"])
def test_a_narrowed_choice_stays_narrow_in_the_second_pass(tmp_path: Path, choice: str) -> None:
    """The first pass narrows the tools and leaves the mode `forced`; the second one must not offer all again."""
    file = tmp_path / "narrow.toml"
    text = CONTRARY.replace('otherwise = "reasoning-off"', 'otherwise = "narrow"')
    file.write_text(text + 'when.forced.tools.strict = false\nwhen."no-forced".tools.strict = true\n')
    model = cnllm.Registry.load(file).resolve("contrary/m")
    other = {"type": "function", "function": {"name": "other", "strict": True, "parameters": {"type": "object"}}}
    plan = engine.build_request(model, "Hi", tools=[TOOL, other], tool_choice=choice)
    names = [tool["function"]["name"] for tool in plan.body["tools"]]
    assert names == (["look"] if choice == "look" else ["look", "other"])


def test_only_a_choice_that_demands_a_call_is_forced(tmp_path: Path) -> None:
    file = tmp_path / "own.toml"
    head = '[providers.own]\nprotocol = "openai-chat"\nbase_url = "http://127.0.0.1:9"\nkeys = []\n'
    file.write_text(f'{head}[models."own/m"]\nwhen.forced.body.set = {{ is_forced = true }}\n')
    model = cnllm.Registry.load(str(file)).resolve("own/m")
    choices = {"required": True, "look": True, "auto": False, "none": False, None: False}
    for choice, is_forced in choices.items():
        chosen = {} if choice is None else {"tool_choice": choice}
        plan = engine.build_request(model, "Hi", tools=[TOOL], **chosen)  # type: ignore[arg-type]
        assert plan.body.get("is_forced", False) is is_forced, choice
