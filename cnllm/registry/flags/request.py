"""Flags of requests beside tools and reasoning: parameters, messages, structured output, the body, default options."""

from typing import Annotated, Any, Literal

from msgspec import field

from cnllm.registry.flags.describe import EVERY_WIRE, WRITE_PATH, Base, formerly
from cnllm.types.policy import IfCut, OnUnsupported, TextCalls

__all__ = [
    "Body",
    "CallFlags",
    "Messages",
    "Param",
    "Prefill",
    "Schema",
]


class Param(Base, frozen=True):
    """The endpoint's rule for one parameter."""

    as_: Annotated[str | None, WRITE_PATH] = field(default=None, name="as")
    """The path of the parameter in the body. Why: Wires and endpoints name the same parameter differently."""
    min: float | None = None
    """The least value. Why: Endpoints refuse a value out of their range, and no two ranges are alike."""
    max: float | None = None
    """The greatest value. Why: Endpoints refuse a value out of their range, and no two ranges are alike."""
    above: float | None = None
    """It must be greater than this. Why: Some ranges exclude their bound."""
    below: float | None = None
    """It must be less than this. Why: Some ranges exclude their bound."""
    step: float | None = None
    """The distance of a clamped value from an open bound. Why: Endpoints with an open bound differ in how close to it
    they go.
    """
    items: int | None = None
    """The most items of a list. Why: Endpoints take one to sixteen stop texts."""
    ignored: bool | None = None
    """Whether the endpoint accepts the parameter without effect, as "ignored" means for one under its own name. Why:
    Endpoints that copy a wire take parameters of it that they do not act on.
    """
    fixed: Any = None
    """The only value that the endpoint accepts; another value is left out, which has the same effect. Why: Some models,
    reasoning ones above all, refuse any value but their own.
    """
    otherwise: Annotated[Literal["clamp", "drop", "error"] | None, formerly("outside")] = None
    """What happens to a value out of range. Why: The nearest value is seldom wrong for a temperature, and always for a
    seed.
    """
    default: Any = None
    """The value where the caller gives none; of a list the first known one, where a text names a flag. Why: Some wires
    refuse a request without it.
    """


class Prefill(Base, frozen=True):
    """The form of a request whose last message is the beginning of the reply, without reasoning."""

    set: dict[str, Any] | None = None
    """The keys that mark the last message. Why: Each endpoint that continues a beginning marks it with a key of its
    own.
    """
    path: str | None = None
    """The path of such a request after base_url, where it differs. Why: Some endpoints do it at another address only.
    """


class Messages(Base, frozen=True):
    """The endpoint's rules for messages."""

    system: Literal["any", "first", "user"] | None = None
    """The place of system messages: anywhere, one leading message, or only as user text. Without it, system messages
    behind a turn of the conversation go into a leading one. Why: Some endpoints refuse a system message behind the
    first one, a few refuse the role.
    """
    developer: bool | None = None
    """Whether the endpoint accepts the role developer. If not, cnllm sends system. Why: Most endpoints that copy the
    wire refuse the newer role.
    """
    empty: Literal["null", "empty", "omit", "space"] | None = None
    """The value of `content` in a message with tool calls and without text. Why: Endpoints refuse null, an empty text,
    or a missing key, and differ in which.
    """
    content: Literal["parts", "string"] | None = None
    """Whether the endpoint accepts a list of text parts, or only a string. Why: Some endpoints, and many chat
    templates, fail on a list.
    """
    answer_field: Annotated[str | None, WRITE_PATH] = None
    """The path of the answer in an assistant's message and in a delta, where it is not `content`. An earlier answer
    goes back there. Why: No endpoint of the file needs it yet; servers that copy the wire rename its fields.
    """
    consecutive_roles: Annotated[Literal["keep", "join"] | None, formerly("runs")] = None
    """Whether consecutive messages may have the same role, or are joined. Why: Some endpoints, and many chat templates,
    refuse roles that do not alternate.
    """
    after_results: str | None = None
    """The answer that cnllm puts between a tool's result and a message of the user, where the endpoint refuses one
    right behind the other. Why: A user may interrupt a tool, and some chat templates then miss the model's own turn.
    """
    first_user: bool | None = None
    """Whether the first message after system must be the user's. Why: Some endpoints refuse a conversation that the
    assistant begins.
    """
    last_user: bool | None = None
    """Whether the last message must not be the assistant's. Why: Some models refuse to go on from the beginning of a
    reply.
    """
    fields: Annotated[list[str] | None, WRITE_PATH] = None
    """Further paths of a message that the endpoint takes. Why: Most endpoints refuse keys that they do not know."""
    files: Literal["all", "vision"] | None = None
    """The models for which the endpoint reads files, beside those whose `input` names them. Why: Some endpoints turn
    files into text or pictures for models that read none.
    """
    blocks: list[str] | None = None
    """Types of content blocks that the endpoint takes beside texts, images and documents. Others become text. Why:
    Endpoints that copy a wire skip the blocks that they do not know, or refuse them.
    """
    file_url: Literal["file", "file_url"] | None = None
    """The content part for a file by URL; file_url: this is the only way to give it one. Why: The wire has no part for
    it, and endpoints that accept one differ in its form.
    """
    audio_url: Literal["audio_url", "input_audio"] | None = None
    """The content part for a sound by URL, where the endpoint accepts one. Why: The wire has sounds only as data, and
    endpoints that accept a URL differ in its part.
    """
    unreachable_urls: list[str] | None = None
    """Beginnings of addresses of files that the endpoint cannot fetch. Why: A file that is stored at a vendor has an
    address at which only that vendor reads it.
    """
    prefill: Prefill | None = None
    """The form of a request to continue the beginning of a reply, where the endpoint can. A cut reply is then
    continued, not requested again. Why: Few endpoints can; the others answer the beginning as if it were a question.
    """


class Schema(Base, frozen=True):
    """Rules for requesting structured output."""

    methods: list[Literal["json_schema", "json_object", "tool", "prompt"]] | None = None
    """The ways to request an answer that follows a JSON Schema, best first; tool: as a tool's arguments. Why: Endpoints
    refuse or ignore a response_format that they do not have.
    """
    rules: Annotated[list[Literal["any-of-only", "no-tuples", "closed"]] | None, EVERY_WIRE] = None
    """Changes that put the schema of an answer into the subset of JSON Schema that `json_schema` takes, beside those of
    `tools.schema`; closed: `additionalProperties` of every object is false, and a schema that is recursive, or has
    objects without a list of properties, is asked for by the next method. Why: Claude takes any schema for a tool, and
    refuses most of them for an answer, on every host that serves it.
    """
    drop: Annotated[list[str] | None, EVERY_WIRE] = None
    """The keywords of JSON Schema that `json_schema` refuses, beside those of `tools.schema_drop`. Why: Claude refuses
    bounds in the schema of an answer, on every host that serves it.
    """


class Body(Base, frozen=True):
    """Changes to the body of every request."""

    set: dict[str, Any] | None = None
    """A table merged into every body. Why: Some endpoints need a switch in each request."""
    rename: Annotated[dict[str, str] | None, WRITE_PATH] = None
    """Keys of every body → their paths at the endpoint, once everything else in the body is written. Why: No endpoint
    of the file needs it yet; servers that copy a wire wrap its messages and its parameters.
    """
    drop: Annotated[list[str] | None, WRITE_PATH] = None
    """Paths removed from every body. Why: Some users' gateways refuse keys that the endpoint behind them accepts."""


class CallFlags(Base, frozen=True):
    """The `call` table: the options of a call that does not set its own."""

    reasoning: Literal["off", "on", "minimal", "low", "medium", "high", "xhigh", "max"] | int | None = None
    """off, on, a level, or a number of tokens."""
    stream: bool | None = None
    """Whether the reply is streamed where the method leaves it open: `cnllm call`, `plan`."""
    tools: list[dict[str, Any]] | None = None
    """The tools that are offered."""
    tool_choice: str | None = None
    """auto, none, required, or a tool's name."""
    parallel_tool_calls: bool | None = None
    """Whether the model may call several tools at once."""
    temperature: float | None = None
    """The sampling temperature."""
    top_p: float | None = None
    """The probability mass of nucleus sampling."""
    max_tokens: int | None = None
    """The most tokens of the reply."""
    stop: str | list[str] | None = None
    """The stop texts: one text, or a list."""
    seed: int | None = None
    """The seed of sampling."""
    schema: dict[str, Any] | None = None
    """The JSON Schema of the answer."""
    corrections: int | None = None
    """How often an answer that does not follow the schema is sent back for correction."""
    extra_body: dict[str, Any] | None = None
    """Merged into the body last, below the call's own."""
    extra_headers: dict[str, str] | None = None
    """Further headers, below the call's own."""
    on_unsupported: OnUnsupported | None = None
    """What happens to an option that the endpoint does not support."""
    if_cut: IfCut | None = None
    """What happens to a stream that was cut."""
    pdf_text: bool | None = None
    """Whether the text of a PDF is sent to a model that reads no PDFs (extra `pdf`)."""
    recover_text_calls: TextCalls | None = None
    """What happens to tool calls written as text."""
