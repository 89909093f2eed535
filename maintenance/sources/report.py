"""Print the verdicts on claims, for people and for programs."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any

from maintenance.sources.judge import Verdict

__all__ = ["as_json", "is_open", "source_lines", "summary_lines"]

_ABSENT = ("not-reachable", "not-read")
_TITLES = {
    "differs": "another value",
    "not-found": "not there",
}


def is_open(verdict: Verdict) -> bool:
    """Whether somebody must settle this: the source does not have our value, and the file does not say why."""
    return verdict.state in _TITLES and not verdict.explained


def source_lines(verdicts: Sequence[Verdict]) -> Iterator[str]:
    """Yield the figures of one source and the findings to settle. A source that was not read has no line."""
    if all(verdict.state in _ABSENT for verdict in verdicts):
        return
    names = sorted({verdict.claim.name for verdict in verdicts})
    yield f"{', '.join(names)}: {_figures(verdicts)}  {verdicts[0].claim.url}"
    for verdict in sorted(filter(is_open, verdicts), key=_order):
        yield f"    {_TITLES[verdict.state]}: {_line(verdict)}"


def summary_lines(verdicts: Sequence[Verdict]) -> Iterator[str]:
    """Yield the figures of the whole run, and which sources were not read, by the cause."""
    urls = {verdict.claim.url for verdict in verdicts}
    absent: dict[str, set[str]] = {}
    for verdict in verdicts:
        if verdict.state in _ABSENT:
            cause = "left out by --limit or --timeout" if verdict.state == "not-read" else verdict.remark
            absent.setdefault(cause, set()).add(verdict.claim.name)
    unread = {verdict.claim.url for verdict in verdicts if verdict.state in _ABSENT}
    yield ""
    yield f"{len(verdicts)} values, {len(urls)} sources, {len(urls - unread)} read: {_figures(verdicts)}"
    for cause, names in sorted(absent.items(), key=lambda item: (-len(item[1]), item[0])):
        yield f"not read ({cause}): {', '.join(sorted(names))}"
    yield f"{sum(map(is_open, verdicts))} to settle"


def as_json(verdict: Verdict) -> str:
    """Return a verdict as a JSON object on one line."""
    c = verdict.claim
    row: dict[str, Any] = {"state": verdict.state, "explained": verdict.explained, "table": c.table, "where": c.where}
    row |= {"model": c.heir or c.model, "inherited": bool(c.heir), "flag": c.flag, "ours": c.value}
    row |= {"theirs": verdict.theirs, "ratio": verdict.ratio, "there": verdict.there, "source": c.name, "url": c.url}
    row |= {"path": c.path, "how": c.how, "remark": verdict.remark}
    return json.dumps(row, ensure_ascii=False, default=str)


def _order(verdict: Verdict) -> tuple[str, str, str, str]:
    claim = verdict.claim
    return verdict.state, claim.model or claim.table, claim.flag, claim.heir


def _line(verdict: Verdict) -> str:
    """Return one finding on one line."""
    claim = verdict.claim
    parts = [claim.where, claim.heir or claim.model or claim.table, claim.flag, f"ours {_value(claim.value)}"]
    if claim.heir:
        parts[1] += f" (from {claim.model})"
    if verdict.state == "differs":
        ratio = f" (x{verdict.ratio:.4g})" if verdict.ratio is not None else ""
        parts.append(f"theirs {_value(verdict.theirs)}{ratio} at {verdict.there}")
    if verdict.remark:
        parts.append(verdict.remark)
    return "  ".join(parts)


def _value(value: Any) -> str:
    """Return a value on one line, cut where it is long."""
    text = json.dumps(value, ensure_ascii=False, default=str)
    return text if len(text) <= 60 else text[:57] + "…"


def _figures(verdicts: Sequence[Verdict]) -> str:
    """Return how often each state occurs; what is explained is counted apart."""
    counts = Counter(f"{v.state} (explained)" if v.explained else v.state for v in verdicts)
    return ", ".join(f"{count} {state}" for state, count in sorted(counts.items()))
