"""One run of a batch from start to end: open, recover, compare, ask, finish."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from cnllm import __version__
from cnllm.batch import identity
from cnllm.batch.budget import Budget
from cnllm.batch.comparison import Comparison, compare
from cnllm.batch.final import finish_files
from cnllm.batch.job import Job
from cnllm.batch.journal import Journal
from cnllm.batch.lane import Lane
from cnllm.batch.lanes import open_lanes
from cnllm.batch.outcome import fault_outcome
from cnllm.batch.output import Output
from cnllm.batch.pricing import RequestPrice, request_price
from cnllm.batch.progress import Progress, snapshot
from cnllm.batch.readers import Reader, open_reader
from cnllm.batch.recovery import recover, state_path
from cnllm.batch.report import Report, make_report
from cnllm.batch.rows import Row, RowFault, id_digest, line_digest
from cnllm.batch.runner import Runner
from cnllm.batch.settings import Settings
from cnllm.batch.state import DONE, FAILED, RETRYABLE, State
from cnllm.batch.tally import Tally
from cnllm.batch.template import Template
from cnllm.errors import CannotSend, CnllmError, KeyMissing, RegistryError, UnknownModel, Untrusted
from cnllm.estimates.money import format_units, units_of
from cnllm.registry import Registry

__all__ = ["Session"]

_CHUNK = 256
_PROGRESS_SECONDS = 0.5
_PROBE = "The quick brown fox"
_FOR_ALL_ROWS = (KeyMissing, Untrusted, RegistryError, UnknownModel)
"""Errors that are no fault of a row."""


class Session:
    """A run that is opened: `asyncio` runs it, `close` gives the output back."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.template = None if settings.prompt is None else Template(settings.prompt)
        self.registry = Registry.load() if settings.registry is None else settings.registry
        self.reader: Reader = open_reader(
            settings.requests, self.template, format=settings.format, encoding=settings.encoding
        )
        path = settings.out
        if path.is_dir():
            raise CnllmError(f"{path} is a folder", hint="name a file: -o OUT.jsonl")
        is_new = not path.exists()
        self.state = State(state_path(path))
        try:
            self.output = Output(path)
        except BaseException:
            self._discard(is_new)
            raise
        try:
            self._open()
        except BaseException:
            self.output.close()
            self._discard(is_new and self.output.size == 0)
            raise

    def _open(self) -> None:
        settings, state = self.settings, self.state
        spent = recover(self.output, state)
        self.lanes: list[Lane] = open_lanes(settings, self.registry, self._resolved_names())
        lane = self.lanes[0]
        options = dict(settings.options)
        probe = lane.prepare(_PROBE, options).plan
        self.options = options
        self.setting = identity.describe_setting(
            lane.model, probe, options, settings.prompt, settings.max_steps is not None, __version__
        )
        self.price: RequestPrice = request_price(settings, lane.model)
        cap = None if settings.max_cost is None else units_of(settings.max_cost)
        self.budget = Budget(spent, self.price.currency, cap)
        self.budget.require_room_for_one(self.price.cost_of(probe) or 0)
        self.number = state.setting(self.setting.fingerprint, self.setting.parts)
        state.set_facts(currency=self.price.currency)
        self.comparison = self._compare()

    def _resolved_names(self) -> dict[str, str]:
        """Return what names stood for when they were first used with this output."""
        names: dict[str, str] = self.state.fact("models") or {}
        new = {}
        for name in self.settings.models:
            if isinstance(name, str) and name not in names:
                new[name] = self.registry.resolve(name).name
        if new:
            names |= new
            self.state.set_facts(models=names)
        return names

    def _discard(self, is_new: bool) -> None:
        """Close the state. Files that this run made, and that hold nothing, are removed."""
        self.state.close()
        if is_new:
            for path in (self.settings.out, self.state.path):
                path.unlink(missing_ok=True)

    def close(self) -> None:
        """Close the files."""
        self.output.close()
        self.state.close()

    # ── what is left to do ───────────────────────────────────────────────────

    def _compare(self) -> Comparison:
        settings, state = self.settings, self.state
        if not state.count():
            from cnllm.batch.comparison import Bits

            return Comparison(ask=Bits())
        self.reader.keep()
        found = compare(
            self.reader,
            state,
            self.number,
            self._identify,
            changed=settings.changed,
            ask_unsure=settings.unsure == "ask",
        )
        if found.matched == 0 and found.absent and state.counts().get(DONE, 0):
            raise CnllmError(
                f"{settings.out} holds the answers of another input: none of its {found.absent:,} rows is in "
                f"{self.reader.name}",
                hint="choose another -o OUT",
            )
        if found.changed and settings.changed == "stop":
            raise self._changed_error(found)
        return found

    def _identify(self, row: Row) -> bytes | None:
        return self._job(row, 0).identity

    def _changed_error(self, found: Comparison) -> CnllmError:
        known = self.state.settings()
        causes: list[str] = []
        for number in found.changed_settings:
            causes += identity.changed_parts(known.get(number or 0), self.setting.parts)
        if found.changed_rows:
            causes.append(f"{found.changed_rows:,} rows of the input themselves")
        cost = ""
        if found.changed_cost and self.price.currency:
            cost = f"; asking them again costs about {format_units(found.changed_cost)} {self.price.currency}"
        cause = "; ".join(dict.fromkeys(causes)) or "how requests are built"
        return CnllmError(
            f"{found.changed:,} finished rows ({', '.join(found.examples)}, …) were asked differently. "
            f"What changed: {cause}{cost}. Nothing was sent",
            hint="--keep-old keeps their answers, --redo asks them again",
        )

    # ── rows to jobs ─────────────────────────────────────────────────────────

    def _job(self, row: Row, seq: int) -> Job:
        """Return the job of a row. One that cannot be sent has its outcome already."""
        try:
            content = self.reader.content(row)
        except RowFault as fault:
            return self._fault(Job(row, None, line_digest(row.number), seq), fault, row.number)
        row_id = row.number if content.id is None else content.id
        job = Job(row, row_id, id_digest(row_id), seq)
        if (first := self._doubled(row)) is not None:
            job.row_id, job.digest = None, line_digest(row.number)
            return self._fault(job, RowFault(f"the id {row_id!r} is that of {first}"), row.number)
        job.messages, job.options = content.messages, {**self.options, **content.options}
        try:
            job.prepared = self.lanes[0].prepare(job.messages, job.options)
        except _FOR_ALL_ROWS:
            raise
        except (TypeError, ValueError, CannotSend) as error:
            hint = getattr(error, "hint", None)
            return self._fault(job, RowFault(f"{error}{f' ({hint})' if hint else ''}"), row.number)
        plan = job.prepared.plan
        job.identity = identity.plan_identity(plan)
        job.reserved = self.price.cost_of(plan)
        job.tokens = self.price.tokens_of(plan)
        return job

    def _doubled(self, row: Row) -> str | None:
        comparison = getattr(self, "comparison", None)
        return None if comparison is None else comparison.doubled.get(row.number)

    @staticmethod
    def _fault(job: Job, fault: RowFault, number: int) -> Job:
        job.outcome = fault_outcome(f"line {number}: {fault}")
        if job.row_id is None:
            job.line = number
        return job

    def _rows_to_ask(self) -> Any:
        found = self.comparison
        for row in self.reader.rows():
            if row.number > found.scanned or row.number in found.ask or row.number in found.doubled:
                yield row

    async def _row_chunks(self) -> AsyncIterator[Sequence[Row]]:
        """Yield the rows that are left, read in a thread: a pipe may keep it waiting."""
        loop, rows = asyncio.get_running_loop(), self._rows_to_ask()
        thread = ThreadPoolExecutor(1, thread_name_prefix="cnllm-read")

        def read() -> list[Row]:
            chunk = []
            for row in rows:
                chunk.append(row)
                if len(chunk) >= _CHUNK:
                    break
            return chunk

        try:
            while chunk := await loop.run_in_executor(thread, read):
                yield chunk
        finally:
            thread.shutdown(wait=False, cancel_futures=True)

    # ── the run ──────────────────────────────────────────────────────────────

    async def run(self, on_start: Callable[[Runner], object] = lambda runner: None) -> Report:
        """Ask what is left, and return the report."""
        settings, found = self.settings, self.comparison
        tally = Tally(time.monotonic())
        journal = Journal(self.output, self.state, lambda: dict(self.budget.spent))
        runner = Runner(
            lanes=self.lanes,
            journal=journal,
            budget=self.budget,
            tally=tally,
            setting=self.number,
            first_seq=self.state.last_seq() + 1,
            attempts=settings.attempts,
            make_job=self._job,
            must_retake=lambda number: number <= found.scanned,
            strict=settings.strict,
        )
        on_start(runner)
        watcher = asyncio.create_task(self._watch(tally, runner))
        try:
            await runner.run(self._row_chunks())
        finally:
            watcher.cancel()
            await asyncio.gather(watcher, *(lane.client.aclose() for lane in self.lanes), return_exceptions=True)
            journal.close()
        messages = finish_files(self.output, self.state, order=settings.order)
        return self._report(tally, runner, messages)

    async def _watch(self, tally: Tally, runner: Runner) -> None:
        on_progress = self.settings.on_progress
        if on_progress is None:
            return
        while True:
            on_progress(self.progress(tally, runner))
            await asyncio.sleep(_PROGRESS_SECONDS)

    def progress(self, tally: Tally, runner: Runner) -> Progress:
        """Return where a run is."""
        return snapshot(tally, self.budget, self.lanes, self.comparison.done, None, time.monotonic())

    def _report(self, tally: Tally, runner: Runner, messages: Sequence[str]) -> Report:
        counts = self.state.counts()
        stop = runner.stop
        stopped = stop.reason if stop.kind not in (None, "ended") else None
        failed = counts.get(FAILED, 0) + counts.get(RETRYABLE, 0)
        return make_report(
            str(self.settings.out),
            tally,
            self.budget,
            time.monotonic(),
            done=counts.get(DONE, 0),
            failed=failed,
            skipped=self.comparison.done + self.comparison.failed,
            unsure=self.comparison.unsure,
            broken=runner.broken,
            stopped=stopped or None,
            stop_kind=stop.kind if stopped else None,
            messages=tuple(messages),
        )
