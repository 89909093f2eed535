"""Define what a probe learns: the finding of a run about a flag, and the fact on which two runs agree."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Literal

from msgspec import Struct
from msgspec.structs import replace

from cnllm.jsonpath import leaves

__all__ = ["USUAL", "AnswerWord", "Finding", "FlagFact", "leaf_facts", "split_mode"]

AnswerWord = Literal["works", "refused", "ignored", "unknown"]
USUAL: dict[str, Any] = {
    "messages.empty": "null",
    "messages.system": "any",
    "messages.consecutive_roles": "keep",
    "messages.first_user": False,
    "messages.content": "parts",
    "tools.supported": True,
    "tools.parallel": True,
    "tool_choice.allowed": ["auto", "none", "required", "named"],
    "reasoning.part_form": "parts",
    "stream.tools": True,
}
"""The values in the protocols' documentation, for flags that show only where an endpoint has another value."""


class Finding(Struct, frozen=True):
    """The finding of one run of a question about a flag.

    `quote` are the endpoint's own words for it, where it has any. `by` is what the next run has to repeat.
    """

    flag: str
    value: Any
    answer: AnswerWord
    quote: str = ""
    by: Any = None


class FlagFact(Struct, frozen=True):
    """The knowledge of a probe about a flag: value, answer, and the numbers of the exchanges that prove it.

    The answer is `works` (a visible effect), `refused`, `ignored`, or `unknown`, then without a value.
    """

    flag: str
    value: Any
    answer: AnswerWord
    exchanges: tuple[int, ...] = ()
    quote: str = ""


def split_mode(flag: str) -> tuple[str, str]:
    """Return the mode of a flag, "" where it holds in the plain one, and the flag in it."""
    if not flag.startswith("when."):
        return "", flag
    _, mode, rest = flag.split(".", 2)
    return mode, rest


def leaf_facts(facts: Iterable[FlagFact]) -> list[FlagFact]:
    """Return the facts by the names of `Model.explain`, where the values of a table are flags of their own."""
    return [
        replace(fact, flag=flag, value=value)
        for fact in facts
        for flag, value in (leaves({fact.flag: fact.value}) or {fact.flag: {}}).items()
    ]
