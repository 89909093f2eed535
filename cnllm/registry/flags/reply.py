"""Flags of replies: paths of token counts, the end of a stream, errors, and attempts after a broken reply."""

from typing import Annotated, Any, Literal

from msgspec import Meta

from cnllm.registry.flags.describe import Base, flag
from cnllm.types.policy import IfCut

__all__ = [
    "CitationPaths",
    "ErrorPaths",
    "ErrorRule",
    "RecoveryFlags",
    "ReplyPaths",
    "ReportedCost",
    "StreamFlags",
    "UsagePaths",
]

_FromZero = Annotated[int, Meta(ge=0)]
_FromOne = Annotated[int, Meta(ge=1)]

_COUNT = flag(
    "The paths of this count inside the usage object, tried in order.",
    "Endpoints have the same counts under different names.",
    path="read",
)


_MEDIA = flag(
    "The paths of this count inside the usage object, for a price of its own. In a list, the last key is a word of the "
    "item that counts.",
    "Sound and pictures cost more than text at some endpoints.",
    path="read",
)

_NO_ENDPOINT = "No endpoint of the file needs it yet; servers that copy the wire choose places of their own."


class ReplyPaths(Base, frozen=True):
    """The paths of a reply's parts, where an endpoint has others than its wire. `.` is the object itself."""

    choices: Annotated[
        str | None,
        flag(
            "The path of the choices in a body and in a chunk: a list, or the only choice itself.",
            _NO_ENDPOINT,
            path="read",
        ),
    ] = None
    message: Annotated[
        str | None, flag("The path of the message in the choice of a whole reply.", _NO_ENDPOINT, path="read")
    ] = None
    delta: Annotated[str | None, flag("The path of the delta in the choice of a chunk.", _NO_ENDPOINT, path="read")] = (
        None
    )
    finish: Annotated[
        str | None,
        flag(
            "The path of the finish reason in the choice, or else in the body or chunk. True is the word `true`.",
            _NO_ENDPOINT,
            path="read",
        ),
    ] = None


class CitationPaths(Base, frozen=True):
    """The paths of the sources of an answer that stand beside the choices. An item that is text is an address."""

    at: Annotated[
        list[str] | None,
        flag(
            "Paths of the list in a body or a chunk, tried in order.",
            "Endpoints that search the web send the pages in a list of their own.",
            path="read",
        ),
    ] = None
    url: Annotated[
        list[str] | None,
        flag(
            "Paths of the address in an item of the list, tried in order.",
            "Endpoints have names of their own for it.",
            path="read",
        ),
    ] = None
    title: Annotated[
        list[str] | None,
        flag(
            "Paths of the title in an item of the list, tried in order.",
            "Endpoints have names of their own for it.",
            path="read",
        ),
    ] = None


class ReportedCost(Base, frozen=True):
    """The endpoint's own bill of a request, in its usage object."""

    path: Annotated[
        str | None,
        flag("The path of the amount in the usage object.", "Vendors report it in different places.", path="read"),
    ] = None
    currency: Annotated[str | None, flag("The ISO 4217 code of the amount.", "The amount comes without one.")] = None
    factor: Annotated[
        float | None,
        flag("What the amount is multiplied by; left out: 1.", "One vendor counts in a tiny part of a dollar."),
    ] = None
    add: Annotated[
        str | None,
        flag(
            "The path of an amount in the usage object that is added, where `when` holds.",
            "A marketplace that passes the request on with your own key reports its fee and the vendor's charge apart.",
            path="read",
        ),
    ] = None
    when: Annotated[
        dict[str, Any] | None,
        flag(
            "The values of the usage object, by path, with which `add` is added; left out: always.",
            "The same amount is a part of the bill for other requests.",
        ),
    ] = None


class UsagePaths(Base, frozen=True):
    """The paths of token counts in a reply."""

    at: Annotated[
        list[str] | None,
        flag(
            "Paths of the usage object in a body or a chunk, tried in order.",
            "Some endpoints put it into the choice, others into the last chunk.",
            path="read",
        ),
    ] = None
    input: Annotated[list[str] | None, _COUNT] = None
    output: Annotated[list[str] | None, _COUNT] = None
    total: Annotated[list[str] | None, _COUNT] = None
    reasoning: Annotated[list[str] | None, _COUNT] = None
    cached: Annotated[list[str] | None, _COUNT] = None
    cache_write: Annotated[list[str] | None, _COUNT] = None
    cache_write_1h: Annotated[list[str] | None, _COUNT] = None
    tool_input: Annotated[
        list[str] | None,
        flag(
            "The paths of tokens that the endpoint's own tools put into the prompt, such as the text of a page.",
            "One wire counts them beside the prompt, and its vendor charges them as input.",
            path="read",
        ),
    ] = None
    input_audio: Annotated[list[str] | None, _MEDIA] = None
    cached_audio: Annotated[list[str] | None, _MEDIA] = None
    service: Annotated[
        list[str] | None,
        flag(
            "The paths of the word for the service tier that the request had, in the usage object or beside it.",
            "Vendors sell the same model at several speeds, and only the reply says which one was charged.",
            path="read",
        ),
    ] = None
    standard: Annotated[
        list[str] | None,
        flag(
            "The words for a service tier at the list price.",
            "Each vendor has its own word for the usual tier.",
        ),
    ] = None
    cost: Annotated[
        ReportedCost | None,
        flag(
            "Where the endpoint says what the request cost.",
            "Some endpoints send their own bill with the reply, and no price list can be as exact.",
        ),
    ] = None
    excluded_from_totals: Annotated[
        list[Literal["reasoning", "cached", "cache_write", "tool_input"]] | None,
        flag(
            "The counts that the endpoint leaves out of its input or output, so that cnllm adds them.",
            "On some wires the input does not include tokens from the cache, or the output does not include reasoning.",
            formerly="apart",
        ),
    ] = None


class StreamFlags(Base, frozen=True):
    """The behaviour of an endpoint's streams."""

    framing: Annotated[
        Literal["sse", "ndjson"] | None,
        flag(
            "The framing of chunks: server-sent events, or newline-delimited JSON, one chunk in a line. What ends such "
            "a stream is the same: see `terminator`.",
            "Some servers that copy a wire stream lines of JSON instead of events, whatever their content type says.",
        ),
    ] = None
    terminator: Annotated[
        Literal["finish", "done", "any"] | None,
        flag(
            "What shows that a stream of chat completions is complete: a finish reason that `finish` knows, or the "
            "closing [DONE] (`finish` and `any`), or the [DONE] alone (`done`).",
            "Some endpoints send no finish reason, others no [DONE]; a stream that ends without either was cut.",
            formerly="proof",
        ),
    ] = None
    if_cut: Annotated[
        IfCut | None,
        flag(
            "What happens to a stream that was cut: the default of the call's option of the same name.",
            "Networks and servers break off streams, and only some callers can use half an answer.",
        ),
    ] = None
    deltas: Annotated[
        Literal["incremental", "cumulative", "either"] | None,
        flag(
            "Whether a delta holds only new text, or the whole text so far; either: both occur, and cnllm decides for "
            "each stream.",
            "Some servers repeat the whole text in each chunk.",
        ),
    ] = None
    tools: Annotated[
        bool | None,
        flag(
            "Whether a reply to a request with tools can be streamed. If not, cnllm requests it whole.",
            "Some endpoints do not stream a reply to a request with tools.",
        ),
    ] = None
    required: Annotated[
        bool | None,
        flag(
            "Whether the endpoint answers only requests that stream. Whole calls are then streamed too.",
            "Some models, while they reason, refuse a request that does not stream.",
        ),
    ] = None


class RecoveryFlags(Base, frozen=True):
    """The attempts after a reply that breaks off or is empty. A call's `recovery` option wins."""

    steps: Annotated[
        _FromZero | None,
        flag(
            "How often a tool loop repeats an empty or broken step.",
            "Some models return nothing at times, and this should not end a run of many steps.",
        ),
    ] = None
    streams: Annotated[
        _FromZero | None,
        flag(
            "How often a cut stream is requested again, whole.",
            "Some servers cut long streams often, and each attempt costs money.",
        ),
    ] = None
    resume: Annotated[
        bool | None,
        flag(
            "Whether a tool loop asks the model to continue, as its last attempt; the flag `resume` has the sentence.",
            "Some models stop in the middle of a task and continue when they are asked to.",
        ),
    ] = None
    cycle: Annotated[
        _FromOne | None,
        flag(
            "The greatest number of steps in a cycle of the same calls and results that is still detected.",
            "Models repeat themselves, some in longer cycles than others.",
        ),
    ] = None


class ErrorPaths(Base, frozen=True):
    """The paths of an error object, its message and its code."""

    at: Annotated[
        list[str] | None,
        flag(
            "Paths of an error object in a body or a chunk, tried in order.",
            "Some endpoints report an error with status 200.",
            path="read",
        ),
    ] = None
    message: Annotated[
        list[str] | None,
        flag(
            "Paths of the message in the error object, tried in order.",
            "Gateways wrap the error of the endpoint behind them.",
            path="read",
        ),
    ] = None
    code: Annotated[
        list[str] | None,
        flag(
            "Paths of the code in the error object, tried in order.",
            "Codes stand in `code`, `type`, `status` and other places.",
            path="read",
        ),
    ] = None


class ErrorRule(Base, frozen=True):
    """A rule that maps an error to its kind.

    Each key of the rule must match; `text`, `pattern` and `code` match when one of their items does, `unless` when none
    does. Patterns are matched in linear time: they support no look-around and no back-references.
    """

    kind: Annotated[
        Literal["bad-key", "quota", "rate", "overloaded", "context", "filtered", "replay", "bad-request", "other"],
        flag(
            "The kind of such an error.",
            "The same status means a wrong key here, an empty account there, a rate limit elsewhere.",
            formerly="is",
        ),
    ]
    status: Annotated[
        list[int] | None, flag("The HTTP statuses of such an error.", "Some sentences mean two things.")
    ] = None
    code: Annotated[list[str] | None, flag("The endpoint's codes.", "A code is more reliable than a sentence.")] = None
    text: Annotated[
        list[str] | None,
        flag("Pieces of the error's sentence; upper and lower case do not matter.", "Many endpoints have no codes."),
    ] = None
    pattern: Annotated[
        list[str] | None,
        flag(
            "Regular expressions that the sentence matches; upper and lower case do not matter.",
            "Sentences hold numbers and names.",
        ),
    ] = None
    unless: Annotated[
        list[str] | None,
        flag(
            "Regular expressions that the sentence must not match.",
            "Some sentences name a limit that was not the reason.",
        ),
    ] = None
    retry: Annotated[
        bool | None,
        flag(
            "Whether the same request may succeed later.",
            "Some rate limits never allow a request of that size.",
        ),
    ] = None
