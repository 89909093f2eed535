"""What a reply says where: token counts, the end of a stream, errors; and what is tried when it breaks off."""

from typing import Annotated, Literal

from msgspec import Meta

from cnllm.registry.flags.describe import Base, flag

__all__ = ["ErrorPaths", "ErrorRule", "Recovery", "Stream", "UsagePaths"]

_FromZero = Annotated[int, Meta(ge=0)]
_FromOne = Annotated[int, Meta(ge=1)]

_COUNT = flag(
    "The paths of this count inside the usage object, tried in order.",
    "Endpoints have the same counts under different names.",
)


class UsagePaths(Base, frozen=True):
    at: Annotated[
        list[str] | None,
        flag(
            "Where the usage object is, in a body or a chunk, tried in order.",
            "Some endpoints put it into the choice, others into the last chunk.",
        ),
    ] = None
    input: Annotated[list[str] | None, _COUNT] = None
    output: Annotated[list[str] | None, _COUNT] = None
    total: Annotated[list[str] | None, _COUNT] = None
    reasoning: Annotated[list[str] | None, _COUNT] = None
    cached: Annotated[list[str] | None, _COUNT] = None
    cache_write: Annotated[list[str] | None, _COUNT] = None
    excluded_from_totals: Annotated[
        list[Literal["reasoning", "cached", "cache_write"]] | None,
        flag(
            "What the endpoint does not count into its output or input, so that it is added.",
            "On some wires the input leaves out what the cache held, or the output leaves out the reasoning.",
            formerly="apart",
        ),
    ] = None


class Stream(Base, frozen=True):
    terminator: Annotated[
        Literal["finish", "done", "any"] | None,
        flag(
            "What proves that a stream is whole: a finish reason, the closing [DONE], or either.",
            "Some endpoints send no finish reason, others no [DONE], and a stream without its proof was cut.",
            formerly="proof",
            reasons={"done": "one vendor documents the closing [DONE] as the end of its streams"},
        ),
    ] = None
    if_cut: Annotated[
        Literal["error", "again-whole", "keep"] | None,
        flag(
            "What becomes of a stream that was cut. No case of `otherwise`: it has the name of the call's option whose "
            "default it is.",
            "Networks and servers break off streams, and half an answer is worth something to some callers only.",
            reasons={
                "again-whole": "the caller's choice; an overlay makes it the default: tests/client/test_cuts.py",
                "keep": "the caller's choice; an overlay makes it the default: tests/client/test_cuts.py",
            },
        ),
    ] = None
    deltas: Annotated[
        Literal["incremental", "cumulative", "either"] | None,
        flag(
            "Whether a delta holds what is new, or all so far; either: both were seen, and each stream is judged by "
            "itself.",
            "Some servers repeat the whole text in each chunk.",
            reasons={
                "cumulative": "for overlays, of servers known to repeat: tests/pain/test_d_thinking.py",
                "either": "one vendor: its own sample reads repeated texts, others saw pieces",
            },
        ),
    ] = None
    tools: Annotated[
        bool | None,
        flag(
            "Whether a reply with tool calls can be streamed. If not, it is asked for whole.",
            "Some endpoints do not stream a reply to a request with tools.",
            reasons={"false": "one endpoint, whose own client calls it whole"},
        ),
    ] = None
    required: Annotated[
        bool | None,
        flag(
            "Whether it answers only when streaming. Whole calls are then streamed too.",
            "Some models, while they reason, refuse a request that does not stream.",
        ),
    ] = None


class Recovery(Base, frozen=True):
    """What is tried where a reply breaks off, or comes empty. A call's `recovery` option wins."""

    steps: Annotated[
        _FromZero | None,
        flag(
            "How often a tool loop takes an empty or broken step again.",
            "Some models return nothing at times, and a run of many steps should not end for it.",
        ),
    ] = None
    streams: Annotated[
        _FromZero | None,
        flag(
            "How often a cut stream is asked for again, whole.",
            "Some servers cut long streams often, and each attempt costs money.",
        ),
    ] = None
    resume: Annotated[
        bool | None,
        flag(
            "Whether a tool loop asks the model, at last, to go on; the flag `resume` has the words.",
            "Some models stop in the middle of a task and go on when they are asked to.",
        ),
    ] = None
    cycle: Annotated[
        _FromOne | None,
        flag(
            "How many steps a circle of the same calls and results may have.",
            "Models repeat themselves, some in longer circles than others.",
        ),
    ] = None


class ErrorPaths(Base, frozen=True):
    at: Annotated[
        list[str] | None,
        flag(
            "Where an error object hides in a body or a chunk, tried in order.",
            "Some endpoints report an error with status 200.",
        ),
    ] = None
    message: Annotated[
        list[str] | None,
        flag("Paths to its sentence, tried in order.", "Gateways wrap the error of the endpoint behind them."),
    ] = None
    code: Annotated[
        list[str] | None,
        flag("Paths to its code, tried in order.", "Codes stand in `code`, `type`, `status` and other places."),
    ] = None


class ErrorRule(Base, frozen=True):
    """Each given key must match; `text`, `pattern` and `code` match when one of theirs does, `unless` when none does.

    Patterns are matched in linear time: they know no look-around and no back-references.
    """

    kind: Annotated[
        Literal["bad-key", "quota", "rate", "overloaded", "context", "filtered", "replay", "bad-request", "other"],
        flag(
            "What such an error is.",
            "The same status means a wrong key here, an empty account there, a rate limit elsewhere.",
            formerly="is",
        ),
    ]
    status: Annotated[list[int] | None, flag("The HTTP statuses it has.", "Some sentences mean two things.")] = None
    code: Annotated[list[str] | None, flag("The endpoint's codes.", "A code is surer than a sentence.")] = None
    text: Annotated[list[str] | None, flag("Pieces of its sentence, in any case.", "Many endpoints have no codes.")] = (
        None
    )
    pattern: Annotated[
        list[str] | None,
        flag("Regular expressions that its sentence matches, in any case.", "Sentences hold numbers and names."),
    ] = None
    unless: Annotated[
        list[str] | None,
        flag(
            "Regular expressions of which its sentence must match none.",
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
