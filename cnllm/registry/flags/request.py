"""What is demanded of a request beside tools and reasoning: parameters, messages, structured output."""

from typing import Annotated, Any, Literal

from msgspec import field

from cnllm.registry.flags.describe import Base, flag

__all__ = ["Body", "Messages", "Param", "Prefill", "Schema"]

_RANGE = "Endpoints refuse a value out of their range, and no two ranges are alike."


class Param(Base, frozen=True):
    as_: Annotated[
        str | None, flag("Its path on the wire.", "Wires and endpoints name the same parameter differently.")
    ] = field(default=None, name="as")
    min: Annotated[float | None, flag("The least value.", _RANGE)] = None
    max: Annotated[float | None, flag("The greatest value.", _RANGE)] = None
    above: Annotated[float | None, flag("It must be greater than this.", "Some ranges leave their bound out.")] = None
    below: Annotated[float | None, flag("It must be less than this.", "Some ranges leave their bound out.")] = None
    step: Annotated[
        float | None,
        flag(
            "How far inside an open bound a clamped value lands.",
            "Endpoints with an open bound differ in how close to it they go.",
        ),
    ] = None
    items: Annotated[int | None, flag("The most items of a list.", "Endpoints take one to sixteen stop texts.")] = None
    ignored: Annotated[
        bool | None,
        flag(
            'Whether it is taken and without effect, as "ignored" says of one under its own name.',
            "Endpoints that copy a wire take parameters of it that they do not act on.",
            reasons={"true": 'mostly the word "ignored" will do; this is for one with another path on the wire'},
        ),
    ] = None
    fixed: Annotated[
        Any,
        flag(
            "The only value it takes; another is left out, which has the same effect.",
            "Some models, reasoning ones above all, refuse any value but their own.",
        ),
    ] = None
    otherwise: Annotated[
        Literal["clamp", "drop", "error"] | None,
        flag(
            "What becomes of a value out of range.",
            "The nearest value is seldom wrong for a temperature, and always for a seed.",
            formerly="outside",
            reasons={"error": "a seed has no nearest value, and few vendors tell the range of theirs"},
        ),
    ] = None
    default: Annotated[
        Any,
        flag(
            "What is sent when the caller names nothing; of a list the first that is known, where a text names a flag.",
            "Some wires refuse a request without it.",
        ),
    ] = None


class Prefill(Base, frozen=True):
    """How a conversation is sent that ends with the beginning of the reply, without reasoning."""

    set: Annotated[
        dict[str, Any] | None,
        flag(
            "The keys of that last message.",
            "Each endpoint that goes on from a beginning marks it with a key of its own.",
        ),
    ] = None
    path: Annotated[
        str | None,
        flag(
            "What follows base_url for such a request, where it differs.",
            "Some endpoints do it at another address only.",
        ),
    ] = None


class Messages(Base, frozen=True):
    system: Annotated[
        Literal["any", "first", "user"] | None,
        flag(
            "Where system messages may stand: anywhere, as one leading message, or only as user text.",
            "Some endpoints refuse a system message behind the first one, a few refuse the role.",
            reasons={"user": "one model whose page says that a system message has no effect"},
        ),
    ] = None
    developer: Annotated[
        bool | None,
        flag(
            "Whether it takes the role developer. If not, system is sent.",
            "Most endpoints that copy the wire refuse the newer role.",
        ),
    ] = None
    empty: Annotated[
        Literal["null", "empty", "omit", "space"] | None,
        flag(
            "What `content` is beside tool calls when there is no text.",
            "Endpoints refuse null, an empty text, or a missing key: each another one.",
            reasons={
                "space": "for overlays, of servers that refuse all of the others: tests/pain/test_b_parameters.py"
            },
        ),
    ] = None
    content: Annotated[
        Literal["parts", "string"] | None,
        flag(
            "Whether it takes a list of text parts, or only a string.",
            "Some endpoints, and many chat templates, fail on a list.",
            reasons={"parts": "takes `string` back where a server is newer than its family: tests/simulator"},
        ),
    ] = None
    consecutive_roles: Annotated[
        Literal["keep", "join"] | None,
        flag(
            "Whether neighbours may have the same role, or are joined.",
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
        flag("Further keys of a message that the endpoint takes.", "Most endpoints refuse keys that they do not know."),
    ] = None
    files: Annotated[
        Literal["all", "vision"] | None,
        flag(
            "For which of its models the endpoint reads files, beside those whose `input` names them.",
            "Some endpoints turn files into text or pictures for models that read none.",
        ),
    ] = None
    file_url: Annotated[
        Literal["file", "file_url"] | None,
        flag(
            "The content part for a file by URL; file_url: this is the only way to give it one.",
            "The wire has no part for it, and those who take one chose different ones.",
            reasons={
                "file": "a router's part; no other endpoint in the file documents one",
                "file_url": "one vendor's part for its vision models",
            },
        ),
    ] = None
    audio_url: Annotated[
        Literal["audio_url", "input_audio"] | None,
        flag(
            "The content part for a sound by URL, where it takes one.",
            "The wire takes sounds only as data; those who take a URL chose different parts.",
            reasons={"input_audio": "the wire's own part with a URL in it; one vendor documents it"},
        ),
    ] = None
    prefill: Annotated[
        Prefill | None,
        flag(
            "Whether it goes on from the beginning of a reply, and how it is asked to. A cut reply is then continued, "
            "not asked for anew.",
            "Few endpoints can; the others answer the beginning as if it were a question.",
        ),
    ] = None


class Schema(Base, frozen=True):
    methods: Annotated[
        list[Literal["json_schema", "json_object", "tool", "prompt"]] | None,
        flag(
            "How an answer that follows a JSON Schema is asked for, best first; tool: as a tool's arguments.",
            "Endpoints refuse or ignore a response_format that they do not have.",
        ),
    ] = None


class Body(Base, frozen=True):
    set: Annotated[
        dict[str, Any] | None,
        flag("A table merged into every body.", "Some endpoints need a switch in each request."),
    ] = None
    drop: Annotated[
        list[str] | None,
        flag("Paths taken out of every body.", "Gateways of users refuse what the endpoint behind them takes."),
    ] = None
