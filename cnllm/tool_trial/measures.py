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
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any, Literal

import msgspec
from msgspec import Struct

from cnllm.schemas.validate import validation_errors
from cnllm.tool_trial.tasks import TaskResult

__all__ = ["MODES", "Mode", "ModeReport", "Seconds", "fits_schema", "measure"]

Mode = Literal["native", "prompt"]
MODES: tuple[Mode, ...] = ("native", "prompt")
"""Tools of the wire, and tools that the prompt describes."""


class Seconds(Struct, frozen=True):
    """A median, and the time within which 95 of 100 are."""

    median: float
    p95: float


class ModeReport(Struct, frozen=True):
    """The results of the tasks with one kind of tools, and their measures; null where nothing was there to count.

    `first` is the time to the first piece of text or of a call, by reply; `task` the time of a whole task. `success` is
    the share of tasks that ended right.
    """

    tools: Mode
    tasks: int
    right: int
    true_positives: int
    false_positives: int
    false_negatives: int
    true_negatives: int
    valid: int
    first: Seconds | None
    task: Seconds | None
    success: float | None
    precision: float | None
    recall: float | None
    f1: float | None
    schema_accuracy: float | None
    results: tuple[TaskResult, ...]

    @property
    def called(self) -> int:
        """Return the number of replies that called."""
        return self.true_positives + self.false_positives


def measure(tools: Mode, results: Sequence[TaskResult]) -> ModeReport:
    """Return the report on tasks with one kind of tools."""
    replies = [reply for result in results for reply in result.replies]
    counts = Counter((reply.expected, reply.called) for reply in replies)
    hits, misplaced, missed = counts[True, True], counts[False, True], counts[True, False]
    right = sum(result.problem is None for result in results)
    valid = sum(reply.called and reply.valid for reply in replies)
    return ModeReport(
        tools=tools,
        tasks=len(results),
        right=right,
        true_positives=hits,
        false_positives=misplaced,
        false_negatives=missed,
        true_negatives=counts[False, False],
        valid=valid,
        first=_seconds(reply.first for reply in replies),
        task=_seconds(result.seconds for result in results),
        success=_share(right, len(results)),
        precision=_share(hits, hits + misplaced),
        recall=_share(hits, hits + missed),
        f1=_share(2 * hits, 2 * hits + misplaced + missed),
        schema_accuracy=_share(valid, hits + misplaced),
        results=tuple(results),
    )


def _share(part: int, whole: int) -> float | None:
    return part / whole if whole else None


def _seconds(values: Iterable[float | None]) -> Seconds | None:
    known = sorted(value for value in values if value is not None)
    if not known:
        return None
    return Seconds(statistics.median(known), known[min(len(known) - 1, int(0.95 * len(known)))])


def fits_schema(arguments: str, schema: dict[str, Any] | None) -> bool:
    """Whether arguments of a call are JSON and fit the schema of its tool, as they arrived."""
    try:
        value = msgspec.json.decode(arguments)
    except (msgspec.DecodeError, UnicodeError):
        return False
    return schema is not None and not validation_errors(value, schema)
