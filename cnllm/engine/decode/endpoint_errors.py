"""Build a typed error from what an endpoint reports, with the endpoint's own sentence.

The meaning of sentences, codes and statuses is data (`errors` in the registry); this file only searches. All texts,
codes and numbers of the error object count (`error_body`). The first rule that matches decides (`classify`), in this
order:

1. rules about the sentence (`text`, `pattern`, `unless`), and rules with a code that has a meaning of its own;
2. rules with a code that says only that the request was wrong or the endpoint failed (`bad-request`, `other`),
   or that is the number of an HTTP status;
3. rules with a status alone.

Within each of the three an endpoint's own rules come before those of its wire, and these before the defaults. So a
general rule never outranks a sentence. The status is that of HTTP. Under HTTP 2xx it is the number in the error object,
as it is where the number says more than a 400 or a 5xx around it.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import msgspec
from msgspec import Struct

from cnllm.engine.decode.collector import Collector
from cnllm.errors import (
    BadKey,
    BadRequest,
    ContentFiltered,
    ContextTooLong,
    EmptyReply,
    EndpointError,
    Overloaded,
    QuotaExceeded,
    RateLimited,
    ReplayMissing,
    StreamCut,
)
from cnllm.jsonpath import get, get_first
from cnllm.protocols import wire
from cnllm.protocols.reported import CODES, key_name
from cnllm.registry.flags import Flags, ReasoningFlags
from cnllm.registry.reasoning_form import form, text_place
from cnllm.types import Reply
from cnllm.types.lenient_json import NotJson, decode_lenient, replace_surrogates

if TYPE_CHECKING:
    from cnllm.engine.encode.plan import Plan

__all__ = [
    "CLASSES",
    "EMPTY_BODY",
    "HINTS",
    "ReportedError",
    "build_error",
    "cut_error",
    "empty_reply_error",
    "error_event_fault",
    "read_fault",
]


CLASSES: dict[str, type[EndpointError]] = {
    "bad-key": BadKey,
    "quota": QuotaExceeded,
    "rate": RateLimited,
    "overloaded": Overloaded,
    "context": ContextTooLong,
    "filtered": ContentFiltered,
    "replay": ReplayMissing,
    "bad-request": BadRequest,
    "other": EndpointError,
}
"""The kinds of a rule (`errors` in the registry), and the exception for each."""
HINTS = {
    "bad-key": "check the key for {provider}: `cnllm keys test {provider}`",
    "quota": "top up or change the plan at {provider}; waiting does not help",
    "rate": "wait, or send fewer requests at once",
    "overloaded": "try again later",
    "context": "shorten the conversation, or use a model with a larger window",
    "replay": "send the assistant turns back unchanged: append reply.message to the history",
    "filtered": "a moderation rule refused it; rephrase",
}
"""The hint for each kind of error: the next step for the user."""
_SPECIFIC = {401, 402, 403, 404, 413, 422, 429, 503, 529}  # numbers that say more than a 400 or 5xx around them
_MAX_BODY = 65_536  # characters of a body that an error carries
_MAX_BAD_JSON = 200  # characters of unreadable JSON in a sentence
_MAX_LINE = 1000  # characters of a first line that replaces a sentence

_MAX_INDEXES = 5  # messages of each kind that the description of a request lists


class ReportedError(Struct, frozen=True):
    """A reported failure: the endpoint's sentence and code, all its texts, and the body.

    `codes` are all codes in lower case, `number` is the HTTP status in the error object, `delay` the wait that the
    endpoint asks for, in seconds.
    """

    message: str
    code: str | None
    text: str
    body: str
    codes: frozenset[str] = frozenset()
    number: int | None = None
    delay: float | None = None


EMPTY_BODY = ReportedError("", None, "", "")
"""The fault of an empty body."""


def read_fault(status: int, headers: Mapping[str, str], body: bytes, flags: Flags) -> ReportedError:
    """Return the fault in a body that is no reply: JSON, server-sent events with JSON, or any text."""
    from cnllm.engine.decode import error_body  # a successful call need not load it

    text = body.decode("utf-8", "replace")[:_MAX_BODY]
    if 300 <= status < 400 and headers.get("location"):
        return ReportedError(f"redirects to {headers['location']}, which is not followed", None, "", text)
    has_json = False
    for candidate in (body, *_payloads(body)):
        try:
            data = decode_lenient(candidate)
        except NotJson:
            continue
        has_json = True
        if data is not None and (data or candidate is not body):
            return _fault_in_data(data, flags, text, status)
    line = _first_line(text)
    if not line:
        line = _default_message(status)
        if (excerpt := text.strip()[:_MAX_BAD_JSON]) and not has_json:
            line = f"HTTP {status}, with JSON that cannot be read: {excerpt}"
    return ReportedError(line, None, text[:4096], text, number=error_body.find_status(line))


def error_event_fault(data: Any) -> dict[str, Any]:
    """Return the decoded data of an error event as an error object with a sentence."""
    from cnllm.engine.decode import error_body

    data = replace_surrogates(data)
    if type(data) is dict and error_body.find_sentence(data):
        return data
    sentence = data if type(data) is str else error_body.find_sentence(data)
    return {"message": sentence.strip()[:_MAX_LINE] or "the endpoint sent an error event without a message"}


def build_error(
    status: int, headers: Mapping[str, str], collector: Collector, reply: Reply, plan: Plan | None
) -> EndpointError:
    """Return the exception for what a reply reported.

    The exception carries `reply` unless it is an HTTP error, which comes before any reply. `plan` is the request, which
    may lack reasoning, and whose address may be wrong.
    """
    from cnllm.engine.decode import error_body, wrong_url

    fault = collector.fault
    flags = collector.flags
    if fault is None:
        code = reply.raw_finish or "error"
        fault = ReportedError(f"the endpoint ended the reply with '{code}'", code, "", "")
    elif not isinstance(fault, ReportedError):
        body = msgspec.json.encode(replace_surrogates(fault)).decode()[:_MAX_BODY]
        fault = _fault_in_data(fault, flags, body, status)
    if collector.whole and not collector.answered and not fault.message and not fault.code and fault.number is None:
        return empty_reply_error(status, collector, reply, plan)
    number = _effective_status(status, fault.number)
    text = fault.text if fault.message in fault.text else f"{fault.message}\n{fault.text}"
    codes = fault.codes | {(fault.code or "").lower()}
    kind, retryable = error_body.classify(flags.errors or [], number, text, codes)
    if kind == "other" and collector.fault is None:
        retryable = True
    delay = error_body.delay_from_headers(headers)
    if delay is None:
        delay = fault.delay
    if delay is None and retryable:  # another sentence may quote the request
        delay = error_body.delay_in_text(fault.message)
    message = fault.message or _default_message(number)
    hint = _hint(kind, collector, plan)
    if hint is None and (number == 404 or collector.model.id in message) and (near := collector.model.nearest_name):
        hint = f"{collector.model.name} is in no list of its provider; did you mean {near}?"
    if plan is not None and kind in error_body.VAGUE and wrong_url.is_suspected(number, message):
        message = f"{message} (the request went to {wrong_url.without_query(plan.url)})"
        hint, retryable = wrong_url.url_hint(plan.url, flags.path or "", collector.model.protocol), False
    return CLASSES[kind](
        message,
        status=status if status >= 300 or fault.number is None else fault.number,
        code=fault.code,
        body=fault.body,
        retry_after=delay,
        retryable=retryable,
        reply=None if status >= 300 else reply,
        hint=hint,
    )


def cut_error(collector: Collector, reply: Reply) -> StreamCut:
    """Return the exception for a reply that has not proven its end."""
    note = next((note for note in reply.notes if note.code in ("finish-unknown", "finish-pending")), None)
    word = "" if note is None else f"; its last finish reason is {note.said!r}"
    if collector.whole:
        message = f"the endpoint sent the reply before it was complete{word}"
        return StreamCut(message, hint="ask again later (in Python .reply holds what came)", reply=reply)
    hint = "-p if_cut=again-whole repeats the request (in Python if_cut='again-whole'; .reply holds what came)"
    if note is not None and note.code == "finish-unknown":
        hint += f". {note.did.removeprefix('cut: ').capitalize()}"
    return StreamCut(f"the stream ended before the reply was complete{word}", hint=hint, reply=reply)


def empty_reply_error(status: int, collector: Collector, reply: Reply, plan: Plan | None) -> EndpointError:
    """Return the exception for a reply that is empty without a reported reason."""
    data = replace_surrogates(collector.raw if collector.whole else collector.choiceless_chunk)
    body = msgspec.json.encode(data).decode()[:_MAX_BODY] if data is not None else ""
    error = EmptyReply(
        f"the reply of {_endpoint(collector, plan)} is empty: no text, no reasoning, no tool call",
        status=status,
        body=body,
        reply=reply,
        hint="try again, with another prompt or another model",
    )
    error.ends_turn = reply.finish == "stop" and reply.raw_finish in wire(collector.model.protocol).empty_ends
    return error


def _endpoint(collector: Collector, plan: Plan | None) -> str:
    """Return the model's full name, and the host of the request."""
    address = plan.url if plan is not None else collector.flags.base_url or ""
    host = urlsplit(address).netloc.rpartition("@")[2]
    return f"{collector.model.name} at {host}" if host else collector.model.name


def _fault_in_data(data: Any, flags: Flags, body: str, status: int) -> ReportedError:
    """Return the sentence and the code in decoded data, first from the declared error object."""
    from cnllm.engine.decode import error_body

    data = replace_surrogates(data)
    while type(data) is list and data and type(data[0]) is dict:
        data = data[0]
    paths = flags.error
    messages = tuple(paths.message or ["message"])
    codes = paths.code or ["code"]
    inner = next((value for p in paths.at or () if (value := get(data, p))), data)
    if type(inner) is not dict:
        inner = data if type(data) is dict else {"message": inner}
    facts = error_body.collect_facts(data)
    code = get_first(inner, codes)
    if code is None:
        code = next((value for key, value in inner.items() if key_name(key) in CODES), None)
    message = next((s for p in messages if (s := error_body.find_sentence(get(inner, p), messages))), "")
    if not message and inner is not data:
        message = next((s for p in messages if (s := error_body.find_sentence(get(data, p), messages))), "")
    others = {s for p in messages if type(s := get(inner, p)) is str}
    message = error_body.join_sentences(message or error_body.find_sentence(inner), facts, others)
    if not message and status >= 300:
        message = _first_line(body)
    return ReportedError(
        message,
        None if code is None or type(code) in (dict, list) else str(code),
        "\n".join(facts.texts),
        body,
        frozenset(facts.codes),
        error_body.find_status(inner, data, message),
        facts.delay,
    )


def _effective_status(status: int, number: int | None) -> int:
    """Return the status that decides: that of HTTP, or the number in the error object where it says more."""
    if number is None or status == number:
        return status
    if status < 300 or (status >= 500 and number < 500):
        return number
    return number if status in (400, 500) and number in _SPECIFIC else status


def _payloads(body: bytes) -> list[bytes]:
    """Return the data of server-sent events, where an error comes as an event."""
    return [line[5:] for line in body.replace(b"\r", b"\n").split(b"\n") if line.startswith(b"data:")]


def _default_message(status: int) -> str:
    """Return the message for an error without one."""
    return f"HTTP {status} without a word"


def _first_line(text: str) -> str:
    """Return the first line that is not empty; of an HTML page its title."""
    if (head := text.lstrip()[:200].lower()).startswith(("<!doctype", "<html", "<head")):
        title = re.search(r"<title>([^<]{1,200})", text[:4096], re.IGNORECASE)
        return f"a page instead of a reply: {title[1].strip()}" if title else "a page instead of a reply"
    if head.startswith(("{", "[")):
        return ""
    line = next((line.strip() for line in text.splitlines() if line.strip()), "")
    return line[:_MAX_LINE]


def _hint(kind: str, collector: Collector, plan: Plan | None) -> str | None:
    """Return the hint for a kind of error; of a retired model its successor, where the model may be the cause."""
    model, status = collector.model, collector.flags.status
    retired = None
    if status is not None and status.is_ == "retired" and status.use:
        retired = f"{model.name} is retired; use {status.use}"
    hint = HINTS.get(kind)
    if hint is None:
        return retired
    hint = hint.replace("{provider}", model.provider)
    if kind == "replay" and plan is not None:
        return f"{hint}; {_request_facts(plan.body, len(plan.content), plan.flags)}"
    if kind != "bad-key":
        return hint
    if not collector.flags.keys:  # `keys test` knows no key of such a provider
        return "check the key that --key-env (in Python api_key=) gave, and that this server takes it"
    if model.other_sites:
        hint = (
            f"the vendor has several sites, and {model.provider} takes no key of {', '.join(model.other_sites)}; "
            f"`cnllm keys test {model.provider}` finds out which one takes yours"
        )
    return hint if retired is None else f"{hint}; {retired}"


# ── the request that was refused ─────────────────────────────────────────────


def _request_facts(body: dict[str, Any], size: int, flags: Flags) -> str:
    """Return which assistant turns were sent with reasoning and which without, and the approximate tokens."""
    rules = flags.reasoning
    if "messages" not in body or form(rules) == "seal":
        return f"the request had about {size // 4} tokens"
    field = text_place(rules) or "reasoning"
    with_reasoning: list[int] = []
    without: list[int] = []
    for index, message in enumerate(body.get("messages") or ()):
        if type(message) is dict and message.get("role") == "assistant":
            content = get(message, flags.messages.answer_field or "content")
            (with_reasoning if _has_reasoning(message, content, field, rules) else without).append(index)
    return (
        f"the request had about {size // 4} tokens; sent with reasoning: {_list_messages(with_reasoning)}; "
        f"without it: {_list_messages(without)}"
    )


def _has_reasoning(message: dict[str, Any], content: Any, field: str, rules: ReasoningFlags) -> bool:
    """Whether a message with this content holds its reasoning."""
    match form(rules):
        case "tags":
            return bool(rules.tags) and type(content) is str and (rules.tags or ["", ""])[1] in content
        case "content-parts":
            return type(content) is list and any(type(p) is dict and p.get("type") == rules.part for p in content)
        case _:
            return get(message, field) is not None


def _list_messages(indices: list[int]) -> str:
    """Return messages as a list of at most `_MAX_INDEXES` indexes."""
    if not indices:
        return "no turn"
    more = f" and {len(indices) - _MAX_INDEXES} more" if len(indices) > _MAX_INDEXES else ""
    return ", ".join(f"messages[{i}]" for i in indices[:_MAX_INDEXES]) + more
