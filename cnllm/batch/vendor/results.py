"""Fetch the results of a part, and say what became of each of its rows."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any

import msgspec
from msgspec import Struct

from cnllm.batch.jobs import Job
from cnllm.batch.outcome import Outcome, outcome_of_error, outcome_of_reply
from cnllm.batch.state import RETRYABLE
from cnllm.batch.vendor.answers import RowResult, VendorJob, read_result
from cnllm.batch.vendor.bodies import fetch_plan
from cnllm.batch.vendor.exchange import UnreadableAnswer, VendorConnection
from cnllm.batch.vendor.parts import Part
from cnllm.engine.decode.parser import parse_response
from cnllm.engine.encode.plan import Plan
from cnllm.errors import CnllmError
from cnllm.registry.flags.batch import Batch

__all__ = ["Answered", "Results", "fetch_results", "read_answer"]

_ATTEMPTS = 4


class Results:
    """The results of a part in a file without a name, found by the position of their row."""

    def __init__(self, batch: Batch, part: Part, folder: Path) -> None:
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
        except (msgspec.DecodeError, UnicodeError) as error:
            raise UnreadableAnswer(f"a line of the vendor's results is no JSON: {error}") from error
        return read_result(self._batch.result, data)


async def fetch_results(
    exchange: VendorConnection, batch: Batch, probe: Plan, part: Part, job: VendorJob, out: Path
) -> Results:
    """Fetch the results of a finished job. Raises `CnllmError` where they do not come whole.

    A file with fewer lines than the job says it has is fetched again a few times: it may not be complete yet.
    """
    tries = 0
    while True:
        tries += 1
        try:
            results = Results(batch, part, out.parent)
        except OSError as error:
            raise _disk_error(out, error) from error
        try:
            for line in job.rows:
                results.add(msgspec.json.encode(line))
            for file in _files(batch, job):
                with tempfile.TemporaryFile(dir=out.parent) as copy:
                    await exchange.download(fetch_plan(batch, probe, job.id, file), copy)
                    for line in _lines(copy):
                        results.add(exchange.redact(line))
        except UnreadableAnswer as error:
            results.close()
            if tries >= _ATTEMPTS:
                raise UnreadableAnswer(
                    f"job {job.id}: {error}", hint="run the same command again: it fetches them again"
                ) from error
        except OSError as error:
            results.close()
            raise _disk_error(out, error) from error
        except BaseException:
            results.close()
            raise
        else:
            if job.finished is None or results.lines >= min(job.finished, part.size) or tries >= _ATTEMPTS:
                return results
            results.close()
        await exchange.wait(tries)


def _disk_error(out: Path, error: OSError) -> CnllmError:
    hint = f"free disk space in {out.parent}, then run the same command again: it goes on"
    return CnllmError(f"the vendor's results cannot be written beside {out}: {error.strerror}", hint=hint)


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


class Answered(Struct, frozen=True):
    """The result of a row: an outcome for its line, or None where the row is to be asked again, by itself.

    `cost` says what to count: the reply's own, nothing (False), or the worst case (None).
    """

    outcome: Outcome | None
    cost: Any
    reason: str = ""


def read_answer(result: RowResult | None, job: Job, unsure: str) -> Answered:
    """Return what became of a row. The engine reads its result as it reads the response to a single call."""
    if result is None:
        return Answered(None, None, "missing" if unsure == "ask" else "skipped")
    if result.unserved:
        return Answered(None, False, "expired")
    plan = job.prepared.plan
    try:
        reply = parse_response(plan.model, result.status, {}, result.body, plan=plan)
    except CnllmError as error:
        outcome = outcome_of_error(error)
        refused = result.free or not error.meaning.charged
        if outcome.state == RETRYABLE:
            return Answered(None, False if refused else None, type(error).__name__)
        return Answered(outcome, False if refused else None)
    outcome = outcome_of_reply(reply)
    invalid = outcome.error is not None and outcome.error["type"] == "InvalidAnswer"
    if outcome.state == RETRYABLE or (invalid and plan.corrections):
        return Answered(None, reply, "invalid" if invalid else "cut")
    return Answered(outcome, reply)
