"""Which layer of the registry decides a flag; which flags add up, replace each other or go away."""

from __future__ import annotations

import itertools
import random
import re
import tempfile
from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cnllm import Client, Model, RegistryError
from cnllm.registry.flags import Flags, LimitFlags, ReasoningFlags
from cnllm.registry.model import conditions
from cnllm.registry_files.check import check

from .support import HOME, UNHURRIED, Files, at, told

STREAM = conditions(stream=True)
MODEL = 'models."home/mine-1"'
LAYERS = {  # header of a table → what explain calls it, the weakest first
    "defaults": "defaults",
    "protocols.openai-chat": "protocols.openai-chat",
    "protocols.openai-chat.on.openai-chat": "protocols.openai-chat.on.openai-chat",
    "families.mine": "families.mine",
    "families.mine.on.openai-chat": "families.mine.on.openai-chat",
    "providers.home": "providers.home",
    "providers.home.on.openai-chat": "providers.home.on.openai-chat",
    "providers.home.families.mine": "providers.home.families.mine",
    "providers.home.families.mine.on.openai-chat": "providers.home.families.mine.on.openai-chat",
    MODEL: "models.home/mine-1",
    f"{MODEL}.on.openai-chat": "models.home/mine-1.on.openai-chat",
}
ORDER = list(LAYERS)
PAIRS = list(itertools.pairwise(ORDER))
BASE = f'{HOME}\n[families.mine]\nmatch = ["mine-*"]\n[{MODEL}]\n'


def limit(header: str, value: int) -> str:
    return f"[{header}.limits]\noutput = {value}\n"


def context(model: Model, mode: frozenset[str] = frozenset()) -> int | None:
    limits = model.flags_for(mode).limits
    return limits.output


# ── the order ────────────────────────────────────────────────────────────────
@pytest.mark.parametrize(("lower", "upper"), PAIRS)
def test_each_layer_wins_over_the_one_below_it(files: Files, lower: str, upper: str) -> None:
    model = files.load(BASE, limit(upper, 2) + limit(lower, 1)).resolve("home/mine-1")
    assert context(model) == 2
    assert at(model.where("limits.output"))[1] == "output = 2"
    assert [fact.layer for fact in model.explain() if fact.flag == "limits.output"] == [LAYERS[upper]]


@UNHURRIED
@given(said=st.lists(st.tuples(st.sampled_from(ORDER), st.booleans()), min_size=1, unique=True), seed=st.integers())
def test_the_nearest_table_wins_and_only_then_the_later_file(said: list[tuple[str, bool]], seed: int) -> None:
    values = {entry: place for place, entry in enumerate(said, 1)}
    texts = {
        later: [limit(header, values[header, late]) for header, late in said if late is later]
        for later in (False, True)
    }
    for text in texts.values():
        random.Random(seed).shuffle(text)
    with tempfile.TemporaryDirectory() as folder:
        model = Files(Path(folder)).load(BASE, *("".join(text) for text in texts.values())).resolve("home/mine-1")
        winner = max(said, key=lambda entry: (ORDER.index(entry[0]), entry[1]))
        assert context(model) == values[winner]
        assert at(model.where("limits.output"))[1] == f"output = {values[winner]}"


@pytest.mark.parametrize("header", ORDER)
def test_a_when_of_any_table_wins_over_every_plain_table(files: Files, header: str) -> None:
    plain = "".join(limit(other, 1) for other in ORDER)
    model = files.load(BASE, plain + f"[{header}.when.stream.limits]\noutput = 2\n").resolve("home/mine-1")
    assert (context(model), context(model, STREAM)) == (1, 2)


@pytest.mark.parametrize(("lower", "upper"), PAIRS)
def test_the_layers_of_one_when_have_the_same_order(files: Files, lower: str, upper: str) -> None:
    said = f"[{upper}.when.stream.limits]\noutput = 2\n[{lower}.when.stream.limits]\noutput = 1\n"
    model = files.load(BASE, said).resolve("home/mine-1")
    assert context(model, STREAM) == 2
    assert at(model.where("limits.output", STREAM))[1] == "output = 2"


def test_the_call_wins_over_everything(files: Files) -> None:
    said = f'[{MODEL}]\ncall.temperature = 0.5\nbase_url = "http://127.0.0.1:1/model"\n'
    said += 'when.stream.base_url = "http://127.0.0.1:2/when"\n'
    registry = files.load(BASE, said)
    client = Client(registry)
    assert client.plan("home/mine-1", "hi").body["temperature"] == 0.5
    assert client.plan("home/mine-1", "hi", temperature=0.25).body["temperature"] == 0.25
    asked = registry.resolve("home/mine-1", base_url="http://127.0.0.1:3/call")
    assert client.plan("home/mine-1", "hi", stream=True).url.startswith("http://127.0.0.1:2/when/")
    for stream in (False, True):
        assert client.plan(asked, "hi", stream=stream).url.startswith("http://127.0.0.1:3/call/")
    assert asked.where("base_url", STREAM) == "the call"


def test_a_user_who_speaks_of_a_provider_does_not_speak_over_a_model_of_it(files: Files) -> None:
    plain = files.load("").resolve("zai/glm-4.7").flags.limits
    registry = files.load("[providers.zai.limits]\noutput = 7\n")
    described, unknown = registry.resolve("zai/glm-4.7").flags.limits, registry.resolve("zai/nobody-knows").flags.limits
    assert described == plain
    assert unknown is not None
    assert unknown.output == 7


# ── on ───────────────────────────────────────────────────────────────────────
def test_on_holds_over_its_own_wire_alone(files: Files) -> None:
    said = (
        '[protocols.other]\npath = "/other"\n'
        '[providers.home.on.other]\nbase_url = "http://127.0.0.1:8/other"\nlimits.output = 5\n'
    )
    registry = files.load(BASE, limit("providers.home", 4) + said)
    chat, other = registry.resolve("home/mine-1"), registry.resolve("home/mine-1", protocol="other")
    assert (chat.protocol, context(chat), chat.flags.path) == ("openai-chat", 4, "/chat/completions")
    assert (other.protocol, context(other), other.flags.path) == ("other", 5, "/other")
    assert (chat.flags.base_url, other.flags.base_url) == ("http://127.0.0.1:9/v1", "http://127.0.0.1:8/other")


# ── tables, lists, rules ─────────────────────────────────────────────────────
def test_tables_merge_and_lists_and_values_replace(files: Files) -> None:
    below = (
        f"{BASE}[providers.home.body.set]\na = 1\nb = [1, 2]\nc = {{ x = 1 }}\n"
        '[providers.home.params]\ntemperature = { as = "t", min = 0.1 }\ntop_p = false\n'
    )
    above = (
        f"[{MODEL}.body.set]\nb = [3]\nc = {{ y = 2 }}\n"
        f'[{MODEL}.params]\ntemperature = {{ max = 0.9 }}\ntop_p = {{ as = "p" }}\nstop = false\n'
    )
    flags = files.load(below, above).resolve("home/mine-1").flags
    assert flags.body.set == {"a": 1, "b": [3], "c": {"x": 1, "y": 2}}
    params = flags.params or {}
    temperature, top_p = params["temperature"], params["top_p"]
    assert not isinstance(temperature, str | bool)
    assert not isinstance(top_p, str | bool)
    assert (temperature.as_, temperature.min, temperature.max) == ("t", 0.1, 0.9)
    assert (top_p.as_, params["stop"], params["seed"]) == ("p", False, "seed")


def test_models_of_a_provider_share_what_none_of_them_changes(files: Files) -> None:
    """A gateway that lists a thousand models holds the flags of their providers once."""
    home = "[providers.home.reasoning]\nmode = 'toggle'\n[providers.home.limits]\ncontext = 8\n"
    own = (
        '[models."home/a"]\n[models."home/b"]\nlimits.output = 2\n[models."home/c"]\nunset = ["limits", "reasoning"]\n'
    )
    registry = files.load(f"{BASE}{home}{own}")
    first, second, third = (registry.resolve(f"home/{id}").flags for id in "abc")
    assert first.reasoning is second.reasoning
    assert (third.limits, third.reasoning) == (LimitFlags(), ReasoningFlags())
    limits = [(flags.limits.context, flags.limits.output) for flags in (first, second)]
    assert limits == [(8, None), (8, 2)]


RULE = '{{ kind = "rate", code = ["{0}"] }}'
REFUSAL = '{{ on = "key", status = 401, body = "{0}" }}'


def rules(name: str) -> str:
    return f"errors = [{RULE.format(name)}, {RULE.format(name + '2')}]\nsimulator.refusals = [{REFUSAL.format(name)}]\n"


def codes(model: Model, mode: frozenset[str] = frozenset()) -> list[str]:
    return [code for rule in model.flags_for(mode).errors or () for code in rule.code or ()]


def test_rules_add_up_nearest_first(files: Files) -> None:
    below = files.load(HOME).resolve("home/x")
    registry = files.load(
        HOME + rules("provider"),
        f"[families.mine]\nmatch = ['mine-*']\n{rules('family')}[{MODEL}]\n{rules('model')}",
        f"[{MODEL}]\n{rules('later')}",
    )
    model = registry.resolve("home/mine-1")
    own = ["later", "later2", "model", "model2", "provider", "provider2", "family", "family2"]
    assert codes(model) == [*own, *codes(below)]
    assert [r.body for r in model.flags.simulator.refusals or ()] == [
        "later",
        "model",
        "provider",
        "family",
    ]


def test_rules_of_a_when_add_up_too(files: Files) -> None:
    registry = files.load(
        BASE,
        f"[providers.home.when.stream]\n{rules('provider')}[{MODEL}.when.stream]\n{rules('model')}[{MODEL}]\n{rules('plain')}",
    )
    model = registry.resolve("home/mine-1")
    assert codes(model)[:2] == ["plain", "plain2"]
    assert codes(model, STREAM) == ["model", "model2", "provider", "provider2", *codes(model)]


# ── unset ────────────────────────────────────────────────────────────────────
def test_unset_takes_away_what_is_below_and_not_what_stands_beside_or_above(files: Files) -> None:
    below = "[providers.home.reasoning]\nmode = 'toggle'\non.set.a = 1\noff.set.a = 0\nfields = ['r']\n"
    unset = f"[{MODEL}]\nunset = ['reasoning.off', 'reasoning.on', 'errors']\nreasoning.on.set.b = 2\n"
    above = f"[{MODEL}]\nreasoning.off.set.c = 3\n"
    registry = files.load(BASE, below, unset)
    model = registry.resolve("home/mine-1")
    reasoning = model.flags.reasoning
    assert (reasoning.mode, reasoning.fields, reasoning.off) == ("toggle", ["r"], None)
    assert reasoning.on is not None
    assert reasoning.on.set == {"b": 2}
    assert model.flags.errors is None
    assert at(model.where("reasoning.off"))[1].startswith("unset = ")
    reasoning = files.load(BASE, below, unset, above).resolve("home/mine-1").flags.reasoning
    assert reasoning.off is not None
    assert reasoning.off.set == {"c": 3}


def test_unset_takes_a_condition_away_however_its_atoms_are_ordered(files: Files) -> None:
    below = '[providers.home.when."tools+schema".body.set]\na = 1\nb = 2\n[providers.home.body.set]\na = 0\n'
    both = conditions(schema=True, tools=True)
    one = files.load(BASE, below, f'[{MODEL}]\nunset = ["when.schema+tools.body.set.a"]\n').resolve("home/mine-1")
    body = one.flags_for(both).body
    assert body is not None
    assert body.set == {"a": 0, "b": 2}
    assert at(one.where("body.set.a", both))[1] == "a = 0"
    body = (
        files.load(BASE, below, f'[{MODEL}]\nunset = ["when.tools+schema"]\n')
        .resolve("home/mine-1")
        .flags_for(both)
        .body
    )
    assert body is not None
    assert body.set == {"a": 0}


# ── extends ──────────────────────────────────────────────────────────────────
def test_a_model_may_extend_one_that_extends_another(files: Files) -> None:
    said = (
        '[models."home/a"]\nlimits = { context = 1, output = 1 }\nbody.set.a = 1\n'
        '[models."home/b"]\nextends = "home/a"\nsame_weights = true\nlimits.output = 2\n'
        '[models."home/b".on.openai-chat]\nbody.set.b = 2\n'
        '[models."home/c"]\nextends = "home/b"\nsame_weights = true\nbody.set.c = 3\n'
    )
    flags = files.load(HOME, said).resolve("home/c").flags
    assert (flags.limits.context, flags.limits.output) == (1, 2)
    assert flags.body.set == {"a": 1, "b": 2, "c": 3}


def test_a_provider_may_extend_one_that_extends_another(files: Files) -> None:
    said = (
        "[providers.home.families.mine]\nbody.set.family = 1\nlimits.output = 1\n"
        '[providers.away]\nextends = "home"\nbase_url = "http://127.0.0.1:7"\nlimits.output = 2\n'
        '[providers.far]\nextends = "away"\ntitle = "Far"\n'
    )
    model = files.load(BASE, said).resolve("far/mine-2")
    assert (model.flags.title, model.flags.base_url, model.protocol) == ("Far", "http://127.0.0.1:7", "openai-chat")
    assert context(model) == 2
    assert model.flags.body.set == {"family": 1}


def test_a_later_file_may_change_what_is_extended(files: Files) -> None:
    one = '[models."home/a"]\nlimits.output = 1\n[models."home/b"]\nextends = "home/a"\nsame_weights = true\n'
    two = '[models."home/a"]\nlimits.output = 2\n'
    assert context(files.load(HOME, one, two).resolve("home/b")) == 2


PARENT = (
    '[models."home/a"]\nprice = { currency = "USD", input = 1, output = 2 }\nstatus.is = "preview"\n'
    'limits = { context = 1, output = 1 }\ninput = ["text"]\nbody.set.a = 1\nwhen.tools.price.input = 3\n'
    '[models."home/a".on.openai-chat]\nprice.cached = 1\nlimits.output = 2\n'
    '[models."home/b"]\nextends = "home/a"\n'
)


def test_a_model_has_only_the_behaviour_of_the_one_it_extends(files: Files) -> None:
    flags = files.load(HOME, PARENT).resolve("home/b").flags
    assert (flags.price, flags.status, flags.limits, flags.input) == (None, None, LimitFlags(), None)
    assert flags.body.set == {"a": 1}
    assert files.load(HOME, PARENT).resolve("home/b").flags_for(conditions(tools=True)).price is None


def test_a_model_with_the_same_weights_has_their_limits_and_input_but_no_price(files: Files) -> None:
    flags = files.load(HOME, PARENT + "same_weights = true\n").resolve("home/b").flags
    assert (flags.price, flags.status, flags.input) == (None, None, ["text"])
    assert (flags.limits.context, flags.limits.output) == (1, 2)


def test_a_link_between_other_weights_ends_what_is_inherited(files: Files) -> None:
    said = PARENT + '[models."home/c"]\nextends = "home/b"\nsame_weights = true\n'
    model = files.load(HOME, said).resolve("home/c")
    assert model.flags.limits == LimitFlags()
    assert model.flags.input is None
    assert [fact for fact in model.explain() if fact.flag.split(".")[0] in ("price", "limits", "input", "status")] == []


def test_a_provider_has_no_price_of_the_one_it_extends(files: Files) -> None:
    said = '[providers.home]\nprice.input = 1\nbody.set.a = 1\n[providers.away]\nextends = "home"\n'
    flags = files.load(BASE, said).resolve("away/x").flags
    assert flags.price is None
    assert flags.body.set == {"a": 1}


def test_same_weights_without_a_model_to_extend_is_a_fault(files: Files) -> None:
    path = files.write(HOME + '[models."home/a"]\nsame_weights = true\n')
    faults = [fault for fault in check([str(path)]) if "same_weights" in fault.message]
    assert [fault.message for fault in faults] == ['models."home/a" has same_weights, but extends no model']


CHAINS = {
    "itself": ({"m1": "m1"}, "extends itself: m1 → m1"),
    "a circle of two": ({"m1": "m2", "m2": "m1"}, "extends itself: m1 → m2 → m1"),
    "a circle of three": ({"m1": "m2", "m2": "m3", "m3": "m1"}, "extends itself: m1 → m2 → m3 → m1"),
    "three hops": (
        {"m1": "m2", "m2": "m3", "m3": "m4", "m4": ""},
        "extends more than 2 others in a row: m1 → m2 → m3 → m4",
    ),
    "nobody": ({"m1": "m9"}, "extends m9, which is not there"),
    "nobody from its parent": ({"m1": "m2", "m2": "m9"}, "extends m9, which is not there"),
}


@pytest.mark.share(3)
@pytest.mark.parametrize("case", list(CHAINS))
@pytest.mark.parametrize("kind", ["models", "providers"])
@pytest.mark.parametrize("warm", [False, True], ids=["cold", "warm"])
def test_a_chain_that_leads_nowhere_is_told_with_its_line(files: Files, case: str, kind: str, warm: bool) -> None:
    chain, said = CHAINS[case]
    prefix = "home/" if kind == "models" else ""
    text = HOME
    for name, parent in chain.items():
        text += f'[{kind}."{prefix}{name}"]\n' + (f'extends = "{prefix}{parent}"\n' if parent else "")
    registry = files.load(text)
    if warm:
        registry = files.load(text)
    with pytest.raises(RegistryError) as caught:
        registry.resolve("home/m1" if kind == "models" else "m1/any")
    error = told(caught.value)
    assert re.sub(r"(?=\bm\d)", prefix, said) in str(error)
    assert error.file is not None
    assert error.line is not None
    assert at(f"{error.file}:{error.line}")[1].startswith('extends = "')


# ── families ─────────────────────────────────────────────────────────────────
def test_the_family_with_the_longest_literal_start_wins_wherever_it_stands(files: Files) -> None:
    patterns = {"wide": "mine-*", "middle": "mine-1*", "narrow": "mine-1.5-*", "exact": "mine-1.5-x", "tail": "*-x"}
    meant = {"mine-2": "wide", "mine-1": "middle", "mine-1.5-y": "narrow", "mine-1.5-x": "exact", "yours-x": "tail"}
    for order in (list(patterns), list(reversed(patterns))):
        said = "".join(
            f'[families.{name}]\nmatch = ["{patterns[name]}"]\nbody.set.family = "{name}"\n' for name in order
        )
        registry = files.load(HOME, said)
        found = {id: registry.resolve(f"home/{id}").flags.body for id in meant}
        assert {id: body.set["family"] for id, body in found.items() if body.set} == meant


def test_families_match_in_any_case_and_past_a_slash_only_if_they_say_so(files: Files) -> None:
    registry = files.load(HOME, '[families.mine]\nmatch = ["Mine-*", "*/mine-*"]\nlimits.output = 3\n')
    assert [context(registry.resolve(f"home/{id}")) for id in ("MINE-1", "org/Mine-1", "org/sub/mine-1")] == [3, 3, 3]
    assert [context(registry.resolve(f"home/{id}")) for id in ("min-1", "xmine-1", "mine")] == [None, None, None]


def test_who_adds_to_a_family_need_not_repeat_whom_it_matches(files: Files) -> None:
    plain = files.load("").resolve("zai/glm-4.7").flags.reasoning
    model = files.load("[families.glm]\nlimits.output = 3\n").resolve("zai/glm-nobody-knows")
    assert plain is not None
    assert plain.tags == model.flags.reasoning.tags
    assert context(model) == 3


def test_a_later_list_of_patterns_replaces_the_earlier(files: Files) -> None:
    registry = files.load(f"{BASE}[families.mine.limits]\noutput = 3\n", '[families.mine]\nmatch = ["yours-*"]\n')
    assert context(registry.resolve("home/mine-1")) is None
    assert context(registry.resolve("home/yours-1")) == 3


# ── when ─────────────────────────────────────────────────────────────────────
WHEN = """
[providers.home]
body.set.seen = "plain"
when.tools.body.set.seen = "tools"
when.no-tools.body.set.seen = "no-tools"
when."tools+stream".body.set.seen = "tools+stream"
when."no-reasoning+stream+tools".body.set.seen = "three"
"""


@pytest.mark.parametrize(
    ("mode", "seen"),
    [
        (conditions(), "plain"),
        (conditions(stream=True), "plain"),
        (conditions(tools=None, stream=None), "plain"),
        (conditions(tools=True), "tools"),
        (conditions(tools=False), "no-tools"),
        (conditions(tools=False, stream=True), "no-tools"),
        (conditions(tools=True, stream=False), "tools"),
        (conditions(tools=True, stream=True), "tools+stream"),
        (conditions(tools=True, stream=True, reasoning=None), "tools+stream"),
        (conditions(tools=True, stream=True, reasoning=True), "tools+stream"),
        (conditions(tools=True, stream=True, reasoning=False), "three"),
    ],
    ids=lambda value: "+".join(sorted(value)) if isinstance(value, frozenset) else value,
)
def test_a_condition_holds_if_all_its_atoms_do_and_more_atoms_win(
    files: Files, mode: frozenset[str], seen: str
) -> None:
    model = files.load(HOME, WHEN).resolve("home/x")
    body = model.flags_for(mode).body
    assert body is not None
    assert body.set is not None
    assert body.set["seen"] == seen
    assert f'"{seen}"' in at(model.where("body.set.seen", mode))[1] or seen == "three"


def test_what_several_conditions_say_of_different_flags_all_holds(files: Files) -> None:
    said = (
        "[providers.home]\nwhen.tools.body.set.a = 1\nwhen.stream.body.set.b = 2\nwhen.'stream+tools'.body.set.c = 3\n"
    )
    body = files.load(HOME, said).resolve("home/x").flags_for(conditions(tools=True, stream=True)).body
    assert body is not None
    assert body.set is not None
    assert {"a": 1, "b": 2, "c": 3}.items() <= body.set.items()


def test_a_condition_may_move_the_endpoint_and_the_choice_of_tools(files: Files) -> None:
    said = '[providers.home]\nwhen.strict.base_url = "http://127.0.0.1:9/beta"\nwhen.forced.reasoning.mode = "never"\n'
    model = files.load(HOME, said).resolve("home/x")
    assert model.flags.base_url == "http://127.0.0.1:9/v1"
    assert model.flags_for(conditions(strict=True)).base_url == "http://127.0.0.1:9/beta"
    reasoning = model.flags_for(conditions(forced=True)).reasoning
    assert reasoning.mode == "never"


def test_a_value_of_another_model_is_inferred(files: Files) -> None:
    source = 'docs = { url = "https://example.org", seen = 2026-11-20, how = "docs", backs = ["limits"] }\n'
    other = '[models."home/new"]\nextends = "home/mine-1"\nsame_weights = true\n'
    registry = files.load(f"{BASE}limits.context = 7\n[{MODEL}.sources]\n{source}{other}")
    found = {
        name: [
            (fact.value, fact.source, fact.how) for fact in registry.resolve(name).explain() if "limits" in fact.flag
        ]
        for name in ("home/mine-1", "home/new")
    }
    assert found == {
        "home/mine-1": [(7, "https://example.org", "docs")],
        "home/new": [(7, "https://example.org", "inferred")],
    }


def test_a_table_of_which_nothing_is_known_is_empty_and_is_not_shown(files: Files) -> None:
    """Unknown is neither false nor zero, and no table that a file has."""
    text = f'{BASE}tools.strict = false\n[models."home/mine-2"]\nextends = "home/mine-1"\nunset = ["tools"]\n'
    known, unknown = (files.load(text).resolve(f"home/mine-{number}").flags for number in (1, 2))
    assert (known.tools.strict, unknown.tools.strict, Flags().tools.strict) == (False, None, None)
    assert msgspec.to_builtins(known)["tools"]["strict"] is False
    assert "tools" not in msgspec.to_builtins(Flags()), "what is unknown is absent"
    assert ("tools" in repr(known), "tools" in repr(Flags())) == (True, False)
