"""Ask for tools that not every endpoint takes: names, schemas, strictness, ids and results of calls."""

from __future__ import annotations

import copy
import re
from collections.abc import Iterable, Sequence
from typing import Any

from msgspec.structs import replace

from cnllm.probe.bounds import ProvenBound, find_bound
from cnllm.probe.exchange import Ask, ProbeAnswer, reads_more
from cnllm.probe.facts import Finding
from cnllm.probe.question import (
    ASK_WEATHER,
    WEATHER,
    ProbeContext,
    Steps,
    need,
    offers_tools,
    question,
    refusal,
)
from cnllm.probe.questions.earlier import earlier, takes_calls
from cnllm.types import Media, Message, Text

__all__ = [
    "PIXEL",
    "content",
    "ids",
    "keywords",
    "mark",
    "name_length",
    "parameters",
    "result_media",
    "schema",
    "strict",
]

PIXEL = (
    "iVBORw0KGgoAAAANSUhEUgAAACAAAAAgCAIAAAD8GO2jAAAAJ0lEQVR42u3NsQkAAAjAsP"
    "7/tF7hIASyp6lTCQQCgUAgEAgEgi/BAjLD/C5w/SM9AAAAAElFTkSuQmCC"
)
"""A picture of 32 x 32 red pixels (PNG, base64)."""


def _property(schema: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {"type": "object", "properties": {"city": schema}, "required": ["city"], **more}


_DEFS = {"$defs": {"place": {"type": "string"}}}
_SCHEMAS: dict[str, dict[str, Any]] = {
    "inline-refs": _property({"$ref": "#/$defs/place"}, **_DEFS),
    "root-refs": _property({"$ref": "#/$defs/place", "description": "The city."}, **_DEFS),
    "any-of-only": _property({"oneOf": [{"type": "string"}, {"type": "integer"}]}),
    "one-type": _property({"type": ["string", "null"]}),
    "branch-types": _property({"type": "string", "anyOf": [{"type": "string"}, {"type": "string"}]}),
    "no-tuples": _property({"type": "array", "prefixItems": [{"type": "string"}], "items": {"type": "string"}}),
    "typed": _property({"description": "The city."}),
    "root-object": {"anyOf": [_property({"type": "string"})]},
}
"""For each rule of `tools.schema` a schema that breaks it and no other."""


def _every(rules: Sequence[str]) -> dict[str, Any]:
    """Return a schema that breaks all of these rules."""
    properties = {rule: _SCHEMAS[rule]["properties"]["city"] for rule in rules if "properties" in _SCHEMAS[rule]}
    root = {"anyOf": [{"type": "object"}]} if "root-object" in rules else {"type": "object"}
    return {
        **(_DEFS if any("$ref" in schema for schema in properties.values()) else {}),
        **root,
        "properties": properties,
    }


def _usual(context: ProbeContext, flag: str, order: Iterable[str]) -> list[str]:
    """Return the items of a flag of tools that are assumed of any endpoint of the wire, in this order."""
    own = getattr(context.assumed.tools, flag, None) or ()
    return [item for item in order if item in own]


def _with_schema(context: ProbeContext, schema: dict[str, Any], why: str) -> Ask:
    tool = replace(WEATHER, parameters=copy.deepcopy(schema))
    return context.ask([ASK_WEATHER], why=why, tools=(tool,))


@question("schemas of tools", "tools.schema", requests=8, applies=offers_tools)
def schema(context: ProbeContext) -> Steps:
    """Offer a tool with all that some endpoints refuse in a schema; where that is refused, with each alone.

    Proof: a schema with this is refused, one without it passes.
    """
    refused: list[str] = []
    quote = ""
    hint = context.hint("tools.schema")
    if hint is None:
        every = yield _with_schema(context, _every([*_SCHEMAS]), "a schema with all of this")
        need(every.refused)
        if context.run == 1 and (usual := _usual(context, "schema", _SCHEMAS)):
            known = {*usual, *(["root-refs"] if "inline-refs" in usual else [])}
            why = "a schema with what the wire is not known to refuse"
            if (yield _with_schema(context, _every([rule for rule in _SCHEMAS if rule not in known]), why)).passed:
                return [Finding("tools.schema", usual, "refused", every.message)]  # the next run asks for each
    for rule, schema in _SCHEMAS.items():
        if hint is not None and rule not in hint:
            continue  # one answer of acceptance is enough
        answer = yield _with_schema(context, schema, f"a schema with {rule}")
        if answer.refused and not (rule == "root-refs" and "inline-refs" in refused):
            refused.append(rule)
            quote = quote or answer.message
    return [Finding("tools.schema", refused, "refused", quote)] if refused else []


_KEYWORDS: dict[str, tuple[str, Any]] = {
    "title": ("string", "City"),
    "format": ("string", "date"),
    "pattern": ("string", "^[A-Z]"),
    "minLength": ("string", 1),
    "maxLength": ("string", 50),
    "default": ("string", "Bern"),
    "examples": ("string", ["Bern"]),
    "$comment": ("string", "a comment"),
    "minimum": ("number", 0),
    "maximum": ("number", 9),
    "exclusiveMinimum": ("number", 0),
    "exclusiveMaximum": ("number", 9),
    "multipleOf": ("number", 1),
    "minItems": ("array", 1),
    "maxItems": ("array", 3),
    "uniqueItems": ("array", True),
    "const": ("string", "Bern"),
    "enum": ("string", ["Bern"]),
    "additionalProperties": ("root", False),
    "patternProperties": ("root", {"^zq": {"type": "string"}}),
    "propertyNames": ("root", {"type": "string"}),
    "minProperties": ("root", 1),
    "maxProperties": ("root", 99),
    "$schema": ("root", "https://json-schema.org/draft/2020-12/schema"),
    "$id": ("root", "https://example.com/weather"),
    "$anchor": ("string", "city"),
    "$dynamicAnchor": ("string", "city"),
    "$vocabulary": ("root", {"https://json-schema.org/draft/2020-12/vocab/core": True}),
}


def _with_keywords(keywords: list[str]) -> dict[str, Any]:
    """Return a schema in which these keywords stand where they mean something."""
    properties: dict[str, Any] = {"city": {"type": "string"}}
    root: dict[str, Any] = {}
    for keyword in keywords:
        kind, value = _KEYWORDS[keyword]
        if kind == "root":
            root[keyword] = value
            continue
        inner: dict[str, Any] = {"type": kind, keyword: value}
        if kind == "array":
            inner["items"] = {"type": "string"}
        properties[f"p{len(properties)}"] = inner
    return {**root, "type": "object", "properties": properties, "required": ["city"]}


@question("keywords of schemas", "tools.schema_drop", requests=len(_KEYWORDS), applies=offers_tools)
def keywords(context: ProbeContext) -> Steps:
    """Offer a tool with all keywords at once, without those that a refusal names; where it names none, with half.

    Proof: a schema with this keyword is refused in words that name it, or alone; one with all of the others passes.
    """
    hint: list[str] | None = context.hint("tools.schema_drop")
    usual = _usual(context, "schema_drop", _KEYWORDS)
    refused: list[str] = []
    queue, reserve = list(_KEYWORDS), list[str]()
    has_passed = False
    quote = ""

    def ask(keywords: list[str], why: str = "") -> Ask:
        return _with_schema(context, _with_keywords(keywords), why or f"a schema with {', '.join(keywords)[:60]}")

    if hint is not None and hint != usual:  # once more what decided it
        others = [keyword for keyword in queue if keyword not in hint]
        again = yield ask(list(hint), "a schema with the keywords that were refused")
        rest = yield ask(others, "a schema with the keywords that were taken")
        return [Finding("tools.schema_drop", hint, "refused", again.message)] if again.refused and rest.passed else []
    while queue:
        answer = yield ask(queue, "a schema with many keywords")
        if not answer.refused:
            if reserve and not refused:
                return [Finding("tools.schema_drop", usual, "refused", quote)]  # the next run asks for each
            has_passed = True
            queue, reserve = reserve, []
            continue
        quote = quote or answer.message
        hits = [keyword for keyword in queue if _is_named(keyword, answer.message)]
        if context.run == 1 and not reserve and not refused and hits and set(hits) <= set(usual):
            queue, reserve = [keyword for keyword in queue if keyword not in usual], usual
            continue  # the keywords that the wire is known to refuse come last
        suspects = queue
        while not hits and len(suspects) > 1:
            half = suspects[: len(suspects) // 2]
            answer = yield ask(half)
            suspects = half if answer.refused else suspects[len(half) :]
        if not hits:
            alone = yield ask(suspects)
            need(alone.refused)  # else it refuses their number, or what nobody knows
            hits = suspects
        refused += hits
        queue = [keyword for keyword in queue if keyword not in hits]
    in_order = [keyword for keyword in _KEYWORDS if keyword in refused]
    return [Finding("tools.schema_drop", in_order, "refused", quote)] if refused and has_passed else []


def _is_named(keyword: str, words: str) -> bool:
    """Whether words name a keyword: in quotes, or bare where it is no word of a sentence."""
    name = re.escape(keyword)
    if re.search(rf"""['"`‘“]{name}['"`’”]""", words):
        return True
    return not keyword.islower() and re.search(rf"(?<![\w$]){name}(?!\w)", words) is not None


_SHORTEST = 16
"""The least number in a refusal of a name that may be a limit; others number the tools."""


@question("names of tools", "tools.name_max_length", requests=4, applies=offers_tools)
def name_length(context: ProbeContext) -> Steps:
    """Offer tools with longer and longer names.

    Proof: a name of this length passes, a longer one is refused.
    """

    def ask(length: float) -> Ask:
        tool = replace(WEATHER, name="get_weather" + "a" * (int(length) - 11))
        return context.ask([ASK_WEATHER], why=f"a name of {int(length)} characters", tools=(tool,))

    hint = context.hint("tools.name_max_length")
    bound = yield from find_bound(ask, 300, 1, known=(64, 128), hint=hint, least=_SHORTEST)
    if isinstance(bound, ProvenBound) and not bound.open and bound.value >= _SHORTEST:
        return [Finding("tools.name_max_length", int(bound.value), "refused", bound.quote)]
    return []


@question("strict tools", "tools.strict", requests=2, applies=offers_tools)
def strict(context: ProbeContext) -> Steps:
    """Offer a strict function.

    Proof: a strict function is refused, and the same without the mark passes.
    """
    plain = replace(WEATHER, parameters={**(WEATHER.parameters or {}), "additionalProperties": False})
    answer = yield context.ask([ASK_WEATHER], why="a strict function", tools=(replace(plain, strict=True),))
    found = refusal(answer, "tools.strict", False)
    control = context.ask([ASK_WEATHER], why="the same, not strict", tools=(plain,), control=True)
    return found if found and (yield control).passed else []


@question(
    "marks of tools",
    "tools.strict",
    requests=3,
    applies=lambda c: c.known.get("tools.supported") is not False and "tools.strict" not in c.known,
)
def mark(context: ProbeContext) -> Steps:
    """Leave out what the wire says of each tool, whether it is strict, then say what no wire has in its place.

    Proof: both are counted as a part of the prompt: the server shows its model whatever a tool says of itself.
    """
    ask = context.ask([ASK_WEATHER], why="a tool that is not strict", tools=(WEATHER,), control=True)
    tool = ask.body["tools"][0]
    need("strict" in tool)
    bare = {key: value for key, value in tool.items() if key != "strict"}

    def other(why: str, **more: Any) -> Ask:
        return replace(ask, body={**ask.body, "tools": [{**bare, **more}]}, why=why, control=False)

    without = yield other("a tool that says nothing of that")
    for answer in ((yield ask), (yield other("a tool with a key that does not exist", zq_mark=False))):
        need(reads_more(answer, without, 1))
    return [Finding("tools.strict", False, "ignored")]


@question("tools without parameters", "tools.parameters", requests=1, applies=offers_tools)
def parameters(context: ProbeContext) -> Steps:
    """Offer a function without parameters.

    Proof: a function without parameters is refused.
    """
    tool = replace(WEATHER, parameters=None)
    answer = yield context.ask([ASK_WEATHER], why="a function without parameters", tools=(tool,))
    return refusal(answer, "tools.parameters", True)


# ── calls and results of earlier turns ───────────────────────────────────────
_SHORT, _PLAIN, _ODD = "a1B2c3D4e", "call_0a1b2c3d4e5f", "call:0a/1b.2c"
_LIMITS = (64, 40)
_PATTERNS = {
    (64, False): r"[\s\S]{1,64}",
    (40, False): r"[\s\S]{1,40}",
    (64, True): r"[a-zA-Z0-9_-]{1,64}",
    (40, True): r"[a-zA-Z0-9_-]{1,40}",
    (9, True): r"[A-Za-z0-9]{9}",
}
"""The patterns that endpoints are known to have, by their length and by whether they refuse other characters."""


@question("ids of calls", "tools.call_id_pattern", requests=7, applies=offers_tools)
def ids(context: ProbeContext) -> Steps:
    """Send earlier calls with ids of several forms, first with one that breaks every rule.

    Proof: ids that do not match are refused, those that do pass.
    """
    builder = yield from earlier(context)

    def ask(id: str, *, control: bool = False) -> Ask:
        return builder.ask(f"a call id of {len(id)} characters, {id[:16]}", id=id, control=control)

    hint = context.hint("tools.call_id_pattern")
    length, is_word = next((key for key, pattern in _PATTERNS.items() if pattern == hint), (0, False))
    if hint is None:
        good = yield ask(_SHORT, control=True)
        worst = yield ask(_ODD + "0" * 60)
        need(good.passed and worst.refused)
    if not length or is_word:
        is_word = (yield ask(_ODD)).refused
    for limit in _LIMITS if not length else [length] if length in _LIMITS else ():
        beyond = yield ask("c" + "0" * limit)
        need(beyond.refused)
        if (yield ask("c" + "0" * (limit - 1), control=True)).passed:
            return _pattern(limit, beyond, is_word=is_word)
    plain = yield ask(_PLAIN)
    return _pattern(9, plain, is_word=is_word) if plain.refused else []


def _pattern(length: int, refusal: ProbeAnswer, *, is_word: bool) -> list[Finding]:
    pattern = _PATTERNS.get((length, is_word))
    return [Finding("tools.call_id_pattern", pattern, "refused", refusal.message)] if pattern else []


@question("pictures in results", "tools.result_media", requests=1, applies=offers_tools)
def result_media(context: ProbeContext) -> Steps:
    """Send a result with a picture.

    Proof: a result with a picture is refused.
    """
    media = (Media("image/png", data=PIXEL),)
    builder = yield from earlier(context)
    ask = builder.ask("a result with a picture", media=media)
    need(PIXEL in str(ask.body))
    turn = Message("user", (Text("Which colour is this? Answer in one word."), media[0]))
    picture = yield context.ask([turn], why="a picture of the user's", control=True)
    control = yield builder.ask("an earlier call", control=True)
    need(picture.passed and control.passed)  # else the model reads no pictures at all
    answer = yield ask
    return refusal(answer, "tools.result_media", False)


@question("content beside calls", "messages.empty", requests=4, applies=lambda c: c.is_flat and takes_calls(c))
def content(context: ProbeContext) -> Steps:
    """Send an earlier call whose message has no text, in each form.

    Proof: the forms before it are refused, and this one passes.
    """
    builder = yield from earlier(context)
    need((yield builder.ask("an earlier call beside text", control=True)).passed)
    quote = ""
    for value, content in (("null", None), ("empty", ""), ("omit", ...), ("space", " ")):
        answer = yield builder.ask(f"an earlier call, content {value}", content=content)
        if answer.passed:
            return [Finding("messages.empty", value, "refused" if quote else "works", quote)]
        quote = quote or answer.message
    return []
