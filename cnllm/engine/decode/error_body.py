"""Read what an endpoint reports as an error: all that its body says, its meaning, and when to try again.

An error object has no fixed form. Gateways nest one in another, often as JSON (or as Python's repr) inside a string;
frameworks send lists of `{loc, msg}`. All of it is read, within limits. Values that repeat the request are skipped.

The meaning follows from the rules of the registry (`errors`). Patterns are matched without backtracking: the time grows
linearly with the text, whatever pattern a registry file holds. A pattern outside this subset matches nothing; `cnllm
registry check` reports it.

The delay before the next try is that of the headers, otherwise of the body: every field with a fitting name counts
(`retryDelay`, `retry_after`, `retry_after_ms`). Its value is a number, a text with a number, a duration (`34s`,
`1m30s`, `{"seconds": 34}`) or a date. Some endpoints name it in their sentence alone (`try again in 1.2s`).
"""

from __future__ import annotations

import ast
import re
import time
from collections.abc import Collection, Iterable, Mapping
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from msgspec import Struct

from cnllm.protocols.reported import NUMBERS, key_name
from cnllm.registry.flags import ErrorRule
from cnllm.schemas.patterns import ignore_case
from cnllm.types.lenient_json import NotJson, decode_lenient

if TYPE_CHECKING:
    from cnllm.schemas.patterns import Pattern

__all__ = [
    "RETRYABLE",
    "VAGUE",
    "ErrorFacts",
    "classify",
    "collect_facts",
    "delay_from_field",
    "delay_from_headers",
    "delay_in_text",
    "find_sentence",
    "find_status",
]


_MAX_DEPTH, _MAX_NODES = 12, 400  # of the part of an error object that is read
_MAX_TEXT = 8000  # characters of one text that are read
_MAX_ADDED = 1000  # characters that are added to a sentence
_MAX_LITERAL = 20_000  # characters of a Python repr that are parsed

_CODE_KEYS = frozenset(
    (
        *("code", "codes", "type", "status", "reason", "ret", "retcode", "providercode", "blockreason", "statuscode"),
        *("httpcode", "httpstatus", "errorcode", "errortype", "errcode", "errtype"),
    )
)
_SENTENCE_KEYS = (
    *("message", "msg", "error", "errormsg", "errormessage", "errmsg", "statusmsg", "detail", "details"),
    *("description", "errordescription", "reason", "title", "exception", "fault", "raw", "errors", "param", "text"),
)
_ECHO_KEYS = frozenset(
    (
        *("input", "inputs", "request", "messages", "prompt", "failedgeneration", "requestbody", "body", "url", "uri"),
        *("path", "instance", "user", "userid", "requestid", "logid", "id", "model", "object", "providername"),
        *("docurl", "documentationurl", "help", "trace", "stack", "stacktrace", "traceback", "timestamp"),
    )
)
"""Keys whose values repeat the request or describe the error object itself: they do not say what is wrong."""

_HTTP = re.compile(r"\s*(?:(?:http|error|status)(?:[ _]?(?:error|code|status))*[ :/]*)?([45]\d\d)(?!\d)", re.IGNORECASE)
_IN_BRACKETS = re.compile(r"\((\d{4,6})\)")
_QUOTED = re.compile(
    r"""["']?(?:message|(?:error[_-]?)?msg)["']?\s*:\s*(?:"((?:[^"\\]|\\.){3,2000})|'((?:[^'\\]|\\.){3,2000}))"""
)
_OBJECT = re.compile(r"""\[\s*\{|\{(?!\s*(?:'[^'{}]*'|"[^"{}]*")\s*[,}])""")
"""The begin of an object. A set of names is none, as Python writes it."""
_REQUEST = re.compile(r"\b(?:messages|input|inputs|request|body|tools)[\"']?\s*[=:]?\s*\[?$", re.IGNORECASE)
"""The text before an object that repeats the request."""
_CJK = re.compile(r"[\u3040-\u30ff\u4e00-\u9fff]")

VAGUE = frozenset({"bad-request", "other"})
"""The kinds that say only that the request failed."""

RETRYABLE = frozenset({"rate", "overloaded"})
"""The kinds that may succeed later, where the rule does not decide."""
_MAX_SEARCHED = 65_536  # characters that a rule searches

_MAX_DELAY = 31_536_000.0  # seconds of a year: a larger number is no delay, but a point in time
_KEY = re.compile(r"(?:x)?retry(?:after|delay|in)(?:in)?(s|secs?|seconds?|ms|msecs?|millis|milliseconds)?")
_NUMBER = re.compile(r"[0-9]{1,15}(?:\.[0-9]{1,20})?")
_DURATION = re.compile(rf"(?:{_NUMBER.pattern}(?:h|m|s|ms|us|µs|ns))+")
_PART = re.compile(rf"({_NUMBER.pattern})([a-zµ]+)")
_UNITS = {"h": 3600.0, "m": 60.0, "s": 1.0, "ms": 1e-3, "us": 1e-6, "µs": 1e-6, "ns": 1e-9}
_SPAN = rf"{_NUMBER.pattern} ?(?:hours?|hrs?|h|minutes?|mins?|ms|msecs?|milliseconds?|m|seconds?|secs?|s)(?![a-z])"
_IN_SENTENCE = re.compile(
    r"\b(?:again|retry|wait)(?: (?:the|this|your|requests?|in|after|for|at|least|about|another)){0,4} "
    rf"({_SPAN}(?:(?:,? | and )?{_SPAN}){{0,3}})|({_NUMBER.pattern}) ?(秒|分钟)钟?[之以]?后[再可请]?(?:重试|再?试)"
)
_SPAN_PART = re.compile(rf"({_NUMBER.pattern}) ?(ms|mi?l|[hms])")


class ErrorFacts(Struct):
    """The facts of an error: `texts` in their order in the body, `codes` in lower case."""

    texts: list[str] = []
    codes: set[str] = set()
    more: list[str] = []
    """Further sentences, for display after the main one."""
    delay: float | None = None
    """The longest delay that the endpoint asks for, in seconds."""


def collect_facts(data: Any) -> ErrorFacts:
    """Return every text and code of an error object."""
    facts = ErrorFacts([], set(), [])
    _walk(data, "", facts, 0, [_MAX_NODES])
    return facts


def _walk(data: Any, key: str, facts: ErrorFacts, depth: int, room: list[int]) -> None:
    """Add the facts of a value and of the values in it; `room` counts down the nodes."""
    room[0] -= 1
    if room[0] < 0 or depth > _MAX_DEPTH:
        return
    kind = type(data)
    if kind is dict:
        for name, value in data.items():
            folded = key_name(name) if type(name) is str else ""
            if folded not in _ECHO_KEYS:
                if "retry" in folded and (delay := delay_from_field(folded, value)) is not None:
                    facts.delay = max(delay, facts.delay or 0.0)
                _walk(value, folded, facts, depth + 1, room)
    elif kind is list:
        for value in data:
            _walk(value, key, facts, depth + 1, room)
    elif kind is str:
        _add_text(data[:_MAX_TEXT], key, facts, depth, room)
    elif kind is int and key in _CODE_KEYS:
        facts.codes.add(str(data))


def _add_text(text: str, key: str, facts: ErrorFacts, depth: int, room: list[int]) -> None:
    """Add a text, or the facts of the object that is written in it."""
    text = text.strip()
    if not text:
        return
    if key in _CODE_KEYS:
        facts.codes.add(text.lower())
    before, inner = _find_embedded(text)
    if inner is not None:
        if before:
            facts.texts.append(before)
        _walk(inner, key, facts, depth + 1, room)
        return
    facts.texts.append(text)
    facts.codes.update(_IN_BRACKETS.findall(text))
    if key not in _CODE_KEYS and key != "loc" and _is_sentence(text):
        facts.more.append(text)


def _is_sentence(text: str) -> bool:
    """Whether a text is a sentence, and not a name, path, address or number."""
    if text.startswith(("http://", "https://", "{", "[")):
        return False
    return text.count(" ") >= 2 or len(_CJK.findall(text)) >= 4


def _find_embedded(text: str) -> tuple[str, Any]:
    """Return the text before an object that is written into a text, and the object; None where there is none."""
    match = _OBJECT.search(text)
    if match is None:
        return text, None
    begin = match.start()
    before = text[:begin].rstrip()
    if _REQUEST.search(before):
        return _REQUEST.sub("", before).rstrip(" ;,.:"), {}
    end = text.rfind("]" if text[begin] == "[" else "}")
    if end <= begin:
        return text, None
    piece = text[begin : end + 1]
    inner: Any = None
    try:
        inner = decode_lenient(piece.encode("utf-8", "replace"))
    except NotJson:
        if len(piece) <= _MAX_LITERAL and "'" in piece:
            try:
                inner = ast.literal_eval(piece)
            except (ValueError, SyntaxError, TypeError, MemoryError, RecursionError):
                inner = None
    if not _is_error(inner):
        return text, None
    before = before.rstrip(" \t\r\n:-–—,'\"")
    return before.removesuffix(" b").strip(), inner


def _is_error(data: Any) -> bool:
    """Whether an object may be an error: a table, or a list of tables."""
    if type(data) is list and data:
        data = data[0]
    return type(data) is dict and all(type(key) is str for key in data)


# ── the sentence ─────────────────────────────────────────────────────────────


def find_sentence(data: Any, paths: tuple[str, ...] = (), depth: int = 0) -> str:
    """Return the sentence in a value: a text, a list, a table, or JSON in a text. Empty where there is none."""
    if depth > _MAX_DEPTH:
        return ""
    if type(data) is str:
        return _sentence_in_text(data.strip(" \t\r\n"), paths, depth)
    if type(data) is list:
        sentences = [s for item in data[:5] if (s := _sentence_of_item(item, paths, depth))]
        return "; ".join(dict.fromkeys(sentences))
    if type(data) is dict:
        for path in paths:
            if path in data and (sentence := find_sentence(data[path], paths, depth + 1)):
                return sentence
        values = _by_name(data)
        for name in _SENTENCE_KEYS:
            if name in values and (sentence := find_sentence(values[name], paths, depth + 1)):
                return sentence
    return ""


def _sentence_in_text(text: str, paths: tuple[str, ...], depth: int) -> str:
    """Return the sentence in a text, also in JSON that the text contains."""
    before, inner = _find_embedded(text[: _MAX_TEXT * 8]) if "{" in text or text[:1] == "[" else (text, None)
    if inner is not None:
        sentence = find_sentence(inner, paths, depth + 1)
        if not sentence and not before:
            sentence = "; ".join(collect_facts(inner).more)[:_MAX_ADDED]
        return f"{before}: {sentence}" if before and sentence and before not in sentence else sentence or before
    if text[:1] in "{[" and (cut := _QUOTED.search(text)):
        return (cut[1] or cut[2]).replace('\\"', '"').replace("\\n", "\n").strip()
    return text


def _sentence_of_item(item: Any, paths: tuple[str, ...], depth: int) -> str:
    """Return the sentence of an item of a list; for `{loc, msg}` with the location before it."""
    sentence = find_sentence(item, paths, depth + 1)
    place = item.get("loc") if type(item) is dict else None
    if sentence and type(place) is list and place:
        return f"{'.'.join(str(step) for step in place[:8])}: {sentence}"
    return sentence


def join_sentences(main: str, facts: ErrorFacts, excluded: set[str]) -> str:
    """Return the main sentence, followed by the other sentences that add something to it."""
    text = main
    for sentence in facts.more[:8]:
        has_room = len(text) + len(sentence) <= len(main) + _MAX_ADDED
        if has_room and sentence not in excluded and sentence.rstrip(".") not in text:
            text = f"{text.rstrip('.')}: {sentence}" if text else sentence
    return text


# ── the number ───────────────────────────────────────────────────────────────


def find_status(*values: Any) -> int | None:
    """Return the HTTP status that an error names itself, as a number or at the start of a text."""
    for value in values:
        if type(value) is dict:
            fields = _by_name(value)
            for name in NUMBERS:
                if (status := _as_status(fields.get(name))) is not None:
                    return status
    for value in values:
        if type(value) is str and (match := _HTTP.match(value)):
            return int(match[1])
    return None


def _by_name(table: dict[Any, Any]) -> dict[str, Any]:
    """Return the values by key, in the form of `key_name`."""
    return {key_name(key): value for key, value in table.items() if type(key) is str}


def _as_status(value: Any) -> int | None:
    """Return a value as the status of an error; None where it is none."""
    if type(value) is float and value.is_integer():
        value = int(value)
    if type(value) is int:
        return value if 400 <= value <= 599 else None
    if type(value) is str and (match := _HTTP.match(value)):
        return int(match[1])
    return None


# ── the meaning ──────────────────────────────────────────────────────────────


def classify(rules: Iterable[ErrorRule], status: int, text: str, codes: Collection[str]) -> tuple[str, bool]:
    """Return the kind of an error, and whether the same request may succeed later.

    `text` holds all texts of the error, its main sentence first; `codes` are its codes in lower case.
    """
    text = text[:_MAX_SEARCHED]
    folded = text.lower()
    for rule in sorted(rules, key=_rank):  # stable: rules of a nearer layer stay first
        if (
            (rule.status is None or status in rule.status)
            and (rule.code is None or any(c.lower() in codes for c in rule.code))
            and (rule.text is None or any(t.lower() in folded for t in rule.text))
            and (rule.pattern is None or any(_compile(p).matches(text) for p in rule.pattern))
            and (rule.unless is None or all(_compile(p).matches(text) is False for p in rule.unless))
        ):
            return rule.kind, rule.retry if rule.retry is not None else rule.kind in RETRYABLE
    return "other", status in (408, 409, 429) or status >= 500


def _rank(rule: ErrorRule) -> int:
    """Return the order of a rule: 0 for a specific one, 1 for a general code, 2 for a status alone."""
    if rule.text is not None or rule.pattern is not None:
        return 0
    if rule.code is None:
        return 2
    return 1 if rule.kind in VAGUE or all(len(code) == 3 and code.isdigit() for code in rule.code) else 0


@lru_cache(maxsize=512)
def _compile(source: str) -> Pattern:
    """Compile a pattern that ignores case."""
    return ignore_case(source)


# ── the delay before the next try ────────────────────────────────────────────


def delay_from_headers(headers: Mapping[str, str]) -> float | None:
    """Return the seconds of `Retry-After-Ms`, or of `Retry-After` as a number, a duration or a date."""
    for name, unit in (("retry-after-ms", 1e-3), ("retry-after", 1.0)):
        value = headers.get(name, "")
        seconds = _seconds(value, unit, headers.get("date")) if value.strip() else None
        if seconds is not None and seconds <= _MAX_DELAY:
            return seconds
    return None


def delay_from_field(name: str, value: Any) -> float | None:
    """Return the seconds that a field of an error requests; None where the field or its value is something else.

    `name` is in lower case, without the characters that join its words.
    """
    match = _KEY.fullmatch(name)
    if match is None:
        return None
    seconds = _seconds(value, 1e-3 if (match[1] or "").startswith("m") else 1.0)
    return seconds if seconds is not None and 0 <= seconds <= _MAX_DELAY else None


def delay_in_text(text: str) -> float | None:
    """Return the seconds after which a sentence asks to try again, the longest one; None where it names none."""
    delays = []
    for span, number, unit in _IN_SENTENCE.findall(text[:_MAX_TEXT].lower()):
        parts = _SPAN_PART.findall(span) if span else [(number, "s" if unit == "秒" else "m")]
        delays.append(sum(float(part) * _UNITS.get(name, 1e-3) for part, name in parts))
    return max(delays, default=None)


def _seconds(value: Any, unit: float, now: str | None = None) -> float | None:
    """Return a value in seconds; None where it is no duration. `now` is the endpoint's clock, for a date."""
    kind = type(value)
    if kind is int or kind is float:
        return value * unit if abs(value) < 1e15 else None
    if kind is dict:  # a duration of protobuf
        parts = [_seconds(value.get(name, 0), scale) for name, scale in (("seconds", 1.0), ("nanos", 1e-9))]
        return sum(filter(None, parts)) if value and None not in parts and {*value} <= {"seconds", "nanos"} else None
    if kind is not str or len(value) > 100:
        return None
    text = value.strip().lower()
    if _NUMBER.fullmatch(text):
        return float(text) * unit
    if _DURATION.fullmatch(text):
        return sum(float(number) * _UNITS[name] for number, name in _PART.findall(text))
    return _seconds_until(value, now)


def _seconds_until(date: str, now: str | None) -> float | None:
    """Return the seconds until a date, by the endpoint's clock where it is known."""
    if not date:
        return None
    from email.utils import parsedate_to_datetime  # a successful call need not load it

    try:
        moment = parsedate_to_datetime(date).timestamp()
        return max(moment - (parsedate_to_datetime(now).timestamp() if now is not None else time.time()), 0.0)
    except (ValueError, TypeError, OverflowError):
        return None
