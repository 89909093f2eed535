"""The values that everything else passes along: parts, messages, events, usage, notes, replies.

All are immutable, compare by value and turn into JSON with `msgspec.json.encode`. Nothing here knows a wire,
a registry or a file. Dicts in and out (`Message.from_dict`, `to_dict`) live in `cnllm.types.convert`.
"""

from __future__ import annotations

from collections.abc import Sequence
from decimal import Decimal
from typing import Any, Literal

import msgspec
from msgspec import UNSET, Struct, UnsetType

__all__ = [
    "BlockEnd",
    "Cost",
    "Event",
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
    "RunSummary",
    "Seal",
    "Text",
    "TextDelta",
    "ToolCall",
    "ToolCallDelta",
    "ToolCallEnd",
    "ToolCallStart",
    "ToolResult",
    "Usage",
    "UsageSeen",
]

Finish = Literal["stop", "length", "tool_calls", "content_filter", "error", "cut"]
"""Why a reply ended. OpenAI's words, plus `cut`: the stream stopped without proof that it was complete."""


class Seal(Struct, frozen=True, omit_defaults=True):
    """What an endpoint wants back unchanged with a part, and the only origin it may go back to.

    `data` is the wire's own JSON (a signature, a details list, an encrypted blob); no one here looks inside.
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
    """What a model thought before or between its answers."""

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
    """A call the model wants made.

    `arguments` is the decoded object, or None when `raw` is not a JSON object; `problem` then says why.
    `via` says how it arrived: structured on the wire, or written into the text. `excluded`: the request did not offer
    this tool, or its `tool_choice` excludes it; such a call has no `arguments`, and must never be executed.
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
    """What a call gave: `id` is the call's; `media` are pictures among the result; `error` marks a failure."""

    id: str
    text: str = ""
    name: str | None = None
    error: bool = False
    media: tuple[Media, ...] = ()
    seal: Seal | None = None


class Opaque(Struct, frozen=True, tag="opaque", tag_field="kind", omit_defaults=True):
    """A block no one here understands, kept whole. With a seal it goes back to its origin only."""

    data: Any
    seal: Seal | None = None


_RESERVED = frozenset(
    ["role", "content", "reasoning", "reasoning_content", "tool_calls", "tool_call_id", "name", "by", "parts"]
)

Part = Text | Reasoning | Media | ToolCall | ToolResult | Opaque


def _parts(given: Any) -> tuple[Part, ...]:
    from cnllm.types import checks

    return tuple(checks.as_list("parts", given, "a list of cnllm's parts (Text, Media, ToolCall, …)"))


def _role(given: Any) -> str:
    from cnllm.types import checks

    checks.require_type("role", given, str, "a string (system, developer, user, assistant or tool)")
    return str.__str__(given)


class Message(Struct, frozen=True, omit_defaults=True):
    """One turn. `parts` are ordered and authoritative; `by` is the "provider/model" that wrote it.

    `name` names the speaker where a wire knows such a thing; `extra` holds further keys of a caller's dict,
    which reach the wire only where the registry allows them (`messages.fields`).
    """

    role: str
    parts: Sequence[Part] = ()
    by: str | None = None
    name: str | None = None
    extra: dict[str, Any] | None = None

    def __post_init__(self) -> None:
        if type(self.parts) is not tuple:
            msgspec.structs.force_setattr(self, "parts", _parts(self.parts))
        if self.extra is not None:
            if type(self.extra) is not dict:
                from cnllm.types import checks

                msgspec.structs.force_setattr(self, "extra", checks.as_dict("extra", self.extra, "a dict or None"))
            if not _RESERVED.isdisjoint(self.extra):
                raise ValueError(f"extra holds {', '.join(_RESERVED & self.extra.keys())}, which a message says itself")
            if not self.extra:
                msgspec.structs.force_setattr(self, "extra", None)
        if type(self.role) is not str:
            msgspec.structs.force_setattr(self, "role", _role(self.role))
        if self.name is not None and self.role == "tool":  # a result has its tool's name itself
            msgspec.structs.force_setattr(self, "name", None)

    @property
    def text(self) -> str:
        """The text parts, joined."""
        return "".join([p.text for p in self.parts if type(p) is Text])

    @property
    def reasoning(self) -> str:
        """The reasoning parts, joined."""
        return "".join([p.text for p in self.parts if type(p) is Reasoning])

    @property
    def tool_calls(self) -> list[ToolCall]:
        """The calls, in order."""
        return [p for p in self.parts if type(p) is ToolCall]

    def to_dict(self) -> dict[str, Any]:
        """An OpenAI-style dict that JSON can hold; `parts` is among its keys where flat keys would lose something."""
        from cnllm.types.convert import to_dict

        return to_dict(self)

    @staticmethod
    def from_dict(data: dict[str, Any]) -> Message:
        """The opposite of `to_dict`; any OpenAI-style message will do.

        A flat key that differs from what `parts` say was edited: it wins, and the parts it replaces lose their seals.
        Raises `TypeError` or `ValueError` naming the key that is wrong.
        """
        from cnllm.types.convert import from_dict

        return from_dict(data)


class Usage(Struct, frozen=True, omit_defaults=True):
    """Tokens, as far as the endpoint told: None is unknown, which is not 0.

    `input` includes what was `cached`; `output` includes `reasoning`; on every wire.
    """

    input: int | None = None
    output: int | None = None
    total: int | None = None
    reasoning: int | None = None
    cached: int | None = None
    cache_write: int | None = None


class Cost(Struct, frozen=True):
    """What a reply cost by the registry's price, in units of `currency` (ISO 4217)."""

    amount: Decimal
    currency: str


class Note(Struct, frozen=True):
    """One thing that was changed or noticed, and the line that caused it.

    `code` is stable and kebab-case; `flag` the registry's flag; `said` what was asked for or arrived; `did` what was
    made of it; `where` "providers.toml:97", or "" where no line of a registry is behind it.
    """

    code: str
    flag: str
    said: str
    did: str
    where: str = ""

    def __str__(self) -> str:
        origin = f" ({self.where})" if self.where else ""
        return f"{self.flag}: {self.said} → {self.did}{origin}"


class TextDelta(Struct, frozen=True, tag="text_delta", gc=False):
    """More of the answer."""

    text: str


class ReasoningDelta(Struct, frozen=True, tag="reasoning_delta", gc=False):
    """More of the thinking."""

    text: str


class ToolCallStart(Struct, frozen=True, tag="tool_call_start", omit_defaults=True, gc=False):
    """A call began; its name is known and never empty. `index` counts the calls of this reply.

    `excluded` is that of the call (see `ToolCall`), which must never be executed.
    """

    index: int
    id: str
    name: str
    excluded: bool = False


class ToolCallDelta(Struct, frozen=True, tag="tool_call_delta", gc=False):
    """More of a call's arguments, as raw JSON text."""

    index: int
    text: str


class ToolCallEnd(Struct, frozen=True, tag="tool_call_end"):
    """A call is complete, or as complete as it will get (`call.problem`)."""

    index: int
    call: ToolCall


class BlockEnd(Struct, frozen=True, tag="block_end"):
    """A text, reasoning or opaque part is complete. `index` is its place among the message's parts."""

    index: int
    part: Part


class UsageSeen(Struct, frozen=True, tag="usage"):
    """Usage arrived; later usage replaces earlier."""

    usage: Usage


class NoteAdded(Struct, frozen=True, tag="note"):
    """Something was noticed while reading."""

    note: Note


class Restarted(Struct, frozen=True, tag="restarted"):
    """Forget what was delivered so far: the reply was taken anew and begins differently."""


class RunSummary(Struct, frozen=True, kw_only=True):
    """What a tool loop came to: why it `stopped`, its steps, the calls made in them, and how many `returned`.

    A call returned where it gave a result that is no error. `fallback`: a sentence of the registry stands in place of
    an answer, or the model had to be asked to go on.
    """

    stopped: str
    steps: int
    calls: int
    returned: int
    fallback: bool


class Finished(Struct, frozen=True, tag="finished"):
    """The end. `raw` is the wire's own word for it, None where there was none.

    The last one of a tool loop has the summary of the `run`; in others there is none (`msgspec.UNSET`, which is false).
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
    | Restarted
    | Finished
)


class Request(Struct, frozen=True, kw_only=True):
    """A request as a server reads it, whatever the protocol it came over.

    `messages` and `options` are what `engine.build_request` and the clients take: `client.call(name, request.messages,
    **request.options)` passes it on. What of the body has no option of that name is in `options["extra_body"]`, as it
    stood there. `model` is the name that was asked for.
    """

    model: str | None
    messages: list[Message]
    stream: bool = False
    options: dict[str, Any] = {}


class Reply(Struct, frozen=True, kw_only=True):
    """What came of one call. `message` carries everything: append it to the history and go on.

    `incomplete` holds calls that were cut off; they are never executable. `raw` is the decoded body, or for a
    stream None unless it was asked to be kept. `model` and `id` are as the endpoint named them. `parsed` is the answer
    to a `schema`: checked against it, or an instance of the model class given for it; None where none was asked for,
    where there is no whole answer, or where it is not valid (the note `answer-invalid` says why).
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
    parsed: Any = None

    def to_dict(self) -> dict[str, Any]:
        """Everything but `raw`, as JSON can hold it (`cost.amount` as a string, `parsed` as the JSON it was)."""
        data: dict[str, Any] = msgspec.to_builtins(msgspec.structs.replace(self, raw=None, parsed=None))
        del data["raw"]
        data["message"] = self.message.to_dict()
        dump = getattr(self.parsed, "model_dump", None)
        data["parsed"] = dump(mode="json", by_alias=True) if callable(dump) else self.parsed
        return data
