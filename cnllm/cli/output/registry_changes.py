"""Print what public lists or a data release change, by kind, as tables."""

from __future__ import annotations

import json
from collections.abc import Sequence
from itertools import groupby
from typing import TYPE_CHECKING, Any

from cnllm.cli.language.messages import localize_word
from cnllm.cli.output import answer, terminal
from cnllm.cli.output.format import format_amount
from cnllm.cli.output.table import table

if TYPE_CHECKING:
    from cnllm.registry_files.updates.changes import Action, Change, Kind

__all__ = ["KIND_TITLES", "count", "print_changes", "value_text"]

KIND_TITLES: dict[Kind, str] = {
    "new": "New models",
    "limits": "Limits",
    "price": "Prices",
    "price-jump": "Prices that jump (three times, a third, zero)",
    "input": "Kinds of input",
    "status": "Status",
    "reasoning": "Reasoning",
    "gone": "Models that no list has",
    "moved": "Providers at another address",
}
_ACTION_TITLES: dict[Action, str] = {
    "automatic": "",
    "ask": ": your decision",
    "disputed": ": the lists differ from each other, so nothing changes",
    "corrected": ": a correction stands, so nothing changes",
    "caught-up": ": the lists have caught up, so the correction can go",
    "by-hand": ": never changed from a list; write it into your own file, once you have read the vendor's page",
}


def print_changes(changes: Sequence[Change]) -> None:
    """Print the changes on stdout, those of one kind and action together."""
    blocks: list[str] = []
    for (kind, action), group in groupby(changes, key=lambda change: (change.kind, change.action)):
        found = list(group)
        heads = ("MODEL", "FLAG", "OURS", "THEIRS", "LISTS", "OUR LINE")
        cells = [_cells(change) for change in found]
        text = table(heads, cells, give={0: 30, 3: 12, 5: 12}, middles=[0, 5])
        lines = "".join(f"\n  {_by_hand(change)}" for change in found) if action == "by-hand" else ""
        blocks.append(
            f"{localize_word(KIND_TITLES[kind])}{localize_word(_ACTION_TITLES[action])} ({len(found)})\n{text}{lines}"
        )
    if blocks:
        answer.print_line("\n\n".join(blocks))


def _by_hand(change: Change) -> str:
    """Return the line to write for a change that is never made from a list."""
    value = json.dumps(change.theirs, ensure_ascii=False)
    name = json.dumps(change.model, ensure_ascii=False)
    line = (
        f"providers.{name}.base_url = {value}" if change.kind == "moved" else f"models.{name}.{change.flag} = {value}"
    )
    return terminal.escape(line)


def value_text(value: Any) -> str:
    """Return a value for people."""
    if value is None:
        return "unknown"
    if isinstance(value, dict):
        return ", ".join(f"{key} {value_text(item)}" for key, item in value.items() if key != "currency")
    if isinstance(value, list | tuple):
        return "+".join(value)
    return format_amount(value) if isinstance(value, int | float) else str(value)


def count(number: int, noun: str) -> str:
    """Return a number with its noun."""
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def _cells(change: Change) -> tuple[str, ...]:
    place = change.where.rpartition("/")[2]
    ours = "" if not change.flag else value_text(change.ours)
    return change.model, change.flag, ours, value_text(change.theirs), "+".join(change.lists), place
