"""One run of a batch from start to end: open, recover, compare, ask, finish."""

from __future__ import annotations

import asyncio
import os
import secrets
import time
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from itertools import islice
from pathlib import Path
from typing import Any

from msgspec.structs import replace

from cnllm.batch import identity
from cnllm.batch.budget import RunBudget
from cnllm.batch.comparison import Bits, InputComparison, compare
from cnllm.batch.dry_run import SAMPLE, Estimate, estimate_run
from cnllm.batch.final import finish_files, require_ours
from cnllm.batch.identity import AnswerCache
from cnllm.batch.jobs import JobMaker
from cnllm.batch.journal import Journal
from cnllm.batch.lanes import Lane, open_lanes
from cnllm.batch.plot import draw_plot, is_plot, plot_path
from cnllm.batch.pricing import RequestPrice, request_price
from cnllm.batch.readers import open_reader
from cnllm.batch.recovery import recover
from cnllm.batch.report import BatchReport, Progress, Tally, make_report
from cnllm.batch.rows import InputRow, PromptTemplate, Reader, group_rows
from cnllm.batch.run_files import RunFiles
from cnllm.batch.runner import Runner
from cnllm.batch.sender import Sender
from cnllm.batch.settings import BatchSettings
from cnllm.batch.state import DONE, FAILED, RETRYABLE, SENT
from cnllm.batch.vendor.interface import call_timeouts, takes_calls, use_calls
from cnllm.batch.vendor.parts import VendorParts
from cnllm.batch.vendor.phase import VendorPhase
from cnllm.client.call_record import CallLog, CallRecorder
from cnllm.config.settings import read_setting
from cnllm.errors import CnllmError
from cnllm.estimates.money import amount_of, format_units, units_of
from cnllm.registry import Registry
from cnllm.registry.model import Model
from cnllm.registry.sites import choose_site, has_key
from cnllm.system import files
from cnllm.types.call_options import LoopOptions
from cnllm.types.checks import plural

__all__ = ["BatchSession"]

_CHUNK = 256
_PROGRESS_SECONDS = 0.5
_PROBE = "The quick brown fox"
_ROOM = 1.1  # of an average, since later rows may cost more
_SHORTEST = "."
"""The text of a request than which no row is cheaper."""


class BatchSession:
    """A run that is opened: `asyncio` runs it, `close` gives the output back."""

    def __init__(self, settings: BatchSettings) -> None:
        out = settings.out
        if out.is_symlink() and (out.is_file() or not out.exists()):  # the file has one state, whatever its name
            settings = replace(settings, out=Path(os.path.realpath(out)))
        self.settings = settings
        self.total: int | None = None
        self._running: VendorPhase | Runner | None = None
        self.template = None if settings.prompt is None else PromptTemplate(settings.prompt)
        if self.template is not None and not self.template.columns:
            raise CnllmError(
                "the prompt names no column, so that all rows would ask the same",
                hint="put the name of a column in braces: --prompt 'Translate: {text}'",
            )
        self.registry = Registry.load() if settings.registry is None else settings.registry
        self._resources = ExitStack()  # the reader, the cache and the log, for `close`
        with ExitStack() as undo:
            undo.callback(self._resources.close)
            self.reader: Reader = open_reader(
                settings.requests, self.template, format=settings.format, encoding=settings.encoding
            )
            self._resources.callback(self.reader.close)
            self.cache = None if settings.cache is None or settings.simulate else AnswerCache(settings.cache)
            if self.cache is not None:
                self._resources.callback(self.cache.close)
            self._files = RunFiles(settings.out, settings.requests)
            self.state, self.output = self._files.state, self._files.output
            undo.callback(self._files.discard)
            self._open()
            undo.pop_all()

    def _open(self) -> None:
        settings, state = self.settings, self.state
        spent = recover(self.output, state)
        self.parts = VendorParts(state)
        self._refuse_other_origin()
        self.recorder = self._open_recorder()
        self._refuse_open_parts()
        self.lanes: list[Lane] = open_lanes(
            settings, self.registry, self._resolved_models(), self._token("salt", 8), self.recorder
        )
        self.most_at_once = int(self.lanes[0].controller.limit)
        by_calls = settings.vendor_batch and takes_calls(self.lanes[0].model)
        if by_calls:
            use_calls(self.lanes, self.registry)
        lane = self.lanes[0]
        options = dict(settings.options)
        of_loop = {name: options.pop(name) for name in LoopOptions.__annotations__ if name in options}
        self.loop_options = {"max_steps": settings.max_steps, **of_loop}
        if by_calls and options.get("timeout") is None:
            options["timeout"] = call_timeouts(lane.model)
        probe = lane.prepare(_PROBE, options).plan
        self.setting = identity.describe_setting(lane.model, probe, options, settings)
        self.price: RequestPrice = request_price(settings, lane.model)
        cap = None if settings.max_cost is None else units_of(settings.max_cost)
        self.budget = RunBudget(spent, self.price.currency, cap, self._count_unpriced())
        self.vendor = VendorPhase(self, _PROBE, options) if settings.vendor_batch and not by_calls else None
        self.budget.reserve(self.parts.highest_cost())
        self._learned_at = f"{lane.model.name} over {lane.model.protocol}"
        self.price.learn_added((state.fact("added_input") or {}).get(self._learned_at))
        others = {other.model.name: other for other in self.lanes if other.model.name != lane.model.name}
        self.jobs = JobMaker(self.reader, lane, options, self.price, self.cache, tuple(others.values()))
        self.maker = maker = self.jobs if self.vendor is None else self.vendor.jobs  # of the rows that are asked first
        shortest = maker.lane.prepare(_SHORTEST, options).plan
        self.budget.require_room_for_one(
            maker.price.cost_of(shortest) or 0, lambda room: maker.price.output_with_room(shortest, room)
        )
        self.number = state.setting(self.setting.fingerprint, self.setting.parts)
        state.set_facts(currency=self.price.currency, simulated=settings.simulate)
        self.comparison = self._compare()
        self.jobs.doubled = maker.doubled = self.comparison.doubled

    def _refuse_other_origin(self) -> None:
        """Raise `CnllmError` where the output holds made-up answers and this run asks a model, or the reverse."""
        is_simulated = self.state.fact("simulated")
        if is_simulated is not None and is_simulated != self.settings.simulate and self.state.count():
            raise CnllmError(
                f"the answers in {self.settings.out} are {'made up' if is_simulated else 'those of a model'}",
                hint="choose another -o OUT for this run",
            )

    def _refuse_open_parts(self) -> None:
        """Raise `CnllmError` for rows at a vendor where this run does not ask for them: they would be paid twice."""
        if not self.settings.vendor_batch and (parts := self.parts.open_parts()):
            rows = sum(part.size for part in parts)
            raise CnllmError(
                f"{rows:,} rows of {self.settings.out} are in {len(parts)} jobs at a vendor",
                hint="--vendor-batch goes on with them; another -o OUT asks all rows anew",
            )

    def _resolved_models(self) -> dict[str, Model]:
        """Return the models of names: what each stood for when it was first used with this output."""
        names: dict[str, str] = self.state.fact("models") or {}
        key = next(iter(self.settings.api_keys), None)
        models: dict[str, Model] = {}
        for name in self.settings.models:
            if not isinstance(name, str):
                continue
            chosen = choose_site(self.registry, name, api_key=key)
            stored = names.get(name)
            if stored is None or stored == chosen.name:
                models[name] = chosen
                continue
            models[name] = self.registry.resolve(stored)
            if not self.settings.simulate:
                self._refuse_other_site(models[name], chosen)
        if new := {name: model.name for name, model in models.items() if name not in names}:
            self.state.set_facts(models=names | new)
        return models

    def _refuse_other_site(self, stored: Model, chosen: Model) -> None:
        """Raise `CnllmError` where the keys that are set are those of another site than at the first run."""
        if chosen.provider not in stored.other_sites or not has_key(self.registry, chosen.provider):
            return
        if not has_key(self.registry, stored.provider):
            raise CnllmError(
                f"the rows of {self.settings.out} are asked at {stored.name}, and the key that is set is one of "
                f"{chosen.provider}, another site of the vendor. Nothing was sent",
                hint=f"set the key of {stored.provider} again, or choose another -o OUT for {chosen.provider}",
            )

    def _token(self, name: str, size: int) -> str:
        """Return a random text that all runs with this output share, and no other output has."""
        token: str | None = self.state.fact(name)
        if token is None:
            token = secrets.token_hex(size)
            self.state.set_facts(**{name: token})
        return token

    def _open_recorder(self) -> CallRecorder | None:
        """Return the recorder of calls; None where nobody wants it. All runs with one output are one conversation."""
        settings = self.settings
        if not (read_setting("log_calls") if settings.log_calls is None else settings.log_calls):
            return None
        origin = "simulated" if settings.simulate else "endpoint"
        recorder = CallRecorder(CallLog(), origin, "batch", self._token("conversation", 5), settings.tag or "")
        self._resources.callback(recorder.log.close)
        return recorder

    def close(self, *, discard: bool = False) -> None:
        """Close the files. With `discard`, remove what this run made of the output, unless that has an answer."""
        with self._resources:
            if discard:
                self._files.discard()
            else:
                self._files.close()

    # ── what is left to do ───────────────────────────────────────────────────

    def _compare(self) -> InputComparison:
        settings, state = self.settings, self.state
        if not state.count():
            return InputComparison(to_send=Bits())
        self.reader.keep()
        waiting = self.parts.waiting()
        found = compare(self.reader, state, self.number, lambda row: self.jobs.make(row, 0).identity, settings, waiting)
        if found.matched == 0 and found.absent and state.counts().get(DONE, 0):
            raise CnllmError(
                f"{settings.out} holds the answers of another input: none of its {found.absent:,} rows is in "
                f"{self.reader.name}",
                hint="choose another -o OUT",
            )
        if found.changed and settings.changed == "stop":
            raise self._changed_error(found)
        return found

    def _changed_error(self, found: InputComparison) -> CnllmError:
        known = self.state.settings()
        causes: list[str] = []
        for number in found.changed_settings:
            causes += identity.changed_parts(known.get(number or 0), self.setting.parts)
        if found.changed_rows:
            causes.append(f"{found.changed_rows:,} row{plural(found.changed_rows)} of the input")
        cost = ""
        if found.changed_cost and self.price.currency:
            cost = f"; asking them again costs about {format_units(found.changed_cost)} {self.price.currency}"
        cause = "; ".join(dict.fromkeys(causes)) or "how requests are built"
        return CnllmError(
            f"{found.changed:,} finished rows ({', '.join(found.examples)}, …) were asked differently. "
            f"What changed: {cause}{cost}. Nothing was sent",
            hint="--keep-old keeps their answers, --redo asks them again",
        )

    # ── rows ─────────────────────────────────────────────────────────────────

    def _rows_to_ask(self) -> Iterator[InputRow]:
        rows = self._pending_rows()
        return rows if self.settings.group_by is None else group_rows(rows, self.reader)

    def _pending_rows(self) -> Iterator[InputRow]:
        found = self.comparison
        for row in self.reader.rows():
            if row.number > found.scanned or row.number in found.to_send or row.number in found.doubled:
                yield row

    def estimate(self) -> Estimate:
        """Return what a run would take. Nothing is sent. A simulated run is counted as one of the model."""
        maker = self.maker
        if self.settings.simulate:
            maker.price = request_price(self.settings, maker.lane.model, is_estimate=True)
        jobs = (maker.make(row, 0) if number < SAMPLE else None for number, row in enumerate(self._pending_rows()))
        window = None if self.vendor is None else self.vendor.window
        found = estimate_run(jobs, self.lanes, maker.price, self.budget, window)
        return replace(found, messages=tuple(self._model_message()))

    def _files_message(self) -> list[str]:
        """Return a line on a concurrency that the files of the process did not allow."""
        wanted, most = self.settings.concurrency, self.most_at_once
        if wanted is None or most >= wanted:
            return []
        return [f"{most:,} requests at a time, not {wanted:,}: the process may open too few files (ulimit -n)"]

    def _model_message(self) -> list[str]:
        """Return a line on rows that name another model than the one that is asked."""
        model = self.lanes[0].model
        own = {
            *map(str, self.settings.models),
            *(name for lane in self.lanes for name in (lane.model.name, lane.model.id)),
        }
        others = sorted(self.maker.row_models - own)
        if not others:
            return []
        names = ", ".join(others[:3]) + (" …" if len(others) > 3 else "")
        return [
            f"some rows name another model ({names}): {model.name} is asked nevertheless, as a batch asks one model"
        ]

    async def _row_chunks(self, rows: Iterator[InputRow]) -> AsyncIterator[Sequence[InputRow]]:
        """Yield rows in groups, read in a thread: a pipe may keep it waiting."""
        loop = asyncio.get_running_loop()
        thread = ThreadPoolExecutor(1, thread_name_prefix="cnllm-read")
        try:
            while chunk := await loop.run_in_executor(thread, lambda: list(islice(rows, _CHUNK))):
                yield chunk
        finally:
            thread.shutdown(wait=False, cancel_futures=True)

    # ── the run ──────────────────────────────────────────────────────────────

    def interrupt(self) -> None:
        """Stop what runs now; the second time at once."""
        if self._running is not None:
            self._running.interrupt()

    async def run(self) -> BatchReport:
        """Ask what is left, and return the report."""
        tally, first_seq = Tally(time.monotonic()), self.state.last_seq() + 1
        watcher = asyncio.create_task(self._watch(tally))
        try:
            if self.vendor is not None:
                self._running = self.vendor
                await self.vendor.run(self._row_chunks(self._rows_to_ask()), tally)
            runner = await self._run_single(tally, first_seq)
        finally:
            watcher.cancel()
            await asyncio.gather(watcher, *(lane.client.aclose() for lane in self.lanes), return_exceptions=True)
        messages = finish_files(self.output, self.state, order=self.settings.order)
        plot = self._draw(tally, messages) if self.settings.plot and tally.answers else None
        return self._report(tally, runner, messages, plot)

    def _leftover_rows(self, vendor: VendorPhase) -> Iterator[InputRow]:
        """Yield the rows that the vendor left for single calls."""
        if vendor.stopped is None and vendor.leftover.count:
            yield from (row for row in self.reader.rows() if row.number in vendor.leftover)

    async def _run_single(self, tally: Tally, first_seq: int) -> Runner:
        """Ask the rows that are left one by one. The rows of this run begin with `first_seq`."""
        settings, found, vendor = self.settings, self.comparison, self.vendor
        rows = self._rows_to_ask() if vendor is None else self._leftover_rows(vendor)
        journal = Journal(self.output, self.state, self._facts, first_seq)
        loop_options = None if settings.max_steps is None else self.loop_options
        self._running = runner = Runner(
            self,
            journal,
            tally,
            Sender(settings.attempts, self.price, loop_options),
            lambda number: number <= found.scanned or (vendor is not None and number in vendor.retake),
        )
        counter = asyncio.create_task(self._count())
        try:
            await runner.run(self._row_chunks(rows))
        finally:
            counter.cancel()
            await asyncio.gather(counter, return_exceptions=True)
            journal.close()
        return runner

    def _facts(self) -> dict[str, Any]:
        """Return what the state keeps of the run beside its rows: the money, and the input that the endpoint adds."""
        facts = self.budget.facts()
        if self.price.added is not None:
            facts["added_input"] = {self._learned_at: self.price.added}
        return facts

    def _count_unpriced(self) -> int:
        """Return how many requests of earlier runs have a cost that nobody knows."""
        count = self.state.fact("unpriced")
        if count is None:  # the state is new, or that of another version
            (count,) = self.state.execute("SELECT count(*) FROM rows WHERE state != ? AND cost IS NULL", SENT)[0]
        return int(count)

    def _draw(self, tally: Tally, messages: list[str]) -> str | None:
        """Write the plot, and return its path; None where it cannot be written."""
        path = plot_path(self.settings.out)
        try:
            require_ours(path, is_plot)
            files.replace_file(path, draw_plot(tally.intervals, tally.width).encode(), durable=False)
        except OSError as error:
            messages.append(f"{path}: {error.strerror}")
            return None
        return str(path)

    async def _watch(self, tally: Tally) -> None:
        on_progress = self.settings.on_progress
        if on_progress is None:
            return
        while True:
            on_progress(self._progress(tally, time.monotonic()))
            await asyncio.sleep(_PROGRESS_SECONDS)

    async def _count(self) -> None:
        """Count the rows of the input, where that is quick, for the time that is left."""
        self.total = await asyncio.get_running_loop().run_in_executor(None, self.reader.count)

    def _progress(self, tally: Tally, now: float) -> Progress:
        """Return where a run is."""
        budget, total, before = self.budget, self.total, self.comparison.done + self.comparison.failed
        rate, tokens = tally.rate(now)
        finished = tally.done + tally.failed
        rest = None if total is None else max(0, total - before - finished)
        projected = None
        if rest is not None and finished and budget.currency is not None:
            projected = amount_of(budget.spent_units + budget.run_spent * rest // finished)
        controllers = [lane.controller for lane in self.lanes if lane.closed is None]
        starts = [controller.waiting_since for controller in controllers]
        waits = [now - start for start in starts if start is not None]
        vendor = None if self.vendor is None else self.vendor.progress
        return Progress(
            done=tally.done,
            failed=tally.failed,
            before=before,
            seconds=now - tally.start,
            rate=rate,
            tokens=tokens,
            in_flight=sum(lane.controller.in_flight for lane in self.lanes),
            refused=tally.refused,
            cost=amount_of(budget.spent_units) if budget.currency is not None else None,
            currency=budget.currency,
            waiting=min(waits) if waits and len(waits) == len(starts) else None,
            pause=min((controller.pause(now) for controller in controllers), default=0.0),
            total=total,
            left=rest / rate if rest is not None and rate > 0 else None,
            projected=projected,
            vendor=vendor if vendor is not None and (vendor.jobs or vendor.waiting) else None,
        )

    def _whole_cap(self, tally: Tally, counts: Mapping[int, int]) -> str | None:
        """Return a sentence with the cap that all rows need; None where nothing shows it."""
        total, budget = self.reader.count() if self.total is None else self.total, self.budget
        if total is None or not budget.run_spent or not tally.done:
            return None
        rest, average = total - sum(counts.values()), round(_ROOM * budget.run_spent / tally.done)
        if rest < 2:
            return None
        needed = format_units(budget.spent_units + (rest - 1) * average + max(budget.wanted, average))
        return f"at the average so far, the {rest:,} rows that are left need a cap of about {needed} {budget.currency}"

    def _report(self, tally: Tally, runner: Runner, messages: Sequence[str], plot: str | None) -> BatchReport:
        counts = self.state.counts()
        by_vendor = None if self.vendor is None else self.vendor.stopped
        kind, reason = by_vendor or runner.stopped or ("ended", "")
        stopped = None if kind == "ended" else reason
        if kind == "cap" and (cap := self._whole_cap(tally, counts)) is not None:
            messages = [*messages, cap]
        failed, waiting = counts.get(FAILED, 0) + counts.get(RETRYABLE, 0), self.parts.waiting().count
        return make_report(
            str(self.settings.out),
            tally,
            self.budget,
            time.monotonic(),
            done=counts.get(DONE, 0),
            failed=failed,
            skipped=self.comparison.done + self.comparison.failed,
            unsure=self.comparison.maybe_sent,
            stopped=stopped or None,
            stop_kind=kind if stopped else None,
            messages=(
                *(self.vendor.messages if self.vendor is not None else ()),
                *runner.messages,
                *messages,
                *self._files_message(),
                *self._model_message(),
            ),
            simulated=self.settings.simulate,
            by_vendor=self.vendor.answered if self.vendor is not None else 0,
            waiting=waiting,
            unanswered=counts.get(SENT, 0) - waiting,
            plot=plot,
        )
