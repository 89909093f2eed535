"""Turn rows into jobs: build their requests, or name what is wrong with them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from cnllm.batch.answer_cache import AnswerCache
from cnllm.batch.identity import plan_identity
from cnllm.batch.job import Job
from cnllm.batch.lane import Lane
from cnllm.batch.outcome import cached_outcome, fault_outcome
from cnllm.batch.pricing import RequestPrice
from cnllm.batch.readers import Reader
from cnllm.batch.rows import Row, RowFault, id_digest, line_digest
from cnllm.errors import CannotSend

__all__ = ["JobMaker"]


class JobMaker:
    """Makes the jobs of a run. `doubled` names the first line of ids that stand twice, by the later line."""

    def __init__(
        self,
        reader: Reader,
        lane: Lane,
        options: Mapping[str, Any],
        price: RequestPrice,
        cache: AnswerCache | None,
    ) -> None:
        self._reader = reader
        self._lane = lane
        self._options = dict(options)
        self._price = price
        self._cache = cache
        self.doubled: Mapping[int, str] = {}

    def make(self, row: Row, seq: int) -> Job:
        """Return the job of a row. One that is not sent has its outcome already.

        Raises the errors that are no fault of the row: no key, an address that is not trusted.
        """
        try:
            content = self._reader.content(row)
        except RowFault as fault:
            return _fault(Job(row, None, line_digest(row.number), seq), str(fault))
        row_id = row.number if content.id is None else content.id
        first = self.doubled.get(row.number)
        if first is not None:
            job = Job(row, None, line_digest(row.number), seq)
            return _fault(job, f"the id {row_id!r} is that of {first}")
        job = Job(row, row_id, id_digest(row_id), seq)
        job.messages, job.options = content.messages, {**self._options, **content.options}
        try:
            job.prepared = self._lane.prepare(job.messages, job.options)
        except (TypeError, ValueError) as error:
            return _fault(job, str(error))
        except CannotSend as error:
            return _fault(job, f"{error}; {error.hint}" if error.hint else str(error))
        plan = job.prepared.plan
        job.identity = plan_identity(plan)
        if self._cache is not None and (reply := self._cache.find(job.identity)) is not None:
            job.outcome, job.prepared = cached_outcome(reply), None
            return job
        job.reserved = self._price.cost_of(plan)
        job.tokens = self._price.tokens_of(plan)
        return job


def _fault(job: Job, message: str) -> Job:
    job.outcome = fault_outcome(f"line {job.row.number}: {message}")
    if job.row_id is None:
        job.line = job.row.number
    return job
