"""Read the bytes of a response: events for a stream, and at the end the Reply."""

from __future__ import annotations

import re
import sys
from collections.abc import Mapping, Sequence
from typing import Any

from msgspec.structs import replace

from cnllm.engine.decode import endpoint_errors
from cnllm.engine.decode.framing import (
    BLANK,
    BOM,
    MOST_END_MARKER,
    TOO_LONG,
    ErrorData,
    JsonArrayElements,
    JsonLines,
    NamedData,
    SseParser,
    detect_mode,
    has_json_lines,
    is_complete,
    is_end_marker,
    short_text,
)
from cnllm.engine.decode.hours import response_time
from cnllm.engine.decode.reply_builder import reply_builder
from cnllm.engine.decode.usual_reply import read_usual_reply
from cnllm.engine.encode.plan import Plan
from cnllm.errors import EndpointError, ReplyTooLarge, StreamCut
from cnllm.protocols import wire
from cnllm.registry.model import Model
from cnllm.types import Event, ReasoningDelta, Reply, TextDelta, ToolCallDelta, ToolCallStart, checks
from cnllm.types.lenient_json import NotJson, decode_lenient
from cnllm.types.policy import Limits

__all__ = ["StreamParser", "parse_response"]

_MAX_FAST_PIECE = 25  # characters
_MAX_STATUS = 999  # RFC 9110 gives a status three digits
_CONTENT = (TextDelta, ReasoningDelta, ToolCallStart, ToolCallDelta)
_FIELD_NAMES = re.compile(rb"\s*(?:data:\s*)+")
_MAX_FULL_READS = 8  # chunks of plain text that are read in full while the id or the model is unknown


class StreamParser:
    """The parser of one reply: `feed` bytes in pieces of any size, then `close`.

    `plan` carries the decisions of the request. Without it the model's flags apply as they are, no call is excluded,
    and ids are unique in this reply alone. `status` and `headers` are the response's: a status of 400 or more makes the
    body an error. With `keep_raw` the decoded chunks end up in `Reply.raw`. A body that is JSON although a stream was
    requested is read as a whole reply. `limits`, or the plan's, bound the bytes that are read: beyond them `close`
    raises `ReplyTooLarge` with the part that was read. `done` tells that the stream has marked its end or reached a
    limit, so that reading on is not needed.
    """

    def __init__(
        self,
        model: Model,
        tools: Sequence[Any] | None = None,
        *,
        plan: Plan | None = None,
        status: int = 200,
        headers: Mapping[str, str] | None = None,
        keep_raw: bool = False,
        limits: Limits | None = None,
    ) -> None:
        if type(model) is not Model:
            checks.require_type("model", model, Model, "a cnllm.Model, as Registry.resolve returns it,")
        if plan is not None and type(plan) is not Plan:
            checks.require_type("plan", plan, Plan, "the cnllm.Plan that was sent, or None,")
        if type(status) is not int or not 0 <= status <= _MAX_STATUS:
            checks.require_type("status", status, int, "the status of an HTTP response (a number)")
            raise checks.wrong_value("status", status, "the status of an HTTP response (a number)")
        self._limits = limits = Limits.of(limits if limits is not None or plan is None else plan.limits)
        most_event, self._room = limits.event, limits.reply  # bytes that may still come
        self._reached_limit: str | None = None
        flags = plan.flags if plan is not None else model.flags
        model = plan.model if plan is not None else model
        codec = wire(model.protocol)
        self._plan = plan
        self._status = status
        self._headers = checks.as_headers("headers", headers) if headers is not None else {}
        self._flags = flags
        self._builder = reply_builder(model, tools, plan)
        self._collected = self._builder.collected
        # On wires whose streams end with an event each event has a type.
        self._framing: SseParser | JsonArrayElements | JsonLines = SseParser(most_event, names=codec.proof == "event")
        self._arrays = codec.json_arrays
        framing = flags.stream.framing
        self._lines = framing == "ndjson" and (plan is None or plan.stream)
        self._proof = codec.proof
        self._head: list[bytes] = []
        self._mode = "whole" if status >= 300 else ""  # sse or whole; "" until the first bytes decide it
        self._decoder = codec.decoder(flags)
        if type(keep_raw) is not bool:
            checks.require_type("keep_raw", keep_raw, int, "True or False")
        self._raw: list[Any] | None = [] if keep_raw else None
        self.done = False
        self._damaged = False
        self._has_end_marker = False
        self._has_resumed = False  # the answer went on after a finish reason
        self._full_reads = 0
        self._reply: Reply | None = None
        self._fast_kinds: set[str | int | None] = set()  # of piece that the fast decoder may read from now on
        self._fast_decode: Any = None
        # A long piece may repeat all the text so far, unless the flags declare what deltas are.
        deltas = flags.stream.deltas
        self._max_fast_piece = sys.maxsize if deltas == "incremental" else _MAX_FAST_PIECE
        meter = self._collected.meter
        self._meter = meter if meter.counts_calls else None

    # ── reading ──────────────────────────────────────────────────────────────

    @property
    def finished(self) -> bool:
        """Whether the stream has proven that the reply is complete; only usage may still come."""
        builder = self._builder
        if not self._collected.ended or self._proof == "word-and-end":
            return False
        if self._proof == "word" and builder.has_nothing and self._collected.finish_kind in ("stop", "tool_calls"):
            return False  # the answer may still come: no reply is empty
        return self._is_proven(marker=False, orderly=False)

    def feed(self, chunk: bytes) -> list[Event]:
        """Return the events that these bytes cause. Never raises for bytes; after the end it ignores them."""
        if type(chunk) is not bytes:
            chunk = checks.as_bytes("chunk", chunk)
        self._room = room = self._room - len(chunk)
        if room < 0:
            return self._feed_last(chunk)
        if self._mode != "sse" or self.done:
            return self._begin_body(chunk)
        out: list[Event] = []
        builder, fast_decode = self._builder, self._fast_decode
        max_size, kinds = self._max_fast_piece, self._fast_kinds
        is_any_size = max_size == sys.maxsize
        run: list[str] = []  # neighbours of one kind
        kind: str | int | None = None
        for data in self._framing.feed(chunk):
            if fast_decode is not None and (match := fast_decode(data)) is not None and type(data) is not ErrorData:
                text, field = match
                # The full decoder reads the first piece of every kind: it settles id, model, source and tags.
                if field in kinds and (is_any_size or len(text) < max_size or type(field) is int):
                    if field != kind:
                        if run:
                            out += builder.add_run(kind, run)
                            run = []
                        kind = field
                    run.append(text)
                    continue
            if run:
                out += builder.add_run(kind, run)
                run = []
            self._read_event(data, out)
            if self.done:
                break
            kinds = self._fast_kinds
        if run:
            out += builder.add_run(kind, run)
        if chunk[-2:] != b"\n\n" and not self.done:
            for data in self._framing.closing_event():
                self._read_event(data, out)
        return out

    def _begin_body(self, chunk: bytes) -> list[Event]:
        """Read the first bytes, which decide between a stream of events and one body."""
        if self.done:
            return []
        if self._mode == "" and not self._head and not (chunk := chunk.lstrip(BLANK)):
            return []  # blank lines that keep a connection alive before the body begins
        self._head.append(chunk)
        if self._mode == "whole":
            return []
        head = b"".join(self._head)
        mode = self._detect_mode(head)
        if mode is None:
            self._head = [head.rstrip(BLANK)]  # blank lines after a BOM must not add up
            return []
        self._mode = mode
        if mode == "whole":
            return []
        self._begin_events()
        return self._feed_counted(head)

    def _detect_mode(self, head: bytes, *, at_end: bool = False) -> str | None:
        """Return the mode that the first bytes indicate; None while they allow several.

        On a wire that knows arrays of chunks, an array counts as a stream of them; so do lines of JSON where the
        endpoint streams them.
        """
        mode = detect_mode(head, at_end=at_end)
        if mode == "whole" and self._lines and head.removeprefix(BOM).lstrip(BLANK)[:1] == b"{":
            self._framing = JsonLines(self._limits.event)
            return "sse"
        if mode == "whole" and self._arrays and head.removeprefix(BOM).lstrip(BLANK)[:1] == b"[":
            self._framing = JsonArrayElements(self._limits.event)
            return "sse"
        return mode

    def _begin_events(self) -> None:
        """Prepare for a stream of events."""
        self._head = []
        if self._raw is None:
            make_decoder = wire(self._collected.model.protocol).fast_decoder
            self._fast_decode = None if make_decoder is None else make_decoder(self._flags)

    def _read_event(self, data: bytes, out: list[Event]) -> None:
        """Read the data of one event in full."""
        if data is TOO_LONG:
            self._stop_at_limit("max_event_bytes", out)
            return
        if type(data) is ErrorData:
            self._read_error(data, out)
            return
        if len(data) < MOST_END_MARKER and is_end_marker(data):
            self._finish(out, marker=True)
            return
        try:
            decoded = decode_lenient(data)
        except NotJson as error:
            self._note_unreadable(data, error, out)
            return
        if type(decoded) is dict:
            self._read_chunk(decoded, data, out)
            return
        for item in decoded if type(decoded) is list else [decoded]:  # some servers put the objects into a list
            if type(item) is not dict:
                self._collected.has_words = self._collected.has_words or (type(item) in (str, list) and bool(item))
                out += self._collected.note("odd-chunk", "stream", short_text(data), "skipped: not an object")
            elif not self.done:
                self._read_chunk(item, data, out)

    def _read_chunk(self, decoded: dict[str, Any], data: bytes, out: list[Event]) -> None:
        """Read an object in the data of an event."""
        if type(data) is NamedData and "type" not in decoded:
            decoded["type"] = data.name
        if self._raw is not None:
            self._raw.append(decoded)
        if self._meter is not None:
            self._meter.count(decoded, self._collected.paid_calls)
        if self._collected.ended and self._proof != "event":
            self._read_after_finish(decoded, out)
        else:
            out += self._builder.add(self._decoder.decode(decoded))
        if self._collected.has_another:
            out += self._collected.note("second-reply", "stream", short_text(data), "not read: another reply begins")
            self._finish(out, marker=False, orderly=False)
            return
        collector = self._collected
        if not collector.answered:
            collector.choiceless_chunk = decoded
        if (collector.id is None or collector.reported_model is None) and self._full_reads < _MAX_FULL_READS:
            self._full_reads += 1  # the id and the model may come with a later chunk
            return
        is_over = collector.ended and self._proof != "event"  # the rest is read in full: `_read_after_finish`
        self._fast_kinds = set() if is_over or self._decoder.reads_all else self._builder.plain_kinds

    def _read_after_finish(self, decoded: dict[str, Any], out: list[Event]) -> None:
        """Read a chunk that follows a finish reason. If the answer goes on in it, that finish reason ended nothing."""
        builder = self._builder
        count, was_idle = len(self._collected.calls.all), builder.is_idle
        self._collected.ended = False
        events = builder.add(self._decoder.decode(decoded))
        out += events
        is_held_back = was_idle and not builder.is_idle
        if is_held_back or len(self._collected.calls.all) > count or any(type(event) in _CONTENT for event in events):
            self._has_resumed = True
        else:
            self._collected.ended = True

    def _read_error(self, data: bytes, out: list[Event]) -> None:
        """Read an event that is an error by its name, whatever form its data have."""
        builder = self._builder
        try:
            decoded = decode_lenient(data)
        except NotJson:
            decoded = data.decode("utf-8", "replace").strip()
        if type(decoded) is list and len(decoded) == 1:
            decoded = decoded[0]
        if self._raw is not None:
            self._raw.append(decoded)
        if type(decoded) is dict and self._collected.fault is None:
            out += builder.add(self._decoder.decode(decoded))
        if self._collected.fault is None:
            self._collected.fault = endpoint_errors.error_event_fault(decoded)
        self._fast_kinds = set()

    def _note_unreadable(self, data: bytes, error: NotJson, out: list[Event]) -> None:
        """Note data that is no JSON. Blank data say nothing.

        Some servers write the name of the field twice. Data of several lines may be several chunks without the blank
        line between them: each line is read then.
        """
        if (names := _FIELD_NAMES.match(data)) is not None:
            self._read_event(data[names.end() :], out)
            return
        if not (text := short_text(data)):
            return
        lines = data.split(b"\n")
        if len(lines) > 1:
            for line in lines:
                if not self.done and line.strip():
                    self._read_event(line, out)
            return
        if data.lstrip()[:1] in (b"{", b"["):
            self._damaged = True  # a part of the reply cannot be read
            did = f"skipped: {error}; the reply is incomplete"
        else:
            self._collected.has_words = True
            did = "skipped: not JSON"
        out += self._collected.note("unreadable-chunk", "stream", text, did)

    # ── end ──────────────────────────────────────────────────────────────────

    def end(self, *, orderly: bool = True) -> list[Event]:
        """End the input and return the last events; not `orderly` means that the connection broke off."""
        if self.done:
            return []
        out: list[Event] = []
        if self._mode != "sse":
            body = b"".join(self._head)
            self._mode = self._mode or self._detect_mode(body, at_end=True) or "whole"
            if self._status < 300 and (self._mode == "sse" or has_json_lines(body)):
                self._mode = "sse"
                self._begin_events()
                out += self._feed_counted(body)
            else:
                self._read_whole(body, out)
                self._head = []
        if self._mode == "sse" and not self.done:
            torn = self._framing.is_torn
            for data in self._framing.end():
                # A chunk without its blank line counts if it is complete; a partial one is left by a cut.
                torn = False
                for chunk in [data] if is_complete(data) else data.split(b"\n"):
                    if not is_complete(chunk):
                        torn = True
                    elif not self.done:
                        self._read_event(chunk, out)
            orderly = orderly and not torn
        self._finish(out, marker=False, orderly=orderly)
        return out

    def _feed_last(self, chunk: bytes) -> list[Event]:
        """Read the last bytes within the limit. For an error response they are enough."""
        if self.done:
            return []
        chunk = chunk[: self._room]
        out = self._feed_counted(chunk)
        if self.done or (self._mode == "whole" and self._status >= 300):
            return [*out, *self.end()]
        last: list[Event] = []
        self._stop_at_limit("max_reply_bytes", last)
        return [*out, *last]

    def _feed_counted(self, chunk: bytes) -> list[Event]:
        """Feed bytes that were already counted."""
        self._room = max(self._room, 0) + len(chunk)
        return self.feed(chunk)

    def _stop_at_limit(self, limit: str, out: list[Event]) -> None:
        """Stop at a limit and drop the unfinished part."""
        self._reached_limit = limit
        self._head = []
        self._finish(out, marker=False, orderly=False)

    def _read_whole(self, body: bytes, out: list[Event]) -> None:
        """Read a body in one piece."""
        builder = self._builder
        if self._status >= 300:
            self._collected.fault = endpoint_errors.read_fault(self._status, self._headers, body, self._flags)
            return
        body = body.removeprefix(BOM)
        if not body.strip():
            self._collected.whole, self._collected.fault = True, endpoint_errors.EMPTY_BODY
            return
        try:
            decoded = decode_lenient(body)
        except NotJson:
            decoded = None
        if type(decoded) is not dict:
            self._collected.fault = endpoint_errors.read_fault(self._status, self._headers, body, self._flags)
            return
        if wire(self._collected.model.protocol).is_chunk(decoded):
            self._mode = "sse"  # the first line of a stream, behind which nothing came
            self._read_chunk(decoded, body, out)
            return
        self._collected.whole = True
        self._collected.raw = decoded
        if self._meter is not None:
            self._meter.count(decoded, self._collected.paid_calls)
        out += builder.add(self._decoder.decode(decoded, whole=True))
        self._collected.ended = self._collected.ended or self._collected.answered
        if not self._collected.answered and self._collected.fault is None:
            self._collected.fault = decoded

    def _finish(self, out: list[Event], *, marker: bool, orderly: bool = True) -> None:
        """End the reply; `marker` means that the stream sent its end marker."""
        if self.done:
            return
        self.done = True
        self._has_end_marker = marker
        builder = self._builder
        if not self._collected.whole and (pieces := self._decoder.end()):
            out += builder.add(pieces)
        if self._collected.created is None and self._collected.meter.depends_on_time:
            self._collected.created = response_time(self._headers)
        out += builder.end(proven=self._is_proven(marker=marker, orderly=orderly))
        if not self._collected.whole:
            self._collected.raw = self._raw

    def _is_proven(self, *, marker: bool, orderly: bool) -> bool:
        """Whether the reply has proven that it is complete.

        A whole body is complete unless its finish reason says that the reply goes on. In a stream the end that the wire
        and the endpoint declare counts, and nothing else: no other finish reason, and no end of the connection. Where
        the answer went on after a finish reason, the next one needs an orderly end of the bytes as well.
        """
        builder = self._builder
        if self._collected.whole:
            return self._collected.finish_kind != "pending"
        if self._damaged or self._collected.has_gap:
            return False
        if self._proof == "event":
            return self._collected.ended
        if self._proof == "word-and-end":
            return self._collected.ended and (orderly or marker)
        terminator = self._flags.stream.terminator
        if self._collected.ended and (marker or (terminator != "done" and (orderly or not self._has_resumed))):
            return True
        # Some gateways mark the end of a reply that broke off; incomplete arguments or words reveal it.
        return marker and not builder.has_torn_arguments and not self._collected.has_words

    def close(self) -> Reply:
        """Return the reply.

        Raises `StreamCut` where the end is not proven, `ReplyTooLarge` beyond a limit, and `EndpointError` for an error
        that the endpoint reported.
        """
        if not self.done:
            self.end()
        if self._reply is None:
            notes = self._plan.notes if self._plan is not None else list(self._collected.model.notes)
            self._reply = self._builder.reply(notes)
        reply, builder = self._reply, self._builder
        if self._reached_limit is not None and reply.finish == "cut":
            raise ReplyTooLarge(limit=self._reached_limit, most=getattr(self._limits, self._reached_limit), reply=reply)
        if reply.finish == "error":
            raise endpoint_errors.build_error(self._status, self._headers, self._collected, reply, self._plan)
        if reply.finish == "cut" and not (builder.is_empty and self._has_end_marker):
            raise endpoint_errors.cut_error(self._collected, reply)
        if builder.is_empty:
            raise endpoint_errors.empty_reply_error(self._status, self._collected, reply, self._plan)
        return reply

    def close_broken(self) -> Reply:
        """Return the reply of a stream that broke off. Raises the errors of `close`.

        One that broke off before its first event is cut, too: an empty body is no refusal.
        """
        self.end(orderly=False)
        try:
            return self.close()
        except EndpointError as error:
            if error.reply is None or self._mode == "sse":
                raise
            raise StreamCut(
                "the connection broke off before the reply began",
                hint="try again",
                reply=replace(error.reply, finish="cut"),
            ) from None


def parse_response(
    model: Model,
    status: int,
    headers: Mapping[str, str] | None,
    content: bytes,
    tools: Sequence[Any] | None = None,
    plan: Plan | None = None,
) -> Reply:
    """Return the Reply of a whole response.

    Raises `EndpointError`, or `StreamCut` where the body is a stream that was cut. Without `plan` the prompt is
    unknown: whether a call written as text is a quotation is judged by the reply alone, and no call is excluded.
    """
    content = content if type(content) is bytes else checks.as_bytes("content", content)
    if type(plan) is Plan and type(status) is int and (reply := read_usual_reply(plan, status, content)) is not None:
        return reply
    parser = StreamParser(model, tools, plan=plan, status=status, headers=headers)
    parser.feed(content)
    return parser.close()
