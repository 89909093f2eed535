"""Insert the key of a request, and remove its secrets from what the endpoint echoes: events, the reply, and errors.

In text and reasoning a secret is searched for as it is written, also where it is spread over several deltas. In all
other values it is searched for in every spelling (see `cnllm.config.spellings`). The deltas put together equal the
reply's text: where the first one or two characters of a secret went out before the rest arrived, they stay in both. A
secret of fewer than eight characters is not removed, because that would damage ordinary text.
"""

from __future__ import annotations

import contextlib
import json
from functools import lru_cache
from typing import Any, TypeVar

import msgspec
from msgspec.structs import replace

from cnllm.client.secret_filter import (
    CUT_SIZE,
    MIN_SECRET,
    ArgumentFilter,
    TextFilter,
    secret_search,
)
from cnllm.config import redact
from cnllm.engine.encode.plan import Plan
from cnllm.errors import CnllmError, TransportError
from cnllm.types import (
    BlockEnd,
    Event,
    Finished,
    Message,
    Note,
    Part,
    Reasoning,
    ReasoningDelta,
    Reply,
    Restarted,
    Text,
    TextDelta,
    ToolCall,
    ToolCallDelta,
    ToolCallEnd,
)
from cnllm.types.delivered import delta_runs
from cnllm.types.json_form import json_form

__all__ = ["Echo", "insert_key", "plan_secrets", "redact_body", "redact_bytes", "redact_error", "secret_bytes"]

Value = TypeVar("Value", bound=msgspec.Struct)

_DATA_FIELDS = ("raw_finish", "model", "id", "raw", "extra")
"""The fields of a reply with plain data."""


class Echo:
    """Removes the secrets of a call's requests from what comes back."""

    def __init__(self, secrets: tuple[str, ...]) -> None:
        self._earlier: tuple[str, ...] = ()  # the secrets of the targets before
        self._has_clean_body = False
        self._requests = 0
        self._learn(secrets)

    def _learn(self, secrets: tuple[str, ...]) -> None:
        """Search for these secrets from now on."""
        self.secrets = secrets
        self._finder, self._plain, self._prefixes = secret_search(secrets)
        self._searched = () if self._finder is None else self._finder.secrets
        self.needles = secret_bytes(secrets)
        self._reset()

    def _reset(self) -> None:
        self._filters: dict[Any, TextFilter] = {}  # one for each kind of delta that has arrived
        self._arguments: dict[int, ArgumentFilter] = {}
        self._argument_sizes: dict[str, int] = {}  # arguments → characters that went out before a secret began
        self._blocks = {Text: (0, ""), Reasoning: (0, "")}  # end of the last block, and its last characters

    def _filter(self, kind: Any) -> TextFilter:
        text_filter = self._filters.get(kind)
        if text_filter is None:
            text_filter = self._filters[kind] = TextFilter(self._plain, self._prefixes)
        return text_filter

    # ── bodies ───────────────────────────────────────────────────────────────

    def begin_request(self, plan: Plan, key: str | None) -> Plan:
        """Return the plan with its key, ready to be sent. What two requests give may end up in one reply."""
        request = insert_key(plan, key)
        secrets = plan_secrets(request, key)
        if self._earlier:
            secrets = tuple(dict.fromkeys((*secrets, *self._earlier)))
        if secrets != self.secrets:  # they are the same at every attempt
            self._learn(secrets)
        self._requests += 1
        self._has_clean_body = False
        return request

    def use_target(self, plan: Plan, key: str | None) -> list[Event]:
        """Search for the secrets of another target, too. Return the withheld text of the one before."""
        events = self.flush()
        self._earlier = self.secrets
        self._learn(tuple(dict.fromkeys((*plan_secrets(insert_key(plan, key), key), *self._earlier))))
        return events

    def plan(self, plan: Plan) -> Plan:
        """Return the plan without secrets in its notes."""
        if self._finder is None or not self._may_hold(plan.notes):
            return plan
        return replace(plan, notes=[self._clean(note) for note in plan.notes])

    def body(self, pieces: list[bytes], broken: TransportError | None) -> tuple[bytes, TransportError | None]:
        """Return a whole body without secrets, and the error that ended it."""
        body = pieces[0] if len(pieces) == 1 else b"".join(pieces)
        if broken is not None:
            return redact_cut_bytes(self.needles, body), broken
        # The reply to a single request whose body holds no secret is not searched again.
        is_clean = self._finder is None or not self._finder.may_hold(body)
        self._has_clean_body = is_clean and self._requests == 1
        return body if is_clean else redact_bytes(self.needles, body), None

    # ── events ───────────────────────────────────────────────────────────────

    def events(self, events: list[Event]) -> list[Event]:
        """Return the events without secrets. Text that may begin a secret waits for the next piece."""
        if self._finder is None or not events:
            return events
        if len(events) == 1:  # most often
            event: Any = events[0]
            if type(event) is ToolCallDelta:
                return events if self._argument_filter(event.index).passes(event.text) else []
            text_filter = self._filters.get(type(event))
            if text_filter is not None and text_filter.passes(event.text):
                return events
        out: list[Event] = []
        for key, run in delta_runs(events):
            if key is not None:
                text = "".join([event.text for event in run])
                if type(key) is int:  # a piece that does not pass waits for the end of the arguments
                    out += run if self._argument_filter(key).passes(text) else ()
                    continue
                if self._filter(key).passes(text):
                    out += run
                    continue
            for event in run:
                self._event(event, out)
        return out

    def _argument_filter(self, index: int) -> ArgumentFilter:
        """Return the filter of the arguments of a call."""
        assert self._finder is not None
        if (arguments := self._arguments.get(index)) is None:
            arguments = self._arguments[index] = ArgumentFilter(self._finder)
        return arguments

    def flush(self) -> list[Event]:
        """Return the withheld text, once nothing more arrives."""
        if self._finder is None:
            return []
        out: list[Event] = []
        for kind, text_filter in self._filters.items():
            if text := text_filter.rest():
                out.append(kind(text))
        for index, arguments in self._arguments.items():
            if text := arguments.rest():
                out.append(ToolCallDelta(index, text))
        return out

    def _event(self, event: Event, out: list[Event]) -> None:
        match event:
            case TextDelta(text) | ReasoningDelta(text):
                text_filter = self._filter(type(event))
                if text_filter.passes(text):
                    out.append(event)
                elif text := text_filter.feed(text):
                    out.append(type(event)(text))
            case ToolCallEnd(index, call):
                if (arguments := self._arguments.pop(index, None)) is not None and arguments.withheld:
                    self._argument_sizes[call.raw] = arguments.size
                    if text := arguments.rest():
                        out.append(ToolCallDelta(index, text))
                out.append(ToolCallEnd(index, self._call(call)) if self._may_hold(event) else event)
            case BlockEnd(index, part):
                out.append(BlockEnd(index, self._block(part)))
            case Restarted():
                self._reset()
                out.append(event)
            case Finished():
                out += self.flush()
                out.append(self._struct(event))
            case _:
                out.append(self._struct(event))

    def _struct(self, event: Any) -> Any:
        """Clean an event whose strings are neither text nor reasoning."""
        if not self._may_hold(event):
            return event
        return self._clean(event)

    def _clean(self, value: Value) -> Value:
        """Return a struct without secrets in any of its strings."""
        return msgspec.convert(self._clean_data(msgspec.to_builtins(value)), type(value))

    def _clean_data(self, data: Any) -> Any:
        """Return data that JSON can hold without secrets in any of its strings and keys."""
        return redact.redact_data(data, self._searched, cut=True)

    def _block(self, part: Part) -> Part:
        if not isinstance(part, Text | Reasoning):
            return self._part(part) if self._may_hold(part) else part
        offset, context = self._blocks[type(part)]
        whole = context + part.text
        self._blocks[type(part)] = offset + len(part.text), whole[1 - max(map(len, self._plain)) :]
        text_filter = self._filter(TextDelta if type(part) is Text else ReasoningDelta)
        text = text_filter.clean_pieces([context, part.text], whole, offset - len(context))[1]
        if text != part.text:
            part = replace(part, text=text)
        return self._part(part) if self._may_hold(replace(part, text="")) else part

    # ── the reply ────────────────────────────────────────────────────────────

    def reply(self, reply: Reply) -> Reply:
        """Return the reply without secrets."""
        if self._finder is None:
            return reply
        # A whole reply has its decoded body in `raw`, which holds the content of every part. Texts are checked below.
        values: Any = (reply.notes, reply.incomplete, reply.id, reply.model, reply.raw_finish)
        if reply.citations or reply.extra:
            values = (reply.citations, reply.extra, values)
        if type(reply.raw) is not dict:
            values = ([*map(_without_text, reply.message.parts)], reply.message.extra, reply.raw, values)
        elif not self._has_clean_body:
            values = (reply.raw, values)
        elif not reply.notes and not reply.incomplete:
            values = None  # the others are copies of values in the body
        if (values is None or not self._may_hold(values)) and not self._text_may_hold(reply):
            return reply if reply.parsed is None else self._clean_parsed(reply)
        fields = {name: self._clean_data(getattr(reply, name)) for name in _DATA_FIELDS}
        return self._clean_parsed(
            replace(
                reply,
                text=self._filter(TextDelta).clean(reply.text),
                reasoning=self._filter(ReasoningDelta).clean(reply.reasoning),
                tool_calls=[self._call(call) for call in reply.tool_calls],
                incomplete=[self._call(call) for call in reply.incomplete],
                notes=[self._clean(note) for note in reply.notes],
                message=self._message(reply.message),
                citations=[self._clean(citation) for citation in reply.citations],
                **fields,
            )
        )

    def _text_may_hold(self, reply: Reply) -> bool:
        """Whether text or reasoning may hold a secret, also over several parts or cut off at the end."""
        text, reasoning = reply.text, reply.reasoning
        for secret in self._plain:
            head = secret[:CUT_SIZE]
            if head in text or head in reasoning:
                return True
        return False

    def _message(self, message: Message) -> Message:
        parts: list[Part] = list(message.parts)
        for kind, delta in ((Text, TextDelta), (Reasoning, ReasoningDelta)):
            indexes = [index for index, part in enumerate(parts) if type(part) is kind]
            texts = [parts[index].text for index in indexes]  # type: ignore[union-attr]
            for index, text in zip(indexes, self._filter(delta).clean_pieces(texts, "".join(texts)), strict=True):
                if text != parts[index].text:  # type: ignore[union-attr]
                    parts[index] = replace(parts[index], text=text)
        extra = self._clean_data(message.extra)
        return replace(message, parts=tuple(map(self._part, parts)), extra=extra)

    def _part(self, part: Part) -> Part:
        """Clean a part. The text of a text or reasoning part is clean already."""
        match part:
            case ToolCall():
                return self._call(part)
            case Text() | Reasoning():
                return replace(self._clean(replace(part, text="")), text=part.text)
        return self._clean(part)

    def _call(self, call: ToolCall) -> ToolCall:
        start = self._argument_sizes.get(call.raw, 0)
        rest = redact.redact(call.raw, self._searched, cut=True, begin=start)
        return replace(self._clean(replace(call, raw="")), raw=call.raw[:start] + rest)

    def _clean_parsed(self, reply: Reply) -> Reply:
        """Rebuild the parsed answer where it holds a secret."""
        parsed = reply.parsed
        if parsed is None or self._finder is None:
            return reply
        if type(parsed) in (dict, list) and not self._may_hold(parsed):
            return reply
        plain = json_form(parsed)
        if not self._may_hold(plain):
            return reply
        cleaned = self._clean_data(plain)
        if plain is not parsed:
            try:
                cleaned = _rebuilt(parsed, cleaned)
            except Exception as error:  # noqa: BLE001 a model class runs its author's code
                sentence = (
                    f"the answer held a secret of the request; without it, validation raised {type(error).__name__}"
                )
                note = Note("answer-invalid", "schema", sentence, "parsed is None")
                return replace(reply, parsed=None, notes=[*reply.notes, note])
        return replace(reply, parsed=cleaned)

    def _may_hold(self, value: Any) -> bool:
        assert self._finder is not None
        try:
            return self._finder.may_hold(msgspec.json.encode(value))
        except (TypeError, ValueError, RecursionError):  # half a surrogate pair, or a value that JSON cannot hold
            return True


def _rebuilt(parsed: Any, plain: Any) -> Any:
    """Return a value of the same type as `parsed`, of its JSON form. Raises any error of the type."""
    if callable(getattr(parsed, "model_validate", None)):
        return type(parsed).model_validate(plain)
    if isinstance(parsed, list | tuple | set | frozenset | dict):
        raise TypeError("the types of its items are not known")
    from cnllm.schemas.python_types import python_type  # few answers have a type

    return python_type(type(parsed)).model_validate_json(json.dumps(plain))


def _without_text(part: Part) -> Part:
    """Return the part without its text, which is checked in another way. A long text need not be copied."""
    return replace(part, text="") if type(part) is Text or type(part) is Reasoning else part


# ── requests, bodies and errors ──────────────────────────────────────────────


def insert_key(plan: Plan, key: str | None) -> Plan:
    """Return the plan with the key in place of its placeholder. Without a key such headers are left out."""
    headers = {}
    for name, value in plan.headers.items():
        if "{key}" in value:
            if key is None:
                continue
            value = value.replace("{key}", key)
        headers[name] = value
    return replace(plan, headers=headers)


def plan_secrets(plan: Plan, key: str | None) -> tuple[str, ...]:
    """Return all secrets of a plan with its key, which only its endpoint may see."""
    return _head_secrets(plan.url, tuple(plan.headers.items()), key)


@lru_cache(maxsize=16)
def _head_secrets(url: str, headers: tuple[tuple[str, str], ...], key: str | None) -> tuple[str, ...]:
    """Return the secrets of a request's head, which is the same for most requests to an endpoint."""
    secrets = redact.request_secrets(url, dict(headers))
    return secrets if key is None or key in secrets else (key, *secrets)


def redact_error(error: CnllmError, secrets: tuple[str, ...], echo: Echo | None = None) -> CnllmError:
    """Remove secrets from an error and its whole chain of causes: the endpoint or the network may echo one.

    `echo` belongs to the call and knows which part of a reply was delivered.
    """
    secrets = (*secrets, *redact.proxy_secrets())
    if not secrets:
        return error
    echo = echo or Echo(secrets)
    pending: list[BaseException | None] = [error]
    visited: list[BaseException] = []
    while pending:
        current = pending.pop()
        if current is None or current in visited:
            continue
        visited.append(current)
        for name, value in list(vars(current).items()):
            cleaned = _clean_value(value, secrets, echo)
            if cleaned is not value:
                with contextlib.suppress(AttributeError):
                    setattr(current, name, cleaned)
        current.args = tuple(_clean_value(value, secrets, echo) for value in current.args)
        pending += [current.__cause__, current.__context__]
    return error


def _clean_value(value: Any, secrets: tuple[str, ...], echo: Echo) -> Any:
    """Return a value without secrets; the same object where it holds none."""
    if isinstance(value, Reply):
        return echo.reply(value)
    if isinstance(value, Note):
        plain = msgspec.to_builtins(value)
        cleaned = redact.redact_data(plain, secrets, cut=True)
        return value if cleaned == plain else msgspec.convert(cleaned, Note)
    if isinstance(value, str | list | tuple | dict):
        cleaned = redact.redact_data(value, secrets, cut=True)
        return value if cleaned == value or (type(value) is tuple and tuple(cleaned) == value) else cleaned
    return value


@lru_cache(maxsize=16)
def secret_bytes(secrets: tuple[str, ...]) -> tuple[bytes, ...]:
    """Return the secrets as bytes, as they stand in a body. Text too short to be a secret is skipped."""
    return tuple(secret.encode("utf-8", "surrogatepass") for secret in secrets if len(secret) >= MIN_SECRET)


def redact_bytes(needles: tuple[bytes, ...], body: bytes) -> bytes:
    """Return a body without the secrets, where the endpoint echoed one in one piece."""
    for secret in needles:
        if body.find(secret) >= 0:  # faster than `in`, which first tries whether the secret is a number
            body = body.replace(secret, redact.MARK.encode())
    return body


def redact_body(secrets: tuple[str, ...], body: bytes) -> bytes:
    """Return a whole text without the secrets in any spelling, for those who read it without an `Echo`."""
    text = body.decode("utf-8", "surrogateescape")
    cleaned = redact.redact(text, secrets)
    return body if cleaned == text else cleaned.encode("utf-8", "surrogateescape")


def redact_cut_bytes(needles: tuple[bytes, ...], body: bytes) -> bytes:
    """Return a body that broke off without the secrets. Its end may be the beginning of one."""
    body = redact_bytes(needles, body)
    for secret in needles:
        for size in range(min(len(secret) - 1, len(body)), MIN_SECRET - 1, -1):
            if body.endswith(secret[:size]):
                return body[:-size] + redact.MARK.encode()
    return body
