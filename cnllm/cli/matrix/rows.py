"""Build the data of the list: one column of values for each field, texts that occur often stored once."""

from __future__ import annotations

import datetime
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from msgspec import Struct

from cnllm.cli.output import terminal
from cnllm.registry.capabilities import KINDS, Capability

if TYPE_CHECKING:
    from cnllm.registry.model import Fact, Model

__all__ = ["Entry", "Table", "list_data", "newest_first"]

EPOCH = datetime.date(2020, 1, 1)
_LETTERS = {True: "1", False: "0", None: "?"}
_STATES = (None, "preview", "retired")


class Entry(Struct, frozen=True):
    """A model on the page: the model, its facts, its capabilities, and its short names."""

    model: Model
    facts: Sequence[Fact]
    capabilities: Mapping[str, Capability]
    short: Sequence[str] = ()

    @property
    def is_retired(self) -> bool:
        """Whether the vendor has retired the model."""
        status = self.model.flags.status
        return status is not None and status.is_ == "retired"

    @property
    def day(self) -> int | None:
        """Return the day of release, counted from `EPOCH`; None where it is unknown."""
        status = self.model.flags.status
        return (status.released - EPOCH).days if status is not None and status.released is not None else None


class Table:
    """Values that are each stored once. A cell refers to one by its number."""

    def __init__(self) -> None:
        self.values: list[Any] = []
        self._numbers: dict[Any, int] = {}

    def add(self, value: Any) -> int:
        """Return the number of a hashable value; store it if it is new."""
        number = self._numbers.get(value)
        if number is None:
            number = self._numbers[value] = len(self.values)
            self.values.append(value)
        return number


def newest_first(entries: Sequence[Entry]) -> list[Entry]:
    """Return the entries by day of release, the newest first; those without a day come last."""
    return sorted(entries, key=lambda entry: (entry.day is None, -(entry.day or 0), entry.model.name))


def list_data(entries: Sequence[Entry], titles: Mapping[str, str]) -> dict[str, Any]:
    """Return the data of the list, as JSON takes it. `titles` are those of the providers.

    `models` has one list for each field, all in the order of the entries: `vendor`, `states` and `currency` are numbers
    in the lists of these names, `released` counts days from `epoch`, `status` is 0, 1 (preview) or 2 (retired).
    `title` is that of a model that has its own.
    """
    vendors, states, currencies = Table(), Table(), Table()
    names: tuple[str, ...] = ("id", "vendor", "released", "status", "states", "context", "output")
    columns: dict[str, list[Any]] = {
        name: [] for name in (*names, "input", "reply", "currency", "text", "short", "title")
    }
    for entry in entries:
        model, flags = entry.model, entry.model.flags
        limits, price, status = flags.limits, flags.price, flags.status
        title = titles[model.provider]
        row = {
            "id": terminal.escape(model.id),
            "vendor": vendors.add((terminal.escape(model.provider), terminal.escape(title))),
            "released": entry.day,
            "status": _STATES.index(status.is_ if status and status.is_ in _STATES else None),
            "states": states.add("".join(_LETTERS[c.value] for c in entry.capabilities.values())),
            "context": limits.context if limits else None,
            "output": limits.output if limits else None,
            "input": price.input if price else None,
            "reply": price.output if price else None,
            "currency": currencies.add(terminal.escape((price.currency if price else None) or "")),
            "text": None if flags.input is None else int("text" in flags.input),
            "title": terminal.escape(flags.title) if flags.title and flags.title != title else 0,
            "short": [terminal.escape(name) for name in entry.short] or 0,
        }
        for name, values in columns.items():
            values.append(row[name])
    return {
        "epoch": EPOCH.isoformat(),
        "kinds": [[kind.name, kind.group] for kind in KINDS.values()],
        "vendors": vendors.values,
        "states": states.values,
        "currencies": currencies.values,
        "models": columns,
    }
