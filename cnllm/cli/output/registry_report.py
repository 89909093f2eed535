"""Print the results of `cnllm registry check`, as tables and as JSON.

There are faults, old sources, flags without a source, and disagreements with public lists."""

from __future__ import annotations

import datetime
from collections.abc import Sequence
from functools import partial
from itertools import groupby
from pathlib import Path

from cnllm.cli.language.messages import localize
from cnllm.cli.output import stdio, stdout, terminal
from cnllm.cli.output.format import count, format_amount, strip_scheme
from cnllm.cli.output.table import table
from cnllm.registry import age
from cnllm.registry.model import Fact
from cnllm.registry.problem import Problem, write_hint
from cnllm.registry.provenance import citations
from cnllm.registry.read import catalogue_path, load_documents, read, read_text
from cnllm.registry_files import edit, sources
from cnllm.registry_files.compare import compare
from cnllm.registry_files.public_lists import list_from_file
from cnllm.registry_files.toml_format import changed_lines, format_toml, require_registry

__all__ = [
    "print_comparison",
    "print_counts",
    "print_faults",
    "print_forms",
    "print_old_sources",
    "print_unsourced",
]


def print_faults(problems: Sequence[Problem], *, as_json: bool) -> None:
    """Print each fault with its place and, where it is known, the corrected line; their number goes to stderr."""
    if as_json:
        stdout.print_json(problems)
        return
    for problem in problems:
        warning = "" if problem.severity == "error" else f"{problem.severity}: "
        place = f"{problem.file}:{problem.line}" if problem.line else problem.file
        stdout.print_message(terminal.escape(f"{place}: {warning}{problem.message}"))
        if problem.corrected:
            stdout.print_message(terminal.escape(f"  {write_hint(problem.corrected)}"))
    if faults := sum(problem.severity == "error" for problem in problems):
        stdio.print_line(count(faults, "fault"))


def print_counts(paths: list[str] | None) -> None:
    """Print that there are no faults, what the files describe, and how many flags have no source."""
    from cnllm.registry import Registry

    documents = load_documents(paths)
    registry = Registry(documents)
    unsourced = len(sources.unsourced_flags(documents))
    sourcing = f"{count(unsourced, 'flag')} without a source: --unbacked" if unsourced else "every flag has a source"
    summary = f"{count(len(registry.providers), 'provider')}, {count(len(registry.names()), 'model')}; {sourcing}"
    stdio.print_line(f"no faults: {summary}")
    _print_age()


def _print_age() -> None:
    """Print how old the list of the catalogue is, where it is old."""
    data = read(catalogue_path(), builtin=True).data
    seen = [source["seen"] for table in data.get("providers", {}).values() for _, source in citations(data, table)]
    if seen and (days := age.days_since(str(max(seen)))) > age.MOST_DAYS:
        stdio.print_line(
            f"the public list in {catalogue_path().name} is {days} days old; to read it anew: {age.UPDATE}"
        )


def print_old_sources(paths: list[str] | None, days: int, *, as_json: bool) -> None:
    """Print the sources read more than `days` days ago."""
    citations = sources.stale_sources(load_documents(paths), days, datetime.date.today())
    if as_json:
        stdout.print_json(citations)
    elif citations:
        heads = ("SEEN", "DAYS", "HOW", "SOURCE", "CITED AT", "BACKS")
        cells = [(c.seen, str(c.days), c.how, strip_scheme(c.source), c.where, ", ".join(c.backs)) for c in citations]
        give, right = {3: 24, 4: 20, 5: 12}, [1]
        stdout.print_line(table(heads, cells, give=give, addresses=[3], right=right))
    if not as_json:
        stdio.print_line(f"sources older than {count(days, 'day')}: {len(citations)}")


def print_unsourced(paths: list[str] | None, *, as_json: bool) -> None:
    """Print the flags without a source."""
    flags = sources.unsourced_flags(load_documents(paths))
    if as_json:
        stdout.print_json(flags)
        return
    for flag in flags:
        stdout.print_message(terminal.escape(f"{flag.where}: warning: {flag.flag} has no source"))
    stdio.print_line(f"flags without a source: {len(flags)}")


def print_forms(paths: Sequence[str], *, write: bool) -> int:
    """Give files their form, or print the lines that are written otherwise. Return the number of these lines."""
    total = 0
    for name in paths:
        text = read_text(Path(name))
        require_registry(text, name)
        formatted = format_toml(text, name)
        lines = list(changed_lines(text, formatted)) if not write and formatted != text else []
        for number, line in lines:
            stdout.print_message(terminal.escape(f"{name}:{number}: is written otherwise by `cnllm registry fmt`"))
            if line is not None:
                stdout.print_message(terminal.escape(f"  {write_hint(line)}"))
        total += len(lines)
        if write and formatted != text:
            edit.change_registry_file(Path(name), partial(format_toml, label=name))
        if write:
            stdio.print_line(f"{terminal.escape(name)}: {'written' if formatted != text else 'nothing to change'}")
    if not write:
        stdio.print_line(f"{count(total, 'line')} written otherwise")
    return total


def print_comparison(paths: list[str] | None, file: str, *, as_json: bool) -> None:
    """Print the disagreements with a public file of models."""
    from cnllm.registry import Registry

    published = list_from_file(Path(file)).models
    result = compare(Registry(load_documents(paths)), published)
    if as_json:
        stdout.print_json(result.disagreements)
        return
    for index, (cause, group) in enumerate(groupby(result.disagreements, key=lambda d: d.cause)):
        found = list(group)
        stdout.print_line(f"{chr(10) if index else ''}{localize(f'{_CAUSES[cause]} ({len(found)})')}")
        heads = ("MODEL", "FLAG", "OURS", "THEIRS", "OUR SOURCE", "SEEN")
        cells = [(d.model, d.flag, _value(d.ours), _value(d.theirs), *_source(d.fact)) for d in found]
        give, right = {0: 34, 4: 18}, [2, 3]
        stdout.print_line(table(heads, cells, give=give, middles=[0], addresses=[4], right=right))
    found_text = f"{result.found} of {result.models} models are in the list"
    summary = [count(len(result.disagreements), "disagreement"), found_text, f"values compared: {result.values}"]
    if result.rounded:
        summary.append(f"equal up to rounding: {result.rounded}")
    if result.off_peak:
        summary.append(f"our price of idle hours or of a promotion: {result.off_peak}")
    if result.currency:
        rates = ", ".join(f"{rate:.2f} {currency}" for currency, rate in result.rates.items())
        summary.append(f"another currency, within a quarter of the list's own rate ({rates}): {result.currency}")
    stdio.print_line("; ".join(summary))


_CAUSES = {
    "context": "The window differs",
    "output": "The limit of the output differs",
    "price-higher": "Their price is higher",
    "price-lower": "Their price is lower",
    "price-zero": "One of the prices is zero",
    "price-currency": "Their price is in another currency, and far from ours at the list's own rate",
    "input-more": "They have more kinds of input",
    "input-less": "They have fewer kinds of input",
    "reasoning": "One reasons, the other does not",
    "reasoning-off": "They say that reasoning can be turned off",
    "tools": "One takes tools, the other does not",
}


def _value(value: object) -> str:
    """Return a value of either side as text."""
    if isinstance(value, tuple):
        return ", ".join(value)
    if isinstance(value, bool):
        return "yes" if value else "no"
    return format_amount(value) if isinstance(value, int | float) else str(value)


def _source(fact: Fact | None) -> tuple[str, str]:
    if fact is None:
        return "", ""
    source = strip_scheme(fact.source or fact.where)
    return f"inferred: {source}" if fact.how == "inferred" else source, fact.seen or ""
