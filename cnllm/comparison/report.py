"""Compare hosts of one model, and write and replay the report: all that is needed to compute every figure again."""

from __future__ import annotations

import base64
import datetime
from collections.abc import Mapping, Sequence

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from cnllm._version import VERSION
from cnllm.comparison.figures import ComparisonData, Verdict, find_verdicts, sum_up
from cnllm.comparison.page import render_drawing, render_page
from cnllm.comparison.run import (
    Ask,
    Budget,
    ComparisonResult,
    Host,
    HostEntry,
    LiveExchanges,
    OnResult,
    TaskChoice,
    TaskExchange,
    open_host,
    request_hash,
    run_task,
)
from cnllm.comparison.tasks import ComparisonTask
from cnllm.config.signatures import is_signed, public_bytes, read_signing_key
from cnllm.engine import Plan
from cnllm.errors import CnllmError
from cnllm.estimates.statistics import looks
from cnllm.registry import Registry
from cnllm.registry.model import Model
from cnllm.tool_trial.trial import AllowanceSpent
from cnllm.types.checks import plural

__all__ = ["INTERRUPTED", "Comparison", "ask_hosts", "read_report", "replay"]

_FORM = "cnllm-comparison-1"
INTERRUPTED = "stopped by Ctrl-C"
ALPHA = 0.01
"""The probability of a false verdict among all those of a comparison, whatever their number."""


class ReportSignature(Struct, frozen=True):
    """The signature of a report: the public key, and what that key signed its JSON without a signature with."""

    key: str
    value: str


class Comparison(ComparisonData, frozen=True):
    """A report. `problems` names every task that did not end right, by host.

    `cnllm`, `registry` and `started` say with what and when it was made.
    """

    signature: ReportSignature | None = None

    def to_json(self) -> bytes:
        """Return the report as JSON, with a line break at its end."""
        return msgspec.json.format(msgspec.json.encode(self), indent=1) + b"\n"

    def to_html(self) -> str:
        """Return the report as one HTML page."""
        return render_page(self)

    def to_svg(self) -> str:
        """Return the main figures as one SVG drawing."""
        return render_drawing(self)

    def sign(self, pem: bytes) -> Comparison:
        """Return the report with the signature of an Ed25519 key in PEM form. Raise `CnllmError` for another key."""
        key = read_signing_key(pem, "the file")
        signature = key.sign(replace(self, signature=None).to_json())
        return replace(self, signature=ReportSignature(_base64(public_bytes(key)), _base64(signature)))

    def check_signature(self) -> None:
        """Raise `CnllmError` where a signed report is not the one that its key signed."""
        if self.signature is None:
            return
        try:
            key, value = (base64.b64decode(text, validate=True) for text in (self.signature.key, self.signature.value))
        except ValueError:
            key = value = b""
        if not is_signed(replace(self, signature=None).to_json(), value, key):
            raise CnllmError(
                f"the report is not what the key {self.signature.key} signed", hint="ask who made it for the original"
            )


def _base64(data: bytes) -> str:
    return base64.b64encode(data).decode()


def read_report(content: bytes) -> Comparison:
    """Read a report. Raise `CnllmError` for content that is none."""
    try:
        report = msgspec.json.decode(content, type=Comparison)
        for host in report.hosts:
            for exchange in host.exchanges:
                exchange.check()
    except (ValueError, RecursionError) as error:  # also those of msgspec and of Base64
        raise CnllmError(
            f"this is not a report of a comparison: {error}", hint="name a file of cnllm compare -o"
        ) from error
    if report.form != _FORM:
        raise CnllmError(f"a report of the form {report.form!a}, not {_FORM}", hint="use the cnllm that wrote it")
    return report


def ask_hosts(
    registry: Registry,
    model: Model,
    hosts: Sequence[Host],
    settings: TaskChoice,
    budget: Budget,
    live: Mapping[str, LiveExchanges],
    *,
    simulated: bool = False,
    on_result: OnResult | None = None,
) -> Comparison:
    """Ask all hosts the tasks, and return the report. The first host is the reference.

    `live` has what asks each host, within the budget. A host for which the budget has no more is left where it is; the
    others go on. Ctrl-C ends the run with a report on what came.
    """
    started = datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")
    run = _TaskLoop(hosts, settings, {name: exchanges.ask for name, exchanges in live.items()}, on_result)
    entries = tuple(
        replace(host.entry, stopped=run.stopped.get(host.name), exchanges=tuple(run.exchanges[host.name]))
        for host in hosts
    )
    return Comparison(
        form=_FORM,
        cnllm=VERSION,
        registry=registry.version,
        started=started,
        simulated=simulated,
        model=model.name,
        weights=model.flags.weights,
        settings=settings,
        alpha=ALPHA,
        figures=run.figures,
        verdicts=run.verdicts,
        problems=run.problems,
        spent={currency: str(amount) for currency, amount in sorted(budget.spent.items())},
        hosts=entries,
    )


def replay(registry: Registry, report: Comparison) -> Comparison:
    """Make the requests of a report again, and compute every figure from its records, without keys or a network.

    Raises `CnllmError` where a request is not the one that was sent, a record is missing, or a signature is wrong.
    """
    report.check_signature()
    hosts = [open_host(entry, registry) for entry in report.hosts]
    asks = {entry.name: _recorded_exchanges(entry, report, registry.version) for entry in report.hosts}
    stopped = {entry.name: entry.stopped for entry in report.hosts if entry.stopped is not None}
    run = _TaskLoop(hosts, report.settings, asks, None, stopped)
    return replace(report, figures=run.figures, verdicts=run.verdicts, problems=run.problems)


def _recorded_exchanges(entry: HostEntry, report: Comparison, version: str) -> Ask:
    """Return what takes the exchanges of a host from its records, in place of the network."""
    exchanges = {(exchange.task, exchange.step): exchange for exchange in entry.exchanges}
    versions = f"it was made by the registry {report.registry}, this one is {version}"

    def ask(task: ComparisonTask, step: int, plan: Plan) -> TaskExchange:
        exchange = exchanges.get((task.name, step))
        if exchange is None and step == 0:
            raise AllowanceSpent("the run ended here")
        if exchange is None:
            raise CnllmError(f"{entry.name}: there is no record of step {step + 1} of {task.name}", hint=versions)
        if exchange.sha256 != request_hash(plan):
            message = f"{entry.name}: the request of {task.name}, step {step + 1}, is not the one that was sent"
            raise CnllmError(message, hint=versions)
        return exchange

    return ask


class _TaskLoop:
    """A run over all tasks, live or from records: hosts take turns, so that the hour does not decide."""

    def __init__(
        self,
        hosts: Sequence[Host],
        settings: TaskChoice,
        asks: Mapping[str, Ask],
        on_result: OnResult | None,
        known_stops: Mapping[str, str] | None = None,
    ) -> None:
        names = [host.name for host in hosts]
        self.results: dict[str, list[ComparisonResult]] = {name: [] for name in names}
        self.exchanges: dict[str, list[TaskExchange]] = {name: [] for name in names}
        self.stopped: dict[str, str] = {}
        self._known_stops = known_stops or {}
        tasks = settings.tasks
        plan = dict(looks(len(tasks), ALPHA, early=settings.early))
        verdicts: dict[tuple[str, str], Verdict] = {}
        for index, task in enumerate(tasks):
            turn = index % len(hosts)
            for host in (*hosts[turn:], *hosts[:turn]):
                if host.name not in self.stopped:
                    self._try(host, task, asks[host.name], on_result)
            if (alpha := plan.get(index + 1)) is not None and len(hosts) > 1:
                for verdict in find_verdicts(self.results, alpha):
                    known = verdicts.get((verdict.host, verdict.figure))
                    if known is None or known.verdict != "worse":
                        verdicts[verdict.host, verdict.figure] = verdict
                        if verdict.verdict == "worse" and index + 1 < len(tasks):
                            self.stopped.setdefault(
                                verdict.host, f"shown to be worse after {index + 1} task{plural(index + 1)}"
                            )
        self.verdicts = tuple(verdicts.values())
        self.figures = tuple(sum_up(name, results) for name, results in self.results.items())
        self.problems = {
            name: {result.task: result.problem for result in results if result.problem is not None}
            for name, results in self.results.items()
        }

    def _try(self, host: Host, task: ComparisonTask, ask: Ask, on_result: OnResult | None) -> None:
        """Ask a host one task. A task that the budget does not pay to its end does not count."""
        try:
            result, exchanges = run_task(host, task, ask)
        except AllowanceSpent as error:
            self.stopped[host.name] = self._known_stops.get(host.name, error.message)
            return
        except KeyboardInterrupt:  # the answers so far were paid for: they make a report
            for name in self.results:
                self.stopped.setdefault(name, INTERRUPTED)
            return
        self.results[host.name].append(result)
        self.exchanges[host.name] += exchanges
        if on_result is not None:
            on_result(host.name, result)
