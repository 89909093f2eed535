"""Share the limits of endpoints and the caps of runs among workers: reports come in, permissions go out.

A permission is for one request, and has its worst case reserved. Permissions are given in groups. Those of a worker
that is silent for too long are taken back: the requests count as paid at their worst case, since nobody knows. If the
worker reports them after all, the amount is corrected.

What is spent or reserved is on the disk before a permission leaves. An allowance that starts again counts all of it as
spent, and corrects that when workers report.
"""

from __future__ import annotations

import itertools
import tempfile
import time
from collections.abc import Iterable, Sequence
from hashlib import blake2b
from pathlib import Path

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from cnllm.batch.budget import RunBudget
from cnllm.batch.controller import Controller, Kind, Ticket
from cnllm.batch.database import AnswerFile

__all__ = [
    "LEASE",
    "Allowance",
    "Done",
    "EndpointLimits",
    "Hello",
    "Need",
    "Permissions",
    "RunLedger",
    "WorkerReport",
    "decode_grant",
    "decode_report",
    "encode",
]


LEASE = 15.0
"""Seconds without a report after which the permissions of a worker are taken back."""
_HUNGRY = 1.0  # seconds for which a worker counts among those that share an endpoint
_POLL = 0.02  # seconds until a worker asks again where an answer of another one must come first

Answer = tuple[bytes, str | None, bytes]
"""A key, the worker that alone knows the answer or None, and the answer as JSON."""
_TABLES = (
    "CREATE TABLE IF NOT EXISTS answers (key BLOB NOT NULL, owner TEXT, reply BLOB NOT NULL) STRICT",
    "CREATE INDEX IF NOT EXISTS answers_by_key ON answers (key)",
    "CREATE INDEX IF NOT EXISTS answers_by_owner ON answers (owner) WHERE owner IS NOT NULL",
    "CREATE TABLE IF NOT EXISTS spent (currency TEXT PRIMARY KEY, units INTEGER NOT NULL) STRICT",
    "CREATE TABLE IF NOT EXISTS added (endpoint TEXT PRIMARY KEY, tokens INTEGER NOT NULL) STRICT",
)


# ── messages ─────────────────────────────────────────────────────────────────


class EndpointLimits(Struct, frozen=True, array_like=True):
    """The limits of an endpoint that are known or set: a fixed concurrency, and a minute's requests and tokens.
    Workers with the same values share them."""

    name: str
    concurrency: int | None
    requests: float | None
    tokens: float | None


class Hello(Struct, frozen=True, array_like=True):
    """A worker's introduction.

    `place` stays when its process is started again; `committed` is the last amount that the worker heard of.
    """

    place: str
    endpoint: EndpointLimits
    run: str
    state: str | None
    currency: str | None
    cap: int | None
    committed: int = 0


class Done(Struct, frozen=True, array_like=True):
    """The end of a request, and after how many seconds it came. `cost` None is unknown.

    `key` and `reply` are those of an answer that is to be kept; `owned`: another worker may have it only after the end
    of this one.
    """

    ticket: int
    kind: Kind
    reserved: int | None
    cost: int | None
    tokens: float | None = None
    retry_after: float | None = None
    key: bytes | None = None
    reply: bytes | None = None
    owned: bool = False
    seconds: float | None = None


class Need(Struct, frozen=True, array_like=True):
    """A row that waits: the tokens that it counts for, and the most that it can cost."""

    tokens: float
    reserved: int | None


class WorkerReport(Struct, frozen=True, array_like=True):
    """The news and the needs of a worker.

    `observed` has requests and tokens a minute and a pause, as an endpoint told them. `added` is the most input that
    the endpoint has added to a request; None before one was answered.
    """

    worker: str
    finished: list[Done]
    needs: list[Need]
    observed: tuple[float | None, float | None, float | None] | None = None
    hello: Hello | None = None
    added: int | None = None


class Permissions(Struct, frozen=True, array_like=True):
    """The permissions for the first of the needs. `wait`: seconds after which to ask for more.

    `known` is False where the worker has to say hello. `stop` says why no more is sent. `committed` is what was spent
    in this run and what requests on their way may cost. `added` is the highest one that any worker has reported.
    """

    known: bool
    tickets: list[int] = []
    wait: float | None = None
    stop: str | None = None
    committed: int = 0
    added: int | None = None


# ── the allowance ────────────────────────────────────────────────────────────


class _SharedRun:
    """The money of a run, and its ledger."""

    def __init__(self, now: float, hello: Hello, ledger: RunLedger) -> None:
        self.ledger = ledger
        spent = ledger.spent()
        if hello.currency is not None:
            spent[hello.currency] = max(spent.get(hello.currency, 0), hello.committed)
        self.budget = RunBudget(spent, hello.currency, hello.cap)
        self.stop: str | None = None
        # What an allowance before this one had reserved counts as spent until its workers report.
        self.uncertain_until = now + LEASE if self.budget.spent_units else now
        self.written = -1
        self.added = ledger.added()  # the most input that endpoints have added to a request, in tokens

    def learn(self, endpoint: str, added: int | None) -> int | None:
        """Take in how much input an endpoint has added to a request, and return the highest number."""
        if added is not None and added > self.added.get(endpoint, -1):
            self.added[endpoint] = added
            self.ledger.put_added(endpoint, added)
        return self.added.get(endpoint)

    def committed(self) -> int:
        return self.budget.spent_units + self.budget.reserved

    def commit(self, answers: list[Answer]) -> None:
        if answers or self.committed() != self.written:
            self.ledger.commit(answers, self.budget.currency, self.committed())
            self.written = self.committed()


class _Sharer(Struct, eq=False):
    hello: Hello
    controller: Controller
    run: _SharedRun
    seen: float = 0.0
    hungry_at: float = -_HUNGRY
    is_stale: bool = False  # its worst cases do not know yet how much input the endpoint adds
    tickets: dict[int, tuple[Ticket, int | None]] = {}


class Allowance:
    """The limits and the money of all workers. Pure except for the ledgers; time is an argument.

    `place` keeps the ledgers of runs without a `state` apart from those of an allowance elsewhere.
    """

    def __init__(self, place: str = "") -> None:
        self._place = place
        self._controllers: dict[object, Controller] = {}
        self._runs: dict[tuple[Path, str | None], _SharedRun] = {}
        self._ledgers: dict[Path, RunLedger] = {}
        self._temporary: set[Path] = set()
        self._workers: dict[str, _Sharer] = {}
        self._numbers = itertools.count(time.time_ns())  # no number of an allowance before this one
        self.last_report = 0.0

    def exchange(self, now: float, report: WorkerReport) -> Permissions:
        """Take in a report, and return permissions. Raises `CnllmError` where the ledger cannot be written."""
        self.last_report = now
        if report.hello is not None:
            self._greet(now, report.worker, report.hello)
        worker = self._workers.get(report.worker)
        if worker is None:
            return Permissions(known=False)
        worker.seen = now
        added = worker.run.learn(worker.hello.endpoint.name, report.added)
        worker.is_stale = report.added is None and added is not None
        self._end_silent(now)
        if report.observed is not None:
            requests, tokens, pause = report.observed
            worker.controller.observe(now, requests=requests, tokens=tokens, pause=pause)
        worker.hungry_at = now if report.needs else -_HUNGRY
        answers: list[Answer] = []
        tickets: list[int] = []
        for done in report.finished:
            if (answer := self._finish(now, report.worker, worker, done)) is not None:
                answers.append(answer)
            # At once, as if each answer had come alone: the concurrency grows only while it is used.
            self._grant(now, worker, report.needs, tickets)
        wait = self._grant(now, worker, report.needs, tickets)
        worker.run.commit(answers)
        stop = worker.run.stop if report.needs and not tickets else None
        return Permissions(
            known=True, tickets=tickets, wait=wait, stop=stop, committed=worker.run.committed(), added=added
        )

    def find(self, name: str, keys: list[tuple[bytes, bool]]) -> list[bytes | None]:
        """Return answers that are there already: the row is not asked again."""
        worker = self._workers.get(name)
        return [None] * len(keys) if worker is None else worker.run.ledger.find(keys, name)

    def has_workers(self, now: float) -> bool:
        """Whether a worker is there. Takes back the permissions of those that are silent."""
        self._end_silent(now)
        return bool(self._workers)

    def close(self) -> None:
        """Close the ledgers, and remove those that no later run may need."""
        for path, ledger in self._ledgers.items():
            if path in self._temporary:
                ledger.remove()
            else:
                ledger.close()

    # ── workers ──────────────────────────────────────────────────────────────

    def _greet(self, now: float, name: str, hello: Hello) -> None:
        if name in self._workers:
            return
        for other, worker in [*self._workers.items()]:
            if worker.hello.place == hello.place:  # its process was started again
                self._end(other, worker)
        limits = hello.endpoint
        if limits not in self._controllers:
            self._controllers[limits] = Controller(
                concurrency=limits.concurrency, requests=limits.requests, tokens=limits.tokens
            )
        self._workers[name] = _Sharer(hello, self._controllers[limits], self._run_of(now, hello))

    def _run_of(self, now: float, hello: Hello) -> _SharedRun:
        path = _temporary_path(hello.run + self._place) if hello.state is None else Path(hello.state).absolute()
        if path not in self._ledgers:
            self._ledgers[path] = RunLedger(path)
            if hello.state is None:
                self._temporary.add(path)
        run = self._runs.get((path, hello.currency))
        if run is None:
            run = self._runs[path, hello.currency] = _SharedRun(now, hello, self._ledgers[path])
        elif hello.cap != run.budget.cap:
            run.budget.cap, run.stop = hello.cap, None
        return run

    def _end_silent(self, now: float) -> None:
        for name, worker in [*self._workers.items()]:
            if now - worker.seen > LEASE and worker.seen:
                self._end(name, worker)

    def _end(self, name: str, worker: _Sharer) -> None:
        """Take back the permissions of a worker, and let others have its answers."""
        del self._workers[name]
        for ticket, reserved in worker.tickets.values():
            worker.controller.fail(worker.seen, ticket)
            worker.run.budget.settle(reserved, None)
        worker.run.ledger.release(name)

    # ── requests ─────────────────────────────────────────────────────────────

    def _finish(self, now: float, name: str, worker: _Sharer, done: Done) -> Answer | None:
        """Take in what became of a request, and return the answer that is to be kept."""
        entry = worker.tickets.pop(done.ticket, None)
        controller, budget = worker.controller, worker.run.budget
        if entry is None:  # taken back, or given by an allowance before this one: its worst case counts as spent
            if done.cost is not None and done.reserved is not None and budget.currency is not None:
                spent = budget.spent.get(budget.currency, 0)
                budget.spent[budget.currency] = max(0, spent + done.cost - done.reserved)
        else:
            ticket, reserved = entry
            budget.settle(reserved, done.cost)
            if done.kind == "accepted" and done.seconds is not None:
                # The way of permissions and reports is no part of what the endpoint takes.
                ticket = replace(ticket, sent=max(ticket.sent, now - done.seconds))
            controller.end(now, ticket, done.kind, done.tokens, done.retry_after)
        if done.key is None or done.reply is None:
            return None
        return done.key, name if done.owned else None, done.reply

    def _grant(self, now: float, worker: _Sharer, needs: Sequence[Need], tickets: list[int]) -> float | None:
        """Add permissions for the next rows that are needs. Return when to ask again."""
        run, controller = worker.run, worker.controller
        for row in needs[len(tickets) :]:
            if run.stop is not None:
                return None
            if len(worker.tickets) >= self._share(now, worker):
                return _POLL
            wait = controller.wait(now)
            if wait is None or wait > 0:
                return _POLL if wait is None else wait
            if not run.budget.has_room(row.reserved):
                has_more = run.budget.reserved or now < run.uncertain_until or worker.is_stale
                if row.reserved is not None and has_more:
                    return _POLL
                run.stop = run.budget.refusal(row.reserved)
                return None
            number = next(self._numbers)
            run.budget.reserve(row.reserved)
            worker.tickets[number] = controller.send(now, row.tokens), row.reserved
            tickets.append(number)
        return 0.0 if needs else None

    def _share(self, now: float, worker: _Sharer) -> int:
        """Return how many requests a worker may have on their way where others want to send, too."""
        others = [
            other
            for other in self._workers.values()
            if other.controller is worker.controller and other is not worker and now - other.hungry_at < _HUNGRY
        ]
        limit = max(1, int(worker.controller.limit))
        return limit if not others else max(1, -(-limit // (len(others) + 1)))


def _temporary_path(run: str) -> Path:
    """Return the path of a run's ledger that has no path of its own."""
    name = blake2b(run.encode(), digest_size=8).hexdigest()
    return Path(tempfile.gettempdir()) / f"cnllm-ray-{name}" / "ledger.sqlite"


class RunLedger(AnswerFile):
    """The money spent in a run, and the answers of its finished rows, in an SQLite file.

    Its exclusive mode is the lock of the one process that may have the file open. A commit survives its end.
    Raises `CnllmError` for a file that cannot be used.
    """

    def __init__(self, path: Path) -> None:
        super().__init__(path, _TABLES, "name another file: state=…", "state=… names a file", is_exclusive=True)
        self.execute("UPDATE answers SET owner = NULL")  # no worker of an earlier run goes on

    def spent(self) -> dict[str, int]:
        """Return what was spent, and what requests that were on their way may have cost, in units by currency."""
        return dict(self.execute("SELECT currency, units FROM spent"))

    def commit(self, answers: Iterable[Answer], currency: str | None, units: int) -> None:
        """Write answers, and the amount that is spent or reserved."""
        with self.writing() as connection:
            connection.executemany("INSERT INTO answers VALUES (?, ?, ?)", answers)
            if currency is not None:
                connection.execute("INSERT OR REPLACE INTO spent VALUES (?, ?)", (currency, units))

    def added(self) -> dict[str, int]:
        """Return the most input that endpoints have added to a request, in tokens."""
        return dict(self.execute("SELECT endpoint, tokens FROM added"))

    def put_added(self, endpoint: str, tokens: int) -> None:
        """Write the most input that an endpoint has added to a request."""
        self.execute("INSERT OR REPLACE INTO added VALUES (?, ?)", endpoint, tokens)

    def find(self, keys: Sequence[tuple[bytes, bool]], worker: str) -> list[bytes | None]:
        """Return the answer of each key that may be used again. One that is `owned` then belongs to the worker."""
        found = []
        for key, owned in keys:
            rows = self.execute("SELECT rowid, reply FROM answers WHERE key = ? AND owner IS NULL LIMIT 1", key)
            if rows and owned:
                self.execute("UPDATE answers SET owner = ? WHERE rowid = ?", worker, rows[0][0])
            found.append(bytes(rows[0][1]) if rows else None)
        return found

    def release(self, worker: str) -> None:
        """Let others have the answers of a worker that ended."""
        self.execute("UPDATE answers SET owner = NULL WHERE owner = ?", worker)

    def remove(self) -> None:
        """Close the file, and remove it: it served one run only."""
        self.close()
        for suffix in ("", "-wal", "-shm"):
            Path(f"{self.path}{suffix}").unlink(missing_ok=True)  # ours: a temporary file


encode = msgspec.msgpack.Encoder().encode
decode_report = msgspec.msgpack.Decoder(WorkerReport).decode
decode_grant = msgspec.msgpack.Decoder(Permissions).decode
