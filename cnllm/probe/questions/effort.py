"""Ask for levels of reasoning, and for a number of tokens of it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from cnllm.jsonpath import leaves
from cnllm.probe.bounds import BoundSearch, ProvenBound, find_bound, numbers
from cnllm.probe.exchange import Ask, Asking, ProbeAnswer
from cnllm.probe.facts import Finding
from cnllm.probe.question import (
    SUM,
    ProbeContext,
    Steps,
    question,
    refusal,
)
from cnllm.registry.levels import LEVELS

__all__ = ["budget", "budget_under", "effort"]

_NONSENSE = "zq"
_TRIED = ("", "low", "high")
_FEW = 5
_LOW, _HIGH = 1024, 1 << 30


def _may_reason(context: ProbeContext) -> bool:
    return context.known.get("reasoning.mode") != "never"


# ── levels ───────────────────────────────────────────────────────────────────
@question("levels of reasoning", "reasoning.effort.at", requests=9, capable=True, applies=_may_reason)
def effort(context: ProbeContext) -> Steps:
    """Ask for a level that does not exist, then for those that do.

    Proof: a level that does not exist is refused, or a high one makes the reasoning longer than a low one. Where the
    refusal lists words in no order of levels, one may be a switch: each has to change the length of the reasoning.
    """
    refused: list[Finding] = []
    places = context.candidates.efforts
    tries = [{at: _words(context, at).get(level, _NONSENSE) for at in places} for level in _TRIED]
    places = yield from _with_effect(context, places, tries)
    for at in context.candidates_for("reasoning.effort.at", places):
        words = _words(context, at)
        nonsense = yield _at_levels(context, {at: _NONSENSE})
        if nonsense.refused:
            if not _names(nonsense.message, at, _NONSENSE):
                continue
            spelt = _tokens(nonsense.message)
            words = {level: spelt.get(word.casefold(), word) for level, word in words.items()}
            levels = [level for level, word in words.items() if word.casefold() in spelt]
            if len(levels) < 2:
                levels = yield from _accepted(context, at, words)
            elif not _is_ordered(levels, [*spelt], words):
                control = yield context.ask([SUM], why="no level", patch=context.on or {}, control=True)
                listed = {level: words[level] for level in levels}
                levels = yield from _accepted(context, at, listed, unlike=_length(control))
            elif not (yield _at_levels(context, {at: words[levels[-1]]})).passed:
                levels = []
            if not levels:  # every level is refused: so is the parameter
                refused = refused or (
                    [] if "." in at else [Finding(f"params.{at}", False, "refused", nonsense.message, by=at)]
                )
                continue
            values = {"at": at, **{level: words[level] for level in levels}}
            return [Finding(f"reasoning.effort.{key}", word, "works", nonsense.message) for key, word in values.items()]
        low = yield _at_levels(context, {at: words["low"]})
        high = yield _at_levels(context, {at: words["high"]})
        if _length(high) > 1.3 * _length(low) > 0 and _length(nonsense) != _length(high):
            return [Finding("reasoning.effort.at", at, "works")]
    return refused


def _with_effect(
    context: ProbeContext, places: tuple[str, ...], tries: Sequence[dict[str, Any]]
) -> Asking[tuple[str, ...]]:
    """Return the paths of which some may have an effect, tried all at once: those first that a refusal names.

    There is none where each request passes and the last ones have reasoning of the same length. A single path,
    or one that the first run found, needs no such try.
    """
    if len(places) < 2 or context.hints:
        return places
    lengths: list[int] = []
    for values in tries:
        answer = yield _at_levels(context, values)
        if not answer.passed:
            return tuple(sorted(places, key=lambda at: not _names(answer.message, at, _NONSENSE)))
        lengths.append(_length(answer))
    return () if max(lengths) <= 1.3 * min(lengths) else places


def _is_ordered(levels: Sequence[str], listing: Sequence[str], words: dict[str, str]) -> bool:
    """Whether a listing has the words of these levels from low to high, or from high to low."""
    places = [listing.index(words[level].casefold()) for level in levels]
    return places in (sorted(places), sorted(places, reverse=True))


def _accepted(context: ProbeContext, at: str, words: dict[str, str], *, unlike: int | None = None) -> Asking[list[str]]:
    """Return the levels whose words are taken; with `unlike` those alone whose reasoning has another length."""
    found: list[str] = []
    for level, word in words.items():
        answer = yield _at_levels(context, {at: word})
        if answer.passed and _length(answer) != unlike:
            found.append(level)
    return found


def _at_levels(context: ProbeContext, values: dict[str, Any]) -> Ask:
    """Return a request with values by path, and with the patch for on unless it is one of them itself."""
    patch = context.on
    if patch is None or not values.keys().isdisjoint(leaves(patch)):
        patch = {}
    return context.ask([SUM], why=", ".join(f"{at}={value}" for at, value in values.items()), set=values, patch=patch)


def _words(context: ProbeContext, at: str) -> dict[str, str]:
    """Return the word of each level at a path, in the case in which endpoints write them there."""
    known = context.candidates.effort_words.get(at, ())
    upper = bool(known) and all(word.isupper() for word in known)
    return {level: level.upper() if upper else level for level in LEVELS}


def _tokens(text: str) -> dict[str, str]:
    """Return the words of a text as it spells them, by their lower case."""
    words = (word.strip("'\"`.,;:()[]{}") for word in text.replace(",", " ").replace("/", " ").split())
    return {word.casefold(): word for word in words}


def _names(message: str, path: str, word: str) -> bool:
    """Whether a refusal names the path, or a word."""
    words = message.casefold()
    return path.rpartition(".")[2].casefold() in words or word in words


def _length(answer: ProbeAnswer) -> int:
    return max(len(answer.reasoning), (answer.usage.reasoning or 0) * 4)


# ── a number of tokens ───────────────────────────────────────────────────────
@question(
    "tokens of reasoning",
    "reasoning.budget.at",
    "reasoning.budget.min",
    "reasoning.budget.max",
    requests=9,
    capable=True,
    applies=_may_reason,
)
def budget(context: ProbeContext) -> Steps:
    """Ask for far too many tokens of reasoning, for none, and for a few.

    Proof: a number out of range is refused, or a small one makes the reasoning shorter.
    """
    places = context.candidates.budgets
    places = yield from _with_effect(context, places, [dict.fromkeys(places, n) for n in (_HIGH, 0, _FEW)])
    for at in context.candidates_for("reasoning.budget.at", places):
        found = yield from _budget_at(context, at)
        if found:
            return found
    return []


def _budget_at(context: ProbeContext, at: str) -> Steps:
    hints = context.hints
    patch = _switch(context, at)
    limit = context.bodies.path("max_tokens")
    has_room = limit in context.bodies.base

    def ask(tokens: float) -> Ask:
        room = {limit: int(tokens) + 1000} if has_room and tokens < _HIGH else {}
        return context.ask([SUM], why=f"{at}={int(tokens)}", set={**room, at: int(tokens)}, patch=patch)

    found: list[Finding] = []
    quote = ""
    upper: BoundSearch = None
    if not hints or "reasoning.budget.max" in hints:
        upper = yield from find_bound(ask, _HIGH, 1, hint=context.hint("reasoning.budget.max"))
        if isinstance(upper, ProvenBound) and upper.value > 1 and _names(upper.quote, at, "budget"):
            found.append(Finding("reasoning.budget.max", int(upper.value), "refused", upper.quote))
        elif isinstance(upper, ProbeAnswer) and not _names(upper.message, at, "budget") and not has_room:
            return []
    if not hints or "reasoning.budget.min" in hints:
        floor: int | None = context.hint("reasoning.budget.min")
        if floor is None:
            low = yield ask(0)
            if low.passed and not low.reasoning:  # a word for off
                low = yield ask(1)
            if isinstance(upper, ProbeAnswer) and low.refused and low.message == upper.message:
                return []  # it is refused whatever it is
            if low.refused and _names(low.message, at, "budget"):
                floor = next((int(n) for n in numbers(low.message) if 0 < n < 100_000), 1)
                quote = low.message
        if floor is not None:
            least = yield ask(floor)
            below = yield ask(floor - 1)
            if least.passed and below.refused:
                found.append(Finding("reasoning.budget.min", floor, "refused", quote or below.message))
    if not found:
        few = yield ask(_FEW)
        control = yield context.ask([SUM], why="reasoning on", patch=context.on or {}, control=True)
        if not (few.passed and 0 < _length(few) < 0.5 * _length(control)):
            return []
    return [Finding("reasoning.budget.at", at, "works", quote), *found]


def _switch(context: ProbeContext, at: str) -> dict[str, Any]:
    """Return the patch that turns reasoning on, one that stands beside the number where there is one."""
    parent = at.rpartition(".")[0]
    if parent:
        for patch in context.candidates.on:
            paths = leaves(patch)
            if any(path.rpartition(".")[0] == parent and path != at for path in paths) and "enabled" in paths.values():
                return {parent: {path.rpartition(".")[2]: v for path, v in paths.items() if path != at}}
    return context.on or {}


@question(
    "room beside reasoning", "reasoning.budget.under", requests=2, applies=lambda c: "reasoning.budget.at" in c.known
)
def budget_under(context: ProbeContext) -> Steps:
    """Ask for more tokens of reasoning than the reply may have.

    Proof: more tokens of reasoning than max_tokens are refused.
    """
    at = context.known["reasoning.budget.at"]
    path = context.max_tokens_path
    least = int(context.known.get("reasoning.budget.min") or 0)
    tokens = max(2000, least)
    patch = _switch(context, at)
    roomy = yield context.ask(
        [SUM], why="room for an answer", set={at: tokens, path: tokens + 1000}, patch=patch, control=True
    )
    tight = yield context.ask([SUM], why="no room for an answer", set={at: tokens, path: tokens - 1}, patch=patch)
    return refusal(tight, "reasoning.budget.under", "max_tokens") if roomy.passed else []
