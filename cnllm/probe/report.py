"""Write what a probe tells people: its questions and their cost, and what differs from the protocol's documentation."""

from __future__ import annotations

import datetime
import itertools
import json
import textwrap
from collections.abc import Sequence
from typing import Any

from msgspec import Struct

from cnllm.probe.approach import ProbedEndpoint
from cnllm.probe.exchange import ProbeExchange, on_one_line
from cnllm.probe.facts import USUAL, FlagFact, split_mode
from cnllm.probe.questions import QUESTIONS
from cnllm.types.checks import plural

__all__ = ["Report", "differs", "estimate", "sentence"]

_MOST_JSON = 1500
_MOST_WORDS = 300
_wrap = textwrap.TextWrapper(78, break_on_hyphens=False, break_long_words=False).wrap


class Report(Struct, frozen=True):
    """The results of a probe.

    `overlay` is a registry file with what was proven; `facts` are all flags that were asked about, the unknown ones
    too; `requests` counts what was sent; `stopped` says why the probe ended early, "" where it asked everything;
    `exchanges` are the requests and answers that the facts number. `name` is the model's in the overlay,
    `remarks` are sentences about the endpoint as a whole; `spent` is the cost at the given price; `left` are the
    names of the questions that more requests would ask.
    """

    overlay: str
    facts: list[FlagFact]
    requests: int
    stopped: str = ""
    exchanges: tuple[ProbeExchange, ...] = ()
    found: ProbedEndpoint | None = None
    name: str = ""
    remarks: tuple[str, ...] = ()
    spent: float = 0.0
    left: tuple[str, ...] = ()

    def text(self) -> str:
        """Return the report for people, as Markdown: what differs from the protocol's documentation, and the rest.

        It holds no key: requests are shown without their headers.
        """
        url = self.found.place.base_url if self.found is not None else ""
        id = self.found.id if self.found is not None else ""
        differ = [fact for fact in self.facts if differs(fact)]
        unknown = [fact.flag for fact in self.facts if fact.answer == "unknown"]
        known = [fact for fact in self.facts if fact.answer != "unknown"]
        by_number = {exchange.number: exchange for exchange in self.exchanges}
        count = len(self.exchanges)
        found = f"These {len(differ)} things differ" if differ else "Nothing differs"
        lines = [
            f"# {id} at {url}",
            "",
            f"Asked on {datetime.date.today()} with {count} request{plural(count)}. "
            "Each line below was seen in two runs.",
            "",
            f"## {found} from the protocol's documentation",
            "",
        ]
        for fact in differ:
            lines += [f"### {sentence(fact)}", ""]
            if fact.quote:
                lines += [f"> {_words(fact.quote)}", ""]
            lines += _evidence_lines([by_number[n] for n in fact.exchanges if n in by_number])
        lines += ["## What was seen", "", *(f"- {sentence(fact)}" for fact in known), ""]
        if unknown:
            lines += ["## What is not known", "", *_wrap(", ".join(unknown)), ""]
        return "\n".join([*lines, "## What is left to ask", "", *_wrap(_next_questions(self.left, count)), ""])


def differs(fact: FlagFact) -> bool:
    """Whether a fact differs from what the protocol's documentation lets a client expect."""
    _, flag = split_mode(fact.flag)
    if fact.answer in ("unknown", "ignored"):
        return fact.answer == "ignored"
    if flag in USUAL:
        return bool(fact.value != USUAL[flag])
    return fact.answer == "refused" and not fact.flag.startswith(("reasoning.mode", "limits."))


def sentence(fact: FlagFact) -> str:
    """Return a fact as a line: the flag, its value, and how the endpoint answered."""
    if fact.answer == "unknown":
        return f"{fact.flag}: unknown"
    value = fact.value if isinstance(fact.value, str) else json.dumps(fact.value, ensure_ascii=False)
    if fact.value is None:
        return f"{fact.flag}: {fact.answer}"
    return f"{fact.flag} = {value} ({fact.answer})"


def _next_questions(names: Sequence[str], count: int) -> str:
    """Return what as many requests more would ask, or that nothing is left."""
    if not names:
        return "Nothing: no question is left that could decide an unknown flag."
    costs = {question.name: 2 * question.requests for question in QUESTIONS}
    spent = itertools.accumulate(costs.get(name, 1) for name in names)
    within = [name for name, cost in zip(names, spent, strict=True) if cost <= count] or names[:1]
    more = f", and {len(names) - len(within)} others after that" if len(within) < len(names) else ""
    return f"The next {count} request{plural(count)} would ask for: {', '.join(within)}{more}."


def _evidence_lines(exchanges: list[ProbeExchange]) -> list[str]:
    """Return the request and the answer that show a fact: a refusal where there is one, and what passed beside it."""
    refused = next((e for e in exchanges if e.answer.refused), None)
    passed = next((e for e in exchanges if e.answer.passed), None)
    lines: list[str] = []
    for exchange in [e for e in (refused, passed) if e is not None]:
        request = f"Request {exchange.number} ({exchange.ask.why}):"
        lines += [request, "", "```json", _json(exchange.ask.body), "```", ""]
        answer = exchange.answer
        text = ", ".join(f"calls {name}" for name in answer.calls) or _words(answer.text) or "no text"
        lines += [f"Answer: {answer.status}, {_words(answer.message) if answer.refused else text}", ""]
    return lines


def _json(body: Any) -> str:
    text = json.dumps(body, ensure_ascii=False, indent=1)
    return text if len(text) <= _MOST_JSON else text[:_MOST_JSON] + "\n… (cut here)"


def _words(text: str) -> str:
    return on_one_line(text, _MOST_WORDS).replace("`", "'")


# ── before anything is sent ──────────────────────────────────────────────────
_INPUT, _OUTPUT = 250, 150
"""The tokens of an ordinary question, roughly."""


def estimate(requests: int, price: tuple[float, float]) -> float:
    """Return what so many requests may cost, roughly."""
    return requests * (_INPUT * price[0] + _OUTPUT * price[1]) / 1_000_000
