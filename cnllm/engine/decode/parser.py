"""Bytes → events → Reply."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from typing import Any

from msgspec.structs import replace

from cnllm.engine.decode import endpoint_errors
from cnllm.engine.decode.json_array import JsonArrayElements
from cnllm.engine.decode.reply_builder import ReplyBuilder
from cnllm.engine.decode.request_facts import request_facts
from cnllm.engine.decode.sse import TOO_LONG, SseParser
from cnllm.engine.decode.structured import OutputReader
from cnllm.engine.decode.text_tool_calls import TextCalls, Then, text_call_filters
from cnllm.engine.encode.call_rules import CallRules
from cnllm.engine.encode.plan import Plan
from cnllm.engine.history.prompted_tools import is_prompted
from cnllm.engine.options import read_options
from cnllm.errors import ReplyTooLarge, StreamCut
from cnllm.protocols import wire
from cnllm.protocols.call_ids import ReplyIds
from cnllm.registry.flags import Flags
from cnllm.registry.model import Model
from cnllm.types import Event, ReasoningDelta, Reply, TextDelta, checks
from cnllm.types.lenient_json import NotJson, decode_lenient
from cnllm.types.policy import Limits

__all__ = ["StreamParser", "parse_response", "text_reply_builder"]

_FIELDS = (b"data:", b"event:", b"id:", b"retry:", b":")
_SHORT = 25  # characters
_STATUSES = 999  # RFC 9110 has three digits for them
_PATIENCE = 8  # chunks that are read in full although nothing but text is in them
_LONGEST_FIELD = max(len(field) for field in _FIELDS)
_BOM = b"\xef\xbb\xbf"
_BLANK = b" \t\r\n"


class StreamParser:
    """Reads one reply as it arrives: `feed` bytes in any pieces, then `close`.

    `plan` carries what the request decided; without it the model's flags hold as they are, no call is excluded, and ids
    are unique in this reply alone. `status` and `headers` are the response's: a status of 400 or more makes the body an
    error. With `keep_raw` the decoded chunks end up in
    `Reply.raw`. A body that is JSON although a stream was asked for is read as a whole reply. `limits`, or the plan's,
    bound what is held of it: what is more is not read, and `close` raises `ReplyTooLarge` with what came before.
    """

    __slots__ = (
        "_answering",
        "_arrays",
        "_busy",
        "_damaged",
        "_done",
        "_fast",
        "_fold",
        "_frames",
        "_head",
        "_headers",
        "_limits",
        "_longest",
        "_mode",
        "_over",
        "_plan",
        "_raw",
        "_read",
        "_reply",
        "_room",
        "_said",
        "_slow",
        "_status",
        "_thoughts",
        "_watch",
    )

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
        if type(status) is not int or not 0 <= status <= _STATUSES:
            checks.require_type("status", status, int, "the status of an HTTP response (a number)")
            raise checks.wrong_value("status", status, "the status of an HTTP response (a number)")
        self._limits = limits = (
            Limits.of(limits) if limits is not None else plan.limits if plan is not None else Limits()
        )
        self._room = limits.reply  # bytes that may come
        self._over: str | None = None  # the limit that was reached
        flags = plan.flags if plan is not None else model.flags
        model = plan.model if plan is not None else model
        spoken = wire(model.protocol)
        self._plan = plan
        self._status = status
        self._headers = _lower(headers) if headers is not None else {}
        self._fold = ReplyBuilder(
            model,
            flags,
            plan.renamed if plan is not None else {},
            _text_calls(flags, tools, plan, known=plan is not None or tools is not None),
            spoken.ordered,
            _ids(flags, plan),
            _rules(plan),
        )
        if plan is not None:
            self._fold.expect(plan.max_output, plan.stops)
            self._fold.strict_forms = plan.strict_forms
        answer = plan.answer if plan is not None else None
        self._answering = None if answer is None else OutputReader(answer, self._fold)
        self._frames: SseParser | JsonArrayElements = SseParser(limits.event)
        self._arrays = spoken.json_arrays
        self._head: list[bytes] = []
        self._mode = "whole" if status >= 300 else ""  # "" until the first bytes tell: sse or whole
        self._read = spoken.decode_chunk
        if type(keep_raw) is not bool:
            checks.require_type("keep_raw", keep_raw, int, "True or False")
        self._raw: list[Any] | None = [] if keep_raw else None
        self._done = False
        self._damaged = False
        self._said = False
        self._slow = 0
        self._reply: Reply | None = None
        self._thoughts: frozenset[str | None] = frozenset()
        self._fast: Any = None
        # A long piece may be all so far once more, unless it is known what deltas are.
        deltas = flags.stream.deltas if flags.stream else None
        self._longest = sys.maxsize if deltas == "incremental" else _SHORT
        self._busy = False  # a filter waits for more
        leaks = self._fold.leaks
        self._watch: Any = leaks.may_begin if leaks is not None else None

    # ── reading ──────────────────────────────────────────────────────────────

    @property
    def finished(self) -> bool:
        """The model has said why it ended; only usage may still come."""
        return self._fold.finished

    @property
    def done(self) -> bool:
        """The stream has said that it is over, or has said too much: no need to read on."""
        return self._done

    def feed(self, chunk: bytes) -> list[Event]:
        """The events that these bytes cause. Never raises for bytes; after the end, they are ignored."""
        if type(chunk) is not bytes:
            chunk = _bytes("chunk", chunk)
        self._room = room = self._room - len(chunk)
        if room < 0:
            return self._feed_last(chunk)
        if self._mode != "sse" or self._done:
            return self._begin(chunk)
        out: list[Event] = []
        fold = self._fold
        fast, longest, kinds = self._fast, self._longest, self._thoughts
        run: list[str] = []  # neighbours of one kind
        kind: str | None = None
        for data in self._frames.feed(chunk):
            if fast is not None and (found := fast(data)) is not None:
                text, field = found
                # The full reader goes first with every kind of piece: it settles id, model, source and tags.
                if field in kinds and len(text) < longest:
                    if field != kind and run:
                        self._say(kind, run, out)
                        run = []
                    kind = field
                    run.append(text)
                    continue
            if run:
                self._say(kind, run, out)
                run = []
            self._frame(data, out)
            if self._done:
                break
            kinds = self._thoughts
        if run:
            self._say(kind, run, out)
        if chunk[-2:] != b"\n\n" and not self._done:
            for data in self._frames.closing_event():
                self._frame(data, out)
        if len(fold.texts) > 1024 or len(fold.thoughts) > 1024:
            fold.compact()
        return out if self._answering is None else self._answering.events(out)

    def _say(self, field: str | None, run: list[str], out: list[Event]) -> None:
        """Plain pieces of one kind, the thinking's field or None for the answer; markers are looked for in all."""
        fold, watch = self._fold, self._watch
        delta, said = (TextDelta, fold.texts) if field is None else (ReasoningDelta, fold.thoughts)
        if watch is None or not (self._busy or watch(run[0] if len(run) == 1 else "".join(run))):
            said += run
            out += map(delta, run)
            return
        for text in run:
            if self._busy or watch(text):  # one may begin here
                out += fold.add_plain_text(field is not None, text)
                self._busy = not fold.is_idle
            else:
                said.append(text)
                out.append(delta(text))

    def _begin(self, chunk: bytes) -> list[Event]:
        """The first bytes tell whether events come or one body."""
        if self._done:
            return []
        if self._mode == "" and not self._head and not (chunk := chunk.lstrip(_BLANK)):
            return []  # blank lines that keep a connection alive, before anything else
        self._head.append(chunk)
        if self._mode == "whole":
            return []
        head = b"".join(self._head)
        mode = self._looks(head)
        if mode is None:
            self._head = [head.rstrip(_BLANK)]  # blank lines after a BOM add up to nothing
            return []
        self._mode = mode
        if mode == "whole":
            return []
        self._begin_events()
        return self._feed_again(head)

    def _looks(self, head: bytes, *, over: bool = False) -> str | None:
        """What the first bytes are; where the wire has such a thing, an array of chunks counts as a stream of them."""
        mode = _looks(head, over=over)
        if mode == "whole" and self._arrays and head.removeprefix(_BOM).lstrip(_BLANK)[:1] == b"[":
            self._frames = JsonArrayElements(self._limits.event)
            return "sse"
        return mode

    def _begin_events(self) -> None:
        self._head = []
        if self._raw is None:
            quick = wire(self._fold.of.protocol).fast_decoder
            self._fast = None if quick is None else quick(self._fold.flags)

    def _frame(self, data: bytes, out: list[Event]) -> None:
        """One event's data, read in full."""
        if data is TOO_LONG:
            self._exceeded("max_event_bytes", out)
            return
        if data.strip() == b"[DONE]":
            self._finish(out, said=True)
            return
        try:
            decoded = decode_lenient(data)
        except NotJson as error:
            self._unreadable(data, error, out)
            return
        if type(decoded) is not dict:
            out += self._fold.note("odd-chunk", "stream", _short(data), "skipped: not an object")
            return
        if self._raw is not None:
            self._raw.append(decoded)
        out += self._read(decoded, self._fold.flags, self._fold)
        if not self._fold.answered:
            self._fold.odd = decoded
        self._settle()

    def _settle(self) -> None:
        """Which kinds of piece the fast way may take from now on."""
        fold = self._fold
        self._busy = not fold.is_idle
        if (fold.id is None or fold.model is None) and self._slow < _PATIENCE:
            self._slow += 1  # they may come with a later chunk
            return
        kinds: set[str | None] = set()
        if fold.are_deltas_plain:
            if fold.texts and (fold.splitter is None or fold.splitter.has_ended) and fold.continues_part("text"):
                kinds.add(None)
            if fold.thoughts and fold.source is not None and fold.continues_part("thought"):
                kinds.add(fold.source)
        self._thoughts = frozenset(kinds)

    def _unreadable(self, data: bytes, error: NotJson, out: list[Event]) -> None:
        """Several chunks may have been written without the blank line between them."""
        lines = data.split(b"\n")
        if len(lines) > 1:
            for line in lines:
                if not self._done and line.strip():
                    self._frame(line, out)
            return
        if data.lstrip()[:1] in (b"{", b"["):
            self._damaged = True  # something was said that nobody can read: the reply is not whole
            did = f"skipped: {error}; the reply is not whole"
        else:
            did = "skipped: not JSON"
        out += self._fold.note("unreadable-chunk", "stream", _short(data), did)

    # ── the end ──────────────────────────────────────────────────────────────

    def end(self) -> list[Event]:
        """The input is over: the last events."""
        if self._done:
            return []
        before: list[Event] = []
        out: list[Event] = []
        if self._mode == "":
            head = b"".join(self._head)
            self._mode = self._looks(head, over=True) or "whole"
            if self._mode == "sse":
                self._begin_events()
                before = self._feed_again(head)
        if self._mode == "whole":
            self._whole(b"".join(self._head), out)
            self._head = []
        elif not self._done:
            for data in self._frames.end():
                # a chunk without its blank line counts if it is complete; a torn one is what a cut leaves
                for chunk in [data] if _complete(data) else data.split(b"\n"):
                    if not self._done and _complete(chunk):
                        self._frame(chunk, out)
        self._finish(out, said=False)
        return [*before, *(out if self._answering is None else self._answering.events(out))]

    def _feed_last(self, chunk: bytes) -> list[Event]:
        """The last bytes that there is room for. Of a refusal they are enough."""
        if self._done:
            return []
        chunk = chunk[: self._room]
        out = self._feed_again(chunk)
        if self._done or (self._mode == "whole" and self._status >= 300):
            return [*out, *self.end()]
        last: list[Event] = []
        self._exceeded("max_reply_bytes", last)
        return [*out, *(last if self._answering is None else self._answering.events(last))]

    def _feed_again(self, chunk: bytes) -> list[Event]:
        """Bytes that were counted already."""
        self._room = max(self._room, 0) + len(chunk)
        return self.feed(chunk)

    def _exceeded(self, limit: str, out: list[Event]) -> None:
        """Nothing of what is unfinished is kept."""
        self._over = limit
        self._head = []
        self._finish(out, said=False)

    def _whole(self, body: bytes, out: list[Event]) -> None:
        fold = self._fold
        if self._status >= 300:
            fold.fault = endpoint_errors.read_fault(self._status, self._headers, body, fold.flags)
            return
        body = body.removeprefix(_BOM)
        if not body.strip():
            fold.whole, fold.fault = True, endpoint_errors.NOTHING
            return
        try:
            decoded = decode_lenient(body)
        except NotJson:
            fold.fault = endpoint_errors.read_fault(self._status, self._headers, body, fold.flags)
            return
        if type(decoded) is not dict:
            fold.fault = endpoint_errors.read_fault(self._status, self._headers, body, fold.flags)
            return
        fold.whole = True
        fold.raw = decoded
        out += self._read(decoded, fold.flags, fold, whole=True)
        fold.finished = fold.finished or fold.answered
        if not fold.answered and fold.fault is None:
            fold.fault = decoded

    def _finish(self, out: list[Event], *, said: bool) -> None:
        if self._done:
            return
        self._done = True
        self._said = said
        fold = self._fold
        proof = (fold.flags.stream.terminator if fold.flags.stream else None) or "finish"
        proven = fold.whole or (
            (fold.finished if proof == "finish" else said if proof == "done" else said or fold.finished)
            and not self._damaged
        )
        if proven and not (fold.whole or fold.finished) and fold.has_torn_arguments:
            proven = False  # some gateways close what broke off with the word of an end; a call in its middle tells
        out += fold.end(proven=proven)
        if not fold.whole:
            fold.raw = self._raw

    def close(self) -> Reply:
        """The reply. Raises `StreamCut` when the end is not proven, `EndpointError` for what the endpoint reported."""
        if not self._done:
            self.end()
        if self._reply is None:
            notes = self._plan.notes if self._plan is not None else list(self._fold.of.notes)
            self._reply = self._fold.reply(notes)
            if self._answering is not None:
                self._reply = self._answering.reply(self._reply)
        reply, fold = self._reply, self._fold
        if self._over is not None and reply.finish == "cut":
            raise ReplyTooLarge(limit=self._over, most=getattr(self._limits, self._over), reply=reply)
        if reply.finish == "error":
            plan = self._plan
            sent = None if plan is None else lambda: request_facts(plan.body, len(plan.content), plan.flags)
            raise endpoint_errors.build_error(self._status, self._headers, fold, reply, plan, sent)
        if reply.finish == "cut" and not (fold.is_empty and self._said):
            raise StreamCut(
                "the stream ended without proof that it is complete",
                hint="what came is in .reply; if_cut='again-whole' asks again, 'keep' returns it",
                reply=reply,
            )
        if fold.is_empty:
            raise endpoint_errors.empty_reply_error(self._status, fold, reply, self._plan)
        return reply


def parse_response(
    model: Model,
    status: int,
    headers: Mapping[str, str] | None,
    content: bytes,
    tools: Sequence[Any] | None = None,
    plan: Plan | None = None,
) -> Reply:
    """A whole response → the Reply; raises `EndpointError` (or `StreamCut`, where events came and were cut).

    Without `plan` the prompt is not known: whether a call written as text is quoted is judged by the reply alone, and
    no call is excluded.
    """
    parser = StreamParser(model, tools, plan=plan, status=status, headers=headers)
    parser.feed(content if type(content) is bytes else _bytes("content", content))
    return parser.close()


def text_reply_builder(
    model: Model, tools: Sequence[Any] | None = None, then: Then | None = None, script: str | None = None
) -> ReplyBuilder:
    """Return a builder for a text that the model wrote: feed it with `ReplyBuilder.piece`, then end it.

    `then` and `script`: see `cnllm.engine.decode.text_tool_calls`.
    """
    fold = ReplyBuilder(model, model.flags, {}, _text_calls(model.flags, tools, None, then, script))
    fold.whole = True
    return fold


def _bytes(name: str, value: Any) -> bytes:
    checks.require_type(name, value, (bytes, bytearray, memoryview), "bytes")
    return bytes(value)


def _lower(headers: Mapping[str, str]) -> dict[str, str]:
    """The headers with names in lower case. Raises `TypeError` for names and values that are no strings."""
    if type(headers) is not dict:
        headers = checks.as_dict("headers", headers)
    try:
        return {k.lower(): v for k, v in headers.items() if isinstance(v, str) or _refused(k, v)}
    except AttributeError:
        raise TypeError("headers has a name that is no string; strings are expected") from None


def _refused(name: Any, value: Any) -> bool:
    raise checks.wrong_type(f"headers[{checks.short_text(name)}]", value, "a string")


def _text_calls(
    flags: Flags,
    tools: Sequence[Any] | None,
    plan: Plan | None,
    then: Then | None = None,
    script: str | None = None,
    known: bool = True,
) -> TextCalls | None:
    """What is looked for in the text: as the request says, or with `tools` as if they had been offered."""
    if plan is None:
        offered = read_options({"tools": tools}).tools
        then = then or (flags.call or {}).get("recover_text_calls")
        return text_call_filters(
            flags, offered, {}, then, prompted=is_prompted(flags, "adjust"), script=script, known=known
        )
    found = text_call_filters(
        flags, plan.callable, plan.renamed, plan.text_calls, plan.prompt, plan.prompted, messages=plan.messages
    )
    if found is not None and plan.call_rules is not None and plan.call_rules.choice == "none":
        found.excluded = "tool_choice='none' excludes calls"
    return found


def _rules(plan: Plan | None) -> CallRules | None:
    """Which calls the reply may hold. None: any."""
    if plan is None or plan.call_rules is None or plan.answer is None or plan.answer.method != "tool":
        return None if plan is None else plan.call_rules
    return replace(plan.call_rules, answer=plan.answer.name)


def _ids(flags: Flags, plan: Plan | None) -> ReplyIds | None:
    """The ids of the reply's calls, which no call of the request has."""
    if plan is None:
        return None
    return ReplyIds(flags.tools.call_id_pattern if flags.tools else None, plan.messages, plan.content)


def _looks(head: bytes, *, over: bool = False) -> str | None:
    """What the first bytes are: "sse", "whole", or None while they could be either."""
    if head[:3] == _BOM:
        bare = head[3:].lstrip(_BLANK)
    elif not over and _BOM.startswith(head[:3]):
        return None
    else:
        bare = head.lstrip(_BLANK)
    if not bare:
        return "whole" if over else None
    if bare.startswith(_FIELDS):
        return "sse"
    if len(bare) < _LONGEST_FIELD and any(f.startswith(bare) for f in _FIELDS):
        return "sse" if over else None  # the first word of a stream, broken off
    return "whole"


def _complete(data: bytes) -> bool:
    """Is it a whole chunk (or the closing word), although its blank line never came?"""
    text = data.strip()
    if text == b"[DONE]":
        return True
    try:
        decode_lenient(text)
    except NotJson:
        return False
    return True


def _short(data: bytes) -> str:
    text = data.decode("utf-8", "replace").strip()
    return text if len(text) <= 80 else text[:79] + "…"
