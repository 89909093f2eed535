"""Get a wire protocol by its name. Each protocol is one folder.

`wire` returns the side that calls an endpoint. `server_codec` returns the side that answers a client, for a gateway
and the simulator, and `server_api` what else a gateway answers: lists of models and counts of tokens. The two sides
share the types and no code, so that neither can hide an error of the other. `fields` returns what becomes of each field
of a protocol between the two.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from functools import cache
from importlib import import_module
from typing import TYPE_CHECKING, Any, Literal

import msgspec
from msgspec import Struct

from cnllm.errors import RegistryError
from cnllm.protocols.fields import Fields
from cnllm.protocols.pieces import Decoder
from cnllm.protocols.reply_fields import TokenField
from cnllm.protocols.server_interface import BatchForm
from cnllm.registry.flags import Flags
from cnllm.types import (
    Event,
    ExtraAdded,
    Finished,
    Media,
    Message,
    Reply,
    Request,
    Seal,
    ToolCall,
    ToolCallEnd,
    Usage,
    UsageSeen,
)
from cnllm.types.delivered import DeltaKey
from cnllm.types.message_memory import Made, MessageMemory, made_of
from cnllm.types.tools import Function, WebSearch

if TYPE_CHECKING:
    from cnllm.protocols.server_interface import ServerApi

__all__ = [
    "PROTOCOLS",
    "BlockLink",
    "EncodeInput",
    "FastDecoder",
    "Frames",
    "Recall",
    "ServerCodec",
    "ServerStream",
    "Stamp",
    "UsualMessage",
    "UsualReader",
    "Wire",
    "fields",
    "server_api",
    "server_codec",
    "sse_frame",
    "wire",
    "write_texts",
]


Stamp = Callable[[Any], Seal]
"""Returns the seal of a part for data that the endpoint wants back unchanged."""

ReadTurn = Callable[[int, Any], Iterable[Message]]
"""Returns the messages of a turn, decoded from the turn alone. The number is its place, for the text of an error."""


def _read_turns(turns: Sequence[Any], read: ReadTurn) -> list[Message]:
    """Return the messages of turns, decoded."""
    return [message for index, turn in enumerate(turns) for message in read(index, turn)]


class Recall(Struct, frozen=True):
    """The parts of a client's earlier bodies that a server remembers. By default it remembers nothing.

    `turns(turns, read)` returns the messages of the turns in a body, each of which `read` decodes where nobody
    remembers it. Where a turn cannot be read alone, `memory` has how far the turns were read.
    """

    turns: Callable[[Sequence[Any], ReadTurn], list[Message]] = _read_turns
    memory: MessageMemory | None = None

    def tools(self, tools: Sequence[Any], make: Callable[..., Made], *arguments: Hashable) -> Made:
        """Return what `make` makes of a list of tools, from it and the arguments alone; nobody may change it."""
        return made_of(self.memory, tools, make, *arguments)


_MODULES = {
    "openai-chat": "chat",
    "anthropic-messages": "messages",
    "gemini": "gemini",
    "openai-responses": "responses",
}

PROTOCOLS = tuple(_MODULES)
"""The names of the supported protocols."""


def _load(protocol: str, module: str, name: str) -> Any:
    """Return a value from a module of a protocol's folder. Raises `RegistryError` for an unknown protocol."""
    folder = _MODULES.get(protocol)
    if folder is None:
        raise RegistryError(f"unknown protocol {protocol}", hint=f"use one of {', '.join(sorted(_MODULES))}")
    return getattr(import_module(f"cnllm.protocols.{folder}.{module}"), name)


BlockLink = Callable[[dict[str, Any]], tuple[str | None, str | None]]
"""Returns the id of the call that a block is, and the id of the call whose result it is."""

Frames = list[tuple[str | None, Any]]
"""Frames of a stream. Each is (event name or None, data as JSON or as bytes)."""


class ServerStream(ABC):
    """An encoder of one stream. The counts and the data about the reply come before its end, and most stand there.

    `input_tokens` is an estimate of the request's tokens, for protocols that count them at the beginning. `body` is the
    whole reply, on protocols whose last event repeats it. With `needs_arguments` a call whose arguments cannot be read
    has no end, and a reply whose client would miss it has none. With `begins_late` the first frames say what was
    known of the reply before its content; those of other protocols are numbered.
    """

    needs_arguments = False
    begins_late = False

    def __init__(self) -> None:
        self.usage = Usage()
        self.extra: dict[str, Any] = {}
        self.input_tokens: int | None = None
        self.body: dict[str, Any] | None = None
        self.has_ended = False  # whether the end or an error was written
        self._has_unread = False  # whether a call ended with arguments that cannot be read

    def begin(self) -> Frames:
        """Return the frames before the first event."""
        return []

    def event(self, event: Event) -> Frames:
        """Return the frames of one event; `Finished` is the last and ends the stream."""
        match event:
            case UsageSeen():
                self.usage = event.usage
                return []
            case Finished(finish="error" | "cut"):
                return []  # an incomplete reply gets no end frame
            case Finished():
                self.has_ended = not (self._has_unread and event.finish in ("stop", "tool_calls"))
                return self.end(event) if self.has_ended else []
            case ToolCallEnd(call=call) if self.needs_arguments and call.arguments is None and call.raw:
                self._has_unread = True
                return []
            case ExtraAdded(extra=extra):
                self.extra |= extra
        return self.write(event)

    @abstractmethod
    def write(self, event: Event) -> Frames:
        """Return the frames of an event in the middle."""

    @abstractmethod
    def end(self, event: Finished) -> Frames:
        """Return the frames that end the stream."""

    def texts(self, key: DeltaKey, texts: list[str]) -> bytes | None:
        """Return the bytes of deltas that continue the open part or a call; None where each has to be an `event`."""
        return None

    @abstractmethod
    def error(self, status: int, message: str, code: str | None) -> Frames:
        """Return the frames of a failure in the middle."""


class ServerCodec(Struct, frozen=True):
    """The server side of one protocol.

    `read_request(body, path, stamp, recall)`: `path` is the URL's path, on protocols where it names the model or asks
    for a stream; raises `ValueError` with the place where a body does not have the protocol's form.
    `write_reply(reply, request)` returns a whole body, `write_error(status, message, code)` the body of an error,
    `stream(id, model, request)` an encoder of a stream; `request` is the body that is answered, of which some protocols
    repeat a part.
    `bearer`: clients of this protocol may send the key as a bearer token, too, whatever header an endpoint names.
    `read_search(data)` returns the web search that a tool or the further keys of a body ask for, None where they ask
    for none. `result_names`: a tool result has a field for the tool's name. `token` is the field of parts that clients
    of this protocol send back unchanged. `feature_headers` are the headers with which a client asks for features of the
    protocol. `whole_calls`: a stream has no pieces of calls.
    `one_block`: a stream has one part after the other, calls too. `takes_raw(call, request)` tells whether a reply can
    hold a call whose arguments are no JSON object: as text, and as nothing that a client would execute with other ones.

    The rest is for a server without a provider's prefix and for the simulator. `paths`: where clients of the protocol
    send requests below a base URL, the usual one first; `{model}` stands for the model's name. `json_mode`: the dotted
    path and the value with which a body asks for JSON without a schema. `seal_example(token, text)`: the data with
    which an endpoint would seal reasoning, with a token that only this endpoint accepts. `late_seals`: a seal comes
    after the reasoning, with the first call or with the text. `dialects`: the form of messages and replies (fields
    for reasoning, finish words, places of usage) differs by endpoint, so that the simulator reads and writes chat
    completions by the flags instead of through this codec. `takes_media(media)` tells whether a reply
    can hold a medium, `media_keys` are its further keys that it can hold. `takes_blocks`: it can hold blocks of other
    kinds of its own protocol. `takes_count(name)` tells whether its counts can have a key, `reply_keys` are the keys of
    `Reply.extra` that it can hold, and `unplaced_keys(reply)` names what it can hold, but not in this reply.
    `other_form`: the protocol whose bodies some clients send to the paths of this one.
    `batch`: the words of the protocol's batch interface.
    """

    read_request: Callable[[dict[str, Any], str, Stamp, Recall], Request]
    write_reply: Callable[[Reply, Mapping[str, Any] | None], dict[str, Any]]
    write_error: Callable[[int, str, str | None], dict[str, Any]]
    stream: Callable[[str, str, Mapping[str, Any] | None], ServerStream]
    read_search: Callable[[Mapping[str, Any]], WebSearch | None] = lambda data: None
    bearer: bool = False
    result_names: bool = False
    token: TokenField = TokenField("", frozenset(), ())
    feature_headers: tuple[str, ...] = ()
    whole_calls: bool = False
    one_block: bool = False
    takes_raw: Callable[[ToolCall, Mapping[str, Any] | None], bool] = lambda call, request: True
    paths: tuple[str, ...] = ()
    json_mode: tuple[str, Any] | None = None
    seal_example: Callable[[str, str], Any] | None = None
    late_seals: bool = False
    dialects: bool = False
    other_form: str | None = None
    batch: BatchForm = BatchForm()
    takes_media: Callable[[Media], bool] = lambda media: False
    takes_blocks: bool = True
    takes_count: Callable[[str], bool] = str.islower
    media_keys: frozenset[str] = frozenset()
    reply_keys: frozenset[str] = frozenset()
    unplaced_keys: Callable[[Reply], Sequence[str]] = lambda reply: ()


def write_texts(before: bytes, texts: list[str], after: bytes) -> bytes:
    """Return texts as JSON, each between the same bytes. They are encoded as one text, where none has a NUL."""
    if len(texts) > 1 and (whole := "\0".join(texts)).count("\0") < len(texts) and "\\u0000" not in whole:
        data = msgspec.json.encode(whole).replace(b"\\u0000", b'"%b%b"' % (after, before))
        return before + data + after
    return b"".join([before + msgspec.json.encode(text) + after for text in texts])


def sse_frame(name: str | None, data: Any) -> bytes:
    """Return one frame of a stream as a server-sent event."""
    payload = data if type(data) is bytes else msgspec.json.encode(data)
    if name is None:
        return b"data: %b\n\n" % payload
    return b"event: %b\ndata: %b\n\n" % (name.encode(), payload)


@cache
def server_codec(protocol: str) -> ServerCodec:
    """Return the server side of a protocol. Raises `RegistryError` for an unknown protocol."""
    codec: ServerCodec = _load(protocol, "server", "CODEC")
    return codec


@cache
def server_api(protocol: str) -> ServerApi:
    """Return the rest of a protocol's API. Raises `RegistryError` for an unknown protocol."""
    api: ServerApi = _load(protocol, "server", "API")
    return api


@cache
def fields(protocol: str) -> Fields:
    """Return what becomes of the fields of a protocol. Raises `RegistryError` for an unknown protocol."""
    table: Fields = _load(protocol, "fields", "FIELDS")
    return table


FastDecoder = Callable[[bytes], tuple[str, str | int | None] | None]
"""Decodes the most common chunks as (piece, kind), and gives None for any other. The kind is the field of the
reasoning, None for the answer, or the index of the call whose arguments the piece continues."""


class UsualMessage(Struct, frozen=True):
    """A whole reply of the usual form: texts, complete calls as (id, name, arguments), and what is known of it."""

    text: str
    reasoning: str
    calls: list[tuple[str, str, str]]
    finish: str
    usage: Usage
    id: str | None
    model: str | None
    created: float | None
    extra: dict[str, Any]


UsualReader = Callable[[dict[str, Any]], UsualMessage | None]
"""Returns the message of a decoded body, None where the body is not of the usual form."""


class EncodeInput(Struct, frozen=True, kw_only=True):
    """A request before it is encoded. Everything in it is sent: the history is fitted, the choice is allowed.

    `names` renames functions: the caller's name → the wire's. `tool_name` is the tool of a named choice, by its name
    on the wire. `method`, `schema`, `schema_name` and `schema_keys` (`strict`, `description`) ask for an answer by a
    schema. `parallel` is set if the wire encodes it itself, because it is no parameter with a path of its own.
    """

    model: str
    messages: Sequence[Message]
    tools: Sequence[Function] = ()
    choice: Literal["auto", "none", "required", "named"] | None = None
    tool_name: str | None = None
    parallel: bool | None = None
    names: dict[str, str] = {}
    method: Literal["json_schema", "json_object", "tool", "prompt"] | None = None
    schema: dict[str, Any] | None = None
    schema_name: str = "answer"
    schema_keys: dict[str, Any] = {}
    stream: bool = False


class Wire(Struct, frozen=True):
    """The client side of one protocol.

    `encode_body(request, flags)` returns the body without parameters and patches, which are data; its messages stand
    under the key `turns`. `encode_turns(messages, flags, names)` returns what stands there, on wires where nothing else
    of the body depends on the messages. `decoder(flags)` returns the decoder of one reply.
    `fast_decoder(flags)` returns the fast decoder of the most common chunk. `usual_reader(flags)` returns the reader
    of whole bodies of the usual form, which returns None for any other. Both are None for an endpoint whose flags they
    do not know. `ordered`: parts come one after the other and go back in the same order. `json_arrays`: a stream may
    come as one JSON array of chunks. `list_params`: parameters that are lists even for one value; `no_blanks`: those of
    them whose texts must hold more than whitespace.
    `takes_medium(media, flags)` tells whether a medium can be written at all, `takes_name(media, in_result)` whether
    its name can be, `in_result` for one in the result of a call. `file_parts` are the wire's own types of content parts
    that may name a file stored at the endpoint. `media_roles`: whose messages may hold media, beside results of tools.
    `is_chunk(data)` tells whether an object is a chunk of a stream, and no whole reply.
    `proof`: what shows that a stream is complete: "word" is a finish reason that ends replies or the closing [DONE], as
    the flag `stream.terminator` has it; "event" is the event that ends the wire's streams; "word-and-end" is such a
    finish reason before an orderly end of the bytes. `reports_length`: the finish reason of a whole reply shows that no
    limit was reached. `reasoning_leads`: reasoning is refused that nothing of the assistant follows. `separate_system`:
    values of the flag for system messages with which the system message stands beside the messages, and is none of
    them.
    `count_paths` are the paths of the number of replies in a request. `names`: messages have a
    field for the name of their speaker. `call_heads`: a call in a stream begins with all keys beside its arguments.
    `empty_ends` are the finish reasons of complete replies that may have no content. `one_text`: texts that follow each
    other are pieces of one text, whatever stands beside them.
    `named_format`: the format of an answer has a name and a description beside its
    schema. `text_arguments`: the arguments of a call are a text, which is JSON and not
    empty. `tool_keys` are the keys beside a function that are written, `part_keys` those of a text or a medium; None
    for all. `block_link(data)` returns the id of the call that a block of an endpoint's own tool is, and the id of the
    call whose result it is; None for what it is not. `carried` are the keys of a body that hold data about an earlier
    reply, and the path of the data in `Reply.extra`; a caller's own object gets them as the last key of the path.
    `drop_idle(body)` removes the details of a setting that the body does not have, or that is off, where the wire
    refuses them so, and returns their paths.

    The rest is what the cost of a request depends on. `reference_keys` are the keys of a body that name input which
    stands elsewhere, `model_keys` those that name further models, any of which may answer. `most_calls` is the key of a
    body, `most_uses` that of a tool, with the most calls that the endpoint makes itself. `hour_mark` stands in the
    bytes of each request that writes to a cache for an hour; None where any request may. `free_actions` are the actions
    of an item of the endpoint's own tool that it may not charge.
    """

    encode_body: Callable[[EncodeInput, Flags], dict[str, Any]]
    decoder: Callable[[Flags], Decoder]
    turns: str
    encode_turns: Callable[[Sequence[Message], Flags, dict[str, str]], list[dict[str, Any]]] | None = None
    fast_decoder: Callable[[Flags], FastDecoder | None] | None = None
    usual_reader: Callable[[Flags], UsualReader | None] | None = None
    ordered: bool = True
    json_arrays: bool = False
    list_params: tuple[str, ...] = ()
    no_blanks: tuple[str, ...] = ()
    separate_system: tuple[str | None, ...] = ()
    takes_medium: Callable[[Media, Flags], bool] = lambda media, flags: True
    takes_name: Callable[[Media, bool], bool] = lambda media, in_result: True
    file_parts: frozenset[str] = frozenset()
    media_roles: frozenset[str] = frozenset(["user"])
    is_chunk: Callable[[dict[str, Any]], bool] = lambda data: False
    proof: Literal["word", "event", "word-and-end"] = "event"
    reports_length: bool = True
    reasoning_leads: bool = False
    count_paths: tuple[str, ...] = ()
    names: bool = False
    named_format: bool = False
    text_arguments: bool = False
    tool_keys: frozenset[str] | None = frozenset()
    part_keys: frozenset[str] | None = None
    block_link: BlockLink = lambda data: (None, None)
    carried: Mapping[str, str] = {}
    drop_idle: Callable[[dict[str, Any]], list[str]] = lambda body: []
    reference_keys: frozenset[str] = frozenset()
    model_keys: frozenset[str] = frozenset()
    most_calls: str | None = None
    most_uses: str | None = None
    hour_mark: bytes | None = None
    free_actions: frozenset[str] = frozenset()
    call_heads: bool = False
    empty_ends: frozenset[str] = frozenset()
    one_text: bool = False


@cache
def wire(protocol: str) -> Wire:
    """Return the client side of a protocol. Raises `RegistryError` for an unknown protocol."""
    client: Wire = _load(protocol, "client", "WIRE")
    return client
