"""Turn what a probe saw into facts: the findings on which two runs agree, and what the replies show by themselves."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from cnllm.jsonpath import get
from cnllm.probe.exchange import ProbeExchange
from cnllm.probe.question import AnswerWord, Finding, Question
from cnllm.registry.flags import Flags

__all__ = ["Fact", "agreed", "is_assumed", "leaf_facts", "observed"]

_COUNTS = ("input", "output", "total", "reasoning", "cached", "cache_write")
_KINDS = ("stop", "length", "tool_calls")


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


# ── words of finishing, and places of token counts ───────────────────────────
def observed(flags: Flags, exchanges: Sequence[ProbeExchange]) -> Iterator[Fact]:
    """Yield what two replies or more show by themselves. `flags` say where the wire has it."""
    whole = [e for e in exchanges if e.answer.passed and e.answer.reply is not None and isinstance(e.answer.data, dict)]
    yield from _finish(flags, whole)
    yield from _usage(flags, whole)


def _finish(flags: Flags, exchanges: Sequence[ProbeExchange]) -> Iterator[Fact]:
    """Yield the words with which replies ended as they should: after the text, a limit, a call."""
    seen: dict[tuple[str, str], list[int]] = {}
    for exchange in exchanges:
        reply = exchange.answer.reply
        word = reply.raw_finish if reply is not None else None
        if reply is None or not word or "." in word or (flags.finish or {}).get(word) != reply.finish:
            continue
        seen.setdefault((word, reply.finish), []).append(exchange.number)
    for (word, kind), numbers in seen.items():
        if kind in _KINDS and len(numbers) > 1:
            yield Fact(f"finish.{word}", kind, "works", tuple(numbers[:2]))


def _usage(flags: Flags, exchanges: Sequence[ProbeExchange]) -> Iterator[Fact]:
    """Yield the paths of token counts at which replies have numbers."""
    rules = flags.usage
    if rules is None:
        return
    at = next((p for p in rules.at or () if any(isinstance(get(e.answer.data, p), dict) for e in exchanges)), None)
    if at is None:
        return
    counted = [(e.number, usage) for e in exchanges if isinstance(usage := get(e.answer.data, at), dict)]
    numbers = tuple(number for number, _ in counted[:2])
    if len(numbers) < 2:
        return
    yield Fact("usage.at", [at], "works", numbers)
    for name in _COUNTS:
        paths = getattr(rules, name) or []
        path = next((p for p in paths if all(type(get(usage, p)) is int for _, usage in counted)), None)
        if path is not None:
            yield Fact(f"usage.{name}", [path], "works", numbers)


def is_assumed(flags: Flags, fact: Fact) -> bool:
    """Whether cnllm assumes this of every endpoint of the wire, so that no file has to say it."""
    kind, _, name = fact.flag.partition(".")
    if kind == "finish":
        return bool((flags.finish or {}).get(name) == fact.value)
    return kind == "usage" and flags.usage is not None and fact.value[0] in (getattr(flags.usage, name) or ())
