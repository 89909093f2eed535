"""Every fact says which line set it, and which source backs it."""

from __future__ import annotations

import pytest

from cnllm import Fact, Registry
from cnllm.registry import merge
from cnllm.registry.layers import SharedTables
from cnllm.registry.model import conditions

from .support import HOME, Files, at, builtin


@pytest.fixture(scope="module")
def registry() -> Registry:
    return Registry([builtin()])


def fact(facts: list[Fact], flag: str) -> Fact:
    (found,) = [fact for fact in facts if fact.flag == flag]
    return found


# ── the built-in file ────────────────────────────────────────────────────────
@pytest.mark.long
def test_every_fact_points_at_a_line_that_holds_its_last_key(registry: Registry) -> None:
    for name in registry.names():
        for found in registry.resolve(name).explain():
            file, line = at(found.where)
            assert file == "providers.toml"
            assert found.flag.rpartition(".")[2] in line, found


def test_every_fact_of_an_endpoint_has_its_source(registry: Registry) -> None:
    free = {"title", "keys", "status", "call", "base_url", "protocol"}
    for name in registry.names():
        for found in registry.resolve(name).explain():
            if found.layer == "defaults" or found.flag.split(".")[0] in free:
                continue
            assert found.source, (name, found)
            assert found.seen is not None
            assert found.seen.startswith("202")
            assert found.how in ("docs", "recorded", "code", "catalogue", "issue", "probe", "inferred")


def test_facts_are_the_flags_and_no_more(registry: Registry) -> None:
    names = {"zai/glm-4.7": False, "deepseek/deepseek-flash": False, "openrouter/nobody/knows": False}
    names |= {"openai/gpt-5": True}
    for name, in_batches in names.items():
        provider, _, id = name.partition("/")
        own = registry._layers.model_layers(registry._layers.extends_chain("models", name), "openai-chat")
        table = merge.merge_layers(
            [
                *registry._layers.provider_layers(SharedTables(provider, registry._layers.family(id), "openai-chat")),
                *own,
            ]
        )
        model = registry.resolve(name)
        assert (model.flags.batch is not None and model.flags.batch.available is True) == in_batches
        if not in_batches:
            del table["batch"]  # the form of the wire's batches says nothing of an endpoint without any
        facts = model.explain()
        assert {found.flag: found.value for found in facts} == {".".join(k): v for k, v in merge.flatten(table)}
        assert len(facts) == len({found.flag for found in facts})


@pytest.mark.parametrize(
    ("lines", "expected"),
    [
        ("", False),
        ("batch.available = true\n", True),
        ("batch.available = false\n", False),
        ("batch.max_rows = 10\n", False),
    ],
)
def test_a_wire_s_batches_are_those_of_endpoints_that_offer_them(files: Files, lines: str, expected: bool) -> None:
    model = files.load(HOME + '[models."home/m"]\nlimits.context = 1\n' + lines).resolve("home/m")
    flags = {found.flag for found in model.explain() if found.flag.startswith("batch.")}
    assert ("batch.job.path" in flags) is expected
    assert (model.flags.batch is not None and model.flags.batch.job is not None) is expected


def test_the_layer_and_source_of_a_known_fact(registry: Registry) -> None:
    facts = registry.resolve("zai/glm-4.7").explain()
    assert fact(facts, "params.temperature.max").layer == "providers.zai"
    assert fact(facts, "reasoning.tags").layer == "families.glm"
    assert fact(facts, "limits.output").layer == "models.zai/glm-4.7"
    assert fact(facts, "path").layer == "protocols.openai-chat"
    assert fact(facts, "reasoning.if_foreign").layer == "defaults"
    assert fact(facts, "when.stream+tools.body.set.tool_stream").layer == "providers.zai"
    assert "z.ai" in (fact(facts, "reasoning.on.set.thinking.type").source or "")


def test_what_another_model_s_source_says_is_inferred(files: Files) -> None:
    source = 'sources.list = { url = "https://example.org", seen = 2026-01-01, how = "docs", backs = ["%s"] }\n'
    file = files.write(
        HOME
        + '[models."home/m"]\nlimits.context = 1\n'
        + source % "limits"
        + '[models."home/copy"]\nextends = "home/m"\nsame_weights = true\nprice = { currency = "USD", input = 1 }\n'
        + source % "price"
    )
    registry = Registry.load(file)
    assert fact(registry.resolve("home/m").explain(), "limits.context").how == "docs"
    facts = registry.resolve("home/copy").explain()
    assert fact(facts, "limits.context").how == "inferred"
    assert fact(facts, "limits.context").source == "https://example.org"
    assert fact(facts, "price.input").how == "docs"


# ── files of one's own ───────────────────────────────────────────────────────
def test_the_line_of_each_file_and_manner_of_writing(files: Files) -> None:
    one = files.write(
        HOME
        + 'limits = { context = 1, output = 2 }\nreasoning.fields = ["a"]\n[providers.home.reasoning.on.set]\nx = 1\n'
    )
    two = files.write('[models."home/m"]\nlimits.context = 3\nerrors = [\n  { kind = "rate", status = [1] },\n]\n')
    model = Registry.load(one, two).resolve("home/m")
    assert model.where("limits.context") == f"{two}:2"
    assert model.where("limits.output") == f"{one}:7"
    assert model.where("limits") == f"{two}:2"
    assert model.where("reasoning.fields") == f"{one}:8"
    assert model.where("reasoning.on.set.x") == f"{one}:10"
    assert model.where("reasoning.on") == f"{one}:9"
    assert model.where("errors") == f"{two}:3"
    assert model.where("path").startswith("providers.toml:")
    assert (model.where("stream_path"), model.where("nobody.knows")) == ("", "")
    for found in model.explain():
        assert found.where == (model.where(found.flag) or found.where)


def test_the_source_is_the_one_that_backs_most_exactly(files: Files) -> None:
    backs = {
        "all": ["reasoning"],
        "exact": ["reasoning.on"],
        "deep": ["reasoning.on.set.x"],
        "other": ["limits", "rea"],
    }
    said = "".join(
        f'{name} = {{ url = "u-{name}", seen = 2026-11-20, how = "docs", backs = {flags} }}\n'
        for name, flags in backs.items()
    )
    text = "limits.output = 1\nreasoning.fields = ['f']\nreasoning.on.set = { x = 1, y = 2 }\ntools.strict = true\n"
    facts = files.load(f"{HOME}{text}[providers.home.sources]\n{said}").resolve("home/x").explain()
    meant = {
        "reasoning.fields": "u-all",
        "reasoning.on.set.x": "u-deep",
        "reasoning.on.set.y": "u-exact",
        "limits.output": "u-other",
        "tools.strict": None,
    }
    assert {flag: fact(facts, flag).source for flag in meant} == meant
    assert (fact(facts, "limits.output").seen, fact(facts, "limits.output").how) == ("2026-11-20", "docs")
    assert fact(facts, "tools.strict").seen is None


def test_a_source_may_stand_in_another_file_than_its_fact(files: Files) -> None:
    source = '[providers.home.sources]\na = { url = "u", seen = 2026-11-20, how = "probe", backs = ["limits"] }\n'
    model = files.load(HOME + "limits.output = 1\n", source).resolve("home/x")
    assert fact(model.explain(), "limits.output").source == "u"


def test_a_source_of_one_table_backs_nothing_of_another(files: Files) -> None:
    source = '[providers.home.sources]\na = { url = "u", seen = 2026-11-20, how = "docs", backs = ["limits"] }\n'
    model = files.load(HOME + "limits.context = 1\n" + source, '[models."home/x"]\nlimits.output = 1\n').resolve(
        "home/x"
    )
    assert fact(model.explain(), "limits.context").source == "u"
    assert fact(model.explain(), "limits.output").source is None


# ── when ─────────────────────────────────────────────────────────────────────
MODES = """
[providers.home]
limits.output = 1
when.stream.limits.output = 2
when."tools+stream".limits.output = 3
[providers.home.sources]
a = { url = "u", seen = 2026-11-20, how = "docs", backs = ["when.tools+stream.limits", "limits"] }
"""


def test_where_says_what_holds_in_a_mode(files: Files) -> None:
    model = files.load(HOME, MODES).resolve("home/x")
    meant = {
        conditions(): "limits.output = 1",
        conditions(tools=True): "limits.output = 1",
        conditions(stream=True): "when.stream.limits.output = 2",
        conditions(stream=True, tools=True): 'when."tools+stream".limits.output = 3',
    }
    assert {mode: at(model.where("limits.output", mode))[1] for mode in meant} == meant
    for mode in meant:
        assert at(model.where("path", mode))[0] == "providers.toml"


def test_facts_under_a_condition_have_line_and_source_however_its_atoms_are_ordered(files: Files) -> None:
    facts = files.load(HOME, MODES).resolve("home/x").explain()
    found = fact(facts, "when.stream+tools.limits.output")
    assert (found.value, found.layer, found.source) == (3, "providers.home", "u")
    assert at(found.where)[1] == 'when."tools+stream".limits.output = 3'
    plain = fact(facts, "when.stream.limits.output")
    assert (plain.value, plain.source, at(plain.where)[1]) == (2, None, "when.stream.limits.output = 2")


def test_a_later_file_may_order_the_atoms_otherwise(files: Files) -> None:
    model = files.load(HOME, MODES, '[providers.home]\nwhen."stream+tools".limits.output = 4\n').resolve("home/x")
    assert at(model.where("limits.output", conditions(stream=True, tools=True)))[1].endswith("= 4")
    assert fact(model.explain(), "when.stream+tools.limits.output").value == 4


def test_a_note_of_a_request_points_at_the_line_that_made_it(files: Files) -> None:
    from cnllm import Client

    registry = files.load(HOME + "params.temperature = false\n[providers.home.when.stream]\nparams.top_p = false\n")
    notes = Client(registry).plan("home/x", "hi", stream=True, temperature=1, top_p=1).notes
    lines = {note.flag: at(note.where)[1] for note in notes if note.flag.startswith("params")}
    assert lines == {"params.temperature": "params.temperature = false", "params.top_p": "params.top_p = false"}
