"""Put changes before a person: questions that settle many at once, what changed in words, lines to write by hand."""

from __future__ import annotations

import datetime
import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from msgspec import Struct

from cnllm.errors import RegistryError
from cnllm.registry_files.public_lists import ListName, PublicList
from cnllm.registry_files.updates.changes import FIRST_HAND, Change, Kind, list_of
from cnllm.system.files import change_file

__all__ = [
    "KIND_TITLES",
    "ReviewQuestion",
    "add_to_changelog",
    "change_lines",
    "lines_by_hand",
    "questions_of",
    "value_text",
]

KIND_TITLES: dict[Kind, str] = {
    "price": "Prices",
    "price-jump": "Prices that jump (three times, a third, zero)",
    "limits": "Limits",
    "input": "Kinds of input",
    "status": "Status",
    "reasoning": "Reasoning",
    "new": "New models",
    "renamed": "Models with another id",
    "gone": "Models that no list has",
    "moved": "Providers at another address",
}


class ReviewQuestion(Struct, frozen=True):
    """Changes that one answer settles: of one kind, for one cause, which is a sentence."""

    kind: Kind
    cause: str
    changes: tuple[Change, ...]


def questions_of(changes: Iterable[Change], lists: Sequence[PublicList]) -> list[ReviewQuestion]:
    """Return the changes that need a decision, by kind and cause, in the order of the changes."""
    days = {one.name: one.seen.isoformat() for one in lists}
    groups: dict[tuple[Kind, str], list[Change]] = {}
    for change in changes:
        if change.action == "ask":
            groups.setdefault((change.kind, _cause(change, days)), []).append(change)
    return [ReviewQuestion(kind, cause, tuple(found)) for (kind, cause), found in groups.items()]


def _cause(change: Change, days: Mapping[ListName, str]) -> str:
    """Return why a change is a question."""
    if change.ours is None:
        return "nothing is known here so far, and one list says it"
    theirs = " and ".join(f"{name} of {days[name]}" for name in change.lists)
    if change.source is None:
        return f"our value has no source, and {theirs} differs"
    if change.how == "inferred":
        return f"our value is inferred, and {theirs} differs"
    if change.how in FIRST_HAND:
        return f"our value is the vendor's own, but older than {theirs}"
    if (ours := list_of(change.source)) in change.lists:
        return f"our value is what {ours} had, and {theirs} differs"
    if ours is not None:
        return f"our value is from {ours} or a copy of it, and {theirs} differs"
    return f"our value is from another collection, and {theirs} differs"


def lines_by_hand(change: Change) -> list[str]:
    """Return the lines to write for a change that is never made from a list."""
    name, value = json.dumps(change.model, ensure_ascii=False), json.dumps(change.theirs, ensure_ascii=False)
    if change.kind == "moved":
        return [f"providers.{name}.base_url = {value}"]
    if change.kind == "renamed":
        return [
            f"models.{value}.extends = {name}",
            f'models.{name}.status = {{ is = "retired", use = {value} }}',
        ]
    return [f"models.{name}.{change.flag} = {value}"]


def change_lines(changes: Iterable[Change], lists: Sequence[PublicList]) -> list[str]:
    """Return what changes in words, a line for each model: "zai/glm-5: output 128k → 256k (models.dev 2026-09-30)"."""
    days: Mapping[str, str] = {one.name: one.seen.isoformat() for one in lists}
    by_model: dict[tuple[str, tuple[str, ...]], list[Change]] = {}
    for change in changes:
        by_model.setdefault((change.model, change.lists), []).append(change)
    lines = []
    for (model, names), found in by_model.items():
        values = ", ".join(_value_line(change) for change in found)
        lines.append(f"{model}: {values} ({', '.join(f'{name} {days[name]}' for name in names)})")
    return lines


def add_to_changelog(path: str | Path, lines: Sequence[str], day: datetime.date) -> None:
    """Put lines on top of a file, under their day; the file is Markdown, newest first. Raises `CnllmError`."""
    entry = f"## {day}\n\n" + "".join(f"- {line}\n" for line in lines)

    def change(present: bytes | None) -> bytes:
        old = (present or b"").decode()
        return (f"{entry}\n{old}" if old else entry).encode()

    try:
        change_file(Path(path), change, narrow=False)
    except UnicodeDecodeError as error:
        raise RegistryError(f"cannot be written: {error}", file=str(path), hint="name a text file") from error


def _value_line(change: Change) -> str:
    """Return the value that changes."""
    if not change.flag:
        values = [
            f"{_flag_word(f'{table}.{name}')} {_short(f'{table}.{name}', value)}"
            for table in ("limits", "price")
            for name, value in change.theirs.get(table, {}).items()
            if name != "currency"
        ]
        return f"new ({', '.join(values)})" if values else "new"
    return f"{_flag_word(change.flag)} {_short(change.flag, change.ours)} → {_short(change.flag, change.theirs)}"


def _flag_word(flag: str) -> str:
    """Return the name of a flag in a sentence: "output" of limits, "price of output"."""
    table, _, name = flag.partition(".")
    if table == "price":
        return f"price of {name.replace('_', ' ').replace('.', ', ')}"
    return name if table == "limits" else table


def _short(flag: str, value: Any) -> str:
    """Return a value for a sentence: a limit in thousands where that is exact."""
    if flag.startswith("limits.") and isinstance(value, int):
        for unit, size in (("M", 1_000_000), ("k", 1000)):
            if value >= size and value % (size // 100) == 0:
                return f"{value / size:g}{unit}"
        return f"{value:,}"
    return value_text(value)


def value_text(value: Any) -> str:
    """Return a value for people."""
    if value is None:
        return "unknown"
    if isinstance(value, dict):
        return ", ".join(f"{key} {value_text(item)}" for key, item in value.items() if key != "currency")
    if isinstance(value, list | tuple):
        return "+".join(value)
    return f"{value:.10g}" if isinstance(value, int | float) else str(value)
