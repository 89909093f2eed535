"""Every model's flags in one readable file, so that a diff of it shows what an edit of providers.toml changes.

A model's block holds what differs from the defaults and its wire, `-flag` where something of theirs is gone. Rules and
lists of tags are named by a digest of their text and spelt out at the end. `pytest --update` writes the file anew.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

from cnllm import Model, Registry
from cnllm.registry import merge

from .support import builtin

SNAPSHOT = Path(__file__).with_name("resolved.snapshot")
RULES = ("errors", "simulator.refusals", "leaks")
TAGS = ("reasoning.tags", "reasoning.answer_tags")


def test_what_an_edit_changes_is_seen(update: bool) -> None:
    now = current()
    if update:
        SNAPSHOT.write_text(now)
    assert SNAPSHOT.read_text() == now, "see what changed, then: pytest --update -n 0"


def test_the_snapshot_stays_readable_and_has_each_model_once() -> None:
    lines = SNAPSHOT.read_text().splitlines()
    assert SNAPSHOT.stat().st_size < 1_600 * len(Registry([builtin()]).names()), "a model takes a dozen lines"
    assert max(map(len, lines)) < 2_000
    names = [line.partition(" over ")[0] for line in lines if " over " in line and line[0] not in " #{"]
    assert [name for name in names if not name.startswith(RULES)] == Registry([builtin()]).names()


@pytest.mark.usefixtures("small_builtin")
def test_an_edit_of_one_flag_changes_the_lines_of_those_who_have_it() -> None:
    document = builtin()
    before = snapshot(Registry([builtin()])).splitlines()
    models = dict(document.data["models"])
    name = next(name for name, table in models.items() if "limits" in table)
    document.data["models"] = models | {name: merge.merge_tables(models[name], {"limits": {"output": 12_345}})}
    after = snapshot(Registry([document])).splitlines()
    changed = [b for a, b in zip(before, after, strict=True) if a != b]
    assert changed
    assert all(line.startswith("  limits: ") and "output=12345" in line for line in changed)


@cache
def current() -> str:
    return snapshot(Registry([builtin()]))


def snapshot(registry: Registry) -> str:
    rules: dict[str, str] = {}
    lines = ["# Written by `pytest --update`: what every model comes to. Not for editing."]
    for name in registry.names():
        model = registry.resolve(name)
        short = " ".join(a for a, target in registry.aliases.items() if target == name)
        lines += ["", f"{name} over {model.protocol}{f' ({short})' if short else ''}", *block(registry, model, rules)]
    lines += ["", *(f"{key} {text}" for key, text in sorted(rules.items()))]
    return "\n".join(lines) + "\n"


def block(registry: Registry, model: Model, rules: dict[str, str]) -> Iterator[str]:
    """One line a table, with the flags that differ."""
    wire = model.protocol
    base = merge.merge_layers(
        [*registry._layers.table_layers(("defaults",), wire), *registry._layers.table_layers(("protocols", wire), wire)]
    )
    flags = {fact.flag: fact.value for fact in model.explain()}
    if not flags.get("batch.available"):
        del base["batch"]  # the form of a wire's batches is for those who offer them
    below = {".".join(keys): value for keys, value in merge.flatten(base)}
    tables: dict[str, list[str]] = {}
    for flag in sorted({*flags, *below}):
        if flag in below and flag not in flags and any(other.startswith(f"{flag}.") for other in flags):
            continue  # a table stands in place of a value
        head, _, rest = flag.partition(".")
        if flag in RULES:
            own = [rule for rule in listed(flags[flag]) if rule not in below.get(flag, ())]
            tables.setdefault(head, []).extend(named(flag, rule, rules) for rule in own)
        elif flag not in flags:
            tables.setdefault(head, []).append(f"-{rest or head}")
        elif flag not in below or flags[flag] != below[flag]:
            value = named(flag, flags[flag], rules) if flag in TAGS else shown(flags[flag])
            tables.setdefault(head, []).append(f"{rest}={value}" if rest else value)
    for head, said in tables.items():
        if said:
            yield f"  {head}: {' '.join(said)}"


def listed(value: object) -> list[object]:
    assert isinstance(value, list)
    return value


def named(kind: str, rule: object, rules: dict[str, str]) -> str:
    text = shown(rule)
    digest = hashlib.blake2b(text.encode(), digest_size=3).hexdigest()
    assert rules.setdefault(f"{kind} {digest}", text) == text
    return digest


def shown(value: object) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))
