"""Format the flags of a model, one line each, table by table."""

from __future__ import annotations

import json
from collections.abc import Sequence
from itertools import groupby
from typing import TYPE_CHECKING, Any

from cnllm.cli.language.messages import localize, localize_word
from cnllm.cli.output import terminal
from cnllm.cli.output.format import strip_scheme, to_plain
from cnllm.cli.output.table import fields, table

if TYPE_CHECKING:
    from cnllm.registry.model import Fact, Model

__all__ = [
    "fact_card",
    "file_letters",
    "flag_table",
    "short_value",
    "shown_value",
    "source_label",
    "source_place",
    "value_cell",
]

LAYERS = {"models": "model", "providers": "provider", "protocols": "wire", "families": "family"}
HEADS = ("FLAG", "VALUE", "SET BY", "SOURCE", "SEEN", "HOW")


def flag_table(model: Model) -> str:
    """Return the flags of a model under the names of their tables, fitted to the width of a line."""
    from cnllm.model_facts.difference import in_order

    facts = sorted(in_order(model.explain()), key=lambda fact: "." in fact.flag)
    letters = file_letters(facts)
    groups = [(name, list(members)) for name, members in groupby(facts, _table)]
    own = f"{model.provider}/{model.id}"
    lines = [_cells(fact, name, letters, own) for name, members in groups for fact in members]
    text = table(HEADS, lines, give={0: 22, 1: 18, 3: 16}, middles=[0], addresses=[3])
    first, *rows = text.split("\n")
    out = [_title(model), *(f"{mark}: {terminal.escape(file)}" for file, mark in letters.items()), "", first]
    for name, members in groups:
        out += [*(["", name] if name else []), *rows[: len(members)]]
        rows = rows[len(members) :]
    return "\n".join(out)


def fact_card(fact: Fact) -> str:
    """Return all that is known about one flag: its row of the table, a column on each line, nothing shortened."""
    value = fact.value if isinstance(fact.value, str) else json.dumps(to_plain(fact.value), ensure_ascii=False)
    rounded = f" ({localize('rounded: the source has a more exact value')})" if fact.rounded else ""
    _, _, place, *rest = _cells(fact, "", {}, "")
    file = fact.where.rpartition(":")[0]
    cells = [value + rounded, f"{place.replace(' :', f' {file}:')} ({fact.layer})", fact.source or "", *rest[1:]]
    pairs = [(localize_word(head).casefold(), cell) for head, cell in zip(HEADS[1:], cells, strict=True) if cell]
    quote = [(localize_word("quote"), fact.quote)] if fact.quote else []
    return f"{terminal.escape(fact.flag)}\n{fields([*pairs, *quote])}"


def source_place(fact: Fact, letters: dict[str, str], own: str = "") -> str:
    """Return the layer and line of a fact, such as "provider:97". A letter marks a file other than the built-in one.

    Of the model `own`, the facts of a model that it extends are those of its parent.
    """
    file, _, line = fact.where.rpartition(":")
    layer = LAYERS.get(fact.layer.partition(".")[0], fact.layer.partition(".")[0])
    if own and layer == "model" and fact.layer.removeprefix("models.").partition(".on.")[0] != own:
        layer = "parent"
    return f"{layer} {letters.get(file, '')}:{line}" if line.isdigit() else layer


def short_value(value: object) -> str:
    """Return a value in few words: texts without quotes, lists without brackets, tables as their number."""
    plain: Any = to_plain(value)
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
    return "refused" if refused else short_value(fact.value)


def value_cell(fact: Fact) -> str:
    """Return the value of a fact for stdout: a number of tables is in the user's language, a value stays as it is."""
    text = shown_value(fact)
    return localize(text) if isinstance(fact.value, list) and text.endswith((" table", " tables")) else text


def source_label(fact: Fact) -> str:
    """Return the source of a fact, without the scheme and `www.` of a URL."""
    return strip_scheme(fact.source or "").removeprefix("www.").rstrip("/")


def _table(fact: Fact) -> str:
    """Return the table of a flag. Each `when` mode is a table of its own; a single flag has none ("")."""
    head, dot, rest = fact.flag.partition(".")
    if head == "when":
        return f"when {rest.partition('.')[0]}"
    return head if dot else ""


def _cells(fact: Fact, owner: str, letters: dict[str, str], own: str) -> tuple[str, ...]:
    prefix = f"{owner.replace('when ', 'when.')}." if owner else ""
    name = f"{'  ' if owner else ''}{fact.flag.removeprefix(prefix)}"
    seen = "" if fact.seen is None else str(fact.seen)
    return (name, value_cell(fact), source_place(fact, letters, own), source_label(fact), seen, fact.how or "")


def file_letters(facts: Sequence[Fact]) -> dict[str, str]:
    """Return a letter for each file except the built-in one, in the order of the facts."""
    files = dict.fromkeys(fact.where.rpartition(":")[0] for fact in facts)
    overlays = [file for file in files if "/" in file or "\\" in file]
    return {file: chr(ord("a") + index % 26) for index, file in enumerate(overlays)}


def _title(model: Model) -> str:
    title = f" · {model.flags.title}" if model.flags.title else ""
    return terminal.escape(f"{model.name}{title} · {model.protocol}")
