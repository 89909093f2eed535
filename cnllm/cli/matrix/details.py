"""Build the data of the pages of single models: facts with their sources, prices, and known issues."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from cnllm.cli.language.messages import translate_issue, translate_to
from cnllm.cli.matrix.rows import PageEntry, ValueTable
from cnllm.cli.output import terminal
from cnllm.cli.output.flag_table import shown_value
from cnllm.model_facts.summary import endpoint, levels

if TYPE_CHECKING:
    from cnllm.registry.model import Fact, Model

__all__ = ["DetailData", "source_address"]

NUMBERS = ("status.released", "limits.context", "limits.input", "limits.output", "price.input", "price.output")
"""The flags that a model's page shows with their source, after the capabilities."""

_MAX_VALUE = 160
_REPOSITORY = re.compile(r"(?P<name>[\w.-]+/[\w.-]+)(?::(?P<path>[^@\s]+))?(?:@(?P<commit>[^\s@]+))?")
_THREAD = re.compile(r"(?P<name>[\w.-]+/[\w.-]+)#(?P<number>\d+)")


class DetailData:
    """The details of the models, filled model by model; facts, sources and texts are stored once."""

    def __init__(self) -> None:
        self._facts, self._sources, self._texts = ValueTable(), ValueTable(), ValueTable()
        self._chinese: dict[int, str] = {}
        self._models: list[list[Any]] = []

    def add(self, entry: PageEntry) -> None:
        """Add a model."""
        model, flags, status = entry.model, entry.model.flags, entry.model.flags.status
        explained = {fact.flag: fact for fact in entry.facts}
        numbers = [self._fact(capability.fact) for capability in entry.capabilities.values()]
        numbers += [self._fact(explained.get(flag)) for flag in NUMBERS]
        issues = [
            [self._issue(issue.text), self._source(issue.source, issue.seen, issue.how)] for issue in entry.issues
        ]
        row = [
            self._text(model.protocol),
            self._text(endpoint(model)),
            [self._text(key) for key in flags.keys or ()],
            numbers,
            issues,
            list(_prices(model)),
            terminal.escape(status.use) if status and status.use else "",
            str(status.since) if status and status.since else "",
            " ".join(levels(model)),
        ]
        self._models.append(row)

    def data(self, order: Sequence[int]) -> dict[str, Any]:
        """Return the details in this order, as JSON takes them.

        A model has: its wire, its endpoint, the variables of its keys, the numbers of its facts (one for each
        capability, then those of `numbers`; -1 for none), its issues (numbers of text and source), its other prices,
        its successor, the first day of its state, and its levels of reasoning. `chinese` has texts of issues by number.
        """
        return {
            "numbers": NUMBERS,
            "facts": self._facts.values,
            "sources": self._sources.values,
            "texts": self._texts.values,
            "chinese": self._chinese,
            "models": [self._models[at] for at in order],
        }

    def last_seen(self) -> str:
        """Return the last day on which one of the sources was read, "" where there is none."""
        return max((seen for _, _, seen, _ in self._sources.values), default="")

    def _fact(self, fact: Fact | None) -> int:
        if fact is None:
            return -1
        value = terminal.escape(shown_value(fact)[:_MAX_VALUE])
        return self._facts.add((fact.flag, value, self._source(fact.source, fact.seen, fact.how)))

    def _source(self, source: str | None, seen: object, how: str | None) -> int:
        text = terminal.escape(source or "")
        address = source_address(text)
        link = "=" if address and address == text else address  # "=": the source itself, stored once
        return self._sources.add((text, link, str(seen or ""), how or ""))

    def _issue(self, text: str) -> int:
        number = self._text(text)
        if number not in self._chinese:
            translated = translate_issue(text, partial(translate_to, "zh_CN"))
            self._chinese[number] = terminal.escape(translated).replace("`", "")
        return number

    def _text(self, text: str) -> int:
        return self._texts.add(terminal.escape(text))


def _prices(model: Model) -> Iterator[list[Any]]:
    """Yield the prices beside those of input and output: a kind, its condition, and its amounts."""
    price = model.flags.price
    if price is None:
        return
    if price.cached is not None:
        yield ["cached", "", price.cached]
    if price.cache_write is not None:
        yield ["cache_write", "", price.cache_write]
    for tier in price.tiers or ():
        yield ["above", tier.get("above"), tier.get("input"), tier.get("output")]
    for kind, other in (("promotion", price.promotion), ("off_peak", price.off_peak)):
        if other:
            yield [kind, terminal.escape(str(other.get("until") or "")), other.get("input"), other.get("output")]


def source_address(source: str) -> str:
    """Return the address of a source: itself, or that of a repository or a thread on GitHub; "" where it has none."""
    if source.startswith(("https://", "http://")):
        return source
    if thread := _THREAD.fullmatch(source):
        return f"https://github.com/{thread['name']}/issues/{thread['number']}"
    if repository := _REPOSITORY.fullmatch(source):
        place = f"/tree/{repository['commit'] or 'HEAD'}/{repository['path'] or ''}".rstrip("/")
        return f"https://github.com/{repository['name']}{place if repository['commit'] or repository['path'] else ''}"
    return ""
