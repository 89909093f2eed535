"""Run a probe: find the endpoint, ask the questions, and keep what two runs agree on."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from cnllm.probe.approach import approach
from cnllm.probe.candidates import collect, with_claims
from cnllm.probe.claims import is_assumed
from cnllm.probe.exchange import ProbeExchange
from cnllm.probe.facts import Finding, FlagFact, split_mode
from cnllm.probe.joint import joint_answers
from cnllm.probe.observed import is_proven, observe_replies
from cnllm.probe.place import assumed_at
from cnllm.probe.question import SAME, ProbeContext, Question
from cnllm.probe.questions import QUESTIONS
from cnllm.probe.report import Report
from cnllm.probe.state import ProbeState, ProbeStep, Stopped

__all__ = ["investigate"]

_MOST_REFUSED = 8
"""So many requests in a row that are not taken put the endpoint itself in doubt."""
_PASSED, _PROMPTS = 10, 4
_TOPICS = {
    "tool_choice.": "plain",
    "schema.": "plain",
    "params.temperature": "plain",
    "params.top_p": "plain",
    "stream.required": "default",
    "reasoning.tags_at": "reasoning",
}
"""The flags that may depend on whether the model reasons, and how a question asks for them: without reasoning where
that can be turned off, without any switch, or with reasoning."""
_REASONING = ("reasoning.", "when.reasoning.", "when.no-reasoning.")
_THOROUGH = 100
"""From so many requests on, a server is also asked what it says of itself."""


def investigate(run: ProbeState) -> Report:
    """Probe an endpoint. Raises `CnllmError` where it cannot be asked anything."""
    facts: dict[str, FlagFact] = {}
    stopped = ""
    try:
        run.found = approach(run.registry, run.target, run.exchange, thorough=run.settings.max_requests >= _THOROUGH)
        facts |= {fact.flag: fact for fact in run.found.facts}
        _Interview(run, facts).ask_all()
    except Stopped as stop:
        stopped = str(stop)
    if run.found is not None:
        passed = _last_pass(run.exchanges)
        if passed < len(run.exchanges):
            with contextlib.suppress(Stopped):
                passed = len(run.exchanges) if run.is_alive() else passed
        facts = {f.flag: f for f in facts.values() if f.answer == "unknown" or max(f.exchanges, default=0) <= passed}
        if not is_proven(run.learnt, facts, run.exchanges):
            facts = {flag: fact for flag, fact in facts.items() if not flag.startswith(_REASONING)}
        facts = _by_mode(facts, run.known)
        bodies = run.found.bodies
        limit = run.known.get("params.max_tokens") or bodies.path("max_tokens")
        facts |= {fact.flag: fact for fact in observe_replies(bodies.model.flags, run.learnt, run.exchanges, limit)}
    return Report(
        "",
        [fact for fact in facts.values() if not fact.flag.startswith("_")],
        len(run.exchanges),
        stopped=stopped,
        exchanges=tuple(run.exchanges),
        found=run.found,
        remarks=(*(run.found.remarks if run.found is not None else ()), *_strange(run.exchanges)),
        spent=run.spent,
        left=run.left,
    )


class _OpenQuestion(Struct):
    """A question that was asked, and the findings of its runs. `exchanges` are the numbers of its requests."""

    question: Question
    runs: list[list[Finding]] = []
    exchanges: list[int] = []

    @property
    def is_settled(self) -> bool:
        """Whether no further run is needed: a second one confirms, and a third one is asked where two differ.

        A question that depends on the model and showed no effect is asked three times.
        """
        if len(self.runs) not in (1, 2):
            return len(self.runs) > 2
        if not self.runs[0] and self.question.by_model:
            return False
        if len(self.runs) == 1:
            return all(finding.flag.startswith(SAME) for finding in self.runs[0])
        first, second = ({f.flag: f.value for f in findings} for findings in self.runs)
        return first == second


class _Interview:
    """The questions of one probe, and what they have taught. `likely` is what one run alone has found, and `start` what
    a question gets before anything is known.

    Each question is asked once before any is repeated that said nothing, or nothing but what is assumed of every
    endpoint of the wire: at the end of the budget, what was asked has taught the most.
    """

    def __init__(self, run: ProbeState, facts: dict[str, FlagFact]) -> None:
        assert run.found is not None
        self.run = run
        self.facts = facts
        self.known: dict[str, Any] = {f.flag: f.value for f in facts.values() if f.answer != "unknown"}
        self.likely: dict[str, dict[str, Any]] = {}
        self.asked: set[str] = set()
        self.later: list[_OpenQuestion] = []
        self.joined: set[str] = set()
        found, claims = run.found, run.target.claims
        candidates = collect(run.registry, found.place.protocol)
        self.start = ProbeContext(
            found.bodies,
            candidates if claims is None else with_claims(candidates, claims),
            window=found.context,
            is_own=found.place.is_own,
            assumed=assumed_at(run.registry, found.place, found.id).flags,
        )

    def context(self) -> ProbeContext:
        """Return what the next question gets."""
        known = {key: value for likely in self.likely.values() for key, value in likely.items()} | self.known
        return replace(self.start, known=known, learnt=self.run.learnt)

    def questions(self) -> list[Question]:
        """Return the questions that were not asked: those last whose parameters the wire is known to refuse."""
        context = self.context()
        questions = [q for q in QUESTIONS if q.name not in self.asked and q.applies(context)]
        return sorted(questions, key=self.is_documented)

    def is_documented(self, question: Question) -> bool:
        """Whether a question is about parameters that the wire is known to refuse."""
        params = self.start.assumed.params or {}
        return all(f.startswith("params.") and params.get(f.removeprefix("params.")) is False for f in question.flags)

    def kind(self, question: Question) -> tuple[bool, bool]:
        """Return the group of a question. One request asks questions of one group only, those of a mode at the end."""
        return self.is_documented(question), question.flags[0].startswith("when.")

    def ask_all(self) -> None:
        """Ask the questions in their order, each as soon as newer facts make it one, until none is left."""
        while True:
            questions = self.questions()
            self.run.left = tuple(q.name for q in (*questions, *(o.question for o in self.later)))
            if questions:
                opened = _OpenQuestion(questions[0])
                self.join(questions)
                self.asked.add(opened.question.name)
            elif self.later:
                opened = self.later.pop(0)
            else:
                break
            self.ask(opened)
            run = self.run
            if len(run.exchanges) - _last_pass(run.exchanges) >= _MOST_REFUSED and not run.is_alive():
                raise Stopped("the endpoint refuses every request by now")

    def join(self, questions: list[Question]) -> None:
        """Ask the questions whose first requests one request can ask, if the next question is one of them."""
        context = self.context()
        first = questions[0]
        if first.name in self.joined or not getattr(next(first.run(context), None), "joint", ""):
            return
        alike = [q for q in questions if self.kind(q) == self.kind(first)]
        runs = [q.run(context) for q in alike if q.name not in self.joined]
        self.joined |= {q.name for q in alike}
        for ask, exchanged in joint_answers(runs, self.run.exchange_of):
            self.run.shared[ask.identity] = exchanged

    def ask(self, opened: _OpenQuestion) -> None:
        """Run a question, and again where that is worth more than other questions are."""
        question, runs = opened.question, opened.runs
        is_late = bool(runs)
        self.likely.pop(question.name, None)
        self.run.current = opened.exchanges
        try:
            while not opened.is_settled:
                hints = {f.flag: f for f in runs[0]} if runs else {}
                context = replace(self.context(), hints=hints, run=len(runs) + 1)
                runs.append(self.run.question(question, context))
                if not is_late and len(runs) == 1 and not opened.is_settled and self.can_wait(opened):
                    self.later.append(opened)
                    self.likely[question.name] = {f.flag: f.value for f in runs[0]}
                    break
        finally:
            self.settle(opened)

    def can_wait(self, opened: _OpenQuestion) -> bool:
        """Whether another run of a question is worth less than the questions that were not asked."""
        found = opened.runs[0]
        says_nothing_new = all(f.flag.startswith("_") or is_assumed(self.start.assumed, f) for f in found)
        return says_nothing_new if found else not opened.question.opens

    def settle(self, opened: _OpenQuestion) -> None:
        """Put what two runs agree on into the facts."""
        known, runs = self.known, opened.runs
        known |= {finding.flag: True for finding in (runs[0] if runs else ()) if finding.flag.startswith(SAME)}
        every = _agree(opened.question, runs, tuple(dict.fromkeys(opened.exchanges)))
        known |= {f"{SAME}{split_mode(fact.flag)[1]}": True for fact in every if _repeats_mode(fact, known)}
        new = [fact for fact in every if not _repeats_mode(fact, known)]
        for fact in new:
            old = self.facts.get(fact.flag)
            if old is None or old.answer == "unknown":
                self.facts[fact.flag] = fact
                if fact.answer != "unknown":
                    known[fact.flag] = fact.value
        self.run.known = known
        settings = self.run.settings
        if settings.on_step is not None:
            findings = tuple(fact for fact in new if fact.flag[0] != "_")
            count = len(self.run.exchanges)
            settings.on_step(ProbeStep(opened.question.name, findings, count, settings.max_requests))


# ── what the runs of a question prove: two of them agree ──
def _agree(question: Question, runs: Sequence[Sequence[Finding]], exchanges: tuple[int, ...]) -> list[FlagFact]:
    """Return a fact for each flag of a question and each finding; unknown where no two runs agree."""
    votes: dict[str, dict[str, list[Finding]]] = {}
    for findings in runs:
        for finding in findings:
            key = json.dumps([finding.value, finding.answer], sort_keys=True, default=str)
            votes.setdefault(finding.flag, {}).setdefault(key, []).append(finding)
    facts: list[FlagFact] = []
    for flag in dict.fromkeys([*votes, *question.flags]):
        best = max(votes.get(flag, {}).values(), key=len, default=[])
        if len(best) < 2:
            facts.append(FlagFact(flag, None, "unknown", exchanges))
        else:
            facts.append(FlagFact(flag, best[0].value, best[0].answer, exchanges, best[0].quote))
    return facts


def _repeats_mode(fact: FlagFact, known: Mapping[str, Any]) -> bool:
    """Whether a fact of one mode says what holds in every mode, or nothing where that is known to be the same."""
    mode, flag = split_mode(fact.flag)
    if not mode:
        return False
    if fact.answer == "unknown":
        return any(key.startswith(SAME) and flag.startswith(key.removeprefix(SAME)) for key in known)
    return flag in known and known[flag] == fact.value


def _by_mode(facts: dict[str, FlagFact], known: Mapping[str, Any]) -> dict[str, FlagFact]:
    """Return the facts, those that were seen in one mode of reasoning alone under that mode.

    What was asked in both modes stands under no mode, and what differs in the other one under that.
    """

    def name(fact: FlagFact) -> str:
        topic = next((topic for topic in _TOPICS if fact.flag.startswith(topic) and fact.answer != "unknown"), None)
        mode = None if topic is None else _mode_of(topic, known)
        other = "no-reasoning" if mode == "reasoning" else "reasoning"
        if mode is None or any(key.startswith((f"{SAME}{topic}", f"when.{other}.{topic}")) for key in known):
            return fact.flag
        return f"when.{mode}.{fact.flag}"

    return {name(fact): replace(fact, flag=name(fact)) for fact in facts.values()}


def _mode_of(topic: str, known: Mapping[str, Any]) -> str | None:
    """Return the mode in which a topic was asked; None where the model has one mode or nobody knows.

    A model that reasons by itself was asked while it did, unless a switch for off was found.
    """
    is_on = known.get("reasoning.default") == "on"
    if known.get("reasoning.mode") == "toggle":
        mode = _TOPICS[topic]
        return "reasoning" if mode == "reasoning" or (mode == "default" and is_on) else "no-reasoning"
    return "reasoning" if is_on and "reasoning.mode" not in known else None


# ── the endpoint as a whole: one that refuses everything by now proves nothing by its refusals ──
def _last_pass(exchanges: Sequence[ProbeExchange]) -> int:
    """Return the number of the last exchange in which the endpoint took a request; 0 where it took none."""
    return next((e.number for e in reversed(exchanges) if e.answer.passed), 0)


def _strange(exchanges: Sequence[ProbeExchange]) -> Iterator[str]:
    """Yield what is strange about an endpoint as a whole."""
    whole = [e.answer for e in exchanges if e.answer.passed and e.ask.body and not e.ask.stream]
    if len(whole) > 1 and all(answer.streamed for answer in whole):
        yield "the endpoint streams whatever is asked"
    if _says_one_thing(exchanges):
        yield "every answer is the same text: effects on the answer cannot be seen"


def _says_one_thing(exchanges: Sequence[ProbeExchange]) -> bool:
    """Whether every answer is the same text, whatever was asked."""
    passed = [e for e in exchanges if e.answer.passed and e.answer.reply is not None]
    if len(passed) < _PASSED or len({str(e.ask.body.get("messages")) + e.ask.why for e in passed}) < _PROMPTS:
        return False
    first = passed[0].answer
    return bool(first.text) and all(e.answer.text == first.text and not e.answer.calls for e in passed)
