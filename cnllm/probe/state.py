"""Send the requests of a probe: patience, the budget, and the state that its answers leave. Pure: a driver sends."""

from __future__ import annotations

from collections.abc import Generator, Mapping
from typing import Any, TypeVar

from msgspec import Struct
from msgspec.structs import replace

from cnllm.engine.encode.plan import Plan
from cnllm.errors import CnllmError, Timeout
from cnllm.probe.approach import ProbedEndpoint
from cnllm.probe.exchange import Ask, ProbeAnswer, ProbeExchange, read_answer
from cnllm.probe.facts import Finding
from cnllm.probe.observed import Learnt, learn, learn_usage, message_of, with_learnt
from cnllm.probe.place import ProbeTarget, model_at, plan_at
from cnllm.probe.question import ProbeContext, Question
from cnllm.protocols import wire
from cnllm.registry.model import Model
from cnllm.registry.registry import Registry

__all__ = ["Asking", "ProbeState", "RawResponse", "SendPlan", "Stopped", "Wait"]

_ATTEMPTS = 3
_LONGEST_WAIT = 30.0
_MOST_FAILURES = 3
_ENDS = {"key": "the endpoint refuses the key", "quota": "the quota is spent"}
"""Problems that end the probe, unless the endpoint takes the base request right after."""
_BYTES_PER_TOKEN = 2
_ANSWER = 500
"""The tokens of an answer, where nobody counts them."""


class SendPlan(Struct, frozen=True):
    """Ask the driver to send a plan and to read at most so many bytes of the reply."""

    plan: Plan
    most: int | None = None


class Wait(Struct, frozen=True):
    """Ask the driver to wait."""

    seconds: float


class RawResponse(Struct, frozen=True):
    """The answer to a request. `error` is set where there is none."""

    status: int = 0
    headers: Mapping[str, str] = {}
    content: bytes = b""
    abandoned: bool = False
    error: CnllmError | None = None


class Stopped(Exception):
    """The probe cannot go on; the text is for people."""


Value = TypeVar("Value")
Asking = Generator[SendPlan | Wait, RawResponse | None, Value]
"""A part of an investigation: it yields what a driver is to do."""


class ProbeState:
    """The state of one probe."""

    def __init__(
        self, registry: Registry, target: ProbeTarget, *, max_requests: int, max_cost: float | None = None
    ) -> None:
        self.registry = registry
        self.target = target
        self.max_requests = max_requests
        self.max_cost = max_cost
        self.exchanges: list[ProbeExchange] = []
        self.controls: dict[str, ProbeExchange] = {}
        self.found: ProbedEndpoint | None = None
        self.spent = 0.0
        self.failures = 0
        self.learnt = Learnt()
        self.left: tuple[str, ...] = ()  # the questions that are still to be asked
        self.known: Mapping[str, Any] = {}
        self.shared: dict[str, ProbeExchange] = {}  # the answers to requests that were sent together, by each of them
        self.reserve = 1  # a request for the last check
        self.current: list[int] = []  # the exchanges of the question that is being asked

    # ── one request ──────────────────────────────────────────────────────────

    def exchange(self, ask: Ask, place: Any = None, id: str | None = None) -> Asking[ProbeAnswer]:
        """Send one request, again where the endpoint asks for patience, and read its answer."""
        if (known := self.shared.pop(ask.identity, None)) is not None:
            self.current.append(known.number)
            if ask.control and known.answer.kind != "none":
                self.controls[ask.identity] = known
            return known.answer
        if ask.control and (known := self.controls.get(ask.identity)) is not None:
            self.current.append(known.number)
            return known.answer
        place = place if place is not None else self.found.place if self.found is not None else None
        model = model_at(self.registry, place, id or (self.found.id if self.found is not None else "any"))
        plan = plan_at(model, place, ask.body, stream=ask.stream, path=ask.path, keyless=ask.keyless)
        words: str | None = None
        answer = ProbeAnswer(kind="none", problem="network")
        for attempt in range(_ATTEMPTS):
            self._check_budget(plan)
            response = yield SendPlan(plan, ask.most)
            assert response is not None
            is_slow = isinstance(response.error, Timeout) and response.error.sent  # it would be the next time, too
            if response.error is not None:
                answer = ProbeAnswer(kind="none", problem="network", message=response.error.message)
            else:
                answer = self._read(model, ask, response)
            if answer.passed and response.abandoned and ask.most is None:
                answer = replace(answer, kind="none", problem="form", message="an answer without an end")
            self._record(ask, answer, len(plan.content))
            if answer.status >= 500 and answer.problem not in ("rate", "busy", "quota", "key"):
                if words == answer.message and words:
                    answer = replace(answer, kind="refused", problem="")
                    break
                words = answer.message
            elif is_slow or answer.kind != "none" or answer.problem not in ("rate", "busy", "network", "failed"):
                break
            if attempt + 1 < _ATTEMPTS and (answer.kind == "none" or answer.status >= 500):
                yield Wait(_delay(answer, attempt))
        if answer.status >= 500 and answer.kind == "refused" and words != answer.message:
            answer = replace(answer, kind="none", problem="failed")
        self.exchanges[-1] = replace(self.exchanges[-1], answer=answer)
        if ask.control and answer.kind != "none":
            self.controls[ask.identity] = self.exchanges[-1]
        self.failures = self.failures + 1 if answer.kind == "none" else 0
        return answer

    def exchange_of(self, ask: Ask) -> Asking[ProbeExchange]:
        """Send one request, and return it with its answer."""
        yield from self.exchange(ask)
        return self.exchanges[self.current[-1] - 1]

    def _read(self, model: Model, ask: Ask, response: RawResponse) -> ProbeAnswer:
        """Read an answer, with all that the endpoint's replies have shown of their form."""

        def read(learnt: Learnt, *, is_open: bool = False) -> ProbeAnswer:
            return read_answer(
                with_learnt(model, learnt, is_open=is_open),
                response.status,
                response.headers,
                response.content,
                abandoned=response.abandoned,
            )

        answer = read(self.learnt)
        if not answer.passed or ask.body is None or wire(model.protocol).ordered:
            return answer
        learnt = learn(self.learnt, model.flags, ask.body, answer)
        if learnt.usage is None and answer.reply is not None and answer.reply.usage.input is None:
            learnt = learn_usage(learnt, model.flags, [*self.exchanges, ProbeExchange(0, ask, answer)])
        is_open = learnt.is_open and (learnt.tags or ("", ""))[1] in str(message_of(answer.data).get("content"))
        if learnt == self.learnt and not is_open:
            return answer
        self.learnt = learnt
        return read(learnt, is_open=is_open)

    def _record(self, ask: Ask, answer: ProbeAnswer, sent: int) -> None:
        number = len(self.exchanges) + 1
        self.exchanges.append(ProbeExchange(number, ask, answer))
        self.current.append(number)
        if answer.reply is not None:  # a refusal costs nothing
            usage = answer.reply.usage
            read = sent // _BYTES_PER_TOKEN if usage.input is None else usage.input
            written = _ANSWER if usage.output is None else usage.output
            self.spent += self._cost(read, written)

    def is_alive(self) -> Asking[bool]:
        """Whether the endpoint still takes the first request that it took."""
        assert self.found is not None
        ask = next(e.ask for e in self.exchanges if e.answer.passed and e.ask.body is not None)
        self.reserve = 0
        answer = yield from self.exchange(replace(ask, control=False, why="whether it still answers"))
        self.reserve = 1
        return answer.passed

    def _check_budget(self, plan: Plan) -> None:
        if len(self.exchanges) >= self.max_requests - self.reserve:
            raise Stopped(f"the limit of {self.max_requests} requests is reached")
        if self.max_cost is not None:
            estimate = self._cost(len(plan.content) // _BYTES_PER_TOKEN, _ANSWER)
            if self.spent + estimate > self.max_cost:
                raise Stopped(f"the limit of the cost ({self.max_cost:g}) is reached")

    def _cost(self, read: int, written: int) -> float:
        price = self.target.price or (0.0, 0.0)
        return (read * price[0] + written * price[1]) / 1_000_000

    def _correct(self, ask: Ask, answer: ProbeAnswer) -> None:
        """Keep an answer as a refusal, now that the base request has passed again after it."""
        index = max(n for n in self.current if self.exchanges[n - 1].answer.problem in _ENDS) - 1
        self.exchanges[index] = replace(self.exchanges[index], answer=answer)
        if ask.control:
            self.controls[ask.identity] = self.exchanges[index]

    # ── one question ─────────────────────────────────────────────────────────

    def question(self, question: Question, context: ProbeContext) -> Asking[list[Finding]]:
        """Run a question once. A request without an answer ends it without a finding."""
        steps = question.run(context)
        try:
            ask = next(steps)
            while True:
                answer = yield from self.exchange(ask)
                if answer.problem in _ENDS:
                    if not (yield from self.is_alive()):
                        raise Stopped(f"{_ENDS[answer.problem]}: {answer.message}")
                    answer = replace(answer, kind="refused", problem="")  # of this very question
                    self._correct(ask, answer)
                if answer.kind == "none":
                    if self.failures >= _MOST_FAILURES:
                        raise Stopped(f"the endpoint no longer answers: {answer.message}")
                    steps.close()
                    return []
                ask = steps.send(answer)
        except StopIteration as end:
            return list(end.value or ())


def _delay(answer: ProbeAnswer, attempt: int) -> float:
    """Return the seconds to wait before the next attempt: what Retry-After says, within reason."""
    asked = answer.headers.get("retry-after", "")
    try:
        return min(_LONGEST_WAIT, max(0.0, float(asked)))
    except ValueError:
        return 0.5 if attempt == 0 else 2.0
