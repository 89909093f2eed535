"""Format what a reply has used, and how fast it arrived."""

from __future__ import annotations

import time
from collections.abc import Iterator

from cnllm.cli.output import terminal
from cnllm.types import TOKEN_EVENTS, Cost, Event, Reply, Usage

__all__ = ["ReplyPace", "cost_text", "token_parts", "usage_line"]

_LEAST_SECONDS = 0.2  # a speed over a shorter time says nothing


class ReplyPace:
    """The speed of a reply: the seconds to its first token, and the tokens a second after it."""

    def __init__(self) -> None:
        self._start = time.monotonic()
        self._first: float | None = None
        self._last = 0.0
        self._is_paused = False  # tools ran between two replies: their time is not the model's

    def event(self, event: Event) -> None:
        """Take in when an event with content arrived."""
        if type(event) in TOKEN_EVENTS:
            self._last = time.monotonic()
            if self._first is None:
                self._first = self._last

    def pause(self) -> None:
        """Take in that tools ran."""
        self._is_paused = True

    def text(self, reply: Reply) -> str:
        """Return " · 0.8 s to the first token · 56 tokens/s", as far as it is known."""
        if self._first is None:
            return ""
        out = f" · {self._first - self._start:.1f} s to the first token"
        seconds, tokens = self._last - self._first, reply.usage.output
        if not self._is_paused and tokens and seconds >= _LEAST_SECONDS:
            out += f" · {tokens / seconds:.0f} tokens/s"
        return out


def token_parts(usage: Usage) -> Iterator[str]:
    """Yield "12 in (3 cached)" and "34 out (20 reasoning)", as far as they are known."""
    for count, label, detail, detail_label in (
        (usage.input, "in", usage.cached, "cached"),
        (usage.output, "out", usage.reasoning, "reasoning"),
    ):
        if count is not None:
            yield f"{count} {label}" + (f" ({detail} {detail_label})" if detail else "")


def cost_text(cost: Cost, *, is_exact: bool = True) -> str:
    """Return an amount with its currency; a sum that leaves something out is a lower bound."""
    return f"{'' if is_exact and cost.complete else '≥ '}{cost.amount.normalize():f} {cost.currency}"


def usage_line(reply: Reply) -> str:
    """Return "zai/glm-4.7 · 12 in (3 cached) · 34 out (20 reasoning) · 0.0012 USD", without unknown values."""
    parts = [*token_parts(reply.usage), *([] if reply.cost is None else [cost_text(reply.cost)])]
    return terminal.escape(" · ".join(filter(None, [reply.message.by or reply.model, *parts]))) if parts else ""
