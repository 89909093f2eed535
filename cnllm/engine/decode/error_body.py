"""Read what an endpoint reports as wrong: every text, code and number in the body of an error.

An error object has no fixed form. Gateways put one into another, often as JSON (or as Python's repr) inside a string;
frameworks send lists of `{loc, msg}`. All of it is read, within bounds; what an error repeats of the request is not.
"""

from __future__ import annotations

import re
from typing import Any

from msgspec import Struct

from cnllm.engine.decode.retry_delay import delay_from_field
from cnllm.protocols.reported import NUMBERS, key_name
from cnllm.types.lenient_json import NotJson, decode_lenient

__all__ = ["ErrorFacts", "collect_facts", "find_sentence", "find_status"]

_DEPTH, _NODES = 12, 400  # how far an error object is read
_TEXT = 8000  # characters of one text
_SHOWN = 1000  # characters of what is added to a sentence
_LITERAL = 20_000  # characters of a Python repr that are parsed

_CODE_KEYS = frozenset(
    (
        *("code", "codes", "type", "status", "reason", "ret", "retcode", "providercode", "blockreason", "statuscode"),
        *("httpcode", "httpstatus", "errorcode", "errortype", "errcode", "errtype"),
    )
)
_SAID_KEYS = (
    *("message", "msg", "error", "errormsg", "errormessage", "errmsg", "statusmsg", "detail", "details"),
    *("description", "errordescription", "reason", "title", "raw", "errors", "param"),
)
_ECHO_KEYS = frozenset(
    (
        *("input", "inputs", "request", "messages", "prompt", "failedgeneration", "requestbody", "body", "url", "uri"),
        *("path", "instance", "user", "userid", "requestid", "logid", "id", "model", "object", "providername"),
        *("docurl", "documentationurl", "help", "trace", "stack", "stacktrace", "traceback", "timestamp"),
    )
)
"""What an error repeats of the request, or says about itself: nothing that tells what it is."""

_HTTP = re.compile(r"\s*(?:(?:http|error|status)(?:[ _]?(?:error|code|status))*[ :/]*)?([45]\d\d)(?!\d)", re.IGNORECASE)
_IN_BRACKETS = re.compile(r"\((\d{4,6})\)")
_QUOTED = re.compile(
    r"""["']?(?:message|(?:error[_-]?)?msg)["']?\s*:\s*(?:"((?:[^"\\]|\\.){3,2000})|'((?:[^'\\]|\\.){3,2000}))"""
)
_OBJECT = re.compile(r"\[\s*\{|\{")
_REQUEST = re.compile(r"\b(?:messages|input|inputs|request|body|tools)[\"']?\s*[=:]?\s*\[?$", re.IGNORECASE)
"""What stands before an object that is the request's own."""
_CJK = re.compile(r"[\u3040-\u30ff\u4e00-\u9fff]")


class ErrorFacts(Struct):
    """`texts` in the order in which they stand, `codes` in lower case."""

    texts: list[str] = []
    codes: set[str] = set()
    more: list[str] = []
    """Sentences that may be shown beside the main one."""
    wait: float | None = None
    """The longest wait that is asked for, in seconds."""


def collect_facts(data: Any) -> ErrorFacts:
    """Return every text and code of an error object."""
    facts = ErrorFacts([], set(), [])
    _walk(data, "", facts, 0, [_NODES])
    return facts


def _walk(data: Any, key: str, facts: ErrorFacts, depth: int, room: list[int]) -> None:
    room[0] -= 1
    if room[0] < 0 or depth > _DEPTH:
        return
    kind = type(data)
    if kind is dict:
        for name, value in data.items():
            folded = key_name(name) if type(name) is str else ""
            if folded not in _ECHO_KEYS:
                if "retry" in folded and (wait := delay_from_field(folded, value)) is not None:
                    facts.wait = max(wait, facts.wait or 0.0)
                _walk(value, folded, facts, depth + 1, room)
    elif kind is list:
        for value in data:
            _walk(value, key, facts, depth + 1, room)
    elif kind is str:
        _add(data[:_TEXT], key, facts, depth, room)
    elif kind is int and key in _CODE_KEYS:
        facts.codes.add(str(data))


def _add(text: str, key: str, facts: ErrorFacts, depth: int, room: list[int]) -> None:
    text = text.strip()
    if not text:
        return
    if key in _CODE_KEYS:
        facts.codes.add(text.lower())
    before, inner = _embedded(text)
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
    """Whether a text says something, and is no name, path, address or number."""
    if text.startswith(("http://", "https://", "{", "[")):
        return False
    return text.count(" ") >= 2 or len(_CJK.findall(text)) >= 4


def _embedded(text: str) -> tuple[str, Any]:
    """What stands before an object that was written into a text, and the object; None where there is none."""
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
    found: Any = None
    try:
        found = decode_lenient(piece.encode("utf-8", "replace"))
    except NotJson:
        if len(piece) <= _LITERAL and "'" in piece:
            import ast

            try:
                found = ast.literal_eval(piece)
            except (ValueError, SyntaxError, TypeError, MemoryError, RecursionError):
                found = None
    if not _is_error(found):
        return text, None
    before = before.rstrip(" \t\r\n:-–—,'\"")
    return before.removesuffix(" b").strip(), found


def _is_error(found: Any) -> bool:
    """Whether an object is one that an endpoint may have sent: a table, or a list of tables."""
    if type(found) is list and found:
        found = found[0]
    return type(found) is dict and all(type(key) is str for key in found)


# ── the sentence ─────────────────────────────────────────────────────────────


def find_sentence(found: Any, paths: tuple[str, ...] = (), depth: int = 0) -> str:
    """Return the sentence in what stands where one is expected: in a text, a list, a table, or JSON in a text."""
    if depth > _DEPTH:
        return ""
    if type(found) is str:
        return _spoken(found.strip(" \t\r\n"), paths, depth)
    if type(found) is list:
        each = [s for item in found[:5] if (s := _item(item, paths, depth))]
        return "; ".join(dict.fromkeys(each))
    if type(found) is dict:
        for path in paths:
            if path in found and (said := find_sentence(found[path], paths, depth + 1)):
                return said
        named = _by_name(found)
        for name in _SAID_KEYS:
            if name in named and (said := find_sentence(named[name], paths, depth + 1)):
                return said
    return ""


def _spoken(text: str, paths: tuple[str, ...], depth: int) -> str:
    before, inner = _embedded(text[: _TEXT * 8]) if "{" in text or text[:1] == "[" else (text, None)
    if inner is not None:
        said = find_sentence(inner, paths, depth + 1)
        if not said and not before:
            said = "; ".join(collect_facts(inner).more)[:_SHOWN]
        return f"{before}: {said}" if before and said and before not in said else said or before
    if text[:1] in "{[" and (cut := _QUOTED.search(text)):
        return (cut[1] or cut[2]).replace('\\"', '"').replace("\\n", "\n").strip()
    return text


def _item(item: Any, paths: tuple[str, ...], depth: int) -> str:
    """One of a list: a sentence, or `{loc, msg}` with the place before the sentence."""
    said = find_sentence(item, paths, depth + 1)
    place = item.get("loc") if type(item) is dict else None
    if said and type(place) is list and place:
        return f"{'.'.join(str(step) for step in place[:8])}: {said}"
    return said


def join_sentences(main: str, facts: ErrorFacts, apart: set[str]) -> str:
    """The main sentence, and behind it the others of the object that say something else."""
    shown = main
    for text in facts.more[:8]:
        if len(shown) + len(text) <= len(main) + _SHOWN and text not in apart and not _within(text, shown):
            shown = f"{shown.rstrip('.')}: {text}" if shown else text
    return shown


def _within(text: str, shown: str) -> bool:
    return text in shown or text.rstrip(".") in shown


# ── the number ───────────────────────────────────────────────────────────────


def find_status(*places: Any) -> int | None:
    """Return the HTTP status that an error names itself, as a number or at the head of a text."""
    for place in places:
        if type(place) is dict:
            named = _by_name(place)
            for name in NUMBERS:
                if (found := _status(named.get(name))) is not None:
                    return found
    for place in places:
        if type(place) is str and (match := _HTTP.match(place)):
            return int(match[1])
    return None


def _by_name(table: dict[Any, Any]) -> dict[str, Any]:
    """Return what stands under each key, however the endpoint writes it (see `key_name`)."""
    return {key_name(key): value for key, value in table.items() if type(key) is str}


def _status(value: Any) -> int | None:
    if type(value) is float and value.is_integer():
        value = int(value)
    if type(value) is int:
        return value if 400 <= value <= 599 else None
    if type(value) is str and (match := _HTTP.match(value)):
        return int(match[1])
    return None
