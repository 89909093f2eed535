"""Flags of requests beside tools and reasoning: parameters, messages, structured output, the body."""

from typing import Annotated, Any, Literal

from msgspec import field

from cnllm.registry.flags.describe import Base, flag

__all__ = ["Body", "Messages", "Param", "Prefill", "Schema"]

_RANGE = "Endpoints refuse a value out of their range, and no two ranges are alike."


class Param(Base, frozen=True):
    """The endpoint's rule for one parameter."""

    as_: Annotated[
        str | None,
        flag(
            "The path of the parameter in the body.",
            "Wires and endpoints name the same parameter differently.",
            path="write",
        ),
    ] = field(default=None, name="as")
    min: Annotated[float | None, flag("The least value.", _RANGE)] = None
    max: Annotated[float | None, flag("The greatest value.", _RANGE)] = None
    above: Annotated[float | None, flag("It must be greater than this.", "Some ranges exclude their bound.")] = None
    below: Annotated[float | None, flag("It must be less than this.", "Some ranges exclude their bound.")] = None
    step: Annotated[
        float | None,
        flag(
            "The distance of a clamped value from an open bound.",
            "Endpoints with an open bound differ in how close to it they go.",
        ),
    ] = None
    items: Annotated[int | None, flag("The most items of a list.", "Endpoints take one to sixteen stop texts.")] = None
    ignored: Annotated[
        bool | None,
        flag(
            'Whether the endpoint accepts the parameter without effect, as "ignored" means for one under its own name.',
            "Endpoints that copy a wire take parameters of it that they do not act on.",
        ),
    ] = None
    fixed: Annotated[
        Any,
        flag(
            "The only value that the endpoint accepts; another value is left out, which has the same effect.",
            "Some models, reasoning ones above all, refuse any value but their own.",
        ),
    ] = None
    otherwise: Annotated[
        Literal["clamp", "drop", "error"] | None,
        flag(
            "What happens to a value out of range.",
            "The nearest value is seldom wrong for a temperature, and always for a seed.",
            formerly="outside",
        ),
    ] = None
    default: Annotated[
        Any,
        flag(
            "The value where the caller gives none; of a list the first known one, where a text names a flag.",
            "Some wires refuse a request without it.",
        ),
    ] = None


class Prefill(Base, frozen=True):
    """The form of a request whose last message is the beginning of the reply, without reasoning."""

    set: Annotated[
        dict[str, Any] | None,
        flag(
            "The keys that mark the last message.",
            "Each endpoint that continues a beginning marks it with a key of its own.",
        ),
    ] = None
    path: Annotated[
        str | None,
        flag(
            "The path of such a request after base_url, where it differs.",
            "Some endpoints do it at another address only.",
        ),
    ] = None


class Messages(Base, frozen=True):
    """The endpoint's rules for messages."""

    system: Annotated[
        Literal["any", "first", "user"] | None,
        flag(
            "The place of system messages: anywhere, one leading message, or only as user text. Without it, system "
            "messages behind a turn of the conversation go into a leading one.",
            "Some endpoints refuse a system message behind the first one, a few refuse the role.",
        ),
    ] = None
    developer: Annotated[
        bool | None,
        flag(
            "Whether the endpoint accepts the role developer. If not, cnllm sends system.",
            "Most endpoints that copy the wire refuse the newer role.",
        ),
    ] = None
    empty: Annotated[
        Literal["null", "empty", "omit", "space"] | None,
        flag(
            "The value of `content` in a message with tool calls and without text.",
            "Endpoints refuse null, an empty text, or a missing key, and differ in which.",
        ),
    ] = None
    content: Annotated[
        Literal["parts", "string"] | None,
        flag(
            "Whether the endpoint accepts a list of text parts, or only a string.",
            "Some endpoints, and many chat templates, fail on a list.",
        ),
    ] = None
    answer_field: Annotated[
        str | None,
        flag(
            "The path of the answer in an assistant's message and in a delta, where it is not `content`. An earlier "
            "answer goes back there.",
            "No endpoint of the file needs it yet; servers that copy the wire rename its fields.",
            path="write",
        ),
    ] = None
    consecutive_roles: Annotated[
        Literal["keep", "join"] | None,
        flag(
            "Whether consecutive messages may have the same role, or are joined.",
            "Some endpoints, and many chat templates, refuse roles that do not alternate.",
            formerly="runs",
        ),
    ] = None
    first_user: Annotated[
        bool | None,
        flag(
            "Whether the first message after system must be the user's.",
            "Some endpoints refuse a conversation that the assistant begins.",
        ),
    ] = None
    fields: Annotated[
        list[str] | None,
        flag(
            "Further paths of a message that the endpoint takes.",
            "Most endpoints refuse keys that they do not know.",
            path="write",
        ),
    ] = None
    files: Annotated[
        Literal["all", "vision"] | None,
        flag(
            "The models for which the endpoint reads files, beside those whose `input` names them.",
            "Some endpoints turn files into text or pictures for models that read none.",
        ),
    ] = None
    blocks: Annotated[
        list[str] | None,
        flag(
            "Types of content blocks that the endpoint takes beside texts, images and documents. Others become text.",
            "Endpoints that copy a wire skip the blocks that they do not know, or refuse them.",
        ),
    ] = None
    file_url: Annotated[
        Literal["file", "file_url"] | None,
        flag(
            "The content part for a file by URL; file_url: this is the only way to give it one.",
            "The wire has no part for it, and endpoints that accept one differ in its form.",
        ),
    ] = None
    audio_url: Annotated[
        Literal["audio_url", "input_audio"] | None,
        flag(
            "The content part for a sound by URL, where the endpoint accepts one.",
            "The wire has sounds only as data, and endpoints that accept a URL differ in its part.",
        ),
    ] = None
    prefill: Annotated[
        Prefill | None,
        flag(
            "The form of a request to continue the beginning of a reply, where the endpoint can. A cut reply is then "
            "continued, not requested again.",
            "Few endpoints can; the others answer the beginning as if it were a question.",
        ),
    ] = None


class Schema(Base, frozen=True):
    """Rules for requesting structured output."""

    methods: Annotated[
        list[Literal["json_schema", "json_object", "tool", "prompt"]] | None,
        flag(
            "The ways to request an answer that follows a JSON Schema, best first; tool: as a tool's arguments.",
            "Endpoints refuse or ignore a response_format that they do not have.",
        ),
    ] = None


class Body(Base, frozen=True):
    """Changes to the body of every request."""

    set: Annotated[
        dict[str, Any] | None,
        flag("A table merged into every body.", "Some endpoints need a switch in each request."),
    ] = None
    rename: Annotated[
        dict[str, str] | None,
        flag(
            "Keys of every body → their paths at the endpoint, once everything else in the body is written.",
            "No endpoint of the file needs it yet; servers that copy a wire wrap its messages and its parameters.",
            path="write",
        ),
    ] = None
    drop: Annotated[
        list[str] | None,
        flag(
            "Paths removed from every body.",
            "Some users' gateways refuse keys that the endpoint behind them accepts.",
            path="write",
        ),
    ] = None
