"""What `cnllm registry check` finds, in tables and as JSON: faults, old sources, flags without one, disagreements."""

from __future__ import annotations

import datetime
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from cnllm.cli.output import answer, columns, stdio, terminal
from cnllm.cli.output import format as rows

if TYPE_CHECKING:
    from cnllm.registry.check import Problem
    from cnllm.registry.model import Fact

__all__ = ["print_comparison", "print_counts", "print_faults", "print_old_sources", "print_unsourced"]


def print_faults(found: Sequence[Problem], as_json: bool) -> None:
    """Each fault with its place; how many there are goes to stderr when there are any."""
    if as_json:
        answer.print_json(rows.to_plain(found))
        return
    for problem in found:
        warning = "" if problem.severity == "error" else f"{problem.severity}: "
        place = f"{problem.file}:{problem.line}" if problem.line else problem.file
        answer.print_line(terminal.escape(f"{place}: {warning}{problem.message}"))
    wrong = sum(problem.severity == "error" for problem in found)
    if wrong:
        stdio.print_line(_many(wrong, "fault"))


def print_counts(paths: list[str] | None) -> None:
    """That nothing is wrong, what the files describe, and how many flags have no source."""
    from cnllm.registry import Registry, sources

    documents = sources.load_documents(paths)
    registry = Registry(documents)
    bare = len(sources.unsourced_flags(documents))
    backed = f"{_many(bare, 'flag')} without a source: --unbacked" if bare else "every flag has a source"
    said = f"{_many(len(registry.providers), 'provider')}, {_many(len(registry.names()), 'model')}; {backed}"
    stdio.print_line(f"no faults: {said}")


def print_old_sources(paths: list[str] | None, days: int, as_json: bool) -> None:
    """The sources read more than so many days ago."""
    from cnllm.registry import sources

    found = sources.stale_sources(sources.load_documents(paths), days, datetime.date.today())
    if as_json:
        answer.print_json(rows.to_plain(found))
    elif found:
        heads = ("SEEN", "DAYS", "HOW", "SOURCE", "CITED AT", "BACKS")
        cells = [(c.seen, str(c.days), c.how, _bare(c.source), c.where, ", ".join(c.backs)) for c in found]
        give, right = {3: 24, 4: 20, 5: 12}, frozenset({1})
        answer.print_line(columns.fit_columns(heads, cells, give=give, addresses=frozenset({3}), right=right))
    if not as_json:
        stdio.print_line(f"{_many(len(found), 'source')} older than {_many(days, 'day')}")


def print_unsourced(paths: list[str] | None, as_json: bool) -> None:
    """The flags that no source backs."""
    from cnllm.registry import sources

    found = sources.unsourced_flags(sources.load_documents(paths))
    if as_json:
        answer.print_json(rows.to_plain(found))
        return
    for flag in found:
        answer.print_line(terminal.escape(f"{flag.where}: warning: {flag.flag} has no source"))
    stdio.print_line(f"{_many(len(found), 'flag')} without a source")


def print_comparison(paths: list[str] | None, file: str, as_json: bool) -> None:
    """Where a public file of limits and prices disagrees."""
    from cnllm.registry import Registry, sources
    from cnllm.registry.compare import compare
    from cnllm.registry.public_lists import read_published

    published = read_published(Path(file))
    result = compare(Registry(sources.load_documents(paths)), published)
    if as_json:
        answer.print_json(rows.to_plain(result.disagreements))
        return
    if result.disagreements:
        heads = ("MODEL", "FLAG", "OURS", "THEIRS", "OUR SOURCE", "SEEN")
        cells = [
            (d.model, d.flag, rows.format_amount(d.ours), rows.format_amount(d.theirs), *_cited(d.fact))
            for d in result.disagreements
        ]
        give, right = {0: 34, 4: 18}, frozenset({2, 3})
        answer.print_line(
            columns.fit_columns(heads, cells, give=give, middles=frozenset({0}), addresses=frozenset({4}), right=right)
        )
    found = f"{result.found} of {_many(result.models, 'model')} found there, {_many(result.numbers, 'number')} compared"
    stdio.print_line(f"{_many(len(result.disagreements), 'disagreement')}: {found}")


def _cited(fact: Fact | None) -> tuple[str, str]:
    if fact is None:
        return "", ""
    return _bare(fact.source or fact.where), fact.seen or ""


def _bare(source: str) -> str:
    return source.removeprefix("https://").removeprefix("http://")


def _many(number: int, what: str) -> str:
    return f"{number} {what}" if number == 1 else f"{number} {what}s"
