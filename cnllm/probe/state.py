"""Send the requests of a probe: patience, the budget, and the state that its answers leave."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from cnllm.engine.encode.plan import Plan
from cnllm.errors import Timeout
from cnllm.probe.approach import ProbedEndpoint
from cnllm.probe.exchange import Ask, ProbeAnswer, ProbeExchange, RawResponse, read_answer
from cnllm.probe.facts import Finding, FlagFact
from cnllm.probe.observed import Learnt, learn, learn_usage, message_of, with_learnt
from cnllm.probe.place import EndpointPlace, ProbeTarget, model_at, plan_at
from cnllm.probe.question import ProbeContext, Question
from cnllm.protocols import wire
from cnllm.registry.model import Model
from cnllm.registry.registry import Registry

__all__ = ["OnStep", "ProbeSettings", "ProbeState", "ProbeStep", "Stopped"]

_ATTEMPTS = 3
_LONGEST_WAIT = 30.0
_MOST_FAILURES = 3
_ENDS = {"key": "the endpoint refuses the key", "quota": "the quota is spent"}
"""Problems that end the probe, unless the endpoint takes the base request right after."""
_MOST_RECEIVED = 32 * 1024 * 1024
"""The bytes of all answers of a probe, which stay in memory, decoded, until its end."""
_PATIENCE = ("rate", "busy", "network", "failed")
"""Problems that another attempt may not have."""
_BYTES_PER_TOKEN = 2
_ANSWER = 500
"""The tokens of an answer, where nobody counts them, unless its text is longer."""


class ProbeStep(Struct, frozen=True):
    """The results of one question: the facts that are new, the requests so far and the most of them."""

    question: str
    findings: tuple[FlagFact, ...]
    requests: int
    most: int


OnStep = Callable[[ProbeStep], object]


class ProbeSettings(Struct, frozen=True, kw_only=True):
    """Settings of a probe: the most requests and the most money, and what sends, records and waits."""

    max_requests: int = 60
    max_cost: float | None = None
    on_step: OnStep | None = None
    transport: Any = None
    record: str | os.PathLike[str] | None = None
    sleep: Callable[[float], object] = time.sleep


class Stopped(Exception):
    """The probe cannot go on; the text is for people."""


class ProbeState(Struct, eq=False):
    """The state of one probe. `send` sends a plan and reads at most so many bytes of the reply."""

    registry: Registry
    target: ProbeTarget
    send: Callable[[Plan, int | None], RawResponse]
    settings: ProbeSettings
    exchanges: list[ProbeExchange] = []
    controls: dict[str, ProbeExchange] = {}
    found: ProbedEndpoint | None = None
    spent: float = 0.0
    failures: int = 0
    received: int = 0  # bytes of all answers
    learnt: Learnt = Learnt()
    left: tuple[str, ...] = ()  # the questions that are still to be asked
    known: Mapping[str, Any] = {}
    shared: dict[str, ProbeExchange] = {}  # the answers to requests that were sent together, by each of them
    reserve: int = 1  # a request for the last check
    current: list[int] = []  # the exchanges of the question that is being asked

    # ── one request ──────────────────────────────────────────────────────────

    def exchange(self, ask: Ask, place: EndpointPlace | None = None, id: str = "any") -> ProbeAnswer:
        """Send one request, again where the endpoint asks for patience, and read its answer.

        Without a `place` it goes to the endpoint that was found.
        """
        known = self.shared.pop(ask.identity, None) or (self.controls.get(ask.identity) if ask.control else None)
        if known is not None:
            self.current.append(known.number)
            if ask.control and not known.answer.problem:
                self.controls[ask.identity] = known
            return known.answer
        if place is not None:
            model = model_at(self.registry, place, id)
        else:
            assert self.found is not None
            place, model = self.found.place, self.found.bodies.model
        plan = plan_at(model, place, ask)
        words = ""  # of the last failure of the server
        for attempt in range(_ATTEMPTS):
            self._check_budget(plan)
            response = self.send(plan, ask.most)
            self.received += len(response.content)
            answer = self._read(model, ask, response)
            if response.abandoned and ask.most is None and not answer.refused:
                answer = replace(answer, problem="endless", message="an answer without an end")
            has_failed = answer.status >= 500 and answer.problem not in ("rate", "busy", "quota", "key")
            is_repeated = has_failed and bool(words) and words == answer.message
            if is_repeated:
                answer = replace(answer, refused=True, problem="")
            self._record(ask, answer, len(plan.content), may_cost=_may_cost(ask, response))
            is_slow = isinstance(response.error, Timeout) and response.error.sent  # it would be the next time, too
            if is_repeated or not (has_failed or (answer.problem in _PATIENCE and not is_slow)):
                break
            if has_failed:
                words = answer.message
            if attempt + 1 < _ATTEMPTS:
                self.settings.sleep(_delay(answer, attempt))
        if ask.control and not answer.problem:
            self.controls[ask.identity] = self.exchanges[-1]
        self.failures = self.failures + 1 if answer.problem else 0
        return answer

    def exchange_of(self, ask: Ask) -> ProbeExchange:
        """Send one request, and return it with its answer."""
        self.exchange(ask)
        return self.exchanges[self.current[-1] - 1]

    def _read(self, model: Model, ask: Ask, response: RawResponse) -> ProbeAnswer:
        """Read an answer, with all that the endpoint's replies have shown of their form."""
        answer = read_answer(with_learnt(model, self.learnt), response)
        if not answer.passed or not ask.body or wire(model.protocol).ordered:
            return answer
        learnt = learn(self.learnt, model.flags, ask.body, answer)
        if learnt.usage is None and answer.reply is not None and answer.reply.usage.input is None:
            learnt = learn_usage(learnt, model.flags, [*self.exchanges, ProbeExchange(0, ask, answer)])
        is_open = learnt.is_open and (learnt.tags or ("", ""))[1] in str(message_of(answer.data).get("content"))
        if learnt == self.learnt and not is_open:
            return answer
        self.learnt = learnt
        return read_answer(with_learnt(model, learnt, is_open=is_open), response)

    def _record(self, ask: Ask, answer: ProbeAnswer, size: int, *, may_cost: bool) -> None:
        number = len(self.exchanges) + 1
        if answer.reply is not None:
            answer = replace(answer, reply=replace(answer.reply, raw=None))  # `data` holds the body
        self.exchanges.append(ProbeExchange(number, ask, answer))
        self.current.append(number)
        if answer.reply is not None or may_cost:  # a refusal costs nothing
            usage = answer.usage
            read = size // _BYTES_PER_TOKEN if usage.input is None else usage.input
            visible = len((answer.text + answer.reasoning).encode("utf-8", "replace")) // _BYTES_PER_TOKEN
            written = max(_ANSWER, visible) if usage.output is None else usage.output
            self.spent += self._cost(read, written)

    def is_alive(self) -> bool:
        """Whether the endpoint still takes the first request that it took."""
        assert self.found is not None
        ask = next(e.ask for e in self.exchanges if e.answer.passed and e.ask.body)
        self.reserve = 0
        answer = self.exchange(replace(ask, control=False, why="whether it still answers"))
        self.reserve = 1
        return answer.passed

    def _check_budget(self, plan: Plan) -> None:
        max_requests, max_cost = self.settings.max_requests, self.settings.max_cost
        if len(self.exchanges) >= max_requests - self.reserve:
            raise Stopped(f"the limit of {max_requests} requests is reached")
        if self.received > _MOST_RECEIVED:
            raise Stopped(f"the endpoint's answers have more than {_MOST_RECEIVED:,} bytes in all")
        if max_cost is not None:
            estimate = self._cost(len(plan.content) // _BYTES_PER_TOKEN, _ANSWER)
            if self.spent + estimate > max_cost:
                raise Stopped(f"the limit of the cost ({max_cost:g}) is reached")

    def _cost(self, read: int, written: int) -> float:
        price = self.target.price or (0.0, 0.0)
        return (read * price[0] + written * price[1]) / 1_000_000

    # ── one question ─────────────────────────────────────────────────────────

    def question(self, question: Question, context: ProbeContext) -> list[Finding]:
        """Run a question once. A request without an answer ends it without a finding."""
        steps = question.run(context)
        try:
            ask = next(steps)
            while True:
                answer = self.exchange(ask)
                if answer.problem in _ENDS:
                    if not self.is_alive():
                        raise Stopped(f"{_ENDS[answer.problem]}: {answer.message}")
                    answer = replace(answer, refused=True, problem="")  # of this very question
                    index = max(n for n in self.current if self.exchanges[n - 1].answer.problem in _ENDS) - 1
                    self.exchanges[index] = replace(self.exchanges[index], answer=answer)
                    if ask.control:
                        self.controls[ask.identity] = self.exchanges[index]
                if answer.problem:
                    if self.failures >= _MOST_FAILURES:
                        raise Stopped(f"the endpoint no longer answers: {answer.message}")
                    steps.close()
                    return []
                ask = steps.send(answer)
        except StopIteration as end:
            findings: list[Finding] = end.value
            return findings


def _may_cost(ask: Ask, response: RawResponse) -> bool:
    """Whether a request that brought no reply may cost something: the endpoint may have answered it."""
    if not ask.body:
        return False
    return response.status < 300 if response.error is None else response.error.meaning.charged is not False


def _delay(answer: ProbeAnswer, attempt: int) -> float:
    """Return the seconds to wait before the next attempt: what Retry-After says, within reason."""
    value = answer.headers.get("retry-after", "")
    try:
        return min(_LONGEST_WAIT, max(0.0, float(value)))
    except ValueError:
        return 0.5 if attempt == 0 else 2.0
