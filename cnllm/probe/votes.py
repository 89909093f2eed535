"""Decide what the runs of a question prove: two of them agree, and another is needed where they differ."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from cnllm.jsonpath import get
from cnllm.probe.claims import is_same
from cnllm.probe.facts import USUAL, Fact, Finding
from cnllm.probe.question import SAME, Question
from cnllm.registry import param_rules
from cnllm.registry.flags import Flags

__all__ = ["agreed", "is_expected", "needs_another", "repeats_mode"]


def needs_another(question: Question, runs: Sequence[Sequence[Finding]]) -> bool:
    """Whether a question is asked again: once to confirm, and a third time where two runs differ.

    A question that depends on the model and showed no effect is asked three times.
    """
    if len(runs) == 1:
        is_settled = bool(runs[0]) and all(finding.flag.startswith(SAME) for finding in runs[0])
        return not is_settled and (bool(runs[0]) or question.by_model)
    if len(runs) >= 3:
        return False
    first, second = ({f.flag: f.value for f in findings} for findings in runs[:2])
    return first != second or (question.by_model and not first)


def is_expected(findings: Sequence[Finding], assumed: Flags) -> bool:
    """Whether the findings of a run say only what is assumed of any endpoint of the wire."""
    flags = msgspec.to_builtins(assumed)
    return all(finding.flag.startswith("_") or _is_assumed(finding, flags, assumed) for finding in findings)


def _is_assumed(finding: Finding, flags: Mapping[str, Any], assumed: Flags) -> bool:
    kind, _, rest = finding.flag.partition(".")
    if kind == "params":
        name, _, key = rest.partition(".")
        rule = (assumed.params or {}).get(name)
        if finding.answer == "refused" and not key:
            return rule is False
        return key in ("", "as") and rule is not False and param_rules.path(name, rule) == finding.value
    known = get(flags, finding.flag)
    if known is None:
        known = USUAL.get(finding.flag)
    fact = Fact(finding.flag, finding.value, finding.answer)
    return known is not None and is_same(finding.flag, known, fact)


def agreed(question: Question, runs: Sequence[Sequence[Finding]], exchanges: tuple[int, ...]) -> list[Fact]:
    """Return a fact for each flag of a question and each finding; unknown where no two runs agree."""
    votes: dict[str, dict[str, list[Finding]]] = {}
    for findings in runs:
        for finding in findings:
            key = json.dumps([finding.value, finding.answer], sort_keys=True, default=str)
            votes.setdefault(finding.flag, {}).setdefault(key, []).append(finding)
    facts: list[Fact] = []
    for flag in dict.fromkeys([*votes, *question.flags]):
        best = max(votes.get(flag, {}).values(), key=len, default=[])
        if len(best) < 2:
            facts.append(Fact(flag, None, "unknown", exchanges))
        else:
            facts.append(Fact(flag, best[0].value, best[0].answer, exchanges, best[0].quote))
    return facts


def repeats_mode(fact: Fact, known: Mapping[str, Any]) -> bool:
    """Whether a fact of one mode says what holds in every mode."""
    mode, _, flag = fact.flag.removeprefix("when.").partition(".")
    return fact.flag.startswith("when.") and bool(mode) and flag in known and known[flag] == fact.value
