"""Flags of replies: paths of token counts, the end of a stream, errors, and attempts after a broken reply."""

from typing import Annotated, Any, Literal

from msgspec import Meta

from cnllm.registry.flags.describe import READ_PATH, Base, formerly
from cnllm.types.policy import IfCut

__all__ = [
    "CitationPaths",
    "ErrorPaths",
    "ErrorRule",
    "IterationPaths",
    "RecoveryFlags",
    "ReplyPaths",
    "ReportedCost",
    "StreamFlags",
    "UsagePaths",
]

_FromZero = Annotated[int, Meta(ge=0)]
_FromOne = Annotated[int, Meta(ge=1)]


class ReplyPaths(Base, frozen=True):
    """The paths of a reply's parts, where an endpoint has others than its wire. `.` is the object itself.

    Why: No endpoint of the file needs it yet; servers that copy the wire choose places of their own.
    """

    choices: Annotated[str | None, READ_PATH] = None
    """The path of the choices in a body and in a chunk: a list, or the only choice itself."""
    message: Annotated[str | None, READ_PATH] = None
    """The path of the message in the choice of a whole reply."""
    delta: Annotated[str | None, READ_PATH] = None
    """The path of the delta in the choice of a chunk."""
    finish: Annotated[str | None, READ_PATH] = None
    """The path of the finish reason in the choice, or else in the body or chunk. True is the word `true`."""


class CitationPaths(Base, frozen=True):
    """The paths of the sources of an answer that stand beside the choices. An item that is text is an address."""

    at: Annotated[list[str] | None, READ_PATH] = None
    """Paths of the list in a body or a chunk, tried in order. Why: Endpoints that search the web send the pages in a
    list of their own.
    """
    url: Annotated[list[str] | None, READ_PATH] = None
    """Paths of the address in an item of the list, tried in order. Why: Endpoints have names of their own for it."""
    title: Annotated[list[str] | None, READ_PATH] = None
    """Paths of the title in an item of the list, tried in order. Why: Endpoints have names of their own for it."""


class ReportedCost(Base, frozen=True):
    """The endpoint's own bill of a request, in its usage object."""

    path: Annotated[str | None, READ_PATH] = None
    """The path of the amount in the usage object. Why: Vendors report it in different places."""
    currency: str | None = None
    """The ISO 4217 code of the amount. Why: The amount comes without one."""
    factor: float | None = None
    """What the amount is multiplied by; left out: 1. Why: One vendor counts in a tiny part of a dollar."""
    add: Annotated[str | None, READ_PATH] = None
    """The path of an amount in the usage object that is added, where `when` holds. Why: A marketplace that passes the
    request on with your own key reports its fee and the vendor's charge apart.
    """
    when: dict[str, Any] | None = None
    """The values of the usage object, by path, with which `add` is added; left out: always. Why: The same amount is a
    part of the bill for other requests.
    """


class IterationPaths(Base, frozen=True):
    """A list in the usage object with the counts of each request that the endpoint sends for one reply."""

    at: Annotated[str | None, READ_PATH] = None
    """The path of the list in the usage object. Why: Vendors report it in different places."""
    kind: Annotated[str | None, READ_PATH] = None
    """The path of the word in an item that says what its request was for. Why: Not every request is in the totals."""
    included: list[str] | None = None
    """The words of items whose counts are in the totals. Why: They must not count twice."""
    excluded: list[str] | None = None
    """The words of items whose counts are not in the totals, so that cnllm adds their price. Of an item with any other
    word nothing is known. Why: One vendor charges for the summary of a long conversation, and leaves it out of them.
    """


class UsagePaths(Base, frozen=True):
    """The paths of token counts in a reply."""

    at: Annotated[list[str] | None, READ_PATH] = None
    """Paths of the usage object in a body or a chunk, tried in order. Why: Some endpoints put it into the choice,
    others into the last chunk.
    """
    input: Annotated[list[str] | None, READ_PATH] = None
    output: Annotated[list[str] | None, READ_PATH] = None
    total: Annotated[list[str] | None, READ_PATH] = None
    reasoning: Annotated[list[str] | None, READ_PATH] = None
    cached: Annotated[list[str] | None, READ_PATH] = None
    cache_write: Annotated[list[str] | None, READ_PATH] = None
    cache_write_1h: Annotated[list[str] | None, READ_PATH] = None
    """The paths of this count inside the usage object, tried in order. Why: Endpoints have the same counts under
    different names.
    """
    cache_mark: dict[str, Any] | None = None
    """A table with a value that the usage object has in the same place where its tokens come from a cache that the
    request marked. Without the value, a request with marks may have read either kind of cache. Why: One vendor has two
    prices for tokens from a cache (see `price.cached_by_mark`), with one count for both.
    """
    tool_input: Annotated[list[str] | None, READ_PATH] = None
    """The paths of tokens that the endpoint's own tools put into the prompt, such as the text of a page. Why: One wire
    counts them beside the prompt, and its vendor charges them as input.
    """
    input_audio: Annotated[list[str] | None, READ_PATH] = None
    cached_audio: Annotated[list[str] | None, READ_PATH] = None
    output_audio: Annotated[list[str] | None, READ_PATH] = None
    output_image: Annotated[list[str] | None, READ_PATH] = None
    """The paths of this count inside the usage object, for a price of its own. In a list, the last key is a word of the
    item that counts. The price of sound and of pictures in an answer is unknown. Why: Sound and pictures cost more than
    text at some endpoints.
    """
    service: Annotated[list[str] | None, READ_PATH] = None
    """The paths of the word for the service tier that the request had, in the usage object or beside it. Why: Vendors
    sell the same model at several speeds, and only the reply says which one was charged.
    """
    standard: list[str] | None = None
    """The words for a service tier at the list price. Why: Each vendor has its own word for the usual tier."""
    iterations: IterationPaths | None = None
    """The counts of further requests that the endpoint sends for one reply. Why: One vendor charges for some that its
    totals leave out.
    """
    cost: ReportedCost | None = None
    """Where the endpoint says what the request cost. Why: Some endpoints send their own bill with the reply, and no
    price list can be as exact.
    """
    excluded_from_totals: Annotated[
        list[Literal["reasoning", "cached", "cache_write", "tool_input"]] | None, formerly("apart")
    ] = None
    """The counts that the endpoint leaves out of its input or output, so that cnllm adds them. Why: On some wires the
    input does not include tokens from the cache, or the output does not include reasoning.
    """


class StreamFlags(Base, frozen=True):
    """The behaviour of an endpoint's streams."""

    framing: Literal["sse", "ndjson"] | None = None
    """The framing of chunks: server-sent events, or newline-delimited JSON, one chunk in a line. What ends such a
    stream is the same: see `terminator`. Why: Some servers that copy a wire stream lines of JSON instead of events,
    whatever their content type says.
    """
    terminator: Annotated[Literal["finish", "done", "any"] | None, formerly("proof")] = None
    """What shows that a stream of chat completions is complete: a finish reason that `finish` knows, or the closing
    [DONE] (`finish` and `any`), or the [DONE] alone (`done`). Why: Some endpoints send no finish reason, others no
    [DONE]; a stream that ends without either was cut.
    """
    if_cut: IfCut | None = None
    """What happens to a stream that was cut: the default of the call's option of the same name. Why: Networks and
    servers break off streams, and only some callers can use half an answer.
    """
    deltas: Literal["incremental", "cumulative", "either"] | None = None
    """Whether a delta holds only new text, or the whole text so far; either: both occur, and cnllm decides for each
    stream. Why: Some servers repeat the whole text in each chunk.
    """
    tools: bool | None = None
    """Whether a reply to a request with tools can be streamed. If not, cnllm requests it whole. Why: Some endpoints do
    not stream a reply to a request with tools.
    """
    required: bool | None = None
    """Whether the endpoint answers only requests that stream. Whole calls are then streamed too. Why: Some models,
    while they reason, refuse a request that does not stream.
    """


class RecoveryFlags(Base, frozen=True):
    """The attempts after a reply that breaks off or is empty. A call's `recovery` option wins."""

    steps: _FromZero | None = None
    """How often a tool loop repeats an empty or broken step. Why: Some models return nothing at times, and this should
    not end a run of many steps.
    """
    streams: _FromZero | None = None
    """How often a cut stream is requested again, whole. Why: Some servers cut long streams often, and each attempt
    costs money.
    """
    resume: bool | None = None
    """Whether a tool loop asks the model to continue, as its last attempt; the flag `resume` has the sentence. Why:
    Some models stop in the middle of a task and continue when they are asked to.
    """
    cycle: _FromOne | None = None
    """The greatest number of steps in a cycle of the same calls and results that is still detected. Why: Models repeat
    themselves, some in longer cycles than others.
    """


class ErrorPaths(Base, frozen=True):
    """The paths of an error object, its message and its code."""

    at: Annotated[list[str] | None, READ_PATH] = None
    """Paths of an error object in a body or a chunk, tried in order. Why: Some endpoints report an error with status
    200.
    """
    message: Annotated[list[str] | None, READ_PATH] = None
    """Paths of the message in the error object, tried in order. Why: Gateways wrap the error of the endpoint behind
    them.
    """
    code: Annotated[list[str] | None, READ_PATH] = None
    """Paths of the code in the error object, tried in order. Why: Codes stand in `code`, `type`, `status` and other
    places.
    """


class ErrorRule(Base, frozen=True):
    """A rule that maps an error to its kind.

    Each key of the rule must match; `text`, `pattern` and `code` match when one of their items does, `unless` when none
    does. Patterns are matched in linear time: they support no look-around and no back-references.
    """

    kind: Annotated[
        Literal["bad-key", "quota", "rate", "overloaded", "context", "filtered", "replay", "bad-request", "other"],
        formerly("is"),
    ]
    """The kind of such an error. Why: The same status means a wrong key here, an empty account there, a rate limit
    elsewhere.
    """
    status: list[int] | None = None
    """The HTTP statuses of such an error. Why: Some sentences mean two things."""
    code: list[str] | None = None
    """The endpoint's codes. Why: A code is more reliable than a sentence."""
    text: list[str] | None = None
    """Pieces of the error's sentence; upper and lower case do not matter. Why: Many endpoints have no codes."""
    pattern: list[str] | None = None
    """Regular expressions that the sentence matches; upper and lower case do not matter. Why: Sentences hold numbers
    and names.
    """
    unless: list[str] | None = None
    """Regular expressions that the sentence must not match. Why: Some sentences name a limit that was not the reason.
    """
    retry: bool | None = None
    """Whether the same request may succeed later. Why: Some rate limits never allow a request of that size."""
