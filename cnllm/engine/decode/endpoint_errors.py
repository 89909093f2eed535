"""Build a typed error from what an endpoint reports, in its own words.

Which sentence, code or status means what is data (`errors` in the registry); here is only how to look. All texts, codes
and numbers of the error object count (`error_body`). The first rule that fits decides (`error_rules`), in this order:

1. rules about the sentence (`text`, `pattern`, `unless`), and rules with a code that has a meaning of its own;
2. rules with a code that says only that the request was wrong or the endpoint failed (`bad-request`, `other`),
   or that is the number of an HTTP status;
3. rules with a status alone.

Within each of the three an endpoint's own rules come before those of its wire, and these before the defaults. So a
catch-all never outranks a sentence. The status is that of HTTP; under HTTP 2xx it is the number in the error object,
as it is where the number says more than a 400 or a 5xx around it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from msgspec import Struct

from cnllm import errors
from cnllm.engine.decode.reply_builder import ReplyBuilder
from cnllm.errors import EndpointError
from cnllm.jsonpath import get, get_first
from cnllm.registry.flags import ErrorRule, Flags
from cnllm.types import Reply
from cnllm.types.lenient_json import NotJson, decode_lenient, replace_surrogates

if TYPE_CHECKING:
    from cnllm.engine.encode.plan import Plan

__all__ = ["CLASSES", "HINTS", "NOTHING", "Fault", "build_error", "empty_reply_error", "read_fault"]

CLASSES: dict[str, type[EndpointError]] = {
    "bad-key": errors.BadKey,
    "quota": errors.QuotaExceeded,
    "rate": errors.RateLimited,
    "overloaded": errors.Overloaded,
    "context": errors.ContextTooLong,
    "filtered": errors.ContentFiltered,
    "replay": errors.ReplayMissing,
    "bad-request": errors.BadRequest,
    "other": EndpointError,
}
"""The kinds of a rule (`errors` in the registry), and the exception for each."""
HINTS = {
    "bad-key": "check the key for {provider}: `cnllm keys list`",
    "quota": "top up or change the plan at {provider}; waiting does not help",
    "rate": "wait, or send fewer requests at once",
    "overloaded": "try again later",
    "context": "shorten the conversation, or take a model with a larger window",
    "replay": "send the assistant turns back as they came: append reply.message to the history",
    "filtered": "a moderation rule refused it; rephrase",
}
"""What to do next, by the kind of an error."""
_SPECIFIC = {401, 402, 403, 404, 413, 422, 429, 503, 529}  # numbers that say more than a 400 or 5xx around them
_LONGEST = 65_536  # characters of a body that an error carries
_SPOILED = 200  # characters of JSON that cannot be read, in a sentence
_MESSAGE = 1000  # characters of a first line that stands in for a sentence


class Fault(Struct, frozen=True):
    """A reported failure: the endpoint's sentence and code, everything else it said, and the body as text.

    `codes` are all codes in lower case, `number` is the HTTP status that the error object names itself, `wait` the
    seconds after which it says to try again.
    """

    message: str
    code: str | None
    said: str
    body: str
    codes: frozenset[str] = frozenset()
    number: int | None = None
    wait: float | None = None


NOTHING = Fault("", None, "", "")
"""A body with nothing in it."""


def read_fault(status: int, headers: Mapping[str, str], body: bytes, flags: Flags) -> Fault:
    """The fault in a body that is no reply: JSON, server-sent events with JSON, or any text."""
    from cnllm.engine.decode import error_body  # a call that goes well has no time for it

    text = body.decode("utf-8", "replace")[:_LONGEST]
    if 300 <= status < 400 and headers.get("location"):
        return Fault(f"redirects to {headers['location']}, which is not followed", None, "", text)
    read = False
    for candidate in (body, *_payloads(body)):
        try:
            data = decode_lenient(candidate)
        except NotJson:
            continue
        read = True
        if data is not None and (data or candidate is not body):
            return _fault(data, flags, text, status)
    line = _first_line(text)
    if not line:
        said = text.strip()[:_SPOILED]
        line = f"HTTP {status}, with JSON that cannot be read: {said}" if said and not read else _unsaid(status)
    return Fault(line, None, text[:4096], text, number=error_body.find_status(line))


def build_error(
    status: int,
    headers: Mapping[str, str],
    fold: ReplyBuilder,
    reply: Reply,
    plan: Plan | None = None,
    sent: Callable[[], str] | None = None,
) -> EndpointError:
    """Return the exception for what a reply reported.

    `reply` goes with it unless it is an HTTP error, before any reply. `sent` says what the request held, for a caller
    whose reasoning is missing; `plan` is the request, whose address may be wrong.
    """
    from cnllm.engine.decode import error_rules, retry_delay, wrong_url

    fault = fold.fault
    flags = fold.flags
    if fault is None:
        word = reply.raw_finish or "error"
        fault = Fault(f"the endpoint ended the reply with '{word}'", word, "", "")
    elif not isinstance(fault, Fault):
        import msgspec

        fault = _fault(fault, flags, msgspec.json.encode(replace_surrogates(fault)).decode()[:_LONGEST], status)
    if fold.whole and not fold.answered and not fault.message and not fault.code and fault.number is None:
        return empty_reply_error(status, fold, reply, plan)
    number = _effective(status, fault.number)
    kind, retryable = _kind(flags.errors or [], number, fault)
    if kind == "other" and fold.fault is None:
        retryable = True
    message, hint = fault.message or _unsaid(number), _hint(kind, fold, sent)
    if plan is not None and kind in error_rules.VAGUE and wrong_url.is_suspected(number, message, fault.body):
        message = f"{message} (asked: {wrong_url.without_query(plan.url)})"
        hint, retryable = wrong_url.url_hint(plan.url, flags.path or "", fold.of.protocol), False
    return CLASSES[kind](
        message,
        status=status if status >= 300 or fault.number is None else fault.number,
        code=fault.code,
        body=fault.body,
        retry_after=wait if (wait := retry_delay.delay_from_headers(headers)) is not None else fault.wait,
        retryable=retryable,
        reply=None if status >= 300 else reply,
        hint=hint,
    )


def empty_reply_error(status: int, fold: ReplyBuilder, reply: Reply, plan: Plan | None = None) -> EndpointError:
    """Return the exception for a reply that holds nothing, where no one said why."""
    import msgspec

    shown = replace_surrogates(fold.raw if fold.whole else fold.odd)
    body = msgspec.json.encode(shown).decode()[:_LONGEST] if shown is not None else ""
    return errors.EmptyReply(
        f"the reply of {_endpoint(fold, plan)} is empty: no text, no reasoning, no tool call",
        status=status,
        body=body,
        reply=reply,
        hint="ask again, with other words or another model",
    )


def _endpoint(fold: ReplyBuilder, plan: Plan | None) -> str:
    """The model by its full name, and the host that was asked."""
    address = plan.url if plan is not None else fold.flags.base_url or ""
    host = urlsplit(address).netloc.rpartition("@")[2]
    return f"{fold.of.name} at {host}" if host else fold.of.name


def _fault(data: Any, flags: Flags, body: str, status: int) -> Fault:
    """The sentence and the code in decoded data, looked for inside the declared error object first."""
    from cnllm.engine.decode import error_body

    data = replace_surrogates(data)
    while type(data) is list and data and type(data[0]) is dict:
        data = data[0]
    paths = flags.error
    messages = tuple((paths.message if paths else None) or ["message"])
    codes = (paths.code if paths else None) or ["code"]
    inner = next((found for p in (paths.at if paths else None) or () if (found := get(data, p))), data)
    if type(inner) is not dict:
        inner = data if type(data) is dict else {"message": inner}
    facts = error_body.collect_facts(data)
    code = get_first(inner, codes)
    message = next((s for p in messages if (s := error_body.find_sentence(get(inner, p), messages))), "")
    if not message and inner is not data:
        message = next((s for p in messages if (s := error_body.find_sentence(get(data, p), messages))), "")
    others = {s for p in messages if type(s := get(inner, p)) is str}
    message = error_body.join_sentences(message or error_body.find_sentence(inner), facts, others)
    if not message and status >= 300:
        message = _first_line(body)
    return Fault(
        message,
        None if code is None or type(code) in (dict, list) else str(code),
        "\n".join(facts.texts),
        body,
        frozenset(facts.codes),
        error_body.find_status(inner, data, message),
        facts.wait,
    )


def _effective(status: int, number: int | None) -> int:
    """The status that decides: of HTTP, or the number in the error object where that says more."""
    if number is None or status == number:
        return status
    if status < 300 or (status >= 500 and number < 500):
        return number
    return number if status in (400, 500) and number in _SPECIFIC else status


def _kind(rules: list[ErrorRule], status: int, fault: Fault) -> tuple[str, bool]:
    """What a fault is, and whether the same request may succeed later."""
    from cnllm.engine.decode import error_rules  # a call that goes well has no time for it

    said = fault.said if fault.message in fault.said else f"{fault.message}\n{fault.said}"
    return error_rules.classify(rules, status, said, fault.codes | {(fault.code or "").lower()})


def _payloads(body: bytes) -> list[bytes]:
    """The data of server-sent events, where an error comes as one."""
    return [line[5:] for line in body.replace(b"\r", b"\n").split(b"\n") if line.startswith(b"data:")]


def _unsaid(status: int) -> str:
    return f"HTTP {status} without a word"


def _first_line(text: str) -> str:
    """The first line that says something: of a page in HTML its title."""
    if (head := text.lstrip()[:200].lower()).startswith(("<!doctype", "<html", "<head")):
        title = re.search(r"<title>([^<]{1,200})", text[:4096], re.IGNORECASE)
        return f"a page instead of a reply: {title[1].strip()}" if title else "a page instead of a reply"
    if head.startswith(("{", "[")):
        return ""
    line = next((line.strip() for line in text.splitlines() if line.strip()), "")
    return line[:_MESSAGE]


def _hint(kind: str, fold: ReplyBuilder, sent: Callable[[], str] | None) -> str | None:
    """What to do next; a retired model's successor comes first."""
    status = fold.flags.status
    if status is not None and status.is_ == "retired" and status.use:
        return f"{fold.of.name} is retired; use {status.use}"
    hint = HINTS.get(kind)
    if hint is None:
        return None
    hint = hint.replace("{provider}", fold.of.provider)
    return f"{hint}; {sent()}" if kind == "replay" and sent is not None else hint
