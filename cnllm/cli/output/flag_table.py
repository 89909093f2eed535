"""Every flag of a model in one line each, table by table."""

from __future__ import annotations

import json
from collections.abc import Sequence
from itertools import groupby
from typing import TYPE_CHECKING, Any

from cnllm.cli.output import columns, terminal
from cnllm.cli.output import format as rows

if TYPE_CHECKING:
    from cnllm.registry.model import Fact, Model

__all__ = ["explained", "files", "place", "shortly", "shown_value", "source"]

LAYERS = {"models": "model", "providers": "provider", "protocols": "wire", "families": "family"}
HEADS = ("FLAG", "VALUE", "SET BY", "SOURCE", "SEEN", "HOW")


def explained(model: Model) -> str:
    """The flags of a model under the names of their tables, no wider than there is room."""
    from cnllm.registry.diff import in_order

    facts = sorted(in_order(model.explain()), key=lambda fact: "." in fact.flag)
    marks = files(facts)
    groups = [(name, list(inside)) for name, inside in groupby(facts, _table)]
    lines = [_cells(fact, name, marks) for name, inside in groups for fact in inside]
    text = columns.fitted(HEADS, lines, give={0: 22, 1: 18, 3: 16}, middles=frozenset({0}), addresses=frozenset({3}))
    first, *rest = text.split("\n")
    out = [_title(model), *_legend(marks), "", first]
    for name, inside in groups:
        out += [*(["", name] if name else []), *rest[: len(inside)]]
        rest = rest[len(inside) :]
    return "\n".join(out)


def place(fact: Fact, marks: dict[str, str]) -> str:
    """ "provider:97": the layer and line; a mark stands for another file than the built-in one."""
    file, _, line = fact.where.rpartition(":")
    layer = LAYERS.get(fact.layer.partition(".")[0], fact.layer.partition(".")[0])
    return f"{layer} {marks.get(file, '')}:{line}" if line.isdigit() else layer


def shortly(value: object) -> str:
    """A value in few words: texts without quotes, lists without brackets, of tables how many there are."""
    plain: Any = rows.builtin(value)
    if isinstance(plain, str):
        return plain or '""'
    if isinstance(plain, list) and plain:
        if any(isinstance(item, dict) for item in plain):
            return f"{len(plain)} table{'s' if len(plain) > 1 else ''}"
        return " ".join(map(str, plain))
    return json.dumps(plain, ensure_ascii=False)


def shown_value(fact: Fact) -> str:
    """Return the value of a fact in few words; the state of a parameter as a word."""
    refused = fact.value is False and fact.flag.split(".")[-2:-1] == ["params"]
    return "refused" if refused else shortly(fact.value)


def source(fact: Fact) -> str:
    """Where a fact is from, without what every URL begins with."""
    return (fact.source or "").removeprefix("https://").removeprefix("http://").removeprefix("www.").rstrip("/")


def _table(fact: Fact) -> str:
    """The table that a flag stands in; a mode is one, and what stands alone is in none."""
    head, dot, rest = fact.flag.partition(".")
    if head == "when":
        return f"when {rest.partition('.')[0]}"
    return head if dot else ""


def _cells(fact: Fact, table: str, marks: dict[str, str]) -> tuple[str, ...]:
    prefix = f"{table.replace('when ', 'when.')}." if table else ""
    name = f"{'  ' if table else ''}{fact.flag.removeprefix(prefix)}"
    seen = "" if fact.seen is None else str(fact.seen)
    return (name, shown_value(fact), place(fact, marks), source(fact), seen, fact.how or "")


def files(facts: Sequence[Fact]) -> dict[str, str]:
    """A letter for each file but the built-in one, in the order in which they are met."""
    files = dict.fromkeys(fact.where.rpartition(":")[0] for fact in facts)
    others = [file for file in files if "/" in file or "\\" in file]
    return {file: chr(ord("a") + place % 26) for place, file in enumerate(others)}


def _title(model: Model) -> str:
    title = f" · {model.flags.title}" if model.flags.title else ""
    return terminal.escape(f"{model.name}{title} · {model.protocol}")


def _legend(marks: dict[str, str]) -> list[str]:
    return [f"{mark}: {terminal.escape(file)}" for file, mark in marks.items()]
