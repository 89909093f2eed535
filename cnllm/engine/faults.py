"""What an endpoint reports as wrong → typed errors, in its own words.

Which sentence, code or status means what is data (`errors` in the registry); here is only how to look.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import Any

from msgspec import Struct

from cnllm import errors
from cnllm.engine.decode import Unreadable, lenient, whole
from cnllm.engine.fold import Fold
from cnllm.errors import EndpointError
from cnllm.flags import ErrorRule, Flags
from cnllm.types import Reply
from cnllm.wires.paths import at, first

__all__ = ["NOTHING", "Fault", "empty", "error", "refused"]

_CLASSES: dict[str, type[EndpointError]] = {
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
_RETRYABLE = {"rate", "overloaded"}
_LONGEST = 65_536  # characters of a body that an error carries
_SPOILED = 200  # characters of JSON that cannot be read, in a sentence
_MESSAGE = 1000  # characters of a first line that stands in for a sentence


class Fault(Struct, frozen=True):
    """A reported failure: the endpoint's sentence and code, everything else it said, and the body as text."""

    message: str
    code: str | None
    said: str
    body: str


NOTHING = Fault("", None, "", "")
"""A body with nothing in it."""


def refused(status: int, headers: Mapping[str, str], body: bytes, flags: Flags) -> Fault:
    """The fault in a body that is no reply: JSON, server-sent events with JSON, or any text."""
    text = body.decode("utf-8", "replace")[:_LONGEST]
    if 300 <= status < 400 and headers.get("location"):
        return Fault(f"redirects to {headers['location']}, which is not followed", None, "", text)
    read = False
    for candidate in (body, *_payloads(body)):
        try:
            data = lenient(candidate)
        except Unreadable:
            continue
        read = True
        if data is not None and (data or candidate is not body):
            return _fault(data, flags, text, status)
    line = _first_line(text)
    if not line:
        said = text.strip()[:_SPOILED]
        line = f"HTTP {status}, with JSON that cannot be read: {said}" if said and not read else _unsaid(status)
    return Fault(line, None, text[:4096], text)


def error(
    status: int, headers: Mapping[str, str], fold: Fold, reply: Reply, sent: Callable[[], str] | None = None
) -> EndpointError:
    """The exception for what a reply reported; `reply` goes with it unless it is an HTTP error, before any reply.

    `sent` says what the request held, for who is told that its reasoning is missing.
    """
    fault = fold.fault
    flags = fold.flags
    if fault is None:
        word = reply.raw_finish or "error"
        fault = Fault(f"the endpoint ended the reply with '{word}'", word, "", "")
    elif not isinstance(fault, Fault):
        import msgspec

        fault = _fault(fault, flags, msgspec.json.encode(whole(fault)).decode()[:_LONGEST], status)
    if fold.whole and not fold.answered and not fault.message and not fault.code:
        return empty(status, fold, reply)
    kind, retryable = _kind(flags.errors or [], status, fault)
    if kind == "other" and fold.fault is None:
        retryable = True
    return _CLASSES[kind](
        fault.message or _unsaid(status),
        status=status,
        code=fault.code,
        body=fault.body,
        retry_after=_retry_after(headers),
        retryable=retryable,
        reply=None if status >= 300 else reply,
        hint=_hint(kind, fold, sent),
    )


def empty(status: int, fold: Fold, reply: Reply) -> EndpointError:
    """Nothing came, and no one said why."""
    import msgspec

    shown = whole(fold.raw if fold.whole else fold.odd)
    body = msgspec.json.encode(shown).decode()[:_LONGEST] if shown is not None else ""
    return errors.EmptyReply(
        "the reply is empty: no text, no reasoning, no tool call",
        status=status,
        body=body,
        reply=reply,
        hint="ask again, with other words or another model",
    )


def _fault(data: Any, flags: Flags, body: str, status: int) -> Fault:
    """The sentence and the code in decoded data, looked for inside the declared error object first."""
    data = whole(data)
    while type(data) is list and data and type(data[0]) is dict:
        data = data[0]
    paths = flags.error
    messages = (paths.message if paths else None) or ["message"]
    codes = (paths.code if paths else None) or ["code"]
    inner = next((found for p in (paths.at if paths else None) or () if (found := at(data, p))), data)
    if type(inner) is not dict:
        inner = data if type(data) is dict else {"message": inner}
    sentences = [s for p in messages if (s := _sentence(at(inner, p), messages))]
    if not sentences and inner is not data:
        sentences = [s for p in messages if (s := _sentence(at(data, p), messages))]
    code = first(inner, codes)
    message = sentences[0] if sentences else ""
    if not message and status >= 300:
        message = _first_line(body)
    words = [str(v) for p in codes if (v := at(inner, p)) is not None]
    return Fault(message, None if code is None else str(code), " \n".join([*sentences, *words]), body)


def _sentence(found: Any, messages: list[str]) -> str:
    """A sentence, also out of JSON that was put into a string (a gateway passing on what it got)."""
    if type(found) is list and found and type(found[0]) is str:
        found = found[0]
    if type(found) is not str or not found.strip():
        return ""
    if found.lstrip()[:1] in "{[":
        try:
            inner = lenient(found.encode("utf-8", "replace"))
        except Unreadable:
            return found.strip()
        while type(inner) is list and inner:
            inner = inner[0]
        while type(inner) is dict:
            inner = next((at(inner, p) for p in [*messages, "error"] if at(inner, p)), None)
        return inner.strip() if type(inner) is str else ""
    return found.strip(" \t\r\n")


def _kind(rules: list[ErrorRule], status: int, fault: Fault) -> tuple[str, bool]:
    """What a fault is by the first rule that matches, and whether the same request may succeed later."""
    said = fault.said.lower()
    codes = set(said.split(" \n")) | {(fault.code or "").lower()}
    for rule in rules:
        if (
            (rule.status is None or status in rule.status)
            and (rule.code is None or any(c.lower() in codes for c in rule.code))
            and (rule.text is None or any(t.lower() in said for t in rule.text))
        ):
            return rule.is_, rule.retry if rule.retry is not None else rule.is_ in _RETRYABLE
    return "other", status in (408, 409, 429) or status >= 500


def _retry_after(headers: Mapping[str, str]) -> float | None:
    """Seconds to wait as the endpoint asks: `Retry-After-Ms`, or `Retry-After` as a number or a date."""
    if (exact := headers.get("retry-after-ms", "").strip()).isascii() and exact.replace(".", "", 1).isdigit():
        return float(exact) / 1000
    said = headers.get("retry-after", "").strip()
    if not said:
        return None
    if said.isascii() and said.replace(".", "", 1).isdigit():
        return float(said)
    from email.utils import parsedate_to_datetime  # a call that goes well has no time for it

    try:
        then = parsedate_to_datetime(said).timestamp()
        now = parsedate_to_datetime(headers["date"]).timestamp() if "date" in headers else time.time()
    except (ValueError, TypeError):
        return None
    return max(then - now, 0.0)


def _payloads(body: bytes) -> list[bytes]:
    """The data of server-sent events, where an error comes as one."""
    return [line[5:] for line in body.replace(b"\r", b"\n").split(b"\n") if line.startswith(b"data:")]


def _unsaid(status: int) -> str:
    return f"HTTP {status} without a word"


def _first_line(text: str) -> str:
    """The first line that says something: of a page in HTML its title."""
    import re

    if (head := text.lstrip()[:200].lower()).startswith(("<!doctype", "<html", "<head")):
        title = re.search(r"<title>([^<]{1,200})", text[:4096], re.IGNORECASE)
        return f"a page instead of a reply: {title[1].strip()}" if title else "a page instead of a reply"
    if head.startswith(("{", "[")):
        return ""
    line = next((line.strip() for line in text.splitlines() if line.strip()), "")
    return line[:_MESSAGE]


def _hint(kind: str, fold: Fold, sent: Callable[[], str] | None) -> str | None:
    """What to do next; a retired model's successor comes first."""
    status = fold.flags.status
    if status is not None and status.is_ == "retired" and status.use:
        return f"{fold.of.name} is retired; use {status.use}"
    hints = {
        "bad-key": f"check the key for {fold.of.provider}: `cnllm keys list`",
        "quota": f"top up or change the plan at {fold.of.provider}; waiting does not help",
        "rate": "wait, or send fewer requests at once",
        "overloaded": "try again later",
        "context": "shorten the conversation, or take a model with a larger window",
        "replay": "send the assistant turns back as they came: append reply.message to the history",
        "filtered": "a moderation rule refused it; rephrase",
    }
    return f"{hints[kind]}; {sent()}" if kind == "replay" and sent is not None else hints.get(kind)
