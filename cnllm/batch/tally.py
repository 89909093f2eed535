"""Count a run in memory that does not grow: rows, tokens, latencies, and a series over time for the plot."""

from __future__ import annotations

from bisect import bisect_left
from itertools import accumulate
from math import e, log

from msgspec import Struct

from cnllm.batch.output import LineError
from cnllm.types import Reply

__all__ = ["Interval", "Tally"]

_STEP = log(1.02)  # two percent from one class of latencies to the next
_MOST_INTERVALS = 240
_LATELY = 10.0  # seconds


class Interval(Struct):
    """Counts of the events in a part of the run."""

    answers: int = 0
    refused: int = 0
    latency: float = 0.0
    tokens: int = 0

    def add(self, other: Interval) -> None:
        """Add the counts of another one."""
        for name in self.__struct_fields__:
            setattr(self, name, getattr(self, name) + getattr(other, name))


class Tally:
    """The counts of a run. `done` and `failed` count rows whose lines are on the disk."""

    def __init__(self, now: float) -> None:
        self.start = now
        self.done = self.failed = self.answers = self.refused = self.requests = 0
        self.cached_rows = 0
        self.input = self.output = self.cached = self.known_cache = 0
        self.failures: dict[str, int] = {}
        self.examples: dict[str, str] = {}
        self.notes: dict[str, int] = {}
        self.finishes: dict[str, int] = {}
        self.width = 0.5
        self.intervals: list[Interval] = []
        self._latencies: dict[int, int] = {}

    def interval(self, now: float) -> Interval:
        """Return the interval of a time. Intervals double in width rather than in number."""
        while (index := int((now - self.start) / self.width)) >= _MOST_INTERVALS:
            pairs = [self.intervals[n : n + 2] for n in range(0, len(self.intervals), 2)]
            for first, *second in pairs:
                for other in second:
                    first.add(other)
            self.intervals = [pair[0] for pair in pairs]
            self.width *= 2
        while len(self.intervals) <= index:
            self.intervals.append(Interval())
        return self.intervals[index]

    def answer(self, now: float, seconds: float | None, reply: Reply) -> None:
        """Count an answer. `seconds` is None where nobody waited for this one alone."""
        self.answers += 1
        if seconds is not None:
            step = round(log(max(seconds, 1e-6)) / _STEP)
            self._latencies[step] = self._latencies.get(step, 0) + 1
        usage = reply.usage
        tokens = usage.output or 0
        self.input += usage.input or 0
        self.output += tokens
        if usage.cached is not None and usage.input:
            self.cached += usage.cached
            self.known_cache += usage.input
        interval = self.interval(now)
        interval.answers += 1
        interval.latency += seconds or 0.0
        interval.tokens += tokens
        for note in reply.notes:
            self.notes[note.code] = self.notes.get(note.code, 0) + 1
        if reply.finish != "stop":
            self.finishes[reply.finish] = self.finishes.get(reply.finish, 0) + 1

    def refusal(self, now: float) -> None:
        """Count a refusal."""
        self.refused += 1
        self.interval(now).refused += 1

    def finish(self, now: float, error: LineError | None) -> None:
        """Count a row whose line is on the disk, with its error if it failed."""
        if error is None:
            self.done += 1
            return
        self.failed += 1
        self.failures[error.type] = self.failures.get(error.type, 0) + 1
        self.examples.setdefault(error.type, error.message)
        self.interval(now)  # the plot reaches to here

    def percentiles(self, *shares: float) -> list[float | None]:
        """Return the latencies below which these shares of the answers lie, in seconds."""
        steps = sorted(self._latencies)
        if not steps:
            return [None for _ in shares]
        passed = list(accumulate(self._latencies[step] for step in steps))
        return [round(e ** (steps[bisect_left(passed, share * passed[-1])] * _STEP), 4) for share in shares]

    def rate(self, now: float) -> tuple[float, float]:
        """Return answers and output tokens a second in the last seconds."""
        count = max(1, round(_LATELY / self.width))
        last = self.intervals[-count:]
        span = min(now - self.start, count * self.width) or 1e-9
        return sum(i.answers for i in last) / span, sum(i.tokens for i in last) / span
