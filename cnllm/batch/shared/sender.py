"""Send the rows of one process: an event loop in a thread, hundreds of requests, permissions in groups."""

from __future__ import annotations

import asyncio
import contextlib
import os
import threading
from collections import deque
from collections.abc import Sequence
from hashlib import blake2b
from typing import Any, Protocol
from uuid import uuid4

import msgspec

from cnllm.batch.controller import Controller
from cnllm.batch.jobs import RowRequest
from cnllm.batch.lanes import HeaderLimits, Lane, open_client
from cnllm.batch.output import LineError, Outcome, fault_outcome
from cnllm.batch.pricing import request_price
from cnllm.batch.readers.tables import columns_content
from cnllm.batch.rows import PromptTemplate, RowFault, id_digest
from cnllm.batch.sender import AttemptResult, Sender
from cnllm.batch.shared.allowance import Done, EndpointLimits, Hello, Need, Permissions, WorkerReport
from cnllm.batch.shared.settings import ModelSettings
from cnllm.batch.state import DONE, FAILED
from cnllm.config.keys import find_key
from cnllm.errors import CnllmError, KeyMissing
from cnllm.estimates.money import units_of
from cnllm.registry.flags import Rates
from cnllm.system import processes
from cnllm.types import Usage

__all__ = ["ADDED", "COUNTS", "Asker", "Link", "LinkLost", "PendingRow", "result_of"]


Result = dict[str, Any]
_GROUP = 0.005  # seconds in which what happens is told together
_HEARTBEAT = 2.0
_MOST_NEEDS = 256
_SHORTEST_WAIT = 0.002
_AGAIN = 0.2  # seconds after which a lost allowance is tried again
ADDED = ("text", "reasoning", "finish", "usage", "cost", "error")
"""The columns of a row's result."""
COUNTS = Usage.__struct_fields__
"""The counts of its usage."""
CAP = "CostCap"
"""The type of the error of a row that was not sent because of the cap."""


class LinkLost(Exception):
    """The allowance was lost in the middle of an exchange. Another one takes its place."""


class Link(Protocol):
    """A way to the allowance."""

    async def exchange(self, report: WorkerReport) -> Permissions:
        """Send a report and return what is granted. Raises `LinkLost`."""

    async def find(self, worker: str, keys: Sequence[tuple[bytes, bool]]) -> list[bytes | None]:
        """Return the answers that are there already. Raises `LinkLost`."""


class PendingRow(RowRequest, eq=False):
    """A row that is to be asked. `key` names its answer; `owned`: it has no id, so that equal rows share the key."""

    key: bytes = b""
    owned: bool = False
    future: asyncio.Future[Result] | None = None


class Asker:
    """The client of one process. Raises `KeyMissing` or `Untrusted` where it has no key to send.

    `place` is what stays when its process is started again, and `link` the way to the allowance. `ask` may be called in
    any thread; all else happens in the thread of its event loop.
    """

    def __init__(self, settings: ModelSettings, place: str, link: Link) -> None:
        batch, registry = settings.batch, settings.registry()
        model = settings.model(registry)
        self._settings = settings
        self._template = None if batch.prompt is None else PromptTemplate(batch.prompt)
        columns = () if self._template is None else self._template.columns
        self.columns = ["id", settings.id_column, "prompt", "messages", *columns]
        self._price = request_price(batch, model)
        # a digest: a path may be longer than a key of a hash may be
        salt = blake2b(os.fsencode(settings.state or settings.run), digest_size=16).hexdigest()
        client = open_client(batch, registry, model, _key_of(settings), salt, self._observe)
        self._lane = Lane(model, client, Controller())
        url, rates = self._lane.prepare("Hello", batch.options).plan.url, model.flags.rates or Rates()
        endpoint = EndpointLimits(
            f"{model.name} {url.partition('?')[0]} {settings.key_env or ''}",
            batch.concurrency,
            batch.rpm or rates.requests,
            batch.tpm or rates.tokens,
        )
        cap = None if batch.max_cost is None else units_of(batch.max_cost)
        self._hello = Hello(place, endpoint, settings.run, settings.state, self._price.currency, cap)
        self._sender = Sender(batch.attempts, self._price)
        self._link = link
        self._name = uuid4().hex
        self._known = False
        self._waiting: deque[PendingRow] = deque()
        self._finished: list[Done] = []
        self._observed: tuple[float | None, float | None, float | None] | None = None
        self._failure: BaseException | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self._loop = (processes.loop_factory() or asyncio.new_event_loop)()
        self._wake = asyncio.Event()
        threading.Thread(target=self._run_loop, name="cnllm-ray", daemon=True).start()

    def row(self, columns: dict[str, Any]) -> PendingRow | dict[str, Any]:
        """Return a row to ask, or the columns of one that is no request."""
        name = self._settings.id_column
        if name in columns:
            columns = {**columns, "id": columns[name]}
        else:
            columns.pop("id", None)
        row = PendingRow()
        try:
            content = columns_content(columns, self._template)
        except RowFault as fault:
            return result_of(fault_outcome(str(fault)))
        batch = self._settings.batch
        wrong = row.prepare(self._lane, content.messages, {**batch.options, "tag": batch.tag})
        if wrong is not None:
            return result_of(fault_outcome(wrong))
        row.estimate(self._price)
        assert row.identity is not None
        row.key, row.owned = row.identity, content.id is None
        if content.id is not None:
            row.key = blake2b(id_digest(content.id) + row.identity, digest_size=16).digest()
        return row

    def _run_loop(self) -> None:
        asyncio.set_event_loop(self._loop)
        self._exchanges = self._loop.create_task(self._exchange_all())
        self._exchanges.add_done_callback(self._exchanges_ended)
        self._loop.run_forever()

    def _exchanges_ended(self, task: asyncio.Task[None]) -> None:
        if not task.cancelled() and (error := task.exception()) is not None:
            self._fail(error)

    async def ask(self, rows: Sequence[PendingRow]) -> list[Result]:
        """Ask rows, and return their results in the same order."""
        return await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(self._ask(rows), self._loop))

    def ask_and_wait(self, rows: Sequence[PendingRow]) -> list[Result]:
        """Ask rows, and return their results; this thread waits."""
        return asyncio.run_coroutine_threadsafe(self._ask(rows), self._loop).result()

    def _observe(self, limits: HeaderLimits) -> None:
        """Keep what an endpoint tells of its limits, for the next report."""
        if any(limits):
            self._observed = limits

    # ── rows ─────────────────────────────────────────────────────────────────

    async def _ask(self, rows: Sequence[PendingRow]) -> list[Result]:
        found = await self._find(rows)
        futures: list[asyncio.Future[Result]] = []
        for row, answer in zip(rows, found, strict=True):
            row.future = self._loop.create_future()
            futures.append(row.future)
            if answer is not None:
                row.future.set_result(msgspec.json.decode(answer))
            elif self._failure is not None:
                row.future.set_exception(self._failure)
            else:
                self._waiting.append(row)
        self._wake.set()
        try:
            return await asyncio.gather(*futures)
        finally:
            for future in futures:
                future.cancel()

    async def _find(self, rows: Sequence[PendingRow]) -> list[bytes | None]:
        """Return the answers of rows that were finished before, by a process that is gone or by an earlier run."""
        keys = [(row.key, row.owned) for row in rows]
        while True:
            try:
                if not self._known:
                    await self._report([])
                return await self._link.find(self._name, keys)
            except LinkLost:
                self._forget()
                await asyncio.sleep(_AGAIN)

    def _forget(self) -> None:
        """Take a new name, as another worker: permissions that were lost on their way must not stay reserved."""
        self._known = False
        self._name = uuid4().hex

    # ── permissions ──────────────────────────────────────────────────────────

    async def _exchange_all(self) -> None:
        """Report what is finished, and start what is permitted, again and again."""
        wait: float | None = None
        while True:
            seconds = _HEARTBEAT if wait is None else max(wait, _SHORTEST_WAIT)
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._wake.wait(), seconds)
            await asyncio.sleep(_GROUP)
            self._wake.clear()
            try:
                wait = await self._exchange()
            except LinkLost:
                wait = _AGAIN
            except CnllmError as error:
                self._fail(error)

    async def _exchange(self) -> float | None:
        """Send one report, and start what it permits. Return the seconds after which to send the next one."""
        finished, self._finished = self._finished, []
        needs = [self._waiting.popleft() for _ in range(min(len(self._waiting), _MOST_NEEDS))]
        try:
            grant = await self._report(finished, needs)
        except BaseException as error:
            self._waiting.extendleft(reversed(needs))
            if not isinstance(error, LinkLost):
                raise
            self._forget()
            # The lost allowance may have counted them: without amounts, the next one cannot count them twice.
            self._finished[:0] = [msgspec.structs.replace(done, reserved=None, cost=None) for done in finished]
            raise
        self._hello = msgspec.structs.replace(self._hello, committed=grant.committed)
        started = needs[: len(grant.tickets)]
        self._waiting.extendleft(reversed(needs[len(started) :]))
        for row, ticket in zip(started, grant.tickets, strict=True):
            task = self._loop.create_task(self._send(row, ticket))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)
        if grant.stop is not None:
            self._refuse_all(grant.stop)
        return grant.wait if self._waiting else None

    async def _report(self, finished: list[Done], needs: Sequence[PendingRow] = ()) -> Any:
        price = self._price
        for row in needs:
            row.estimate(price)  # an answer may have taught how much input the endpoint adds
        rows = [Need(row.tokens, row.reserved) for row in needs]
        observed, self._observed = self._observed, None
        hello = None if self._known else self._hello
        report = WorkerReport(self._name, finished, rows, observed, hello, price.added)
        grant = await self._link.exchange(report)
        if not grant.known:  # it was silent for too long
            grant = await self._link.exchange(msgspec.structs.replace(report, hello=self._hello))
        self._known = True
        price.learn_added(grant.added)
        return grant

    def _refuse_all(self, reason: str) -> None:
        """Finish all rows that wait without sending them."""
        while self._waiting:
            outcome = Outcome(FAILED, None, LineError(CAP, f"not sent: {reason}", retryable=True))
            self._settle(self._waiting.popleft(), result_of(outcome))

    def _fail(self, error: BaseException) -> None:
        """End everything with an error that no row has caused."""
        self._failure = error
        while self._waiting:
            self._settle(self._waiting.popleft(), error)

    def _settle(self, row: PendingRow, result: Result | BaseException) -> None:
        if row.future is not None and not row.future.done():
            if isinstance(result, BaseException):
                row.future.set_exception(result)
            else:
                row.future.set_result(result)

    # ── requests ─────────────────────────────────────────────────────────────

    async def _send(self, row: PendingRow, ticket: int) -> None:
        try:
            attempt = await self._sender.send(row, self._lane)
        except BaseException as error:
            self._tell(Done(ticket, "failed", row.reserved, None))  # it may have been paid
            self._fail(error)
            self._settle(row, error)
            raise
        self._tell(_done(row, ticket, attempt))
        if attempt.next in ("wait", "retry") and self._failure is not None:
            self._settle(row, self._failure)
        elif attempt.next == "wait":
            self._waiting.appendleft(row)
        elif attempt.next == "retry":
            self._waiting.append(row)
        elif attempt.next == "close":
            assert attempt.error is not None
            self._waiting.appendleft(row)
            self._fail(attempt.error)
        else:
            self._settle(row, result_of(attempt.outcome))

    def _tell(self, done: Done) -> None:
        self._finished.append(done)
        self._wake.set()


# ── results ──────────────────────────────────────────────────────────────────


def _done(row: PendingRow, ticket: int, attempt: AttemptResult) -> Done:
    """Return what became of a row, and its answer, for the next report."""
    is_answered = attempt.outcome.state == DONE
    return Done(
        ticket,
        attempt.kind,
        row.reserved,
        attempt.cost,
        attempt.tokens,
        attempt.retry_after,
        key=row.key if is_answered else None,
        reply=msgspec.json.encode(result_of(attempt.outcome)) if is_answered else None,
        owned=is_answered and row.owned,
        seconds=attempt.seconds,
    )


def result_of(outcome: Outcome) -> dict[str, Any]:
    """Return the result of an outcome, as JSON can hold it."""
    reply = outcome.reply
    result: dict[str, Any] = dict.fromkeys(ADDED)
    result["error"] = None if outcome.error is None else msgspec.structs.asdict(outcome.error)
    if reply is not None:
        usage = reply.usage
        result |= {"text": reply.text, "reasoning": reply.reasoning, "finish": reply.finish}
        result["usage"] = {name: getattr(usage, name) for name in COUNTS}
        if reply.cost is not None:
            result["cost"] = {name: getattr(reply.cost, name) for name in ("amount", "currency", "complete", "at_most")}
    return result


def _key_of(settings: ModelSettings) -> str | None:
    """Return the key in the variable that the settings name; None where they name none."""
    if settings.key_env is None or settings.batch.simulate:
        return None
    key = find_key([settings.key_env])
    if key is None:
        hint = f"export {settings.key_env}=… before `ray start`, or `cnllm keys set {settings.key_env}` there"
        raise KeyMissing(f"{settings.key_env} holds no key", env=[settings.key_env], hint=hint)
    return key
