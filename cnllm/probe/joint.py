"""Ask several questions with one request: values that an endpoint takes together are each taken."""

from __future__ import annotations

import copy
import re
from collections.abc import Callable, Sequence
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from cnllm.jsonpath import get, remove, set_value
from cnllm.probe.exchange import Ask, ProbeAnswer, ProbeExchange
from cnllm.probe.question import Steps

__all__ = ["is_named", "joint_answers"]

Exchanger = Callable[[Ask], ProbeExchange]


class _JointAsk(Struct, frozen=True):
    """A request that may be sent with others, and the steps of the question that it belongs to."""

    ask: Ask
    steps: Steps


def joint_answers(runs: Sequence[Steps], exchange: Exchanger) -> list[tuple[Ask, ProbeExchange]]:
    """Send the requests with which questions begin, together where that is possible, and return the answer to each.

    `runs` are questions before their first step. Those whose requests say nothing of a joint path are left alone.
    """
    found: list[tuple[Ask, ProbeExchange]] = []
    parts = [_JointAsk(ask, steps) for steps in runs if (ask := next(steps, None)) is not None and ask.joint]
    while len(parts) > 1:
        later: list[_JointAsk] = []
        for group in _groups(parts):
            for part, exchanged in _answers(group, exchange) if len(group) > 1 else ():
                found.append((part.ask, exchanged))
                following = _following(part.steps, exchanged.answer)
                if following is not None and following.joint:
                    later.append(_JointAsk(following, part.steps))
        parts = later
    return found


def _following(steps: Steps, answer: ProbeAnswer) -> Ask | None:
    try:
        return steps.send(answer)
    except StopIteration:
        return None


def _groups(parts: Sequence[_JointAsk]) -> list[list[_JointAsk]]:
    """Return the parts by what their requests have in common, each path once in a group."""
    groups: list[tuple[Any, list[_JointAsk]]] = []
    for part in parts:
        rest = copy.deepcopy(part.ask.body or {})
        remove(rest, part.ask.joint)
        common = (rest, part.ask.stream, part.ask.most)
        group = next((g for key, g in groups if key == common and all(p.ask.joint != part.ask.joint for p in g)), None)
        if group is None:
            groups.append((common, [part]))
        else:
            group.append(part)
    return [group for _, group in groups]


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
    named = parts if len(parts) == 1 else [part for part in parts if is_named(part.ask.joint, answer.message)]
    rest = [part for part in parts if part not in named]
    found = [(part, exchanged if len(named) == 1 else exchange(part.ask)) for part in named]
    half = len(rest) // 2
    for group in (rest,) if named else (rest[:half], rest[half:]):
        if group:
            found += _answers(group, exchange)
    return found


def _together(parts: Sequence[_JointAsk]) -> Ask:
    """Return one request with the values of all parts."""
    first, *others = [part.ask for part in parts]
    body = copy.deepcopy(first.body or {})
    for ask in others:
        set_value(body, ask.joint, get(ask.body, ask.joint))
    return replace(first, body=body, control=False, why=", ".join(part.ask.why for part in parts))


def is_named(path: str, words: str) -> bool:
    """Whether words name the last key of a path, however it is spelt."""
    name = path.rpartition(".")[2]
    return _bare(name) in map(_bare, re.findall(r"\w+", words))


def _bare(name: str) -> str:
    return name.replace("_", "").casefold()
