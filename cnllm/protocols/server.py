"""Decode requests and encode replies of every protocol: the parts of a server between clients and models."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, get_args

import msgspec

from cnllm.protocols import Frames, ReadTurn, Recall, ServerCodec, Stamp, server_codec, sse_frame, wire
from cnllm.protocols.client_options import KeyCounts, client_options, tool_counts
from cnllm.protocols.event_order import EventOrder
from cnllm.protocols.reply_notes import (
    BREAK,
    blocks_line,
    foreign_blocks,
    media_line,
    moved,
    with_blocks,
    with_lines,
)
from cnllm.registry.model import Model
from cnllm.types import (
    BlockEnd,
    CitationAdded,
    Event,
    ExtraAdded,
    Finished,
    Media,
    Message,
    Note,
    NoteAdded,
    Opaque,
    Part,
    Reasoning,
    ReasoningDelta,
    Reply,
    Request,
    Restarted,
    Seal,
    Text,
    TextDelta,
    ToolCall,
    ToolCallDelta,
    ToolCallEnd,
    ToolCallStart,
    UsageSeen,
    checks,
)
from cnllm.types.checks import struct_fault
from cnllm.types.delivered import DeltaKey, delta_key, delta_of
from cnllm.types.lenient_json import replace_surrogates
from cnllm.types.message_memory import NOT_COPIED, MessageMemory, exact_bytes

_EVENTS = frozenset(get_args(Event))
_DELTAS = (TextDelta, ReasoningDelta, ToolCallDelta)
_BEFORE_CONTENT = frozenset([UsageSeen, ExtraAdded, NoteAdded])
"""Events about the reply. Those before its content may stand in the first frames."""
_TURNS, _KEYS, _AUTHORS = "turns", "keys", "authors of messages"  # under which a memory keeps results of each
_POINTER = 8  # bytes
_REPLY_FORM = ("stream_options",)
"""Keys of a body about the form of its reply, which stays that of the path."""
_ITEM_KEYS = frozenset(["item", "instructions"])
"""Keys of a seal about the whole item that a part stood in."""

__all__ = ["StreamWriter", "body_protocol", "decode_request", "encode_error", "encode_reply"]


def decode_request(
    protocol: str,
    body: dict[str, Any],
    *,
    path: str = "",
    headers: Mapping[str, str] | None = None,
    origin: Model | None = None,
    memory: MessageMemory | None = None,
) -> Request:
    """Return the messages and options of a request body.

    `path` is the URL's path, which on one protocol names the model and whether to stream. `headers` are those of the
    request: the ones that ask for features of the protocol go on to an endpoint of the same protocol.

    Data in the assistant's messages that an endpoint wants back (signatures, encrypted reasoning, ids of items) is
    sealed with the protocol of the body, and with no provider and model: its author is unknown, and no endpoint gets
    it. The client's own data in other messages (cache marks) is sealed in the same way, and goes to endpoints of that
    protocol. `origin` is the model that wrote the assistant's messages, if the caller has proof of that. It counts
    only with the protocol of the body, because no other model can have written these data. `memory` remembers the
    turns of the client that sent the body. Some clients send the body of one protocol to the path of another: it is
    read as what it is.

    Raises `ValueError` with the place that is wrong, and `RegistryError` for a protocol that cnllm does not know.
    """
    body = checks.as_dict("body", body, "the body of a request (a dict)")
    checks.require_text("path", path)
    if headers is not None:
        headers = checks.as_dict("headers", headers, "the headers of a request (a dict)")
    if origin is not None:
        checks.require_type("origin", origin, Model, "a cnllm.Model or None")
    if memory is not None:
        checks.require_type("memory", memory, MessageMemory, "a MessageMemory or None")
    codec = _codec(protocol)
    protocol = str.__str__(protocol)
    if (form := body_protocol(protocol, body)) != protocol:
        protocol, codec = form, _codec(form)
        body = {key: value for key, value in body.items() if key not in _REPLY_FORM}
    author = origin if origin is not None and origin.protocol == protocol else None
    provider, id = (author.provider, author.id) if author is not None else ("", "")

    def stamp(data: Any) -> Seal:
        """Return a seal of the author."""
        return Seal(protocol, provider, id, data)

    name = None if author is None else author.name
    counts = KeyCounts(protocol)
    recall = Recall()
    recalled: list[Message] = []  # they have their authors
    if memory is not None and name is None:
        recall = Recall(partial(_recall, memory, protocol, stamp, recalled), memory)
        _count_known(memory, body, counts)
    request = codec.read_request(body, path.partition("?")[0], stamp, recall)
    others = request.messages[: len(request.messages) - len(recalled)]  # those of the turns come last
    messages = [*_with_authors(others, protocol, name, stamp, recall.memory), *recalled]
    options, notes = client_options(codec, request, counts, headers or {}, body, recall)
    return msgspec.structs.replace(request, messages=messages, options=options, notes=[*request.notes, *notes])


def body_protocol(protocol: str, body: Mapping[str, Any]) -> str:
    """Return the protocol of a body at a path of `protocol`: some clients send another one there."""
    form = server_codec(protocol).other_form
    return form if form and not body.get(wire(protocol).turns) and body.get(wire(form).turns) else protocol


def _recall(
    memory: MessageMemory, protocol: str, stamp: Stamp, out: list[Message], turns: Sequence[Any], read: ReadTurn
) -> list[Message]:
    """Return the messages of turns with their authors, as the memory has them."""
    kind = (_TURNS, protocol)
    start, known = memory.find_start(kind, turns)
    out += known or ()
    for index in range(start, len(turns)):
        out += _recall_turn(memory, protocol, stamp, index, turns[index], read)
    if start < len(turns) and memory.has_list(turns):
        memory.keep_start(kind, turns, tuple(out), _POINTER * len(out))
    return out


def _count_known(memory: MessageMemory, body: Mapping[str, Any], counts: KeyCounts) -> None:
    """Add the counts of the keys of turns and tools that the memory has: only new ones are looked at."""
    protocol, name = counts.protocol, wire(counts.protocol).turns
    if memory.has_list(tools := body.get("tools")):
        counts.add("tools", memory.made_of(tools, tool_counts, protocol))
    if not memory.has_list(turns := body.get(name)):
        return
    start, known = memory.find_start((_KEYS, protocol), turns)
    turn_counts = KeyCounts(protocol)
    if known is not None:
        turn_counts.add(name, known)
    turn_counts.count(name, turns[start:])
    if start < len(turns):
        memory.keep_start((_KEYS, protocol), turns, turn_counts, 0)
    counts.add(name, turn_counts)


def _recall_turn(
    memory: MessageMemory, protocol: str, stamp: Stamp, index: int, turn: Any, read: ReadTurn
) -> tuple[Message, ...]:
    """Return the messages of a turn with their author."""
    try:
        key = exact_bytes((protocol, turn))
    except ValueError:  # nested too deeply
        key = b""
    messages: tuple[Message, ...] | None = memory.find(key) if key else None
    if messages is None:
        messages = tuple([_with_author(message, None, stamp) for message in read(index, turn)])
        if key:
            memory.keep(key, messages, len(key))
            for message in messages:
                memory.keep_message(message, len(key))
    return messages


def _with_authors(
    messages: list[Message], protocol: str, name: str | None, stamp: Stamp, memory: MessageMemory | None
) -> list[Message]:
    """Return messages with their authors. With a memory equal ones are one object: it knows conversations by theirs."""
    if memory is None:
        return [_with_author(message, name, stamp) for message in messages]
    try:
        messages = [*map(memory.own, messages[:1]), *messages[1:]]  # the system's, which begins the conversation
        start, known = memory.find_start((_AUTHORS, protocol), messages)
        out = [*(known or ()), *[memory.own(_with_author(message, name, stamp)) for message in messages[start:]]]
    except NOT_COPIED:
        return [_with_author(message, name, stamp) for message in messages]
    if start < len(messages):
        memory.keep_start((_AUTHORS, protocol), messages, tuple(out), _POINTER * len(out))
    return out


def _with_author(message: Message, name: str | None, stamp: Stamp) -> Message:
    """Return a message with its author. Reasoning of an unknown one is sealed, so that no model claims it."""
    if name is not None:
        return msgspec.structs.replace(message, by=name) if message.role == "assistant" else message
    is_answer = message.role == "assistant"
    for part in message.parts:
        if part.seal is not None or (is_answer and type(part) is Reasoning):
            break
    else:
        return message
    parts = tuple([_with_seal(part, stamp) if is_answer else _without_ids(part) for part in message.parts])
    if all(new is old for new, old in zip(parts, message.parts, strict=True)):
        return message
    return msgspec.structs.replace(message, parts=parts)


def _with_seal(part: Part, stamp: Stamp) -> Part:
    """Return reasoning without a seal with one of an unknown author; any other part as it is."""
    if type(part) is Reasoning and part.seal is None:
        return msgspec.structs.replace(part, seal=stamp(None))
    return part


def _without_ids(part: Part) -> Part:
    """Return a part of another turn without the ids that an endpoint gave to its item."""
    seal = part.seal
    if seal is None or not isinstance(seal.data, dict) or _ITEM_KEYS.isdisjoint(seal.data):
        return part
    data = {key: value for key, value in seal.data.items() if key not in _ITEM_KEYS}
    item = seal.data.get("item")
    if isinstance(item, dict) and (own := {key: item[key] for key in item if key not in ("id", "status")}):
        data["item"] = own
    return msgspec.structs.replace(part, seal=Seal(seal.protocol, "", "", data) if data else None)


def encode_reply(protocol: str, reply: Reply, *, request: dict[str, Any] | None = None) -> dict[str, Any]:
    """Return the body of a whole reply in a protocol.

    `request` is the body that it answers, which some protocols repeat. An excluded call is left out, because a
    reader of the body would execute it; the reply's notes still name it.
    """
    codec = _codec(protocol)
    checks.require_type("reply", reply, Reply, "a cnllm.Reply")
    full_reply = _with_end(with_blocks(with_lines(_executable(reply), codec), str.__str__(protocol)))
    return codec.write_reply(full_reply, _checked_request(request))


def _with_end(reply: Reply) -> Reply:
    """Return the reply; one that ended with a word that is no usual end has another finish than `stop`."""
    if reply.finish != "stop" or not any(_leaves_open(note) for note in reply.notes):
        return reply
    details = _open_end(reply.raw_finish)
    return msgspec.structs.replace(reply, finish="length", extra={**details, **reply.extra})


def _leaves_open(note: Note) -> bool:
    """Whether a note says that the endpoint's last word is unknown, or that the reply goes on after it."""
    return note.code in ("finish-unknown", "finish-pending")


def _open_end(word: str | None) -> dict[str, Any]:
    """Return the data about a reply that ended with such a word, for protocols that can hold it."""
    return {"incomplete_details": {"reason": word}} if word else {}


def _executable(reply: Reply) -> Reply:
    """Return the reply without its excluded calls."""
    parts = reply.message.parts
    if True not in [p.excluded for p in (*parts, *reply.tool_calls, *reply.incomplete) if type(p) is ToolCall]:
        return reply
    calls = [call for call in reply.tool_calls if not call.excluded]
    parts_left = tuple(part for part in parts if type(part) is not ToolCall or not part.excluded)
    none_left = reply.finish == "tool_calls" and not calls
    return msgspec.structs.replace(
        reply,
        tool_calls=calls,
        incomplete=[call for call in reply.incomplete if not call.excluded],
        message=msgspec.structs.replace(reply.message, parts=parts_left),
        finish="stop" if none_left else reply.finish,
        raw_finish=None if none_left else reply.raw_finish,
    )


def encode_error(protocol: str, status: int, message: str, code: str | None = None) -> dict[str, Any]:
    """Return the body of an error in a protocol."""
    codec = _codec(protocol)
    return codec.write_error(*_checked_error(status, message, code))


class StreamWriter:
    """An encoder of a stream: `begin`, then `feed` with each event up to `Finished`; each returns bytes to send.

    An excluded call is left out, because a reader of the stream would execute it. `request` is the body that is
    answered: some protocols repeat a part of it, and calls have the client's own names and form. `input_tokens` is an
    estimate of the tokens of the request, for protocols that count them at the beginning. `seal` is called for each
    part of reasoning and each call when it ends, and returns the part to write (`TokenField.write`).

    A reply that begins again is not written twice: what it repeats is left out, and a text that differs is written
    whole. With `strict` it raises `Diverged`. Events after the end, or after an error, are ignored.
    """

    def __init__(
        self,
        protocol: str,
        *,
        id: str = "",
        model: str = "",
        request: dict[str, Any] | None = None,
        input_tokens: int | None = None,
        seal: Callable[[Part], Part] | None = None,
        strict: bool = False,
    ) -> None:
        codec = _codec(protocol)
        checks.require_text("id", id)
        checks.require_text("model", model)
        if input_tokens is not None:
            checks.require_type("input_tokens", input_tokens, int, "a number of tokens or None")
        if seal is not None and not callable(seal):
            raise checks.wrong_type("seal", seal, "a function or None")
        self._encoder = codec.stream(id, model, _checked_request(request))
        if input_tokens is not None:
            self._encoder.input_tokens = int(input_tokens)
        self._order = EventOrder(whole_calls=codec.whole_calls, one_block=codec.one_block, seal=seal, strict=strict)
        self._takes_media = codec.takes_media
        self._protocol = str.__str__(protocol)
        self._excluded: set[int] = set()
        self._is_over = False  # whether the reply's last event came, or an error
        self._is_open = False  # whether the endpoint's last word is no usual end
        self._has_media = False
        self._is_behind_line = False  # a line in place of a medium was written
        self._added: list[tuple[int, int]] = []  # the places in the answer before which text was added, and how much
        self._blocks: list[str] = []  # the kinds of those that the protocol has no place for
        self._indexes: dict[int, int] = {}  # indexes of the written calls, by their index in the reply
        # Some protocols number their frames. These are the first, also where a caller begins after the first event.
        self._head = None if self._encoder.begins_late else _encode_frames(self._encoder.begin())

    def begin(self) -> bytes:
        """Return the bytes before the first event."""
        if self._head is None:
            self._head = _encode_frames(self._encoder.begin())
        return self._head

    @property
    def body(self) -> dict[str, Any] | None:
        """Return the whole reply as its reader has it; None before the end, and where no event repeats it."""
        return self._encoder.body

    def feed(self, event: Event) -> bytes:
        """Return the bytes of one event. Events without a place in the protocol (notes, excluded calls) give none."""
        if type(event) not in _EVENTS:
            raise checks.wrong_type("event", event, "an event of a reply (cnllm.Event)")
        if self._is_over:
            return b""
        if self._head is None and type(event) not in _BEFORE_CONTENT:
            self.begin()
        try:
            # Most of a stream are deltas.
            if isinstance(event, _DELTAS) and (data := self._continue(delta_key(event), [event.text])) is not None:
                return data
            visible = self._visible_event(event)
            self._is_over = type(visible) is Finished
            events = [] if visible is None else self._last_events(visible) if type(visible) is Finished else [visible]
            if type(event) is BlockEnd and type(visible) is TextDelta:  # no source of the text behind it is the line's
                events.append(BlockEnd(event.index, Text(visible.text)))
            return self._encode([ready for one in events for ready in self._order.feed(one)])
        except checks.FAILURES as error:
            if (shape_error := struct_fault("event", event)) is not None:
                raise shape_error from error
            raise

    def feed_texts(self, key: DeltaKey, texts: list[str]) -> bytes | None:
        """Return the bytes of several deltas with one key; None, and nothing is written, where each has to be fed.

        Raises `TypeError` for another key, or for texts that are no list of strings.
        """
        if key is not TextDelta and key is not ReasoningDelta and type(key) is not int:
            raise checks.wrong_type("key", key, "cnllm.TextDelta, cnllm.ReasoningDelta or the index of a call")
        if type(texts) is not list or not {*map(type, texts)} <= {str}:
            raise checks.wrong_type("texts", texts, "a list of strings")
        return b"" if self._is_over else self._continue(key, texts)

    def _continue(self, key: DeltaKey, texts: list[str]) -> bytes | None:
        """Return the bytes of deltas that continue what is open; None where there is more to decide."""
        if type(key) is int:
            if key in self._excluded:
                return b""
            if (index := self._indexes.get(key)) is None:
                return None
            key = index
        if (self._is_behind_line and key is TextDelta) or not self._order.continue_with(key, texts):
            return None
        if (data := self._encoder.texts(key, texts)) is not None:
            return data
        return b"".join([_encode_frames(self._encoder.write(delta_of(key, text))) for text in texts])

    def require_whole(self) -> None:
        """Raise `Diverged` where a reply that began again has not repeated all that was written."""
        self._order.require_whole()

    def _last_events(self, event: Finished) -> list[Event]:
        """Return the events of the end of a reply."""
        out: list[Event] = []
        if event.finish in ("error", "cut"):
            return [event]
        if self._blocks and not (self._order.has_text or self._indexes or self._has_media):
            out.append(TextDelta(blocks_line(self._blocks)))
        if self._is_open and event.finish == "stop":
            return [*out, ExtraAdded(_open_end(event.raw)), Finished("length", event.raw)]
        return [*out, event]

    def _visible_event(self, event: Event) -> Event | None:
        """Return the event for the reader; None for one of an excluded call."""
        match event:
            case ToolCallStart(index=index, excluded=True) | ToolCallEnd(index=index, call=ToolCall(excluded=True)):
                self._excluded.add(index)
                return None
            case ToolCallStart(index=index) | ToolCallDelta(index=index) | ToolCallEnd(index=index):
                if index in self._excluded:
                    return None
                index_out = self._indexes.setdefault(index, len(self._indexes))
                return event if index_out == index else msgspec.structs.replace(event, index=index_out)
            case BlockEnd(part=Media() as part) if not self._takes_media(part):
                self._is_behind_line = True
                return self._add_text(media_line(part, has_text=self._order.has_text))
            case TextDelta(text=text) if self._is_behind_line:
                self._is_behind_line = False
                return self._add_text(BREAK, text)
            case CitationAdded(citation=citation) if self._added:
                return CitationAdded(moved(citation, self._added))
            case BlockEnd(part=Media()):
                self._has_media = True
            case BlockEnd(part=Opaque() as part):
                self._blocks += foreign_blocks(self._protocol, [part])
            case NoteAdded(note=note):
                self._is_open = self._is_open or _leaves_open(note)
            case Restarted():
                self._is_open = False
            case Finished(finish="tool_calls") if self._excluded and not self._indexes:
                return Finished("stop", None)
        return event

    def _add_text(self, text: str, rest: str = "") -> TextDelta:
        """Return a text that the answer itself does not have, before the rest, which it has."""
        size = self._order.text_size - sum(size for _, size in self._added)
        self._added.append((size, len(text)))
        return TextDelta(text + rest)

    def error(self, status: int, message: str, code: str | None = None) -> bytes:
        """Return the bytes of a failure after the stream began; nothing follows. None where the stream has its end."""
        fields = _checked_error(status, message, code)
        if self._encoder.has_ended:
            return b""
        self._is_over = self._encoder.has_ended = True
        frames = self._encoder.error(*fields)
        return self._encode(self._order.flush()) + _encode_frames(frames)

    def _encode(self, events: list[Event]) -> bytes:
        """Return events as bytes."""
        if len(events) == 1:
            return _encode_frames(self._encoder.event(events[0]))
        return b"".join([_encode_frames(self._encoder.event(event)) for event in events])


def _checked_request(request: dict[str, Any] | None) -> dict[str, Any] | None:
    """Return a copy of a request body. Raises `TypeError` for anything else."""
    return None if request is None else checks.as_dict("request", request, "the body of a request (a dict) or None")


def _codec(protocol: str) -> ServerCodec:
    """Return the server side of a protocol. Raises `TypeError` or `RegistryError`."""
    checks.require_text("protocol", protocol)
    return server_codec(str.__str__(protocol))


def _checked_error(status: int, message: str, code: str | None) -> tuple[int, str, str | None]:
    """Return the fields of an error with valid Unicode. Raises `TypeError` for anything else."""
    checks.require_type("status", status, int, "the status of an HTTP response (a number)")
    checks.require_text("message", message)
    if code is not None:
        checks.require_type("code", code, str, "a string or None")
        code = replace_surrogates(str.__str__(code))
    return int(status), replace_surrogates(str.__str__(message)), code


def _encode_frames(frames: Frames) -> bytes:
    """Return frames as bytes."""
    if len(frames) == 1:
        return sse_frame(*frames[0])
    return b"".join(sse_frame(name, data) for name, data in frames)
