"""Flags that only the simulator reads: behaviour of an endpoint that a client need not know."""

from typing import Annotated, Literal

from cnllm.registry.flags.describe import Base, formerly

__all__ = ["RefusalWords", "Simulator"]


class RefusalWords(Base, frozen=True):
    """The endpoint's own words for a refusal; the simulator answers with them."""

    on: Literal[
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
    ]
    """The kind of request that is refused. Why: Endpoints refuse different things, and word them differently."""
    status: int
    """The HTTP status. Why: The same refusal is 400 at one endpoint and 422 at another, and clients read the status."""
    body: str
    """The body of the answer; {param} {value} {role} {index} {model} {choice} are filled in. Why: Clients read the
    words of an error.
    """


class Simulator(Base, frozen=True):
    """Behaviour of an endpoint that only the simulator reads."""

    refusals: Annotated[list[RefusalWords] | None, formerly("refusals")] = None
    """The endpoint's own words for refusals. Why: A test with other words would not be a test of this endpoint."""
    stream_usage: Annotated[Literal["chunk", "last", "choice", "none"] | None, formerly("stream.usage")] = None
    """The place of usage in a stream: a chunk of its own, the last chunk with a choice, inside that choice, nowhere.
    Why: Servers put it in different places; cnllm reads it wherever it is.
    """
    object_arguments: Annotated[bool | None, formerly("tools.one_object")] = None
    """Whether arguments in a turn may be a JSON object instead of a string. Why: Most endpoints refuse an object there;
    cnllm sends a string wherever the wire has one.
    """
    json_word: Annotated[str | None, formerly("schema.word")] = None
    """The word that a prompt must hold when JSON is requested. Why: Some endpoints refuse JSON mode without it; cnllm
    adds it in any case.
    """
