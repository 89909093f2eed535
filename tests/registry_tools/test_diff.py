"""What differs between two models, and in which order facts are told."""

from __future__ import annotations

from cnllm import Registry
from cnllm.model_facts.difference import differences, in_order

from .conftest import Load

TWO = """
[models."home/a"]
limits = { context = 1000, output = 100 }
input = ["text"]
[models."home/b"]
limits = { context = 2000, output = 100 }
when.reasoning.stream.required = true
"""


def test_differences_are_the_flags_that_two_models_do_not_share(load: Load) -> None:
    registry = load(TWO)
    found = {d.flag: d for d in differences(registry.resolve("home/a"), registry.resolve("home/b"))}
    assert list(found) == ["limits.context", "input", "when.reasoning.stream.required"]
    one = found["limits.context"]
    assert one.a is not None
    assert one.b is not None
    assert (one.a.value, one.b.value) == (1000, 2000)
    assert one.a.where != one.b.where
    assert (found["input"].b, found["when.reasoning.stream.required"].a) == (None, None)


def test_a_model_does_not_differ_from_itself() -> None:
    registry = Registry.load()
    name = registry.names()[0]
    assert differences(registry.resolve(name), registry.resolve(name)) == []


def test_facts_are_told_as_the_flags_are_listed_modes_last() -> None:
    registry = Registry.load()
    for name in registry.names()[::40]:
        flags = [fact.flag for fact in in_order(registry.resolve(name).explain())]
        assert sorted(flags) == sorted(fact.flag for fact in registry.resolve(name).explain())
        modes = [flag.startswith("when.") for flag in flags]
        assert modes == sorted(modes)
        tables = [flag.partition(".")[0] for flag in flags if not flag.startswith("when.")]
        assert len(set(tables)) == len([t for t, after in zip(tables, [*tables[1:], ""], strict=True) if t != after])
        assert flags.index("reasoning.mode") < flags.index("reasoning.replay")
