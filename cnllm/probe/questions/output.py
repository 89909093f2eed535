"""Ask for answers in JSON, for more output than there is, and for more input."""

from __future__ import annotations

import json
from typing import Any

from cnllm.probe.bounds import ProvenBound, find_bound, numbers
from cnllm.probe.exchange import Ask
from cnllm.probe.facts import Finding
from cnllm.probe.question import (
    SAME,
    ProbeContext,
    Steps,
    need,
    offers_tools,
    question,
    reasons_by_choice,
    refusal,
)
from cnllm.types import Message

__all__ = ["json_word", "methods", "methods_reasoning", "output_limit", "window"]

_PROSE = [Message("user", "Describe the city of Bern in one sentence of prose, not in JSON.")]
_NO_WORD = [Message("user", "Describe the city of Bern in one sentence of prose.")]
_SCHEMA = {
    "type": "object",
    "properties": {"zq_name": {"type": "string"}, "zq_size": {"type": "integer"}},
    "required": ["zq_name", "zq_size"],
    "additionalProperties": False,
}
_PLAIN = {"type": "object", "properties": _SCHEMA["properties"]}
_JSON = ("json_schema", "json_object")
_OUT_OF_SIGHT = 10**9
_HANG_UP = 4096
_WORDS = 2_200_000
_LEAST, _MOST = 512, 20_000_000


def _object(text: str) -> dict[str, Any] | None:
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        return None
    return value if isinstance(value, dict) else None


@question("answers in JSON", "schema.methods", requests=2, by_model=True, capable=True)
def methods(context: ProbeContext) -> Steps:
    """Ask for prose and for JSON, in each way to JSON that the wire has.

    Proof: the answer is JSON, with the keys of the schema, where the prompt asks for prose; another way is refused, or
    answered with prose.
    """
    control = yield context.ask(_PROSE, why="prose", control=True)
    need(control.passed and "{" not in control.text)
    works: list[str] = []
    quote = ""
    has_object = False
    for method in _JSON:
        ask = context.ask(_PROSE, why=method, method=method, schema=_SCHEMA)
        if ask.body == context.ask(_PROSE).body:
            continue  # the wire has no such way
        has_object = has_object or method == "json_object"
        answer = yield ask
        if answer.refused:
            quote = quote or answer.message
            if method == "json_schema":  # a keyword may be refused, and not the way
                answer = yield context.ask(_PROSE, why="a plain schema", method=method, schema=_PLAIN)
        value = _object(answer.text)
        if answer.refused:
            continue
        if value is not None and (method == "json_object" or set(value) == {"zq_name", "zq_size"}):
            works.append(method)
        else:  # something like JSON, or half an answer, may come of the schema or not
            need("{" not in answer.text and answer.reply is not None and answer.reply.finish == "stop")
    if works == list(_JSON):
        works.remove("json_object")  # an endpoint that takes a schema takes a bare object, too
    if not (works and has_object):
        need("tools.supported" in context.known or works)  # else a tool may be the way
        works += ["tool"] if offers_tools(context) else []
        works += ["prompt"] if works in ([], ["tool"]) else []
    return [Finding("schema.methods", works, "works", quote)]


@question(
    "answers in JSON while it reasons",
    "when.reasoning.schema.methods",
    requests=3,
    by_model=True,
    capable=True,
    applies=lambda c: reasons_by_choice(c) and bool(c.known.get("schema.methods")),
)
def methods_reasoning(context: ProbeContext) -> Steps:
    """Ask for JSON in the ways that were taken, while the model reasons.

    Proof: a way that is taken without reasoning is refused with it; that one answer is such JSON is enough.
    """
    known = context.known["schema.methods"]
    own = [method for method in _JSON if method in known]
    works: list[str] = []
    quote = ""
    for method in dict.fromkeys([*own, "json_object"] if own == ["json_schema"] else own):
        ask = context.ask(_PROSE, why=method, method=method, schema=_SCHEMA, patch=context.on)
        if method not in own and (works or ask.body == context.ask(_PROSE, patch=context.on).body):
            continue
        answer = yield ask
        if answer.refused:
            quote = quote or answer.message
        else:
            need(_object(answer.text) is not None)
            works.append(method)
    if not quote:
        return [Finding(f"{SAME}schema.", True, "works")]
    others = ["tool", "prompt"] if offers_tools(context) else ["prompt"]
    return [Finding("when.reasoning.schema.methods", works or others, "refused", quote)]


@question(
    "the word JSON",
    "simulator.json_word",
    requests=1,
    applies=lambda c: "json_object" in (c.known.get("schema.methods") or ()),
)
def json_word(context: ProbeContext) -> Steps:
    """Ask for JSON without the word in the prompt.

    Proof: JSON is refused where the prompt does not hold the word.
    """
    answer = yield context.ask(_NO_WORD, why="json_object without the word", method="json_object", schema=_SCHEMA)
    return refusal(answer, "simulator.json_word", "json") if "json" in answer.message.casefold() else []


@question("output limit", "limits.output", requests=4)
def output_limit(context: ProbeContext) -> Steps:
    """Ask for one word and far too many tokens, and hang up after 4 kB.

    Proof: so many tokens pass, one more is refused; the probe hangs up after 4 kB.
    """
    path = context.max_tokens_path

    def ask(tokens: float) -> Ask:
        return context.ask(
            [Message("user", "Say the word yes.")],
            why=f"{path}={int(tokens)}",
            set={path: int(tokens)},
            stream=True,
            most=_HANG_UP,
        )

    outputs = context.candidates.outputs
    bound = yield from find_bound(ask, _OUT_OF_SIGHT, 1, known=outputs, hint=context.hint("limits.output"))
    if isinstance(bound, ProvenBound) and bound.value >= 16:
        value = int(bound.value) - (1 if bound.open else 0)
        return [Finding("limits.output", value, "refused", bound.quote)]
    return []


@question("window", "limits.context", requests=1, applies=lambda c: c.window is not None or not c.is_own)
def window(context: ProbeContext) -> Steps:
    """Send a prompt of two million words, or a little more than the endpoint says it takes.

    A server of one's own that names no window may read them all, until there is no memory left: it is not asked.

    Proof: a prompt that is far too long is refused in words that name one limit.
    """
    count = (_WORDS if context.window is None else context.window * 5 // 4 + 1000) + context.run
    path = context.max_tokens_path
    answer = yield context.ask(
        [Message("user", "a " * count)], why=f"a prompt of {count} words", stream=True, most=_HANG_UP, set={path: 16}
    )
    need(answer.refused)
    figures = [n for n in numbers(answer.message) if isinstance(n, int) and _LEAST <= n < _MOST and n < count]
    return [Finding("limits.context", figures[0], "refused", answer.message)] if len(figures) == 1 else []
