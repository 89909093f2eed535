"""Turn the findings of several runs into facts: only what two runs agree on has a value."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from cnllm.probe.question import AnswerWord, Finding, Question

__all__ = ["Fact", "agreed", "leaf_facts"]


class Fact(Struct, frozen=True):
    """The knowledge of a probe about a flag: value, answer, and the numbers of the exchanges that prove it.

    The answer is `works` (a visible effect), `refused`, `ignored`, or `unknown`, then without a value.
    """

    flag: str
    value: Any
    answer: AnswerWord
    exchanges: tuple[int, ...] = ()
    quote: str = ""


def agreed(question: Question, runs: list[list[Finding]], exchanges: tuple[int, ...]) -> list[Fact]:
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


def leaf_facts(facts: Iterable[Fact]) -> list[Fact]:
    """Return the facts by the names of `Model.explain`, where the values of a table are flags of their own."""
    out: list[Fact] = []
    for fact in facts:
        if isinstance(fact.value, dict) and fact.value:
            inner = fact.value.items()
            out += leaf_facts(replace(fact, flag=f"{fact.flag}.{key}", value=value) for key, value in inner)
        else:
            out.append(fact)
    return out
