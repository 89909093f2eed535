"""Build the data of the list: one column of values for each field, texts that occur often stored once."""

from __future__ import annotations

import datetime
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from msgspec import Struct

from cnllm.cli.output import terminal
from cnllm.model_facts.capabilities import KINDS, Capability

if TYPE_CHECKING:
    from cnllm.model_facts.known_issues import KnownIssue
    from cnllm.registry.model import Fact, Model

__all__ = ["ListData", "PageEntry", "ValueTable"]

EPOCH = datetime.date(2020, 1, 1)
_LETTERS = {True: "1", False: "0", None: "?"}
_STATUS = (None, "preview", "retired")


class PageEntry(Struct, frozen=True):
    """A model on the page: the model, its facts, its capabilities, its known issues, and its short names."""

    model: Model
    facts: Sequence[Fact]
    capabilities: Mapping[str, Capability]
    issues: Sequence[KnownIssue]
    short: Sequence[str] = ()


class ValueTable:
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


class ListData:
    """The rows of the list, filled model by model: the facts of all at once take much memory."""

    def __init__(self) -> None:
        self._titles: defaultdict[str, Counter[str]] = defaultdict(Counter)
        self._vendors, self._states, self._currencies = ValueTable(), ValueTable(), ValueTable()
        self._rows: list[dict[str, Any]] = []

    def add(self, entry: PageEntry) -> None:
        """Add a model."""
        model, flags = entry.model, entry.model.flags
        limits, price, status = flags.limits, flags.price, flags.status
        released = status.released if status is not None else None
        self._titles[model.provider][flags.title or model.provider] += 1
        row = {
            "id": terminal.escape(model.id),
            "vendor": self._vendors.add(model.provider),
            "released": (released - EPOCH).days if released is not None else None,
            "status": _STATUS.index(status.is_ if status and status.is_ in _STATUS else None),
            "states": self._states.add("".join(_LETTERS[c.value] for c in entry.capabilities.values())),
            "context": limits.context if limits else None,
            "output": limits.output if limits else None,
            "input": price.input if price else None,
            "reply": price.output if price else None,
            "border": min((int(tier.get("above", 0)) for tier in (price.tiers if price else None) or ()), default=0),
            "currency": self._currencies.add(terminal.escape((price.currency if price else None) or "")),
            "text": None if flags.input is None else int("text" in flags.input),
            "title": flags.title or model.provider,
            "quirks": len(entry.issues),
            "short": [terminal.escape(name) for name in entry.short] or 0,
        }
        self._rows.append(row)

    def current(self) -> tuple[int, int]:
        """Return the number of the models that are not retired, and that of their vendors."""
        vendors = [row["vendor"] for row in self._rows if row["status"] != _STATUS.index("retired")]
        return len(vendors), len(set(vendors))

    def newest_first(self) -> list[int]:
        """Return the places of the models by day of release, the newest first; those without a day come last."""
        days = [row["released"] for row in self._rows]
        return sorted(range(len(days)), key=lambda at: (days[at] is None, -(days[at] or 0)))

    def data(self, order: Sequence[int]) -> dict[str, Any]:
        """Return the list in this order, as JSON takes it.

        `models` has one list for each field: `vendor`, `states` and `currency` are numbers in the lists of these names,
        `released` counts days from `epoch`, `status` is 0, 1 (preview) or 2 (retired). A vendor has the title of most
        of its models, and `title` is that of a model that has its own.
        """
        titles = [self._titles[vendor].most_common(1)[0][0] for vendor in self._vendors.values]
        rows = [
            row | {"title": terminal.escape(row["title"]) if row["title"] != titles[row["vendor"]] else 0}
            for row in (self._rows[at] for at in order)
        ]
        return {
            "epoch": EPOCH.isoformat(),
            "kinds": [[kind.name, kind.group] for kind in KINDS.values()],
            "vendors": [list(map(terminal.escape, pair)) for pair in zip(self._vendors.values, titles, strict=True)],
            "states": self._states.values,
            "currencies": self._currencies.values,
            "models": {name: [row[name] for row in rows] for name in (rows[0] if rows else ())},
        }
