"""Ask for answers in JSON, and for more output than there is."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from cnllm.probe.bounds import Bound, find_bound
from cnllm.probe.exchange import Answer, Ask
from cnllm.probe.question import Context, Finding, Question, Steps
from cnllm.types import Message

__all__ = ["JSON", "JSON_REASONING", "JSON_WORD", "OUTPUT_LIMIT"]

_PROSE = [Message("user", "Describe the city of Bern in one sentence of prose, not in JSON.")]
_NO_WORD = [Message("user", "Describe the city of Bern in one sentence of prose.")]
_SCHEMA = {
    "type": "object",
    "properties": {"zq_name": {"type": "string"}, "zq_size": {"type": "integer"}},
    "required": ["zq_name", "zq_size"],
    "additionalProperties": False,
}
_OUT_OF_SIGHT = 10**9
_HANG_UP = 4096


def _object(text: str) -> dict[str, Any] | None:
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        return None
    return value if isinstance(value, dict) else None


def _is_whole(answer: Answer) -> bool:
    return answer.reply is not None and answer.reply.finish == "stop"


def _methods(mode: str) -> Callable[[Context], Steps]:
    flag = f"when.{mode}.schema.methods" if mode else "schema.methods"

    def run(context: Context) -> Steps:
        patch = context.on if mode else context.plain
        control = yield context.ask(_PROSE, why="prose", control=True, patch=patch)
        if not control.passed or _object(control.text) is not None:
            return []
        works: list[str] = []
        quote = ""
        has_object = False
        for method in ("json_schema", "json_object"):
            ask = context.ask(_PROSE, why=method, method=method, schema=_SCHEMA, patch=patch)
            if ask.body == context.ask(_PROSE, patch=patch).body:
                continue  # the wire has no such way
            has_object = has_object or method == "json_object"
            answer = yield ask
            value = _object(answer.text)
            if answer.refused:
                quote = quote or answer.message
            elif value is not None and (method == "json_object" or set(value) == {"zq_name", "zq_size"}):
                works.append(method)
            elif value is None and (answer.text.lstrip().startswith(("{", "```")) or not _is_whole(answer)):
                return []  # it began JSON and did not end it: nobody can tell
        if "json_schema" in works and "json_object" in works:
            works.remove("json_object")  # an endpoint that takes a schema takes a bare object, too
        elif has_object and works:
            pass
        elif context.known.get("tools.supported") is True:
            works.append("tool")
        if works in ([], ["tool"]):
            if "tools.supported" not in context.known:
                return []  # a tool may be the way, and nobody knows whether there are any
            works.append("prompt")
        return [Finding(flag, works, "works", quote)]

    return run


def _json_word(context: Context) -> Steps:
    """Ask for JSON without the word in the prompt."""
    answer = yield context.ask(_NO_WORD, why="json_object without the word", method="json_object", schema=_SCHEMA)
    if answer.refused and "json" in answer.message.casefold():
        return [Finding("simulator.json_word", "json", "refused", answer.message)]
    return []


def _output(context: Context) -> Steps:
    """Ask for one word and far too many tokens, and hang up after 4 kB."""
    path = context.known.get("params.max_tokens") or context.bodies.path("max_tokens")
    hint = context.hints.get("limits.output")

    def ask(tokens: float) -> Ask:
        return context.ask(
            [Message("user", "Say the word yes.")],
            why=f"{path}={int(tokens)}",
            set={path: int(tokens)},
            stream=True,
            most=_HANG_UP,
        )

    outputs = context.candidates.outputs
    bound = yield from find_bound(ask, _OUT_OF_SIGHT, 1, known=outputs, hint=None if hint is None else hint.value)
    if isinstance(bound, Bound) and bound.value >= 16:
        value = int(bound.value) - (1 if bound.open else 0)
        return [Finding("limits.output", value, "refused", bound.quote)]
    return []


JSON = Question(
    "answers in JSON",
    ("schema.methods",),
    "the answer is JSON, with the keys of the schema, where the prompt asks for prose",
    2,
    _methods(""),
    by_model=True,
    capable=True,
)
JSON_REASONING = Question(
    "answers in JSON while it reasons",
    ("when.reasoning.schema.methods",),
    "the same, with reasoning on",
    2,
    _methods("reasoning"),
    by_model=True,
    capable=True,
    applies=lambda c: c.known.get("reasoning.mode") == "toggle" and c.on is not None and c.off is not None,
)
JSON_WORD = Question(
    "the word JSON",
    ("simulator.json_word",),
    "JSON is refused where the prompt does not hold the word",
    1,
    _json_word,
    applies=lambda c: "json_object" in (c.known.get("schema.methods") or ()),
)
OUTPUT_LIMIT = Question(
    "output limit",
    ("limits.output",),
    "so many tokens pass, one more is refused; the probe hangs up after 4 kB",
    4,
    _output,
)
