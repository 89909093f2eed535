"""The values that all packages use: parts, messages, events, usage, notes, replies.

All are immutable, compare by value and become JSON with `msgspec.json.encode`. None of them knows a wire, a registry or
a file. Messages and their parts are in modules of their own.
"""

from __future__ import annotations

from decimal import Decimal
from typing import TYPE_CHECKING, Any, Generic, Literal

import msgspec
from msgspec import UNSET, Struct, UnsetType

from cnllm.types.checks import plural
from cnllm.types.message import Message
from cnllm.types.parts import Media, Opaque, Part, Reasoning, Role, Seal, Text, ToolCall, ToolResult

if TYPE_CHECKING:
    from typing_extensions import TypeVar

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
    "Quote",
    "Reasoning",
    "ReasoningDelta",
    "Reply",
    "Request",
    "Restarted",
    "Role",
    "RunSummary",
    "Seal",
    "Step",
    "Stopped",
    "Text",
    "TextDelta",
    "Timing",
    "ToolCall",
    "ToolCallDelta",
    "ToolCallEnd",
    "ToolCallStart",
    "ToolResult",
    "ToolUse",
    "Usage",
    "UsageSeen",
]

Finish = Literal["stop", "length", "tool_calls", "content_filter", "error", "cut"]
"""Why a reply ended. OpenAI's words, and `cut`: the stream ended before the reply was complete."""

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


class Usage(Struct, frozen=True, omit_defaults=True):
    """Counts of tokens, as the endpoint reported them: None is unknown, which is not 0.

    `input` includes `cached` and `cache_write`, and `output` includes `reasoning`, on every wire. `cache_write_1h` is
    the part of `cache_write` that the cache keeps for an hour.
    """

    input: int | None = None
    output: int | None = None
    total: int | None = None
    reasoning: int | None = None
    cached: int | None = None
    cache_write: int | None = None
    cache_write_1h: int | None = None


class Cost(Struct, frozen=True):
    """The cost of a reply in units of `currency` (ISO 4217).

    `amount` is certain. Where it is not `complete`, it is a lower bound: `missing` names what it leaves out, and
    `at_most` is the most that the cost can be, None where nothing bounds it. `by` says whose figure it is: that of the
    endpoint's own bill, or that of the registry's price. Where the endpoint's bill counts, `computed` is the amount by
    the registry's price; None where that is unknown, or in another currency.
    """

    amount: Decimal
    currency: str
    complete: bool = True
    missing: tuple[str, ...] = ()
    at_most: Decimal | None = None
    by: Literal["registry", "endpoint"] = "registry"
    computed: Decimal | None = None

    def __post_init__(self) -> None:
        if self.missing:
            msgspec.structs.force_setattr(self, "complete", False)
        else:
            msgspec.structs.force_setattr(self, "complete", True)
            msgspec.structs.force_setattr(self, "at_most", self.amount)


class Quote(Struct, frozen=True):
    """The tokens and the cost of a call before it is made.

    `input` is an estimate, and so is `cached`, its part that was sent before: None where nothing shows that it was.
    Half and nine tenths of recorded requests to this family of models differed from such an estimate by the shares in
    `input_errors` at most; None where none are recorded. `output_max` is the most tokens of the reply. `low` and `high`
    are the least and the most that the call costs, in units of `currency`; None where nothing bounds it. `unknown`
    names what is not known.
    """

    input: int
    cached: int | None
    output_max: int | None
    low: Decimal | None
    high: Decimal | None
    currency: str | None
    unknown: tuple[str, ...] = ()
    input_errors: tuple[float, float] | None = None


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

    `excluded` is the call's (see `ToolCall`); an excluded call must never be executed. `seal` is the call's, too, where
    its wire has the keys beside a call at the beginning.
    """

    index: int
    id: str
    name: str
    excluded: bool = False
    seal: Seal | None = None


class ToolCallDelta(Struct, frozen=True, tag="tool_call_delta", gc=False):
    """A piece of a call's arguments, as raw JSON text."""

    index: int
    text: str


class ToolCallEnd(Struct, frozen=True, tag="tool_call_end"):
    """A call is complete, or as complete as it will be (`call.problem`)."""

    index: int
    call: ToolCall


class BlockEnd(Struct, frozen=True, tag="block_end"):
    """A text, reasoning or opaque part is complete. `index` is its index among the message's parts.

    A complete call before it counts, also where the reply breaks off and the call is no part of the message.
    """

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
    """Data about the reply came (see `Reply.extra`).

    `logprobs` and `annotations` go on the list, any other value replaces the last.
    """

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
    `stop_sequence`, `refusal` (true where the text is a refusal of the model), and `usage`, the keys of the endpoint's
    usage object that `Usage` does not have (`cost`, searches, tokens of sounds). Further keys about the reply have the
    endpoint's own names (`container`, `moderation`).
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


class ToolUse(Struct, frozen=True, kw_only=True):
    """One call of a tool: how long it ran, and whether its result is an error.

    `seconds` is None where the tool did not run: its name or its arguments were wrong, it was not approved, or the run
    ended before.
    """

    name: str
    seconds: float | None
    error: bool


class Step(Struct, frozen=True, kw_only=True):
    """One step of a loop: the model's reply, the calls in it and the result of each, in order.

    `seconds` is the time of the whole step, `tool_uses` has that of each call. `notes` are the loop's, `reply.notes`
    has the others. The last step of a run has the summary of the `run`.
    """

    number: int
    reply: Reply
    calls: tuple[ToolCall, ...] = ()
    results: tuple[ToolResult, ...] = ()
    seconds: float = 0.0
    notes: tuple[Note, ...] = ()
    run: RunSummary | None = None
    tool_uses: tuple[ToolUse, ...] = ()

    @property
    def called(self) -> int:
        """Count the calls that the model made."""
        return len(self.calls)

    @property
    def returned(self) -> int:
        """Count the calls that gave a result without an error."""
        return sum(not result.error for result in self.results)

    def __str__(self) -> str:
        number, calls = self.number, self.called
        return f"step {number}: {calls} call{plural(calls)}, {self.returned} returned, {self.seconds:.1f} s"
