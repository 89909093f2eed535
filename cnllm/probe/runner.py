"""Run a probe: find the endpoint, ask the questions, and keep what two runs agree on. Pure: a driver sends."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from typing import Any, TypeVar

from msgspec import Struct
from msgspec.structs import replace

from cnllm.engine.encode.plan import Plan
from cnllm.errors import CnllmError
from cnllm.probe.approach import ProbedEndpoint, approach
from cnllm.probe.bodies import Bodies
from cnllm.probe.candidates import collect, with_claims
from cnllm.probe.exchange import Ask, ProbeAnswer, ProbeExchange, read_answer
from cnllm.probe.facts import Fact, Finding
from cnllm.probe.joint import joint_answers
from cnllm.probe.observed import Learnt, is_proven, learn, learn_usage, message_of, observed, with_learnt
from cnllm.probe.place import ProbeTarget, assumed_at, model_at, plan_at
from cnllm.probe.question import SAME, ProbeContext, Question, Steps
from cnllm.probe.questions import QUESTIONS
from cnllm.probe.votes import agreed, is_expected, needs_another, repeats_mode
from cnllm.protocols import wire
from cnllm.registry.model import Model
from cnllm.registry.registry import Registry

__all__ = [
    "Investigation",
    "ProbeOutcome",
    "ProbeStep",
    "RawResponse",
    "SendPlan",
    "Stopped",
    "Wait",
    "investigate",
]

_ATTEMPTS = 3
_LONGEST_WAIT = 30.0
_MOST_REFUSED = 8
_PASSED, _PROMPTS = 10, 4
_MOST_FAILURES = 3
_TOPICS = ("tool_choice.", "schema.", "params.temperature", "params.top_p")
"""The flags that may depend on whether the model reasons, for which a question asks in that mode."""
_REASONING = ("reasoning.", "when.reasoning.", "when.no-reasoning.")
_ENDS = {"key": "the endpoint refuses the key", "quota": "the quota is spent"}
"""Problems that end the probe, unless the endpoint takes the base request right after."""
_THOROUGH = 100
"""From so many requests on, a server is also asked what it says of itself."""
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


class ProbeStep(Struct, frozen=True):
    """The results of one question: the facts that are new, the requests so far and the most of them."""

    question: str
    findings: tuple[Fact, ...]
    requests: int
    most: int


class ProbeOutcome(Struct, frozen=True):
    """The results of a probe.

    `stopped` says why it ended before its last question, "" where it did not. `remarks` are sentences about the
    endpoint as a whole, `left` the names of the questions that are still to be asked.
    """

    found: ProbedEndpoint | None
    facts: tuple[Fact, ...]
    exchanges: tuple[ProbeExchange, ...]
    stopped: str = ""
    remarks: tuple[str, ...] = ()
    spent: float = 0.0
    left: tuple[str, ...] = ()


class Stopped(Exception):
    """The probe cannot go on; the text is for people."""


Investigation = Generator[SendPlan | Wait, RawResponse | None, ProbeOutcome]
Value = TypeVar("Value")
Asking = Generator[SendPlan | Wait, RawResponse | None, Value]
"""A part of an investigation: it yields what a driver is to do."""


class _ProbeState:
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
            elif answer.kind != "none" or answer.problem not in ("rate", "busy", "network", "failed"):
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
        return self.exchanges[-1]

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


def investigate(
    registry: Registry,
    target: ProbeTarget,
    on_step: Callable[[ProbeStep], object] | None = None,
    *,
    max_requests: int,
    max_cost: float | None = None,
) -> Investigation:
    """Probe an endpoint.

    Raises `CnllmError` where the endpoint cannot be asked anything.
    """
    run = _ProbeState(registry, target, max_requests=max_requests, max_cost=max_cost)
    facts: dict[str, Fact] = {}
    stopped = ""
    try:
        run.found = yield from approach(registry, target, run.exchange, thorough=max_requests >= _THOROUGH)
        facts |= {fact.flag: fact for fact in run.found.facts}
        yield from _Interview(run, facts, on_step).ask_all()
    except Stopped as stop:
        stopped = str(stop)
    if run.found is not None:
        passed = _last_pass(run.exchanges)
        if passed < len(run.exchanges):
            with contextlib.suppress(Stopped):
                passed = len(run.exchanges) if (yield from run.is_alive()) else passed
        facts = {flag: fact for flag, fact in facts.items() if _supported(fact, passed)}
        if not is_proven(run.learnt, facts, run.exchanges):
            facts = {flag: fact for flag, fact in facts.items() if not flag.startswith(_REASONING)}
        if "_open_tags" in facts:
            own = facts["_open_tags"]
            by_choice = "reasoning.mode" in facts and facts["reasoning.mode"].value == "toggle"
            flag = "when.reasoning.reasoning.tags_at" if by_choice else "reasoning.tags_at"
            facts[flag] = replace(own, flag=flag, value="start-open")
        facts = _by_mode(facts, run.known)
        model = model_at(registry, run.found.place, run.found.id)
        limit = run.known.get("params.max_tokens") or Bodies(model).path("max_tokens")
        facts |= {fact.flag: fact for fact in observed(model.flags, run.learnt, run.exchanges, limit)}
    remarks = run.found.remarks if run.found is not None else ()
    shown = tuple(fact for fact in facts.values() if not fact.flag.startswith("_"))
    remarks = (*remarks, *_strange(run.exchanges))
    return ProbeOutcome(run.found, shown, tuple(run.exchanges), stopped, remarks, run.spent, run.left)


class _OpenQuestion:
    """A question that was asked, and the findings of its runs. `exchanges` are the numbers of its requests."""

    def __init__(self, question: Question) -> None:
        self.question = question
        self.runs: list[list[Finding]] = []
        self.exchanges: list[int] = []

    @property
    def is_settled(self) -> bool:
        """Whether no further run is needed."""
        return bool(self.runs) and not needs_another(self.question, self.runs)


class _Interview:
    """The questions of one probe, and what they have taught. `likely` is what one run alone has found.

    Each question is asked once before any is repeated that said nothing, or nothing but what is assumed of every
    endpoint of the wire: at the end of the budget, what was asked has taught the most.
    """

    def __init__(self, run: _ProbeState, facts: dict[str, Fact], on_step: Callable[[ProbeStep], object] | None) -> None:
        assert run.found is not None
        self.run = run
        self.facts = facts
        self.on_step = on_step
        self.known: dict[str, Any] = {f.flag: f.value for f in facts.values() if f.answer != "unknown"}
        self.likely: dict[str, dict[str, Any]] = {}
        self.asked: set[str] = set()
        self.later: list[_OpenQuestion] = []
        self.joined: set[str] = set()
        place, id = run.found.place, run.found.id
        self.bodies = Bodies(model_at(run.registry, place, id), run.found.base, run.found.drop)
        self.assumed = assumed_at(run.registry, place, id).flags
        candidates = collect(run.registry, place.protocol)
        self.candidates = candidates if run.target.claims is None else with_claims(candidates, run.target.claims)

    def context(self) -> ProbeContext:
        """Return what the next question gets."""
        assert self.run.found is not None
        known = {key: value for found in self.likely.values() for key, value in found.items()} | self.known
        window = self.run.found.context
        return ProbeContext(self.bodies, self.candidates, known, window=window, learnt=self.run.learnt)

    def questions(self) -> list[Question]:
        """Return the questions that were not asked: those last whose parameters the wire is known to refuse."""
        context = self.context()
        questions = [q for q in QUESTIONS if q.name not in self.asked and q.applies(context)]
        return sorted(questions, key=self.is_documented)

    def is_documented(self, question: Question) -> bool:
        """Whether a question is about parameters that the wire is known to refuse."""
        params = self.assumed.params or {}
        return all(f.startswith("params.") and params.get(f.removeprefix("params.")) is False for f in question.flags)

    def ask_all(self) -> Asking[None]:
        """Ask the questions in their order, each as soon as newer facts make it one, until none is left."""
        while True:
            questions = self.questions()
            self.run.left = tuple(q.name for q in (*questions, *(o.question for o in self.later)))
            if questions:
                opened = _OpenQuestion(questions[0])
                yield from self.join(questions)
                self.asked.add(opened.question.name)
            elif self.later:
                opened = self.later.pop(0)
            else:
                break
            yield from self.ask(opened)
            yield from _check(self.run)

    def join(self, questions: list[Question]) -> Asking[None]:
        """Ask the questions whose first requests one request can ask, if the next question is one of them."""
        context = self.context()
        if questions[0].name in self.joined or not _is_joint(questions[0].run(context)):
            return
        alike = [q for q in questions if self.is_documented(q) == self.is_documented(questions[0])]
        runs = [q.run(context) for q in alike if q.name not in self.joined]
        self.joined |= {q.name for q in alike}
        for ask, exchanged in (yield from joint_answers(runs, self.run.exchange_of)):
            self.run.shared[ask.identity] = exchanged

    def ask(self, opened: _OpenQuestion) -> Asking[None]:
        """Run a question, and again where that is worth more than other questions are."""
        question, runs = opened.question, opened.runs
        is_late = bool(runs)
        self.likely.pop(question.name, None)
        self.run.current = opened.exchanges
        try:
            while not opened.is_settled:
                hints = {f.flag: f for f in runs[0]} if runs else {}
                context = replace(self.context(), hints=hints, run=len(runs) + 1)
                runs.append((yield from self.run.question(question, context)))
                if not is_late and len(runs) == 1 and not opened.is_settled and self.can_wait(opened):
                    self.later.append(opened)
                    self.likely[question.name] = {f.flag: f.value for f in runs[0]}
                    break
        finally:
            self.settle(opened)

    def can_wait(self, opened: _OpenQuestion) -> bool:
        """Whether another run of a question is worth less than the questions that were not asked."""
        found = opened.runs[0]
        return is_expected(found, self.assumed) if found else not opened.question.opens

    def settle(self, opened: _OpenQuestion) -> None:
        """Put what two runs agree on into the facts."""
        known, runs = self.known, opened.runs
        known |= {finding.flag: True for finding in (runs[0] if runs else ()) if finding.flag.startswith(SAME)}
        every = agreed(opened.question, runs, tuple(dict.fromkeys(opened.exchanges)))
        known |= {f"{SAME}{fact.flag.split('.', 2)[2]}": True for fact in every if repeats_mode(fact, known)}
        new = [fact for fact in every if not repeats_mode(fact, known)]
        for fact in new:
            old = self.facts.get(fact.flag)
            if old is None or old.answer == "unknown":
                self.facts[fact.flag] = fact
                if fact.answer != "unknown":
                    known[fact.flag] = fact.value
        self.run.known = known
        if self.on_step is not None:
            findings = tuple(fact for fact in new if fact.flag[0] != "_")
            count = len(self.run.exchanges)
            self.on_step(ProbeStep(opened.question.name, findings, count, self.run.max_requests))


def _is_joint(steps: Steps) -> bool:
    ask = next(steps, None)
    return ask is not None and bool(ask.joint)


def _by_mode(facts: dict[str, Fact], known: Mapping[str, Any]) -> dict[str, Fact]:
    """Return the facts, those of requests without reasoning under that mode where nobody asked in the other one."""
    if known.get("reasoning.mode") != "toggle":
        return facts

    def name(fact: Fact) -> str:
        flag = fact.flag
        topic = next((topic for topic in _TOPICS if flag.startswith(topic) and fact.answer != "unknown"), None)
        if topic is None or any(key.startswith((f"{SAME}{topic}", f"when.reasoning.{topic}")) for key in known):
            return flag
        return f"when.no-reasoning.{flag}"

    return {name(fact): replace(fact, flag=name(fact)) for fact in facts.values()}


def _check(run: _ProbeState) -> Asking[None]:
    """Raise `Stopped` where the endpoint has begun to refuse everything."""
    if _since_pass(run.exchanges) and not (yield from run.is_alive()):
        raise Stopped("the endpoint refuses every request by now")


# ── the endpoint as a whole: one that refuses everything by now proves nothing by its refusals ──
def _last_pass(exchanges: Sequence[ProbeExchange]) -> int:
    """Return the number of the last exchange in which the endpoint took a request; 0 where it took none."""
    return next((e.number for e in reversed(exchanges) if e.answer.passed), 0)


def _since_pass(exchanges: Sequence[ProbeExchange]) -> bool:
    """Whether so many requests in a row were not taken that the endpoint itself is in doubt."""
    return len(exchanges) - _last_pass(exchanges) >= _MOST_REFUSED


def _supported(fact: Fact, passed: int) -> bool:
    """Whether a fact was seen before the endpoint stopped answering."""
    return fact.answer == "unknown" or not fact.exchanges or max(fact.exchanges) <= passed


def _strange(exchanges: Sequence[ProbeExchange]) -> Iterator[str]:
    """Yield what is strange about an endpoint as a whole."""
    whole = [e.answer for e in exchanges if e.answer.passed and e.ask.body is not None and not e.ask.stream]
    if len(whole) > 1 and all(answer.streamed for answer in whole):
        yield "the endpoint streams whatever is asked"
    if _says_one_thing(exchanges):
        yield "every answer is the same text: effects on the answer cannot be seen"


def _says_one_thing(exchanges: Sequence[ProbeExchange]) -> bool:
    """Whether every answer is the same text, whatever was asked."""
    passed = [e for e in exchanges if e.answer.passed and e.answer.reply is not None]
    if len(passed) < _PASSED or len({str((e.ask.body or {}).get("messages")) + e.ask.why for e in passed}) < _PROMPTS:
        return False
    first = passed[0].answer
    return bool(first.text) and all(e.answer.text == first.text and not e.answer.calls for e in passed)
