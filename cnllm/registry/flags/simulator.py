"""What only the simulator goes by: how an endpoint behaves where a client need not know it."""

from typing import Annotated, Literal

from cnllm.registry.flags.describe import ANY, Base, flag

__all__ = ["Refusal", "Simulator"]


class Refusal(Base, frozen=True):
    """How the endpoint words a refusal; the simulator answers with it."""

    on: Annotated[
        Literal[
            "key",
            "reasoning-missing",
            "reasoning-sent",
            "reasoning-off",
            "tool-choice",
            "role",
            "system-place",
            "alternation",
            "param",
            "max-tokens",
            "parameters",
            "empty-tools",
            "content",
            "stream-required",
            "results",
            "arguments",
            "schema",
            "model",
            "context",
        ],
        flag(
            "What it refuses.",
            "Endpoints refuse different things, and word them differently.",
            reasons={ANY: "the kinds are those the simulator can tell apart, worded by an endpoint or not"},
        ),
    ]
    status: Annotated[
        int, flag("The HTTP status.", "The same refusal is 400 here and 422 there, and clients go by the status.")
    ]
    body: Annotated[
        str,
        flag(
            "What it answers; {param} {value} {role} {index} {model} {choice} are filled in.",
            "Clients go by the words of an error.",
        ),
    ]


class Simulator(Base, frozen=True):
    refusals: Annotated[
        list[Refusal] | None,
        flag(
            "The endpoint's own words of refusal.",
            "A client tried against other words is not tried against this endpoint.",
            formerly="refusals",
        ),
    ] = None
    stream_usage: Annotated[
        Literal["chunk", "last", "choice", "none"] | None,
        flag(
            "Where usage comes in a stream: a chunk of its own, the last chunk with a choice, inside that choice, "
            "nowhere.",
            "Servers put it in different places; cnllm reads it wherever it is.",
            formerly="stream.usage",
            reasons={"none": "for overlays, of servers that never tell: tests/simulator/endpoints.toml"},
        ),
    ] = None
    object_arguments: Annotated[
        bool | None,
        flag(
            "Whether arguments in a turn may be a JSON object instead of a string.",
            "Most endpoints refuse an object there; cnllm sends a string wherever the wire has one.",
            formerly="tools.one_object",
        ),
    ] = None
    json_word: Annotated[
        str | None,
        flag(
            "The word that a prompt must hold when JSON is asked for.",
            "Some endpoints refuse JSON mode without it; cnllm says it in any case.",
            formerly="schema.word",
        ),
    ] = None
