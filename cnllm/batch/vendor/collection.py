"""Write the results of a part to the output, and free the rows that came back without an answer."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Iterator
from itertools import islice
from typing import Any

from msgspec import Struct

from cnllm.batch.budget import Budget
from cnllm.batch.comparison import Bits
from cnllm.batch.jobs import Job
from cnllm.batch.journal import Finish, write_finishes
from cnllm.batch.outcome import line_of
from cnllm.batch.output import Output
from cnllm.batch.pricing import RequestPrice
from cnllm.batch.readers import Reader
from cnllm.batch.rows import Row
from cnllm.batch.state import State
from cnllm.batch.tally import Tally
from cnllm.batch.vendor.parts import FETCHED, Part, Parts, WaitingRow
from cnllm.batch.vendor.results import Answered, Results, read_answer
from cnllm.types import Reply

__all__ = ["Collection", "Collector"]

_CHUNK = 200


class Collection(Struct):
    """The counts of the results: rows that are finished, and the reasons for which others came back.

    `changed` counts answers to requests that would be built differently now.
    """

    finished: int = 0
    changed: int = 0
    returned: Counter[str] = Counter()


class Collector:
    """Joins results with the rows of the input.

    `leftover` gets the lines that are to be asked one by one; `retake` gets them too, because the state knows them.
    """

    def __init__(
        self,
        *,
        reader: Reader,
        make_job: Callable[[Row, int], Job],
        output: Output,
        state: State,
        parts: Parts,
        budget: Budget,
        price: RequestPrice,
        tally: Tally,
        clock: Callable[[], float],
        unsure: str,
        leftover: Bits,
        retake: Bits,
    ) -> None:
        self._reader = reader
        self._make_job = make_job
        self._output = output
        self._state = state
        self._parts = parts
        self._budget = budget
        self._price = price
        self._tally = tally
        self._clock = clock
        self._unsure = unsure
        self._leftover = leftover
        self._retake = retake
        self.collection = Collection(returned=Counter())

    async def collect(self, part: Part, results: Results, state: str) -> None:
        """Write what a part brought whose job ended in a state. After each group of rows a crash does no harm.

        Rows that a job did not serve are asked one by one, but those of one that somebody cancelled wait for the next
        run.
        """
        waiting = {row.number: row for row in self._parts.rows_of(part)}
        matched = self._matched(waiting)
        while group := tuple(islice(matched, _CHUNK)):
            self._write(results, group, state)
            await asyncio.sleep(0)
        self._parts.advance(part, FETCHED)

    def _matched(self, waiting: dict[int, WaitingRow]) -> Iterator[tuple[Row | None, WaitingRow]]:
        """Yield the waiting rows with those of the input; rows that the input no longer has come last."""
        if not waiting:
            return
        for row in self._reader.rows():
            found = waiting.pop(row.number, None)
            if found is not None:
                yield row, found
                if not waiting:
                    return
        for found in waiting.values():
            yield None, found

    def _write(self, results: Results, group: tuple[tuple[Row | None, WaitingRow], ...], state: str) -> None:
        """Write a group of rows: their lines, then the state, both on the disk."""
        finishes: list[Finish] = []
        counted: list[Answered] = []
        again: list[int] = []
        gone: list[int] = []
        for row, waiting in group:
            job = None if row is None else self._make_job(row, waiting.seq)
            if row is None or job is None or job.prepared is None:  # the input has changed since
                self._budget.settle(waiting.cost, None)
                gone.append(waiting.seq)
                continue
            result = results.find(waiting.position)
            if result is None and state != "done":
                answered = Answered(None, False, state)
            else:
                answered = read_answer(result, job, self._unsure)
            cost = self._cost_of(answered)
            self._budget.settle(waiting.cost, cost)
            if answered.outcome is None:
                self.collection.returned[answered.reason] += 1
                if answered.reason == "skipped":
                    gone.append(waiting.seq)
                else:
                    again.append(waiting.seq)
                    if state != "cancelled":
                        self._leftover.add(waiting.number)
                        self._retake.add(waiting.number)
                continue
            attempts = waiting.attempts + 1
            self.collection.changed += waiting.identity != job.identity
            line = line_of(job.row_id, answered.outcome, attempts, waiting.identity or job.identity, job.line)
            charged = waiting.cost if cost is None else cost
            finishes.append(Finish(waiting.seq, line, answered.outcome.state, charged, attempts, waiting.earlier))
            counted.append(answered)

        def rows_done() -> None:
            self._parts.remove_rows([finish.seq for finish in finishes] + gone)
            self._parts.ask_again(again)

        write_finishes(self._output, self._state, finishes, dict(self._budget.spent), rows_done)
        for answered in counted:
            self._count(answered)

    def _cost_of(self, answered: Answered) -> int | None:
        """Return what a row cost, in units; None where the worst case counts."""
        if answered.cost is False:
            return 0
        return self._price.paid(answered.cost) if isinstance(answered.cost, Reply) else None

    def _count(self, answered: Answered) -> None:
        """Count a row whose line is on the disk."""
        outcome: Any = answered.outcome
        self.collection.finished += 1
        if isinstance(answered.cost, Reply):
            self._tally.answer(self._clock(), None, answered.cost)
        if outcome.error is None:
            self._tally.done += 1
        else:
            self._tally.failed += 1
            self._tally.failure(self._clock(), outcome.error["type"], outcome.error["message"])
