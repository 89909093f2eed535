"""The values that all packages use: parts, messages, events, usage, notes, replies.

All are immutable, compare by value and become JSON with `msgspec.json.encode`. None of them knows a wire, a registry or
a file. The conversion from and to dicts (`Message.from_dict`, `to_dict`) is in `cnllm.types.convert`.
"""

from __future__ import annotations

from collections.abc import Sequence
from decimal import Decimal
from typing import TYPE_CHECKING, Any, Generic, Literal

import msgspec
from msgspec import UNSET, Struct, UnsetType

if TYPE_CHECKING:
    from typing_extensions import TypeVar

    from cnllm.types.message_types import Content
    from cnllm.types.note_codes import NoteCode

    Answer_co = TypeVar("Answer_co", default=Any, covariant=True)
else:
    from typing import TypeVar

    NoteCode = str  # a stored note may have the code of another version
    Answer_co = TypeVar("Answer_co", covariant=True)

__all__ = [
    "TOKEN_EVENTS",
    "BlockEnd",
    "Citation",
    "CitationAdded",
    "Cost",
    "Event",
    "ExtraAdded",
    "Finish",
    "Finished",
    "Media",
    "Message",
    "Note",
    "NoteAdded",
    "Opaque",
    "Part",
    "Reasoning",
    "ReasoningDelta",
    "Reply",
    "Request",
    "Restarted",
    "Role",
    "RunSummary",
    "Seal",
    "Stopped",
    "Text",
    "TextDelta",
    "Timing",
    "ToolCall",
    "ToolCallDelta",
    "ToolCallEnd",
    "ToolCallStart",
    "ToolResult",
    "Usage",
    "UsageSeen",
]

Finish = Literal["stop", "length", "tool_calls", "content_filter", "error", "cut"]
"""Why a reply ended. OpenAI's words, and `cut`: the stream ended before the reply was complete."""

Role = Literal["system", "developer", "user", "assistant", "tool"]
"""Who speaks in a message."""

Stopped = Literal[
    "done",
    "length",
    "content_filter",
    "cut",
    "incomplete",
    "max_steps",
    "repeated",
    "cancelled",
    "error",
]
"""Why a run ended.

`done`: the model ended it. `length`, `content_filter`, `cut`: the last reply ended so. `incomplete`: calls were
announced and none came. `max_steps`, `repeated`, `cancelled`: the loop was stopped. `error`: an error was raised."""


class Seal(Struct, frozen=True, omit_defaults=True):
    """Data that an endpoint wants back unchanged with a part, and the only origin it may go back to.

    `data` is the wire's own JSON (a signature, a details list, an encrypted blob); cnllm does not look inside.
    """

    protocol: str
    provider: str
    model: str
    data: Any = None


class Text(Struct, frozen=True, tag="text", tag_field="kind", omit_defaults=True):
    """Plain text of a turn. `extra` holds further keys of a caller's content part (cache marks)."""

    text: str
    seal: Seal | None = None
    extra: dict[str, Any] | None = None


class Reasoning(Struct, frozen=True, tag="reasoning", tag_field="kind", omit_defaults=True):
    """The reasoning of a model before or between its answers."""

    text: str
    seal: Seal | None = None


class Media(Struct, frozen=True, tag="media", tag_field="kind", omit_defaults=True):
    """An image, video or sound: `data` in base64 with `type` as its MIME type, or a `url` with `type` as its kind.

    `extra` holds further keys of the content part it came from (`detail`).
    """

    type: str
    data: str | None = None
    url: str | None = None
    seal: Seal | None = None
    extra: dict[str, Any] | None = None


class ToolCall(Struct, frozen=True, tag="tool_call", tag_field="kind", omit_defaults=True):
    """A call of a tool that the model asks for.

    `arguments` is the decoded object, or None when `raw` is not a JSON object; `problem` then says why. `via` says how
    it arrived: structured on the wire, or written into the text. `excluded` means that the request did not offer this
    tool, or that its `tool_choice` excludes it; such a call has no `arguments`, and must never be executed.
    """

    id: str
    name: str
    arguments: dict[str, Any] | None = None
    raw: str = ""
    via: Literal["wire", "text"] = "wire"
    problem: str | None = None
    seal: Seal | None = None
    excluded: bool = False


class ToolResult(Struct, frozen=True, tag="tool_result", tag_field="kind", omit_defaults=True):
    """The result of a call: `id` is the call's; `error` marks a failure.

    `media` are images, sounds and files in the result. `blocks` is what else is in it and is no text: results of a
    search, references to tools, files that an endpoint keeps.
    """

    id: str
    text: str = ""
    name: str | None = None
    error: bool = False
    media: tuple[Media, ...] = ()
    seal: Seal | None = None
    blocks: tuple[Opaque, ...] = ()


class Opaque(Struct, frozen=True, tag="opaque", tag_field="kind", omit_defaults=True):
    """A part that cnllm does not understand, kept whole. With a seal it goes back to its origin only."""

    data: Any
    seal: Seal | None = None


_RESERVED_KEYS = frozenset(
    ["role", "content", "reasoning", "reasoning_content", "tool_calls", "tool_call_id", "name", "by", "parts"]
)

Part = Text | Reasoning | Media | ToolCall | ToolResult | Opaque


def _parts(parts: Any) -> tuple[Part, ...]:
    """Return parts as a tuple; a string is a text. Raises `TypeError` for anything else."""
    if type(parts) is list:
        return tuple(parts)
    from cnllm.types import checks

    if isinstance(parts, str):
        return (Text(str.__str__(parts)),) if parts else ()
    return tuple(checks.as_list("parts", parts, "a string, or a list of cnllm's parts (Text, Media, ToolCall, …),"))


def _role(role: Any) -> str:
    """Return a role as a string. Raises `TypeError` for anything else."""
    from cnllm.types import checks

    checks.require_type("role", role, str, "a string (system, developer, user, assistant or tool)")
    return str.__str__(role)


class Message(Struct, frozen=True, omit_defaults=True):
    """One turn. `parts` are ordered and authoritative; `by` is the "provider/model" that wrote it.

    `Message.user("Hi")`, `.system`, `.assistant` and `.tool` are short forms; a string is a text. `name` is the
    speaker's, on wires that have such a field; `extra` holds further keys of a caller's dict, which are sent only where
    the registry allows them (`messages.fields`).
    """

    role: Role
    parts: tuple[Part, ...] = ()
    by: str | None = None
    name: str | None = None
    extra: dict[str, Any] | None = None

    if TYPE_CHECKING:  # the constructor takes more than the fields hold

        def __init__(
            self,
            role: Role,
            parts: str | Sequence[Part] = (),
            by: str | None = None,
            name: str | None = None,
            extra: dict[str, Any] | None = None,
        ) -> None: ...

    def __post_init__(self) -> None:
        if type(self.parts) is not tuple:
            msgspec.structs.force_setattr(self, "parts", _parts(self.parts))
        if self.extra is not None:
            if type(self.extra) is not dict:
                from cnllm.types import checks

                msgspec.structs.force_setattr(self, "extra", checks.as_dict("extra", self.extra, "a dict or None"))
            if not _RESERVED_KEYS.isdisjoint(self.extra):
                raise ValueError(
                    f"extra holds {', '.join(_RESERVED_KEYS & self.extra.keys())}, which are keys of a message itself"
                )
            if not self.extra:
                msgspec.structs.force_setattr(self, "extra", None)
        if type(self.role) is not str:
            msgspec.structs.force_setattr(self, "role", _role(self.role))
        if self.name is not None and self.role == "tool":  # a result has the name of its tool itself
            msgspec.structs.force_setattr(self, "name", None)

    @staticmethod
    def system(content: Content) -> Message:
        """Return a system message of a string, a part, or a list of them."""
        return _message("system", content)

    @staticmethod
    def user(content: Content) -> Message:
        """Return a message of the user: a string, a part (`Media` is a picture), or a list of them."""
        return _message("user", content)

    @staticmethod
    def assistant(content: Content) -> Message:
        """Return a turn of the model: a string, a part (`Reasoning`, `ToolCall`), or a list of them."""
        return _message("assistant", content)

    @staticmethod
    def tool(id: str, content: Content, *, name: str | None = None, error: bool = False) -> Message:
        """Return the result of the call with this id: a string, a part (`Media` is a picture), or a list of them.

        `name` is the tool's. `error` marks a failure.
        """
        from cnllm.types.content import tool_result

        return Message("tool", (tool_result(id, content, name, error),))

    @property
    def text(self) -> str:
        """Return the text parts, joined."""
        return "".join([p.text for p in self.parts if type(p) is Text])

    @property
    def reasoning(self) -> str:
        """Return the reasoning parts, joined."""
        return "".join([p.text for p in self.parts if type(p) is Reasoning])

    @property
    def tool_calls(self) -> list[ToolCall]:
        """Return the calls, in order."""
        return [p for p in self.parts if type(p) is ToolCall]

    def to_dict(self) -> dict[str, Any]:
        """Return an OpenAI-style dict that JSON can hold.

        `parts` is among its keys where the flat keys would lose something.
        """
        from cnllm.types.convert import to_dict

        return to_dict(self)

    @staticmethod
    def from_dict(data: dict[str, Any]) -> Message:
        """Return the message of an OpenAI-style dict; the opposite of `to_dict`.

        A flat key that differs from `parts` was edited: it wins, and the parts that it replaces lose their seals.
        Raises `TypeError` or `ValueError` naming the key that is wrong.
        """
        from cnllm.types.convert import from_dict

        return from_dict(data)


def _message(role: Role, content: Content) -> Message:
    """Return a message of a string, a part, or a list of them. Raises `TypeError` or `ValueError`."""
    from cnllm.types.content import content_parts

    return Message(role, content_parts("content", content))


class Usage(Struct, frozen=True, omit_defaults=True):
    """Counts of tokens, as the endpoint reported them: None is unknown, which is not 0.

    `input` includes `cached` and `output` includes `reasoning`, on every wire.
    """

    input: int | None = None
    output: int | None = None
    total: int | None = None
    reasoning: int | None = None
    cached: int | None = None
    cache_write: int | None = None


class Cost(Struct, frozen=True):
    """The cost of a reply by the registry's price, in units of `currency` (ISO 4217)."""

    amount: Decimal
    currency: str


class Citation(Struct, frozen=True, omit_defaults=True):
    """A source that an endpoint names for its answer, and the piece of the answer that it is for.

    `start` and `end` are positions in `Reply.text`, as in `text[start:end]`. Both are None where the endpoint names a
    source without a piece, or where cnllm took markup out of the text, so that positions do not fit. `url` is None for
    a source that is no page, such as a file of the request. `seal` has the object of the wire, and where it came from.
    """

    url: str | None
    title: str | None = None
    start: int | None = None
    end: int | None = None
    seal: Seal | None = None


class Note(Struct, frozen=True):
    """One change or observation, and the line of the registry that caused it.

    `code` is stable and kebab-case. `flag` is the registry's flag. `said` is the request or the input that the note is
    about, `did` is what cnllm did with it. `where` is "providers.toml:97", or "" where no line of a registry is the
    cause.
    """

    code: NoteCode
    flag: str
    said: str
    did: str
    where: str = ""

    def __str__(self) -> str:
        origin = f" ({self.where})" if self.where else ""
        return f"{self.flag}: {self.said} → {self.did}{origin}"


class TextDelta(Struct, frozen=True, tag="text_delta", gc=False):
    """A piece of the answer."""

    text: str


class ReasoningDelta(Struct, frozen=True, tag="reasoning_delta", gc=False):
    """A piece of the reasoning."""

    text: str


class ToolCallStart(Struct, frozen=True, tag="tool_call_start", omit_defaults=True, gc=False):
    """A call began; its name is known and never empty. `index` counts the calls of this reply.

    `excluded` is the call's (see `ToolCall`); an excluded call must never be executed.
    """

    index: int
    id: str
    name: str
    excluded: bool = False


class ToolCallDelta(Struct, frozen=True, tag="tool_call_delta", gc=False):
    """A piece of a call's arguments, as raw JSON text."""

    index: int
    text: str


class ToolCallEnd(Struct, frozen=True, tag="tool_call_end"):
    """A call is complete, or as complete as it will be (`call.problem`)."""

    index: int
    call: ToolCall


class BlockEnd(Struct, frozen=True, tag="block_end"):
    """A text, reasoning or opaque part is complete. `index` is its index among the message's parts."""

    index: int
    part: Part


class UsageSeen(Struct, frozen=True, tag="usage"):
    """Usage arrived; later usage replaces earlier."""

    usage: Usage


class NoteAdded(Struct, frozen=True, tag="note"):
    """A note was added while the reply was read."""

    note: Note


class CitationAdded(Struct, frozen=True, tag="citation"):
    """The endpoint named a source of the answer. It may come before the text that it is for."""

    citation: Citation


class ExtraAdded(Struct, frozen=True, tag="extra"):
    """Data about the reply came (see `Reply.extra`): `logprobs` go on the list, any other value replaces the last."""

    extra: dict[str, Any]


class Restarted(Struct, frozen=True, tag="restarted"):
    """The reply begins again with other text: discard the text that was delivered so far."""


class RunSummary(Struct, frozen=True, kw_only=True):
    """The summary of a tool loop: why it `stopped`, its steps, the calls in them, and how many `returned`.

    A call returned where it gave a result that is no error. `fallback` means that a sentence of the registry replaced
    an answer, that the model was asked to continue, or that a second request replaced a stream or a step.
    """

    stopped: Stopped
    steps: int
    calls: int
    returned: int
    fallback: bool


class Finished(Struct, frozen=True, tag="finished"):
    """The end. `raw` is the wire's own word for it, None where there was none.

    The last one of a tool loop has the summary of the `run`; others have none (`msgspec.UNSET`, which is false).
    """

    finish: Finish
    raw: str | None = None
    run: RunSummary | UnsetType = UNSET


Event = (
    ReasoningDelta
    | TextDelta
    | ToolCallStart
    | ToolCallDelta
    | ToolCallEnd
    | BlockEnd
    | UsageSeen
    | NoteAdded
    | CitationAdded
    | ExtraAdded
    | Restarted
    | Finished
)

TOKEN_EVENTS = (TextDelta, ReasoningDelta, ToolCallStart, ToolCallDelta)
"""The events that carry what the model writes."""


class Request(Struct, frozen=True, kw_only=True):
    """A request as a server reads it, in any protocol.

    `messages` and `options` fit `engine.build_request` and the clients: `client.call(name, request.messages,
    **request.options)` passes it on. Keys of the body without an option of their own are in `options["extra_body"]`,
    unchanged. `model` is the name in the request. `notes` name what of the body no model can be given.
    """

    model: str | None
    messages: list[Message]
    stream: bool = False
    options: dict[str, Any] = {}
    notes: list[Note] = []


class Timing(Struct, frozen=True, kw_only=True):
    """The time that a reply took, in seconds since its first request; time for retries and waiting counts.

    `first` is when the first token arrived: None for a reply that came in one piece. `total` is when the reply was
    complete. Both are None for a reply that no client read, such as one of `parse_response`. Timings are equal, so that
    replies are compared by what they hold; compare `first` and `total` themselves.
    """

    first: float | None = None
    total: float | None = None

    def __eq__(self, other: object) -> bool:
        return type(other) is Timing or NotImplemented

    def __hash__(self) -> int:
        return 0


class Reply(Struct, Generic[Answer_co], frozen=True, kw_only=True):
    """The result of one call. `message` carries everything: append it to the history and go on.

    `incomplete` holds calls that were cut off; they are never executable. `raw` is the decoded body; for a stream it is
    None unless the caller asked to keep it. `model` and `id` are as the endpoint named them. `parsed` is the answer to
    a `schema`: checked against it, or an instance of the model class given for it. It is None without a schema, without
    a whole answer, or where the answer is invalid (the note `answer-invalid` says why). `registry` is the version of
    the data on the endpoint, by which the request was built and the reply was read; "" where there is no endpoint.
    `citations` are the sources that the endpoint names, in the order in which they came. `extra` holds data without a
    field of their own, by OpenAI's names: `logprobs` (a list of tokens), `service_tier`, `system_fingerprint`,
    `stop_sequence`, and `usage`, the keys of the endpoint's usage object that `Usage` does not have (`cost`, searches).
    """

    text: str
    reasoning: str
    tool_calls: list[ToolCall]
    finish: Finish
    raw_finish: str | None
    usage: Usage
    cost: Cost | None
    model: str | None
    id: str | None
    notes: list[Note]
    message: Message
    incomplete: list[ToolCall]
    raw: Any = None
    parsed: Answer_co | None = None
    timing: Timing = Timing()
    registry: str = ""
    citations: list[Citation] = []
    extra: dict[str, Any] = {}

    def to_dict(self) -> dict[str, Any]:
        """Return all fields but `raw` in a form that JSON can hold (`cost.amount` as a string, `parsed` as JSON)."""
        data: dict[str, Any] = msgspec.to_builtins(msgspec.structs.replace(self, raw=None, parsed=None))
        del data["raw"]
        data["message"] = self.message.to_dict()
        if self.parsed is not None:
            from cnllm.types.json_form import json_form

            data["parsed"] = json_form(self.parsed)
        return data
