"""Fetch the results of a part, write them to the output, and free the rows that came back without an answer."""

from __future__ import annotations

import asyncio
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from itertools import islice
from pathlib import Path
from typing import IO, Any

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from cnllm.batch.jobs import Job
from cnllm.batch.journal import write_finishes
from cnllm.batch.output import INVALID, Outcome, outcome_of_error, outcome_of_reply
from cnllm.batch.rows import InputRow
from cnllm.batch.state import RETRYABLE, Finish
from cnllm.batch.vendor.codec import RowResult, VendorJob, fetch_plan, read_result
from cnllm.batch.vendor.exchange import UnreadableAnswer, VendorConnection, VendorContext, delay_of, disk_error
from cnllm.batch.vendor.parts import FETCHED, JobPart, WaitingRow
from cnllm.engine.decode.parser import parse_response
from cnllm.engine.encode.plan import Plan
from cnllm.errors import CnllmError
from cnllm.registry.flags.batch import Batch
from cnllm.types import Note, Reply

__all__ = ["ResultCollector", "fetch_results"]

_ATTEMPTS = 4
_CHUNK = 200
_REASONS = {
    "expired": "were not served in time by the vendor",
    "unanswered": "were left without a response by the vendor",
    "missing": "were missing in the vendor's results",
    "invalid": "had an answer that does not follow the schema",
    "cut": "had a reply that is not whole",
    "skipped": "were missing in the vendor's results, and were not asked again",
    "cancelled": "were in a job that was cancelled",
    "failed": "were in a job that failed",
}
"""The reasons for which rows come back without an answer."""


class Results:
    """The results of a part in a file without a name, found by the position of their row."""

    def __init__(self, batch: Batch, part: JobPart, folder: Path) -> None:
        self._batch = batch
        self._part = part
        self._file: IO[bytes] = tempfile.TemporaryFile(dir=folder)  # noqa: SIM115
        self._places: dict[int, tuple[int, int]] = {}
        self.foreign = 0  # results that name no row of the part
        self.lines = 0

    def add(self, line: bytes) -> None:
        """Take the result of a row. The first one of a row counts. Raises `UnreadableAnswer`."""
        result = self._read(line)
        self.lines += 1
        position = None if result is None else self._part.position_of(result.id)
        if position is None or not 1 <= position <= self._part.size:
            self.foreign += 1
            return
        if position not in self._places:
            self._places[position] = (self._file.seek(0, 2), len(line))
            self._file.write(line)

    def find(self, position: int) -> RowResult | None:
        """Return the result of a row; None where there is none."""
        place = self._places.get(position)
        if place is None:
            return None
        self._file.seek(place[0])
        return self._read(self._file.read(place[1]))

    def is_of_part(self) -> bool:
        """Whether the results are those of the part. A result of another part makes it false."""
        return bool(self._places) and not self.foreign

    def close(self) -> None:
        """Give the file up."""
        self._file.close()

    def _read(self, line: bytes) -> RowResult | None:
        assert self._batch.result is not None
        try:
            data = msgspec.json.decode(line)
        except (msgspec.DecodeError, UnicodeError, RecursionError) as error:
            raise UnreadableAnswer(f"a line of the vendor's results is not JSON: {error}") from error
        return read_result(self._batch.result, data)


async def fetch_results(exchange: VendorConnection, part: JobPart, job: VendorJob) -> Results:
    """Fetch the results of a finished job. Raises `CnllmError` where they do not come whole.

    A file with fewer lines than the job says it has is fetched again a few times: it may not be complete yet.
    """
    batch, out, tries = exchange.batch, exchange.out, 0
    while True:
        tries += 1
        with ExitStack() as undo:
            try:
                results = Results(batch, part, out.parent)
                undo.callback(results.close)
                for line in job.rows:
                    results.add(exchange.redact(msgspec.json.encode(line)))
                for file in _files(batch, job):
                    with tempfile.TemporaryFile(dir=out.parent) as copy:
                        await exchange.download(fetch_plan(batch, exchange.probe, job.id, file), copy)
                        for line in _lines(copy):
                            results.add(exchange.redact(line))
            except UnreadableAnswer as error:
                if tries >= _ATTEMPTS:
                    raise UnreadableAnswer(
                        f"job {job.id}: {error}", hint="run the same command again: it fetches them again"
                    ) from error
            except OSError as error:
                raise disk_error(out, error) from error
            else:
                if job.finished is None or results.lines >= min(job.finished, part.size) or tries >= _ATTEMPTS:
                    undo.pop_all()
                    return results
        await exchange.sleep(delay_of(None, tries), f"the results of job {job.id} are not whole yet")


def _files(batch: Batch, job: VendorJob) -> tuple[str, ...]:
    """Return the files of a job: those it names, or the one of its own path."""
    results = batch.results
    if results is None or results.path is None:
        return ()
    return job.files if results.files else ("",)


def _lines(file: IO[bytes]) -> Iterator[bytes]:
    file.seek(0)
    for line in file:
        if line.strip():
            yield line.strip()


class RowAnswer(Struct, frozen=True):
    """The result of a row: an outcome for its line, or None where the row is to be asked again, by itself.

    `cost` says what to count: the reply's own, nothing (False), or the worst case (None).
    """

    outcome: Outcome | None
    cost: Any
    reason: str = ""


def read_answer(result: RowResult | None, job: Job, state: str, unsure: str) -> RowAnswer:
    """Return what became of a row of a job that ended in a state.

    The engine reads its result as it reads the response to a single call.
    """
    if result is None and state != "done":
        return RowAnswer(None, False, state)
    if result is None:
        return RowAnswer(None, None, "missing" if unsure == "ask" else "skipped")
    if result.unserved is not None:
        return RowAnswer(None, False, result.unserved)
    plan = job.prepared.plan
    try:
        reply = parse_response(plan.model, result.status, {}, result.body, plan=plan)
    except CnllmError as error:
        outcome = outcome_of_error(error)
        refused = result.free or not error.meaning.charged
        if outcome.state == RETRYABLE:
            return RowAnswer(None, False if refused else None, type(error).__name__)
        return RowAnswer(outcome, False if refused else None)
    outcome = outcome_of_reply(reply)
    invalid = outcome.error is not None and outcome.error.type == INVALID
    if outcome.state == RETRYABLE or (invalid and plan.corrections):
        return RowAnswer(None, reply, "invalid" if invalid else "cut")
    return RowAnswer(outcome, reply)


# ── into the output ──────────────────────────────────────────────────────────


class ResultCollector:
    """Joins results with the rows of the input."""

    def __init__(self, context: VendorContext) -> None:
        self._context = context
        self._session = context.session
        self._jobs = replace(context.jobs, cache=None)  # a row that has its answer is asked no cache
        self._budget = context.session.budget
        self._parts = context.session.parts
        self._changed = 0
        self._returned: Counter[str] = Counter()

    def messages(self) -> Iterator[str]:
        """Yield what to tell of the rows at the end."""
        for reason, count in sorted(self._returned.items()):
            yield f"{count:,} rows {_REASONS.get(reason, f'failed at the vendor with {reason}')}"
        if self._changed:
            yield (
                f"{self._changed:,} answers are to requests that were submitted with other options; the next run says "
                "how"
            )

    async def collect(self, part: JobPart, results: Results, state: str) -> bool:
        """Write what a part brought whose job ended in a state. After each group of rows a crash does no harm.

        Rows that a job did not serve are asked one by one, but those of one that failed or that somebody cancelled wait
        for the next run. Return whether there are cancelled rows.
        """
        before = self._returned["cancelled"]
        waiting = {row.number: row for row in self._parts.rows_of(part)}
        matched = self._match_rows(waiting)
        while group := tuple(islice(matched, _CHUNK)):
            self._write(results, group, state)
            await asyncio.sleep(0)
        self._parts.advance(part, FETCHED)
        return self._returned["cancelled"] > before

    def _match_rows(self, waiting: dict[int, WaitingRow]) -> Iterator[tuple[InputRow | None, WaitingRow]]:
        """Yield the waiting rows with those of the input; rows that the input no longer has come last."""
        if not waiting:
            return
        for row in self._session.reader.rows():
            found = waiting.pop(row.number, None)
            if found is not None:
                yield row, found
                if not waiting:
                    return
        for found in waiting.values():
            yield None, found

    def _write(self, results: Results, group: tuple[tuple[InputRow | None, WaitingRow], ...], state: str) -> None:
        """Write a group of rows: their lines, then the state, both on the disk."""
        finishes: list[Finish] = []
        counted: list[tuple[RowAnswer, tuple[Note, ...]]] = []
        again: list[int] = []
        gone: list[int] = []
        paid: list[tuple[Plan, RowAnswer]] = []
        for row, waiting in group:
            job = None if row is None else self._jobs.make(row, waiting.seq)
            if job is None or job.prepared is None or job.digest != waiting.id:  # the input has changed since
                self._budget.settle(waiting.cost, None)
                gone.append(waiting.seq)
                continue
            answer = read_answer(results.find(waiting.position), job, state, self._session.settings.unsure)
            cost = self._cost_of(answer, waiting.cost)
            self._budget.settle(waiting.cost, cost)
            if answer.cost is not False:
                paid.append((job.prepared.plan, answer))
            if answer.outcome is None:
                self._returned[answer.reason] += 1
                if answer.reason == "skipped":
                    gone.append(waiting.seq)
                else:
                    again.append(waiting.seq)
                    if not {"cancelled", "failed"} & {state, answer.reason}:
                        self._context.leftover.add(waiting.number)
                        self._context.retake.add(waiting.number)
                continue
            self._changed += waiting.identity != job.identity
            job.attempts, job.identity = waiting.attempts + 1, waiting.identity or job.identity
            line, charged = job.line_of(answer.outcome), waiting.cost if cost is None else cost
            has_line = waiting.place is not None
            finishes.append(Finish(waiting.seq, line, answer.outcome.state, charged, job.attempts, has_line))
            counted.append((answer, job.notes))

        def rows_done() -> None:
            self._parts.remove_rows([finish.seq for finish in finishes] + gone)
            self._parts.ask_again(again)

        facts = self._budget.facts()
        write_finishes(self._session.output, self._session.state, finishes, facts, rows_done)
        for answer, notes in counted:
            self._count(answer, notes)
        if (recorder := self._session.recorder) is not None:
            for plan, answer in paid:
                recorder.record_reply(plan, answer.cost, answer.reason)

    def _cost_of(self, answer: RowAnswer, reserved: int | None) -> int | None:
        """Return what a row cost, in units; None where the worst case counts."""
        if answer.cost is False:
            return 0
        return self._context.jobs.price.paid(answer.cost, reserved) if isinstance(answer.cost, Reply) else None

    def _count(self, answer: RowAnswer, notes: Sequence[Note]) -> None:
        """Count a row whose line is on the disk."""
        outcome: Any = answer.outcome
        if isinstance(answer.cost, Reply):
            self._context.tally.answer(time.monotonic(), None, answer.cost)
        self._context.tally.finish(time.monotonic(), outcome.error, notes)
