"""The part of a run that a vendor's batch interface does: set up, run, and what it leaves for single calls."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Sequence
from typing import TYPE_CHECKING, Protocol

from msgspec.structs import replace

from cnllm.batch.comparison import Bits
from cnllm.batch.jobs import JobMaker
from cnllm.batch.lane import Lane
from cnllm.batch.pricing import RequestPrice, request_price
from cnllm.batch.rows import Row
from cnllm.batch.tally import Tally
from cnllm.batch.vendor.collection import Collector
from cnllm.batch.vendor.discount import discounted_model, discounted_price
from cnllm.batch.vendor.exchange import Interrupted, VendorConnection
from cnllm.batch.vendor.interface import require_interface
from cnllm.batch.vendor.outbox import Outbox
from cnllm.batch.vendor.packing import Packer
from cnllm.batch.vendor.progress import VendorProgress
from cnllm.batch.vendor.run import VendorRun
from cnllm.batch.vendor.submission import Submission
from cnllm.client.credentials import key_for
from cnllm.errors import CnllmError

if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

    from cnllm.batch.answer_cache import AnswerCache
    from cnllm.batch.budget import Budget
    from cnllm.batch.comparison import Comparison
    from cnllm.batch.output import Output
    from cnllm.batch.readers import Reader
    from cnllm.batch.settings import BatchSettings
    from cnllm.batch.state import State
    from cnllm.batch.vendor.parts import Parts
    from cnllm.engine.encode.plan import Plan
    from cnllm.registry import Registry

__all__ = ["VendorPhase"]

_NO_KEY = "sk-no-key-is-needed-here"
_NAMES = {
    "expired": "were not served in time by the vendor",
    "missing": "were missing in the vendor's results",
    "invalid": "had an answer that does not follow the schema",
    "cut": "had a reply that is not whole",
    "skipped": "were missing in the vendor's results, and were not asked again",
    "cancelled": "were in a job that was cancelled",
}


class SessionParts(Protocol):
    """The parts of a session that this phase uses."""

    settings: BatchSettings
    registry: Registry
    reader: Reader
    cache: AnswerCache | None
    state: State
    output: Output
    lanes: list[Lane]
    parts: Parts
    budget: Budget
    number: int
    comparison: Comparison


class VendorPhase:
    """The part of a session that a vendor does. `leftover` are the lines for single calls. Raises `NoBatchInterface`.

    `retake` are those among them that the state knows, because they were in a job.
    """

    def __init__(self, session: SessionParts, probe: str, options: Mapping[str, Any]) -> None:
        settings, lane = session.settings, session.lanes[0]
        _check_settings(settings)
        self._session = session
        self._batch = require_interface(lane.model, session.registry)
        model = discounted_model(lane.model)
        self.lane = Lane(lane.name, model, lane.client, lane.controller)
        self._probe: Plan = self.lane.prepare(probe, options).plan
        if self._probe.stream:
            raise CnllmError(f"--vendor-batch: {model.name} only streams", hint="leave --vendor-batch out")
        factor = self._batch.price_factor
        if settings.assume_price is not None and factor is not None:
            settings = replace(settings, assume_price=discounted_price(settings.assume_price, factor))
        self.price: RequestPrice = request_price(settings, model)
        self.jobs = JobMaker(session.reader, self.lane, options, self.price, session.cache)
        self.leftover = Bits()
        self._stopping = asyncio.Event()
        self._run: VendorRun | None = None
        self._task: asyncio.Task[None] | None = None
        self.retake = Bits()
        self.messages: list[str] = []
        self.answered = 0

    @property
    def window(self) -> float | None:
        """Return the hours after which the vendor gives a job up; None where they are not known."""
        return self._batch.window

    @property
    def probe_cost(self) -> int:
        """Return the most that a request of the run can cost in the vendor's batch, in units."""
        return self.price.cost_of(self._probe) or 0

    @property
    def stopped(self) -> tuple[str, str] | None:
        """Return the kind of the reason why the phase ended early, and the reason; None where it did not."""
        return None if self._run is None else self._run.stopped

    @property
    def progress(self) -> VendorProgress | None:
        """Return where the vendor is; None before and after."""
        return None if self._run is None else self._run.progress

    def interrupt(self) -> None:
        """Submit nothing more, and poll no longer. The second time, wait for no answer either."""
        if self._stopping.is_set() and self._task is not None:
            self._task.cancel()
        self._stopping.set()

    async def run(self, chunks: AsyncIterator[Sequence[Row]], tally: Tally) -> None:
        """Submit, poll and fetch, until nothing is left that the vendor can do."""
        session, settings = self._session, self._session.settings
        exchange = self._connect()
        comparison = session.comparison
        session.reader.keep()
        collector = Collector(
            reader=session.reader,
            make_job=self.jobs.make,
            output=session.output,
            state=session.state,
            parts=session.parts,
            budget=session.budget,
            price=self.price,
            tally=tally,
            clock=time.monotonic,
            unsure=settings.unsure,
            leftover=self.leftover,
            retake=self.retake,
        )
        probe = self._probe
        outbox = Outbox(
            model=f"{probe.model.name} over {probe.model.protocol}",
            setting=session.number,
            first_seq=session.state.last_seq() + 1,
            parts=session.parts,
            packer=Packer(self._batch, session.number),
            submission=Submission(self._batch, probe, exchange, session.parts, settings.out, self._sleep),
            budget=session.budget,
            make_job=self.jobs.make,
            must_retake=lambda number: number <= comparison.scanned,
            ask_again=comparison.ask.add,
            unsure=settings.unsure,
            leftover=self.leftover,
            stopping=self._stopping,
        )
        self._run = run = VendorRun(
            batch=self._batch,
            probe=probe,
            exchange=exchange,
            parts=session.parts,
            outbox=outbox,
            collector=collector,
            out=settings.out,
            stopping=self._stopping,
            sleep=self._sleep,
        )
        self._task = asyncio.create_task(run.run(chunks))
        try:
            await asyncio.wait([self._task])
            if self._task.cancelled():
                run.stop_now()
            else:
                self._task.result()
        finally:
            self._task.cancel()
            tally.requests += exchange.requests
            self.answered = collector.collection.finished
            self.messages = [*outbox.messages, *_returned(collector.collection.returned)]
            if changed := collector.collection.changed:
                self.messages.append(
                    f"{changed:,} answers are to requests that were submitted with other options; the next run says how"
                )
            await exchange.close()

    def _connect(self) -> VendorConnection:
        """Return the connection to the interface, or to one that is simulated in memory."""
        settings, registry = self._session.settings, self._session.registry
        if settings.simulate:
            from cnllm.simulator.transport import AsyncSimTransport

            return VendorConnection(AsyncSimTransport(registry), _NO_KEY, self._sleep)
        key = settings.api_keys[0] if settings.api_keys else None
        key = key_for(self._probe, registry) if key is None else key
        return VendorConnection(settings.transport, key, self._sleep)

    async def _sleep(self, seconds: float) -> None:
        """Wait. Raises `Interrupted` where the run is stopped."""
        try:
            async with asyncio.timeout(seconds):
                await self._stopping.wait()
        except TimeoutError:
            return
        raise Interrupted


def _returned(counts: Mapping[str, int]) -> list[str]:
    """Say why rows came back from the vendor without an answer."""
    return [
        f"{count:,} rows {_NAMES.get(reason, f'failed at the vendor with {reason}')}"
        for reason, count in sorted(counts.items())
    ]


def _check_settings(settings: BatchSettings) -> None:
    """Raise `CnllmError` for settings that a vendor's batch cannot follow."""
    if len(settings.models) > 1:
        raise CnllmError("--vendor-batch takes one model", hint="name one -m")
    if settings.max_steps is not None:
        raise CnllmError("--vendor-batch: a job at a vendor cannot run tools", hint="leave --vendor-batch out")
