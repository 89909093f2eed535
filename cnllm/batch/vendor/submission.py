"""Bring a part to the vendor: store the intent, upload, submit. After each step a crash does no harm."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path

from cnllm.batch.vendor.answers import read_file_id, read_job
from cnllm.batch.vendor.bodies import encode_row, submit_plan, upload_plan
from cnllm.batch.vendor.exchange import UnreadableAnswer, VendorConnection, delay_of
from cnllm.batch.vendor.packing import Packed
from cnllm.batch.vendor.parts import INTENT, SUBMITTED, UPLOADED, Part, Parts
from cnllm.batch.vendor.search import find_job
from cnllm.engine.encode.plan import Plan
from cnllm.errors import CnllmError, EndpointError, TransportError
from cnllm.registry.flags.batch import Batch

__all__ = ["NotSubmitted", "Submission", "UnsureJob"]

_ATTEMPTS = 6


class NotSubmitted(Exception):
    """The vendor certainly has no job of a part. `error` says why."""

    def __init__(self, error: CnllmError) -> None:
        super().__init__(str(error))
        self.error = error


class UnsureJob(CnllmError):
    """Nobody can tell whether the vendor has a job of a part."""


class Submission:
    """The way of a part to the vendor: the interface, the connection, the parts."""

    def __init__(
        self,
        batch: Batch,
        probe: Plan,
        exchange: VendorConnection,
        parts: Parts,
        out: Path,
        sleep: Callable[[float], Awaitable[object]],
    ) -> None:
        self._batch = batch
        self._probe = probe
        self._exchange = exchange
        self._parts = parts
        self._out = out
        self._sleep = sleep

    async def submit(self, part: Part, packed: Sequence[Packed]) -> Part:
        """Upload and submit a part that is stored. Return it with its job.

        Raises `NotSubmitted`. After any other error the part stays as it is, and `settle` goes on with it.
        """
        batch = self._batch
        assert batch.row is not None
        rows = [encode_row(batch.row, part.row_id(position), row.body) for position, row in enumerate(packed, 1)]
        file = None
        if batch.input == "file":
            file = await self._upload(part, rows)
            part = self._parts.advance(part, UPLOADED, file=file)
        plan = submit_plan(batch, self._probe, part.mark, file=file, rows=rows)
        tries = 0
        while True:
            tries += 1
            error: CnllmError
            try:
                job = read_job(batch, await self._exchange.send(plan))
                if job is not None:
                    return self._parts.advance(part, SUBMITTED, job=job.id)
                error = UnreadableAnswer("the answer to the submission has no id of a job")
            except (TransportError, EndpointError, UnreadableAnswer) as failure:
                error = failure
            if not _is_refused(error) and (found := await self.settle(part)) is not None:
                return found
            if tries >= _ATTEMPTS or not error.meaning.again:
                raise NotSubmitted(error)
            await self._sleep(delay_of(error, tries))

    async def _upload(self, part: Part, rows: list[bytes]) -> str:
        """Upload the rows of a part, and return the id of the file."""
        try:
            answer = await self._exchange.repeat(upload_plan(self._batch, self._probe, part.mark, rows))
        except (TransportError, EndpointError, UnreadableAnswer) as error:
            raise NotSubmitted(error) from error
        file = read_file_id(self._batch, answer)
        if file is None:
            hint = "check batch.upload in the registry"
            raise NotSubmitted(UnreadableAnswer("the answer to the upload has no id", hint=hint))
        return file

    async def settle(self, part: Part) -> Part | None:
        """Return a part with its job, which is looked for at the vendor. None: there is no such job.

        Raises `CnllmError` where nobody can tell.
        """
        if part.state == INTENT and self._batch.input == "file":
            return None  # its file was not even uploaded
        known = self._parts.known_jobs()
        found = await find_job(self._exchange, self._batch, self._probe, part, known, self._out, self._sleep)
        if found.job is not None:
            return self._parts.advance(part, SUBMITTED, job=found.job.id)
        if found.unknown:
            raise UnsureJob(
                f"{part.size:,} rows may be in a job of the vendor with the mark {part.mark}: {found.unknown}",
                hint="look for it at the vendor; --unsure ask asks the rows again, --unsure skip leaves them",
            )
        return None


def _is_refused(error: CnllmError) -> bool:
    """Whether the vendor has certainly started no job."""
    if isinstance(error, TransportError):
        return not error.sent
    return isinstance(error, EndpointError) and 400 <= error.status < 500 and error.status != 408
