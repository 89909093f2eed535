"""Measure results of tasks.

Calls where they belong and calls valid by their schema are the two measures of Moonshot's K2 Vendor Verifier
(https://github.com/MoonshotAI/K2-Vendor-Verifier, "Evaluation Metrics"):

- A reply counts as positive if its finish is `tool_calls`. Precision is TP / (TP + FP), recall TP / (TP + FN), and F1
  their harmonic mean. There the truth is what Moonshot's own API answered to the same request; here it is the script of
  the task, which knows after each result whether another call is needed.
- Schema accuracy is the share of the replies that called in which the arguments of every call are JSON and fit the
  schema of the tool. Arguments count as they arrived: what cnllm repairs is still the endpoint's mistake.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Sequence

from msgspec import Struct

from cnllm.tool_trial.tasks import TaskResult

__all__ = ["Measures", "Seconds", "measure"]


class Seconds(Struct, frozen=True):
    """A median, and the time within which 95 of 100 are."""

    median: float
    p95: float


class Measures(Struct, frozen=True):
    """The measures of a set of tasks; None where nothing was there to count.

    `first` is the time to the first piece of text or of a call, by reply; `task` the time of a whole task.
    """

    tasks: int
    right: int
    true_positives: int
    false_positives: int
    false_negatives: int
    true_negatives: int
    valid: int
    first: Seconds | None = None
    task: Seconds | None = None

    @property
    def success(self) -> float | None:
        """Return the share of tasks that ended right."""
        return _share(self.right, self.tasks)

    @property
    def called(self) -> int:
        """Return the number of replies that called."""
        return self.true_positives + self.false_positives

    @property
    def precision(self) -> float | None:
        """Return the share of the calls that belong where they are."""
        return _share(self.true_positives, self.called)

    @property
    def recall(self) -> float | None:
        """Return the share of the expected calls that came."""
        return _share(self.true_positives, self.true_positives + self.false_negatives)

    @property
    def f1(self) -> float | None:
        """Return the harmonic mean of precision and recall."""
        doubled = 2 * self.true_positives
        return _share(doubled, doubled + self.false_positives + self.false_negatives)

    @property
    def schema_accuracy(self) -> float | None:
        """Return the share of the replies that called whose calls are all valid by their schema."""
        return _share(self.valid, self.called)


def measure(results: Sequence[TaskResult]) -> Measures:
    """Return the measures of tasks."""
    replies = [reply for result in results for reply in result.replies]
    return Measures(
        tasks=len(results),
        right=sum(result.problem is None for result in results),
        true_positives=sum(reply.expected and reply.called for reply in replies),
        false_positives=sum(reply.called and not reply.expected for reply in replies),
        false_negatives=sum(reply.expected and not reply.called for reply in replies),
        true_negatives=sum(not reply.expected and not reply.called for reply in replies),
        valid=sum(reply.called and reply.valid for reply in replies),
        first=_seconds(reply.first for reply in replies),
        task=_seconds(result.seconds for result in results),
    )


def _share(part: int, whole: int) -> float | None:
    return part / whole if whole else None


def _seconds(values: Iterable[float | None]) -> Seconds | None:
    known = sorted(value for value in values if value is not None)
    if not known:
        return None
    return Seconds(statistics.median(known), known[min(len(known) - 1, int(0.95 * len(known)))])
