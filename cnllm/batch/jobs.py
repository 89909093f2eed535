"""Rows on their way through a run: build their requests, or name what is wrong with them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any

import msgspec
from msgspec import Raw, Struct

from cnllm.batch.identity import AnswerCache, plan_identity
from cnllm.batch.lanes import Lane
from cnllm.batch.output import Outcome, fault_outcome
from cnllm.batch.pricing import RequestPrice
from cnllm.batch.rows import Id, InputRow, Reader, RowFault, id_digest, line_digest
from cnllm.batch.state import DONE, RowMark, RowRecord
from cnllm.engine.encode.plan import Plan
from cnllm.errors import CannotSend, CnllmError, UnknownModel
from cnllm.types import Note
from cnllm.types.json_form import encode_json

__all__ = ["Job", "JobMaker", "RowRequest"]


_UNFIT = (CannotSend, UnknownModel)
"""The errors of a request that a model cannot take."""


class RowRequest(Struct, eq=False):
    """A request, and how often it was sent. `lane` is the one that prepared it, `failures` counts what a retry counts.

    `prepared` is the call, until it is sent. `elsewhere` are the requests that the lanes of other models may send for
    it, `unfit` the names of the models that cannot take it. `reserved` is the most that the request can cost, in units;
    None is unknown; `added` is the input that was taken for it to be added by the endpoint, -1 before it is estimated.
    `is_own_answer` says that the model of `lane` itself answered, and no other lane or fallback.
    """

    messages: Any = None
    options: dict[str, Any] = {}
    lane: Lane | None = None
    prepared: Any = None
    elsewhere: Sequence[Sequence[Plan]] = ()
    unfit: frozenset[str] = frozenset()
    identity: bytes | None = None
    added: int | None = -1
    reserved: int | None = None
    tokens: float = 0.0
    attempts: int = 0
    failures: int = 0
    is_own_answer: bool = False

    def prepare(self, lane: Lane, messages: Any, options: dict[str, Any]) -> str | None:
        """Build the request, and return what is wrong with it; None where nothing is.

        Raises the errors that are no fault of the row: no key, an address that is not trusted.
        """
        self.messages, self.options, self.lane = messages, options, lane
        try:
            self.prepared = lane.prepare(messages, options)
        except (TypeError, ValueError) as error:
            return str(error)
        except _UNFIT as error:
            return _sentence(error)
        self.identity = plan_identity(self.prepared.plan)
        return None

    def estimate(self, price: RequestPrice) -> None:
        """Set the most that the request can cost, and the tokens that it counts for. One that was sent keeps them."""
        if self.prepared is None or self.added == price.added:
            return
        self.added = price.added
        costs = [price.cost_of_all(plans) for plans in (self.prepared.possible_plans(), *self.elsewhere)]
        self.reserved = None if None in costs else max(cost for cost in costs if cost is not None)
        self.tokens = price.tokens_of(self.prepared.plan)


class Job(RowRequest, kw_only=True, eq=False):
    """The request of a row. `digest` is that of its id, `record` the row of an earlier run.

    `outcome` is that of a row that is not sent, `line` the place of one that is no request or has the id of another.
    `asked`: this run marked it before. `charged` counts units, for attempts that were not the last. `notes` belong to
    the row's reply, beside those that the reply has.
    """

    row: InputRow
    row_id: Id | None
    digest: bytes
    seq: int
    record: RowRecord | None = None
    outcome: Outcome | None = None
    line: int | None = None
    asked: bool = False
    charged: int = 0
    notes: tuple[Note, ...] = ()

    def mark(self, setting: int, cost: int | None, *, retake: bool) -> RowMark:
        """Return the mark that is stored before the row is sent."""
        row = self.row
        return RowMark(self.seq, self.digest, row.number, row.key, self.identity, setting, cost, self.asked, retake)

    def line_of(self, outcome: Outcome) -> bytes:
        """Return the line of the row in the output. One that is no request is named by its line in the input, too.

        The notes of the job are put before those of the reply, except what it has.
        """
        data: dict[str, Any] = {
            "id": self.row_id,
            "reply": None if outcome.reply is None else _with_notes(outcome.reply.to_dict(), self.notes),
            "error": outcome.error,
            "attempts": self.attempts,
            "identity": None if self.identity is None else self.identity.hex(),
        }
        if outcome.cached is not None:
            reply = _with_notes(msgspec.json.decode(outcome.cached), self.notes) if self.notes else Raw(outcome.cached)
            data |= {"reply": reply, "from_cache": True}
        if self.line is not None:
            data["line"] = self.line
        return encode_json(data) + b"\n"


def _with_notes(reply: dict[str, Any], notes: Sequence[Note]) -> dict[str, Any]:
    """Return a reply as JSON with further notes."""
    own = reply["notes"]
    lacking = [note for note in msgspec.to_builtins(notes) if note not in own]
    return {**reply, "notes": [*lacking, *own]} if lacking else reply


_MOST_MODELS = 20


class JobMaker(Struct, eq=False):
    """Makes the jobs of a run. `doubled` names the first line of ids that stand twice, by the later line.

    `lane` prepares the requests; `others` are the lanes of other models, which may send them, too. One of them prepares
    a request that `lane` cannot send.

    `row_models` are the first models that rows name. A batch asks its own.
    """

    reader: Reader
    lane: Lane
    options: Mapping[str, Any]
    price: RequestPrice
    cache: AnswerCache | None
    others: Sequence[Lane] = ()
    doubled: Mapping[int, str] = {}
    row_models: set[str] = set()

    def make(self, row: InputRow, seq: int) -> Job:
        """Return the job of a row. One that is not sent has its outcome.

        Raises as `RowRequest.prepare` does, where the row has no options of its own.
        """
        try:
            content = self.reader.content(row)
        except RowFault as fault:
            job = Job(row=row, row_id=fault.id, digest=line_digest(row.number), seq=seq, line=row.number)
            return _fault(job, str(fault))
        if content.model is not None and len(self.row_models) < _MOST_MODELS:
            self.row_models.add(content.model)
        row_id = row.number if content.id is None else content.id
        first = self.doubled.get(row.number)
        if first is not None:
            job = Job(row=row, row_id=None, digest=line_digest(row.number), seq=seq, line=row.number)
            return _fault(job, f"the id {row_id!r} is that of {first}")
        job = Job(row=row, row_id=row_id, digest=id_digest(row_id), seq=seq, notes=content.notes)
        try:
            fault_text = job.prepare(self.lane, content.messages, {**self.options, **content.options})
        except CnllmError as error:
            if not content.options:
                raise
            fault_text = _sentence(error)  # the options of the run alone were tried before
        others = self.others if fault_text is None else self._prepare_elsewhere(job)
        if others is None:
            assert fault_text is not None
            return _fault(job, fault_text)
        assert job.identity is not None
        if self.cache is not None and (reply := self.cache.find(job.identity)) is not None:
            job.notes = (*content.notes, *job.prepared.plan.notes)  # the reply has those of another row
            job.outcome, job.prepared = Outcome(DONE, None, None, reply), None
        else:
            job.elsewhere = [self._plans_at(lane, job) for lane in others]
            job.estimate(self.price)
        return job

    def _prepare_elsewhere(self, job: Job) -> Sequence[Lane] | None:
        """Prepare a request by the first other lane that can send it. Return the lanes behind it; None without one."""
        lanes = [self.lane, *self.others]
        for number, lane in enumerate(self.others, 1):
            with suppress(CnllmError):
                if job.prepare(lane, job.messages, job.options) is None:
                    job.unfit = frozenset(each.model.name for each in lanes[:number])
                    return lanes[number + 1 :]
        return None

    def _plans_at(self, lane: Lane, job: Job) -> Sequence[Plan]:
        """Return the requests that another lane may send for a row; none where it cannot send it."""
        try:
            return lane.prepare(job.messages, job.options).possible_plans()
        except (*_UNFIT, TypeError, ValueError):
            job.unfit |= {lane.model.name}
        except CnllmError:
            pass
        return ()


def _sentence(error: CnllmError) -> str:
    """Return an error with its hint."""
    return f"{error}; {error.hint}" if error.hint else str(error)


def _fault(job: Job, message: str) -> Job:
    job.outcome = fault_outcome(f"line {job.row.number}: {message}")
    return job
