"""Let another target take over: how long the first content is waited for, and which text of it is new.

A reply that goes on for another one is compared with the text that was delivered: nothing is delivered twice.
"""

from __future__ import annotations

import time
from collections.abc import Sequence

from msgspec.structs import replace

from cnllm.engine.encode import prefill
from cnllm.engine.encode.plan import Plan
from cnllm.types import Event, ReasoningDelta, Reply, TextDelta, ToolCallDelta, ToolCallEnd, ToolCallStart
from cnllm.types.delivered import Diverged, RepeatedText
from cnllm.types.totals import total_usage, with_costs

__all__ = ["FirstToken", "Follower", "RepeatedStart"]

_LEAST_REPEATED = 16  # characters of a beginning that no model repeats by chance


class FirstToken:
    """The wait for the first content of a stream, where another target can take over.

    `limit` is the most seconds of it; None is no limit. `has_deadline` says that reading ends at this limit; the first
    content lifts it. `held` are the events before the first content, so that a target that fails before leaves none.
    """

    __slots__ = ("begin", "has_deadline", "held", "limit")

    def __init__(self, limit: float | None) -> None:
        self.limit = limit
        self.begin = time.monotonic()
        self.has_deadline = False
        self.held: list[Event] = []

    def seconds(self) -> float:
        """Return the seconds since the wait began."""
        return time.monotonic() - self.begin

    def remaining(self) -> float:
        """Return the seconds that are left. Call it with a limit."""
        assert self.limit is not None
        return self.limit - self.seconds()

    def limit_plan(self, plan: Plan) -> Plan:
        """Return a plan whose response begins in time. Call it with a limit."""
        timeouts, seconds = plan.timeouts, max(self.remaining(), 0.001)
        if timeouts.first_byte is not None and timeouts.first_byte <= seconds:
            return plan
        return replace(plan, timeouts=replace(timeouts, first_byte=seconds))


class Follower:
    """Passes on what a new reply has after the delivered text. Raises `Diverged` at the first other character."""

    flag = "route"

    def __init__(self, delivered: str) -> None:
        self._text = RepeatedText.of(delivered)
        self._held: list[Event] = []

    def feed(self, events: Sequence[Event]) -> list[Event]:
        """Return the events that go on from the delivered text."""
        out: list[Event] = []
        for event in events:
            if self._text.is_complete:
                out.append(event)
            elif type(event) is TextDelta:
                rest = self._text.rest(event.text)
                if self._text.is_complete:
                    out += self._held
                    out += [TextDelta(rest)] if rest else []
            elif isinstance(event, ToolCallStart | ToolCallDelta | ToolCallEnd):
                raise Diverged
            elif type(event) is ReasoningDelta:
                self._held.append(event)
        return out

    def end(self) -> list[Event]:
        """Return no event. Raises `Diverged` where the reply ended before the delivered text."""
        if not self._text.is_complete:
            raise Diverged
        return []

    def join(self, before: Reply, reply: Reply) -> Reply:
        """Return the new reply, which has the delivered text, with what both replies cost."""
        return with_costs(replace(reply, usage=total_usage([before, reply])), [before.cost])


class RepeatedStart:
    """Removes the beginning of a reply from one that was to go on from it and begins with it again."""

    flag = "messages.prefill"

    def __init__(self, beginning: str) -> None:
        self._text = RepeatedText.of(beginning)
        self._held: list[str] = []  # repeated so far
        self._open = len(beginning) >= _LEAST_REPEATED
        self._repeats = False

    def feed(self, events: Sequence[Event]) -> list[Event]:
        """Return the events without a repeated beginning; a text that may be one waits."""
        if not self._open:
            return list(events)
        out: list[Event] = []
        for event in events:
            if not self._open or type(event) is ReasoningDelta:
                out.append(event)
            elif type(event) is TextDelta:
                self._held.append(event.text)
                try:
                    rest = self._text.rest(event.text)
                except Diverged:
                    out += self.end()
                    continue
                if self._text.is_complete:
                    self._open, self._repeats = False, True
                    self._held = [rest]
                    out += self.end()
            elif isinstance(event, ToolCallStart):
                out += [*self.end(), event]
            else:
                out.append(event)
        return out

    def end(self) -> list[Event]:
        """Return the events that were held back."""
        self._open = False
        text, self._held = "".join(self._held), []
        return [TextDelta(text)] if text else []

    def join(self, before: Reply, reply: Reply) -> Reply:
        """Join the beginning of a reply with its rest, which may repeat the beginning."""
        text = reply.text.removeprefix(before.text) if self._repeats else reply.text
        return prefill.join_halves(before, replace(reply, text=text))
