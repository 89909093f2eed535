"""Ask for parameters: whether they are refused, have an effect, and between which bounds."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from cnllm.jsonpath import get
from cnllm.probe.bounds import BoundSearch, ProvenBound, find_bound
from cnllm.probe.exchange import Ask, Asking, ProbeAnswer
from cnllm.probe.facts import Finding
from cnllm.probe.joint import is_named
from cnllm.probe.question import (
    HELLO,
    SAME,
    TIME,
    WEATHER,
    NothingProven,
    ProbeContext,
    Question,
    Steps,
    need,
    offers_tools,
    question,
    reasons_by_choice,
    refusal,
)
from cnllm.types import Message

__all__ = [
    "FREQUENCY_PENALTY",
    "LOGIT_BIAS",
    "PRESENCE_PENALTY",
    "SEED",
    "TEMPERATURE",
    "TEMPERATURE_REASONING",
    "TOP_K",
    "TOP_P",
    "TOP_P_REASONING",
    "logprobs",
    "max_tokens",
    "parallel",
    "stop",
    "stop_items",
    "top_logprobs",
    "unread",
]

_WORDS = [Message("user", "Write these words: one two three four five six seven eight nine ten.")]
_BOTH = [Message("user", "Call get_weather and get_time in parallel, both for Bern.")]
_LENGTH = 16
_NONSENSE = "zq"
_NUMBERS = ("logprobs", "seed", "frequency_penalty", "temperature", "top_p", "presence_penalty")


def _paths(context: ProbeContext, name: str) -> list[str]:
    """Return the places where a parameter may stand: the wire's own, then those of other endpoints."""
    declared = (context.bodies.model.flags.params or {}).get(name)
    own = [context.bodies.path(name)]
    others = context.candidates.params.get(name, ())
    return list(dict.fromkeys([*others, *own] if declared is None else [*own, *others]))


def _unread(context: ProbeContext) -> list[str]:
    """Return the parameters of which nothing is known, and which the wire has in a place with another name."""
    known = {".".join(flag.split(".")[1:2]) for flag in context.known if flag.startswith("params.")}
    return [name for name in _NUMBERS if context.bodies.path(name) != name and name not in known]


@question(
    "parameters that nothing reads",
    *(f"params.{name}" for name in _NUMBERS),
    requests=12,
    applies=lambda c: bool(_unread(c)),
)
def unread(context: ProbeContext) -> Steps:
    """Send a word in the place of each parameter of which nothing is known, then under its usual name.

    An endpoint that reads them refuses the word; one that checks names refuses the usual name.

    Proof: a word is taken there and under the usual name, and refused as the limit of tokens.
    """
    names = [flag.removeprefix("params.") for flag in context.hints] or _unread(context)

    def ask(keys: list[str]) -> Ask:
        return context.ask(
            [HELLO], why=", ".join(f"{key}={_NONSENSE}" for key in keys), set=dict.fromkeys(keys, _NONSENSE)
        )

    for keys in ({name: context.bodies.path(name) for name in names}, {name: name for name in names}):
        while names:
            answer = yield ask([keys[name] for name in names])
            if answer.passed:
                break
            others = [name for name in names if not is_named(keys[name], answer.message)]
            need(others != names)
            names = others
    limit = context.max_tokens_path
    need(names and (yield replace(ask([limit]), control=True)).refused)
    return [Finding(f"params.{name}", "ignored", "ignored") for name in names]


# ── with an effect that shows ────────────────────────────────────────────────
@question("max_tokens", "params.max_tokens", requests=3, by_model=True)
def max_tokens(context: ProbeContext) -> Steps:
    """Ask for a few tokens of a longer answer.

    Proof: the answer ends after so many tokens; where nobody counts them, it is the beginning of the whole answer.
    """
    for path in context.candidates_for("params.max_tokens", _paths(context, "max_tokens")):
        answer = yield context.ask(_WORDS, why=f"{path}={_LENGTH}", set={path: _LENGTH})
        if answer.passed and (yield from _is_cut(context, answer)):
            return [Finding("params.max_tokens", path, "works")]
    return []


def _is_cut(context: ProbeContext, answer: ProbeAnswer) -> Asking[bool]:
    is_cut = answer.reply is not None and answer.reply.finish == "length"
    if is_cut or answer.usage.output is not None:
        return is_cut or answer.usage.output == _LENGTH
    control = yield context.ask(_WORDS, why="words", control=True)
    whole, text = control.text.strip(), answer.text.strip()
    return bool(text) and len(text) < len(whole) and whole.startswith(text)


@question("stop", "params.stop", requests=3, by_model=True)
def stop(context: ProbeContext) -> Steps:
    """Name a word of the control's answer as a stop text.

    Proof: the answer ends before the stop text, or with it.
    """
    control = yield context.ask(_WORDS, why="words", control=True)
    word = _middle_word(control.text)
    hint = context.hints.get("params.stop")
    refused = ""
    ignored = ""
    for path in _paths(context, "stop") if hint is None else [hint.by]:
        answer = yield context.ask(_WORDS, why=f"{path}=[{word!r}]", set={path: [word]})
        if answer.refused:
            alone = yield context.ask(_WORDS, why=f"{path}={word!r}", set={path: word})
            need(not alone.passed)  # else only its form is refused
            refused = refused or answer.message
        elif len(answer.text) < len(control.text) and word not in answer.text.rstrip().removesuffix(word):
            return [Finding("params.stop", path, "works", by=path)]
        elif word in answer.text:
            ignored = ignored or path
    if ignored:
        return [Finding("params.stop", "ignored", "ignored", by=ignored)]
    return [Finding("params.stop", False, "refused", refused, by=context.bodies.path("stop"))] if refused else []


def _middle_word(text: str) -> str:
    """Return a word from the middle of a text that does not occur before. A text without one proves nothing."""
    words = text.split()
    for index in range(len(words) // 2, len(words) - 1):
        word = words[index].strip(".,:;!?\"'()")
        if len(word) > 2 and text.find(word) == text.find(words[index]) + words[index].find(word) > 0:
            return word
    raise NothingProven


@question(
    "stop texts",
    "params.stop.items",
    requests=5,
    applies=lambda c: isinstance(c.known.get("params.stop"), str) and c.known["params.stop"] != "ignored",
)
def stop_items(context: ProbeContext) -> Steps:
    """Name more and more stop texts.

    Proof: so many texts pass, one more is refused.
    """
    path = context.known["params.stop"]

    def ask(count: float) -> Ask:
        texts = [f"zq{n}zq" for n in range(int(count))]
        return context.ask([HELLO], why=f"{int(count)} stop texts", set={path: texts}, joint=path)

    bound = yield from find_bound(ask, 33, 1, known=(4, 5, 16, 1), hint=context.hint("params.stop.items"))
    if isinstance(bound, ProvenBound) and not bound.open:
        return [
            Finding("params.stop.as", path, "works"),
            Finding("params.stop.items", int(bound.value), "refused", bound.quote),
        ]
    return []


@question("parallel calls", "tools.parallel", requests=1, by_model=True, capable=True, applies=offers_tools)
def parallel(context: ProbeContext) -> Steps:
    """Forbid parallel calls where two come.

    Proof: one call comes where two come without the switch; a refusal of the switch.
    """
    path = context.bodies.path("parallel_tool_calls")
    control = yield context.ask(_BOTH, why="two calls in parallel", tools=(WEATHER, TIME), control=True)
    single = context.ask(_BOTH, why="no parallel calls", tools=(WEATHER, TIME), parallel=False)
    plain = context.ask(_BOTH, tools=(WEATHER, TIME))
    if single.body == plain.body:
        single = context.ask(_BOTH, why=f"{path}=false", tools=(WEATHER, TIME), set={path: False})
    answer = yield single
    if answer.refused:
        return [Finding("tools.parallel", False, "refused", answer.message)]
    need(len(control.calls) > 1 and answer.calls)
    if len(answer.calls) > 1:
        return [Finding("tools.parallel", None, "ignored")]
    is_param = "parallel_tool_calls" in (context.bodies.model.flags.params or {})
    works = [Finding("params.parallel_tool_calls", path, "works")] if is_param else []
    return [Finding("tools.parallel", True, "works"), *works]


@question("logprobs", "params.logprobs", requests=1)
def logprobs(context: ProbeContext) -> Steps:
    """Ask for log probabilities.

    Proof: the reply has log probabilities.
    """
    path = context.bodies.path("logprobs")
    answer = yield context.ask([HELLO], why=f"{path}=true", set={path: True}, joint=path)
    refused = refusal(answer, "params.logprobs", False)
    if refused or not context.is_flat:
        return refused
    if any(get(part, "choices.0.logprobs") for part in (answer.data if answer.streamed else [answer.data])):
        return [Finding("params.logprobs", path, "works")]
    return [Finding("params.logprobs", "ignored", "ignored")]


# ── refused or not ───────────────────────────────────────────────────────────
def _refusable(name: str, value: Any, other_value: Any) -> Question:
    @question(name, f"params.{name}", requests=3)
    def run(context: ProbeContext) -> Steps:
        """Send the parameter with a value, and with another one where that is refused.

        Proof: the endpoint refuses the parameter with two values.
        """
        paths = _paths(context, name)
        answer = yield context.ask([HELLO], why=f"{paths[0]}={value}", set={paths[0]: value}, joint=paths[0])
        if not answer.refused:
            need(paths[0] != name)
            bare = yield context.ask([HELLO], why=f"{name}={value}", set={name: value})
            is_named = bare.refused and paths[0] in bare.message
            return [Finding(f"params.{name}", paths[0], "works", bare.message)] if is_named else []
        other = next((p for p in paths[1:] if p in answer.message), None)
        if other is not None:
            second = yield context.ask([HELLO], why=f"{other}={value}", set={other: value})
            return [] if second.refused else [Finding(f"params.{name}", other, "works", answer.message)]
        again = yield context.ask([HELLO], why=f"{paths[0]}={other_value}", set={paths[0]: other_value})
        return refusal(again, f"params.{name}", False)

    return run


@question("top_logprobs", "params.top_logprobs", requests=2)
def top_logprobs(context: ProbeContext) -> Steps:
    """Ask for the likeliest tokens, beside their log probabilities.

    Proof: the endpoint refuses the parameter beside logprobs, and takes logprobs alone.
    """
    switch, path = context.bodies.path("logprobs"), context.bodies.path("top_logprobs")
    rule = (context.bodies.model.flags.params or {}).get("logprobs")
    on = {} if rule is False else {switch: True}
    control = yield context.ask([HELLO], why="logprobs alone", set=on, control=True)
    if control.refused:
        on = {}
    answer = yield context.ask([HELLO], why=f"{path}=1", set={**on, path: 1})
    return refusal(answer, "params.top_logprobs", False)


# ── between bounds ───────────────────────────────────────────────────────────
class _Range(Struct, frozen=True):
    """The values with which the range of a parameter is looked for."""

    name: str
    low: float
    inside: float
    high: float
    step: float
    known_low: tuple[float, ...]
    known_high: tuple[float, ...]


def _range_question(values: _Range, *, reasons: bool = False) -> Question:
    name, flag, settings = values.name, f"params.{values.name}", {}
    if reasons:
        name, flag, settings = f"{name} while it reasons", f"when.reasoning.{flag}", {"applies": reasons_by_choice}

    @question(name, flag, requests=8, **settings)
    def run(context: ProbeContext) -> Steps:
        """Look for the lowest and the highest value.

        Proof: a value out of range is refused, the bound passes, the next value does not.
        """
        refusal: ProbeAnswer | None = None
        for path in context.candidates_for(f"{flag}.as", _paths(context, values.name)):
            if refusal is not None and path.rpartition(".")[2] not in refusal.message:
                continue  # only a name that the endpoint gives: another one would pass without any effect
            patch = context.on if reasons else None

            def ask(value: float, path: str = path, patch: Any = patch) -> Ask:
                return context.ask([HELLO], why=f"{path}={value}", set={path: value}, patch=patch, joint=path)

            # where nothing is known of the plain mode, its range is asked for in this one
            is_known = any(key.startswith(f"params.{values.name}") for key in context.known)
            if reasons and is_known and not context.hints and (yield from _is_same(context, values, ask)):
                return [Finding(f"{SAME}params.{values.name}", True, "works")]
            found = yield from _range(context, flag, path, values, ask)
            if isinstance(found, ProbeAnswer):
                refusal = refusal or found
            elif refusal is not None and not found:
                return [Finding(flag, path, "works", refusal.message, by=path)]
            elif reasons and not found and context.known.get(f"params.{values.name}") is False:
                return [Finding(flag, path, "works")]
            else:
                return found
        return [] if refusal is None else [Finding(flag, False, "refused", refusal.message)]

    return run


def _is_same(context: ProbeContext, values: _Range, ask: Callable[[float], Ask]) -> Asking[bool]:
    """Whether a mode takes an ordinary value and refuses what is beyond the upper bound, as the plain one does."""
    known, flag = context.known, f"params.{values.name}"
    inside = yield ask(values.inside)
    if not inside.passed or known.get(flag) is False or f"{flag}.fixed" in known:
        return False
    highest, bound = known.get(f"{flag}.max"), known.get(f"{flag}.below")
    if highest is not None:
        bound = round(highest + values.step, 6)
    if bound is None:
        return True
    beyond = yield ask(bound)
    return beyond.refused


def _range(
    context: ProbeContext, flag: str, path: str, values: _Range, ask: Callable[[float], Ask]
) -> Asking[list[Finding] | ProbeAnswer]:
    """Return the findings on a range, or a refusal where no value passes."""
    hints = context.hints
    if flag in hints:  # ignored or refused in the first run, or taken under another name
        answer = yield ask(values.inside)
        return answer if answer.refused else []
    fixed = hints.get(f"{flag}.fixed")
    upper: BoundSearch = None
    if high := fixed or hints.get(f"{flag}.max") or hints.get(f"{flag}.below"):
        upper = yield from find_bound(ask, values.high, values.step, hint=high.value)
    elif not hints:
        upper = yield from _first_bound(ask, values)
    if isinstance(upper, ProbeAnswer):
        return upper
    lower: BoundSearch = None
    low = fixed or hints.get(f"{flag}.min") or hints.get(f"{flag}.above")
    if low or not hints:
        lower = yield from find_bound(
            ask, values.low, values.step, known=values.known_low, hint=low.value if low else None
        )
    found: list[Finding] = []
    for bound, closed, open in ((upper, "max", "below"), (lower, "min", "above")):
        if isinstance(bound, ProvenBound):
            found.append(Finding(f"{flag}.{open if bound.open else closed}", bound.value, "refused", bound.quote))
    if len(found) == 2 and found[0].value == found[1].value and found[0].flag.endswith(".max"):
        found = [replace(found[0], flag=f"{flag}.fixed")]
    return [Finding(f"{flag}.as", path, "works"), *found] if found else []


def _first_bound(ask: Callable[[float], Ask], values: _Range) -> Asking[BoundSearch]:
    """Find the upper bound; the refusal where not even an ordinary value passes and no bound is named."""
    bound = yield from find_bound(ask, values.high, values.step)
    if not isinstance(bound, ProbeAnswer):
        return bound
    inside = yield ask(values.inside)
    if inside.refused:
        return inside
    for value in values.known_high:
        found = yield from find_bound(ask, values.high, values.step, hint=value)
        if isinstance(found, ProvenBound):
            return ProvenBound(found.value, found.open, bound.message)
    return None


_TEMPERATURE = _Range("temperature", -1, 0.7, 3, 0.01, (0,), (2, 1.5, 1))
_TOP_P = _Range("top_p", -1, 0.9, 2, 0.001, (0, 0.01), (1,))


SEED = _range_question(_Range("seed", -1, 7, 2**64, 1, (0,), (2**31 - 1, 2**32 - 1, 2**63 - 1)))
PRESENCE_PENALTY = _range_question(_Range("presence_penalty", -3, 0.5, 3, 0.01, (-2,), (2,)))
FREQUENCY_PENALTY = _range_question(_Range("frequency_penalty", -3, 0.5, 3, 0.01, (-2,), (2,)))
TEMPERATURE = _range_question(_TEMPERATURE)
TOP_P = _range_question(_TOP_P)
TEMPERATURE_REASONING = _range_question(_TEMPERATURE, reasons=True)
TOP_P_REASONING = _range_question(_TOP_P, reasons=True)
LOGIT_BIAS = _refusable("logit_bias", {"100": -1}, {})
TOP_K = _refusable("top_k", 20, 1)
