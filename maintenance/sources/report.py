"""Print the verdicts on claims, for people and for programs."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import groupby
from typing import Any

from maintenance.sources.judge import Verdict

__all__ = ["as_json", "lines"]

_TITLES = {
    "differs": "The source has another value",
    "not-found": "The source does not have it",
}


def lines(verdicts: Sequence[Verdict]) -> Iterator[str]:
    """Yield the findings to settle, by kind of fault and by source, then one line of figures for each source."""
    for state, title in _TITLES.items():
        open_ones = sorted((v for v in verdicts if v.state == state and not v.explained), key=_order)
        if open_ones:
            yield f"{title} ({len(open_ones)})"
        for name, group in groupby(open_ones, key=lambda v: v.claim.name):
            found = list(group)
            yield f"  {name} ({len(found)}): {found[0].claim.url}"
            yield from ("    " + _line(verdict) for verdict in found)
    yield ""
    counted = _counts(verdicts)
    absent = [name for name, counts in counted.items() if set(counts) == {"not-reachable"}]
    for name, counts in sorted(counted.items(), key=lambda item: -item[1].total()):
        if name in absent:
            continue
        figures = ", ".join(f"{count} {state}" for state, count in sorted(counts.items()))
        yield f"{name}: {figures}"
    if absent:
        yield f"not reachable ({len(absent)}): {', '.join(sorted(absent))}"


def as_json(verdicts: Sequence[Verdict]) -> str:
    """Return all verdicts as a JSON array."""
    rows: list[dict[str, Any]] = []
    for v in verdicts:
        c = v.claim
        row: dict[str, Any] = {"state": v.state, "explained": v.explained, "table": c.table, "where": c.where}
        row |= {"model": c.heir or c.model, "inherited": bool(c.heir), "flag": c.flag, "ours": c.value}
        row |= {"theirs": v.theirs, "ratio": v.ratio, "there": v.there, "source": c.name, "url": c.url}
        rows.append(row | {"path": c.path, "how": c.how, "remark": v.remark})
    return json.dumps(rows, ensure_ascii=False, indent=1, default=str)


def _order(verdict: Verdict) -> tuple[str, str, str, str]:
    claim = verdict.claim
    return claim.name, claim.model or claim.table, claim.flag, claim.heir


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


def _counts(verdicts: Sequence[Verdict]) -> dict[str, Counter[str]]:
    """Return how often each state occurs for each source; what is explained is counted apart."""
    counts: dict[str, Counter[str]] = {}
    for verdict in verdicts:
        state = f"{verdict.state} (explained)" if verdict.explained else verdict.state
        counts.setdefault(verdict.claim.name, Counter())[state] += 1
    return counts
