"""Ask several questions with one request: values that an endpoint takes together are each taken."""

from __future__ import annotations

import copy
import re
from collections.abc import Callable, Iterable, Sequence
from typing import Any, TypeVar

from msgspec import Struct
from msgspec.structs import replace

from cnllm.jsonpath import get, remove, set_value
from cnllm.probe.exchange import Ask, ProbeAnswer, ProbeExchange
from cnllm.probe.question import Steps

__all__ = ["group_items", "is_named", "joint_answers"]

Exchanger = Callable[[Ask], ProbeExchange]
Item = TypeVar("Item")


class _JointAsk(Struct, frozen=True):
    """A request that may be sent with others, and the steps of the question that it belongs to."""

    ask: Ask
    steps: Steps

    def fits(self, other: _JointAsk) -> bool:
        """Whether one request may ask for both: they have all but their values in common."""
        return self.ask.joint != other.ask.joint and _rest(self.ask) == _rest(other.ask)


def _rest(ask: Ask) -> tuple[Any, ...]:
    """Return what a request has beside the value that it asks for."""
    body = copy.deepcopy(ask.body)
    remove(body, ask.joint)
    return body, ask.stream, ask.most


def joint_answers(runs: Sequence[Steps], exchange: Exchanger) -> list[tuple[Ask, ProbeExchange]]:
    """Send the requests with which questions begin, together where that is possible, and return the answer to each.

    `runs` are questions before their first step. Those whose requests say nothing of a joint path are left alone.
    """
    found: list[tuple[Ask, ProbeExchange]] = []
    parts = [_JointAsk(ask, steps) for steps in runs if (ask := next(steps, None)) is not None and ask.joint]
    while len(parts) > 1:
        later: list[_JointAsk] = []
        for group in group_items(parts, _JointAsk.fits):
            for part, exchanged in _answers(group, exchange) if len(group) > 1 else ():
                found.append((part.ask, exchanged))
                following = _following(part.steps, exchanged.answer) if not exchanged.answer.problem else None
                if following is not None and following.joint:
                    later.append(_JointAsk(following, part.steps))
        parts = later
    return found


def _following(steps: Steps, answer: ProbeAnswer) -> Ask | None:
    try:
        return steps.send(answer)
    except StopIteration:
        return None


def group_items(items: Iterable[Item], fits: Callable[[Item, Item], bool]) -> list[list[Item]]:
    """Return the items in groups, each in the first one where it fits every other."""
    groups: list[list[Item]] = []
    for item in items:
        group = next((group for group in groups if all(fits(item, other) for other in group)), [])
        if not group:
            groups.append(group)
        group.append(item)
    return groups


def _answers(parts: list[_JointAsk], exchange: Exchanger) -> list[tuple[_JointAsk, ProbeExchange]]:
    """Return the answer to each part: that of all of them where they pass, else without the one that a refusal names.

    Where it names none, each half is asked; where it names several, it may be about them together, so that each of them
    is asked alone.
    """
    exchanged = exchange(_together(parts))
    answer = exchanged.answer
    if answer.passed:
        return [(part, exchanged) for part in parts]
    if not answer.refused:
        return []
    hits = parts if len(parts) == 1 else [part for part in parts if is_named(part.ask.joint, answer.message)]
    rest = [part for part in parts if part not in hits]
    found = [(part, exchanged if len(hits) == 1 else exchange(part.ask)) for part in hits]
    half = len(rest) // 2
    for group in (rest,) if hits else (rest[:half], rest[half:]):
        if group:
            found += _answers(group, exchange)
    return found


def _together(parts: Sequence[_JointAsk]) -> Ask:
    """Return one request with the values of all parts."""
    first, *others = [part.ask for part in parts]
    body = copy.deepcopy(first.body)
    for ask in others:
        set_value(body, ask.joint, get(ask.body, ask.joint))
    return replace(first, body=body, control=False, why=", ".join(part.ask.why for part in parts))


def is_named(path: str, words: str) -> bool:
    """Whether words name the last key of a path, however it is spelt."""
    name = path.rpartition(".")[2]
    return _bare(name) in map(_bare, re.findall(r"\w+", words))


def _bare(name: str) -> str:
    return name.replace("_", "").casefold()
