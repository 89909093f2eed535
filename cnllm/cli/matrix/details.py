"""Build the data of the pages of single models: facts with their sources, prices, and known issues."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from cnllm.cli.matrix.rows import Entry, Table
from cnllm.cli.output import terminal
from cnllm.cli.output.flag_table import shown_value
from cnllm.config import redact
from cnllm.registry.known_issues import known_issues

if TYPE_CHECKING:
    from cnllm.registry.flags import Price
    from cnllm.registry.model import Fact, Model

__all__ = ["detail_data"]

NUMBERS = ("status.released", "limits.context", "limits.output", "price.input", "price.output")
"""The flags that a model's page shows with their source, after the capabilities."""

_MAX_VALUE = 160
_REPOSITORY = re.compile(r"(?P<name>[\w.-]+/[\w.-]+)(?::(?P<path>[^@\s]+))?(?:@(?P<commit>[^\s@]+))?")
_THREAD = re.compile(r"(?P<name>[\w.-]+/[\w.-]+)#(?P<number>\d+)")


class _Facts:
    """Facts and sources, each stored once."""

    def __init__(self) -> None:
        self.facts, self.sources = Table(), Table()

    def add(self, fact: Fact | None) -> int:
        """Return the number of a fact; -1 for none."""
        if fact is None:
            return -1
        value = terminal.escape(shown_value(fact)[:_MAX_VALUE])
        return self.facts.add((fact.flag, value, self.source(fact.source, fact.seen, fact.how)))

    def source(self, source: str | None, seen: object, how: str | None) -> int:
        """Return the number of a source."""
        text = terminal.escape(source or "")
        return self.sources.add((text, _link(text), str(seen or ""), how or ""))


def detail_data(entries: Sequence[Entry]) -> dict[str, Any]:
    """Return the details of every entry, in their order.

    A model has: its wire, its endpoint, the variables of its keys, the numbers of its facts (one for each capability,
    then those of `numbers`), its issues (number of the text, number of the source), prices, successor, first day of its
    state, and its levels of reasoning.
    """
    facts, texts = _Facts(), Table()
    models = [_model(entry, facts, texts) for entry in entries]
    return {
        "numbers": NUMBERS,
        "facts": facts.facts.values,
        "sources": facts.sources.values,
        "texts": texts.values,
        "models": models,
    }


def _model(entry: Entry, facts: _Facts, texts: Table) -> list[Any]:
    model, flags, status = entry.model, entry.model.flags, entry.model.flags.status
    explained = {fact.flag: fact for fact in entry.facts}
    numbers = [facts.add(capability.fact) for capability in entry.capabilities.values()]
    numbers += [facts.add(explained.get(flag)) for flag in NUMBERS]
    issues = [
        [texts.add(terminal.escape(issue.text)), facts.source(issue.source, issue.seen, issue.how)]
        for issue in known_issues(model, entry.facts)
    ]
    return [
        texts.add(model.protocol),
        texts.add(terminal.escape(_endpoint(model))),
        [texts.add(terminal.escape(key)) for key in flags.keys or ()],
        numbers,
        issues,
        list(_prices(flags.price)) if flags.price else [],
        terminal.escape(status.use) if status and status.use else "",
        str(status.since) if status and status.since else "",
        _levels(model),
    ]


def _endpoint(model: Model) -> str:
    """Return the address of the endpoint, without a password."""
    url = f"{(model.flags.base_url or '').rstrip('/')}{model.flags.path or ''}"
    return redact.redact_url(url.replace("{model}", model.id))


def _levels(model: Model) -> str:
    """Return the levels of reasoning that a call can choose, in order."""
    from cnllm.registry.flags import LEVELS

    effort = model.flags.reasoning.effort if model.flags.reasoning else None
    return " ".join(level for level in LEVELS if effort is not None and getattr(effort, level) is not None)


def _prices(price: Price) -> Iterator[list[Any]]:
    """Yield the prices beside those of input and output: a kind, its condition, and its amounts."""
    if price.cached is not None:
        yield ["cached", "", price.cached]
    if price.cache_write is not None:
        yield ["cache_write", "", price.cache_write]
    for tier in price.tiers or ():
        yield ["above", tier.get("above"), tier.get("input"), tier.get("output")]
    for kind, other in (("promotion", price.promotion), ("off_peak", price.off_peak)):
        if other:
            yield [kind, terminal.escape(str(other.get("until") or "")), other.get("input"), other.get("output")]


def _link(source: str) -> str:
    """Return the address of a source: itself, or that of a repository or a thread on GitHub; "" where it has none."""
    if source.startswith(("https://", "http://")):
        return "="  # the source itself: stored once
    if thread := _THREAD.fullmatch(source):
        return f"https://github.com/{thread['name']}/issues/{thread['number']}"
    if repository := _REPOSITORY.fullmatch(source):
        place = f"/tree/{repository['commit'] or 'HEAD'}/{repository['path'] or ''}".rstrip("/")
        return f"https://github.com/{repository['name']}{place if repository['commit'] or repository['path'] else ''}"
    return ""
