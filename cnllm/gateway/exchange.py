"""One request of a client, without a server: from its body to the arguments of a call, and from events to its bytes.

    exchange = Exchange(ClientRequest(protocol, body, path, headers), names)
    request = exchange.restore(…)                       # with what the store has
    … client.stream(exchange.model, request.messages, **exchange.options(request)) …
    exchange.begin(), exchange.event(event), exchange.end(reply)      # or exchange.whole(reply)

Everything here is pure. The ASGI application and the HTTP clients for SDKs drive it.
"""

from __future__ import annotations

import codecs
import contextlib
import os
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from cnllm.errors import UnknownModel
from cnllm.estimates.tokens import estimate_tokens
from cnllm.gateway.bounds import check_body, check_request
from cnllm.gateway.conversation_key import conversation_key
from cnllm.gateway.failures import POLICY_HEADER, TAG_HEADER, Failure, RequestFailed, failure_of
from cnllm.gateway.model_names import ModelNames
from cnllm.gateway.store import TurnRecord
from cnllm.gateway.thoughts import Authors, Sealer, kept_turn
from cnllm.gateway.tokens import TokenKeys
from cnllm.protocols import server_api, server_codec, wire
from cnllm.protocols.event_order import TextJoiner, join_texts
from cnllm.protocols.reply_notes import reply_notes
from cnllm.protocols.server import StreamWriter, decode_request, encode_error, encode_reply
from cnllm.registry.model import Model
from cnllm.registry.reasoning_form import BOTH, form, is_replayed
from cnllm.system.processes import cached_property
from cnllm.types import (
    BlockEnd,
    Event,
    Finished,
    Note,
    Part,
    ReasoningDelta,
    Reply,
    Restarted,
    Text,
    TextDelta,
    ToolCall,
    ToolCallDelta,
    ToolCallEnd,
    ToolCallStart,
    Usage,
    UsageSeen,
    checks,
)
from cnllm.types.delivered import delta_runs
from cnllm.types.json_form import mend_halves
from cnllm.types.lenient_json import break_off
from cnllm.types.message_memory import LONG, MessageMemory

__all__ = ["DIVERGED", "ClientRequest", "Exchange", "error_body", "is_long", "read_body", "read_remembered_body"]

_TOOLS = "tools"  # on every wire
_BESIDE = 8  # times the new turns: instructions and options, which take less work
_decode_parts = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode
_is_unique = re.compile(r"(?!call_[\d_]+\Z)(?=.*\d)(?:[^A-Za-z0-9]*[A-Za-z0-9]){20}", re.DOTALL).match
"""Whether no other conversation has an id: it has a digit, and 20 letters or digits. One of digits alone was made here,
for a call without an id: not every protocol writes it."""


DIVERGED = Failure(
    502, "the model began its reply again with another text; what was sent is not the answer", "reply_restarted"
)
"""The answer to `Diverged`."""
_ITEM = re.compile(r"\A(input\[)(\d+)")
"""The place of an item at the begin of an error."""
_BROKEN = Failure(502, "the reply broke off", "reply_cut")
_UNREADABLE = "the arguments of a call of {0} are no JSON object, and this protocol cannot hold them: try again"


def read_body(content: bytes, notes: list[Note]) -> dict[str, Any]:
    """Return the body of a request. Raises `RequestFailed` for anything but a JSON object with names of usual form.

    Clients that cut a text inside a character send half of it: it is replaced, with a note. A mark of UTF-8 at the
    beginning is left out.
    """
    text = content.removeprefix(codecs.BOM_UTF8)
    if not text:
        raise RequestFailed(Failure(400, "the body is empty: a JSON object is required", "invalid_json"))
    try:
        try:
            body = msgspec.json.decode(text)
        except msgspec.DecodeError:
            if (mended := mend_halves(text)) == text:
                raise
            body = msgspec.json.decode(mended)
            notes.append(Note("text-mended", "messages", "half of a character in the body", "replaced by U+FFFD"))
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        fault = _encoding_fault(content)
        message = f"the body is not JSON in UTF-8: {fault}" if fault else f"the body is not JSON: {error}"
        raise RequestFailed(Failure(400, message, "invalid_json")) from error
    except RecursionError as error:
        raise RequestFailed(Failure(400, "the body is nested too deeply", "invalid_json")) from error
    if type(body) is not dict:
        raise RequestFailed(Failure(400, "the body is not a JSON object", "invalid_json"))
    check_body(body)
    return body


def _encoding_fault(content: bytes) -> str | None:
    """Return the first byte of a body that is not UTF-8, and its place; None where there is none."""
    try:
        content.decode()
    except UnicodeDecodeError as error:
        return f"0x{content[error.start]:02x} at byte {error.start}"
    return None


def read_remembered_body(content: bytes, protocol: str, memory: MessageMemory, most: int) -> dict[str, Any] | None:
    """Return the body of a request whose turns and tools begin as those of an earlier one, which are not decoded again.

    None where that is not so, or where more than `most` bytes of turns or of tools are new, or there is much beside
    them. Raises as `read_body` does.
    """
    name = wire(protocol).turns
    try:
        parts = _decode_parts(content)
        lists = {key: bytes(parts[key]) for key in (name, _TOOLS) if key in parts}
        if len(content) - sum(map(len, lists.values())) > _BESIDE * most:
            return None
        body: dict[str, Any] = {}
        for key, part in parts.items():
            known = memory.decode_list(key, lists[key], msgspec.json.decode, most) if key in lists else None
            if known is not None:
                body[key] = known.items
            elif key == name or (key in lists and len(part) > most):
                return None
            else:
                body[key] = msgspec.json.decode(part)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None  # `read_body` names the fault and its place
    if name not in body:
        return None
    check_body(body)
    return body


def is_long(protocol: str, body: Mapping[str, Any]) -> bool:
    """Whether a body has so many turns or tools that remembering them pays."""
    return any(type(items := body.get(key)) is list and len(items) >= LONG for key in (wire(protocol).turns, _TOOLS))


def error_body(protocol: str, failure: Failure) -> bytes:
    """Return the body of a failure."""
    return msgspec.json.encode(encode_error(protocol, failure.status, failure.message, failure.code))


class ClientRequest(Struct, frozen=True):
    """The request of a client: its protocol, the decoded body, the path, and the headers with names in lower case.

    `identity` is the client that tokens are bound to. `count`: the client only asks how long the request is. `previous`
    is the response that the body continues, which is in it already as `earlier` items; the reply repeats its id.
    `memory` remembers the turns of this client.
    """

    protocol: str
    body: dict[str, Any]
    path: str
    headers: Mapping[str, str]
    identity: str = ""
    count: bool = False
    previous: str | None = None
    earlier: int = 0
    memory: MessageMemory | None = None


class Exchange:
    """One request and its reply, in the protocol of the client.

    `names` resolves the model, `keys` seal tokens. `usable` returns those of some models that the client's key may use,
    for the choice of one from a tier. Raises `RequestFailed`, whose failure is the answer.
    """

    def __init__(
        self,
        request: ClientRequest,
        names: ModelNames,
        keys: TokenKeys | None = None,
        *,
        offline: bool = False,
        simulate: bool = False,
        usable: Callable[[Sequence[Model]], Sequence[Model]] | None = None,
    ) -> None:
        self.protocol = protocol = request.protocol
        body, headers, memory, identity = request.body, request.headers, request.memory, request.identity
        codec = server_codec(protocol)
        self._api = server_api(protocol)
        self.keeps_replies = self._api.kept_replies is not None
        """Whether a later request may continue the reply by its id."""
        self.body = body if request.previous is None else {**body, "previous_response_id": request.previous}
        if self.keeps_replies and type(body.get("store")) is not bool:
            self.body = {**self.body, "store": True}  # the default, which a reply repeats
        if request.count:
            body = self._api.read_count(body)
        try:
            self.request = decode_request(protocol, body, path=request.path, headers=dict(headers), memory=memory)
        except (ValueError, TypeError) as error:
            message = _ITEM.sub(lambda place: f"{place[1]}{int(place[2]) - request.earlier}", str(error))
            raise RequestFailed(Failure(400, message, "invalid_request")) from error
        check_request(self.request, memory)
        self._use_policy(headers)
        self.tag = self._use_tag(headers)
        if not self.request.model:
            raise RequestFailed(Failure(400, "model: a name is required", "model_missing"))
        self.notes: list[Note] = list(self.request.notes)
        try:
            chosen = names.choose(self.request, protocol, offline=offline, usable=usable)
        except UnknownModel as error:
            raise RequestFailed(failure_of(error, protocol)) from error
        self.model, self.fallback = chosen.first, chosen.fallback
        self.notes += chosen.notes
        self.stream: bool = self.request.stream
        self.ping: bytes = self._api.ping
        """Bytes that keep a stream alive and say nothing."""
        self._shown_model = self.request.model
        self.id = self._api.id_prefix + os.urandom(12).hex()
        self.authors = Authors(self.request, codec, keys, identity, self.model, memory)
        self._keys, self._identity, self._memory = keys, identity, memory
        self._sealer = Sealer(protocol, keys, identity, self.model)
        self._joiner = TextJoiner()
        self._tokens: int | None = None
        self._end: bytes | None = None
        self._ids: dict[str, str] = {}
        self._repeats_ids = simulate  # the simulator gives equal requests equal ids, whatever their model
        self._awaits_seals = not _is_plain(self.model)
        self._joins_texts = _joins_texts(self.model, protocol)

    @cached_property
    def _writer(self) -> StreamWriter:
        """Return the encoder of a stream."""
        return StreamWriter(
            self.protocol,
            id=self.id,
            model=self._shown_model,
            request=self.body,
            input_tokens=self.tokens if self.estimates_input else None,
            seal=None if self._awaits_seals else self._sealer.part,
            strict=True,
        )

    def _use_policy(self, headers: Mapping[str, str]) -> None:
        """Take what the client wants of content that the model cannot read. Raises `RequestFailed`."""
        policy = headers.get(POLICY_HEADER)
        if policy is None:
            return
        if policy not in ("adjust", "error"):
            raise RequestFailed(Failure(400, f"{POLICY_HEADER}: adjust or error is required", "invalid_request"))
        self.request = replace(self.request, options={**self.request.options, "on_unsupported": policy})

    def _use_tag(self, headers: Mapping[str, str]) -> str:
        """Take the tag of the call, and return it; "" where there is none. Raises `RequestFailed`."""
        if not (value := headers.get(TAG_HEADER, "")):
            return ""
        with contextlib.suppress(UnicodeError):  # a server gives the bytes of a header as Latin-1
            value = value.encode("latin-1").decode()
        try:
            tag = checks.as_tag(TAG_HEADER, value)
        except ValueError as error:
            raise RequestFailed(Failure(400, str(error), "invalid_request")) from error
        self.request = replace(self.request, options={**self.request.options, "tag": tag})
        return tag

    @property
    def models(self) -> list[Model]:
        """The models that may answer: the first, and those of the route."""
        others = () if self.fallback is None else self.fallback.targets
        return [self.model, *(model for model in others if isinstance(model, Model))]

    def use_model(self, model: Model) -> None:
        """Take note of the model that answers a route: the reply names it, and what is sealed is its own."""
        self._shown_model = model.name
        if model is not self.model:
            self.model = model
            self._sealer = Sealer(self.protocol, self._keys, self._identity, model)
            self._awaits_seals = not _is_plain(model)
            self._joins_texts = _joins_texts(model, self.protocol)

    @property
    def estimates_input(self) -> bool:
        """Return whether the beginning of the reply says how long the request is."""
        return self.request.stream and self._api.estimates_input

    @property
    def tokens(self) -> int:
        """Return the estimated length of the request in tokens."""
        if self._tokens is None:
            self._tokens = estimate_tokens(self.request.messages, self.request.options.get("tools"))
        return self._tokens

    def lacks_counts(self, reply: Reply) -> bool:
        """Whether a reply lacks counts that the client's protocol requires."""
        usage = reply.usage
        if usage.input is not None and usage.output is not None:
            return False
        return self._api.estimates_input or (self._api.counts_both and usage != Usage())

    def _counts(self, reply: Reply) -> Usage:
        """Return the counts of a reply, with estimates of those that the client's protocol requires."""
        usage = reply.usage
        if not self.lacks_counts(reply):
            return usage
        return replace(
            usage,
            input=max(self.tokens, (usage.cached or 0) + (usage.cache_write or 0))
            if usage.input is None
            else usage.input,
            output=estimate_tokens([reply.message]) if usage.output is None else usage.output,
        )

    def count_body(self) -> dict[str, Any]:
        """Return the answer to a request that only asks how long it is."""
        write_count = self._api.write_count
        assert write_count is not None
        return write_count(self.tokens)

    @property
    def needs_whole_reply(self) -> bool:
        """Return whether the whole reply is needed before a word of it goes out: an answer by a schema is checked."""
        return "schema" in self.request.options

    # ── the reply ────────────────────────────────────────────────────────────

    def whole(self, reply: Reply) -> bytes:
        """Return the body of a whole reply. Raises `RequestFailed` where the reply, or a call in it, broke off."""
        if (failure := self.reply_failure(reply)) is not None:
            raise RequestFailed(failure)
        return msgspec.json.encode(self.reply_body(reply))

    def reply_body(self, reply: Reply) -> dict[str, Any]:
        """Return the body of a whole reply, decoded; that of a stream as its client reads it, with the same ids."""
        if self.stream:
            self.end(reply)
            if self._writer.body is not None:
                return self._writer.body
        return encode_reply(self.protocol, self._for_client(reply), request=self.body)

    def _for_client(self, reply: Reply) -> Reply:
        """Return a reply with the client's ids, and with tokens."""
        parts: list[Part] = []
        calls: dict[str, ToolCall] = {}
        for part in join_texts(reply.message.parts) if self._joins_texts else reply.message.parts:
            if type(part) is not Text:
                part = self._with_id(self._sealer.part(part))
                if type(part) is ToolCall:
                    calls[part.id] = part
            parts.append(part)
        return replace(
            reply,
            id=self.id,
            model=self._shown_model,
            usage=self._counts(reply),
            message=replace(reply.message, parts=tuple(parts)),
            tool_calls=[calls.get(self._id(call.id)) or self._with_id(call) for call in reply.tool_calls],
            incomplete=[*map(self._with_id, reply.incomplete)],
        )

    def reply_notes(self, reply: Reply) -> list[Note]:
        """Return the notes of a reply, with those on what the client's protocol has no place for, or requires."""
        notes = [*reply.notes, *reply_notes(self.protocol, reply)]
        if self.lacks_counts(reply):
            unknown = [name for name in ("input", "output") if getattr(reply.usage, name) is None]
            text = f"the endpoint reports no tokens of the {' and the '.join(unknown)}"
            notes.append(Note("usage-estimated", "usage", text, "an estimate is reported"))
        return notes

    def begin(self) -> bytes:
        """Return the bytes before the first event of a stream."""
        return self._writer.begin()

    def events(self, events: Sequence[Event]) -> bytes:
        """Return the bytes of events, as `event` does. Raises `Diverged`."""
        if len(events) == 1:
            return self.event(events[0])
        out: list[bytes] = []
        for key, run in delta_runs(events):
            out.append(self.event(run.pop(0)))  # it opens a part, so that the others continue one
            if run and key is not None:
                data = self._writer.feed_texts(key, [event.text for event in run])
                out += map(self.event, run) if data is None else [data]
            elif run:
                out += map(self.event, run)
        return b"".join(out)

    def event(self, event: Event) -> bytes:
        """Return the bytes of an event, except for `Finished`, which waits for `end`. Raises `Diverged`."""
        if not self._joins_texts:
            return self._event(event)
        return b"".join(map(self._event, self._joiner.feed(event)))

    def _event(self, event: Event) -> bytes:
        """Return the bytes of an event, as `event` does."""
        kind = type(event)
        if kind is TextDelta or kind is ReasoningDelta or kind is ToolCallDelta:  # most of a stream
            return self._writer.feed(event)
        match event:
            case ToolCallStart():
                event = replace(event, id=self._id(event.id))
            case ToolCallEnd(call=call):
                sealed = self._sealer.part(call) if self._awaits_seals else call
                event = replace(event, call=self._with_id(sealed))
            case BlockEnd() if self._awaits_seals:
                event = self._sealer.end(event)
            case Restarted():
                self._sealer.restart()
            case Finished():
                self._writer.require_whole()
                return b""
        return self._writer.feed(event)

    def end(self, reply: Reply) -> bytes:
        """Return the last bytes of a stream: its end where the reply is whole or ended at a limit, else a failure."""
        if self._end is None:
            self._end = self._encode_end(reply)
        return self._end

    def _encode_end(self, reply: Reply) -> bytes:
        """Write the end of a stream, once."""
        if (failure := self.reply_failure(reply)) is not None:
            return self.failed(failure)
        counts = self._writer.feed(UsageSeen(self._counts(reply))) if self.lacks_counts(reply) else b""
        return counts + self._writer.feed(Finished(reply.finish, reply.raw_finish))

    def failed(self, failure: Failure) -> bytes:
        """Return the bytes of a failure after the stream began."""
        return self._writer.error(failure.status, failure.message, failure.code)

    def reply_failure(self, reply: Reply) -> Failure | None:
        """Return a failure where a client would take a reply, or a call in it, for whole that is not; else None.

        It broke off other than at a limit, or the client's protocol cannot hold the arguments of a call as they are.
        """
        if reply.finish in ("length", "content_filter"):
            return None
        if reply.finish in ("cut", "error") or reply.incomplete:
            return _BROKEN
        for call in reply.tool_calls:
            if call.arguments is not None or call.excluded:
                continue
            if break_off(call.raw):
                return _BROKEN
            if not server_codec(self.protocol).takes_raw(call, self.body):
                return Failure(502, _UNREADABLE.format(call.name), _BROKEN.code)
        return None

    # ── state ────────────────────────────────────────────────────────────────

    def turn(self, reply: Reply) -> tuple[TurnRecord | None, list[str], bytes | None]:
        """Return what the store keeps of a reply: the turn, and the ids of its calls or the key of the conversation."""
        message = reply.message
        turn = kept_turn(message, self.model, self._id)
        if turn is None:
            return None, [], None
        call_ids = [self._id(part.id) for part in message.parts if type(part) is ToolCall and not part.excluded]
        return turn, call_ids, None if call_ids else conversation_key(self.request.messages, message, self._memory)

    def _with_id(self, part: Any) -> Any:
        """Return a part; a call has the id that the client sees."""
        return replace(part, id=self._id(part.id)) if type(part) is ToolCall else part

    def _id(self, id: str) -> str:
        """Return the id of a call that the client sees: the endpoint's, or a new one where others may share it."""
        if (new := self._ids.get(id)) is None:
            is_unique = not self._repeats_ids and _is_unique(id) is not None
            new = self._ids[id] = id if is_unique else f"call_n{os.urandom(12).hex()}"
            self._ids[new] = new
        return new


def _joins_texts(model: Model, protocol: str) -> bool:
    """Whether clients of a protocol get the pieces of a model's text as one."""
    return wire(model.protocol).one_text and model.protocol != protocol


def _is_plain(model: Model) -> bool:
    """Whether a model's reasoning goes back as text alone, so that nothing has to be waited for.

    Seals of reasoning and of calls come at the end of a stream, after the calls that they should stand before.
    """
    rules = model.flags.reasoning
    return is_replayed(rules) and form(rules) not in ("details", BOTH, "seal")
