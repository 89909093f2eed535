"""Flags of tools: the endpoint's rules for them, and the markup in which a model may write a call as text."""

from typing import Annotated, Any, Literal

from msgspec import Meta

from cnllm.registry.flags.describe import EVERY_WIRE, READ_PATH, WRITE_PATH, Base, formerly
from cnllm.types.policy import TextCalls

__all__ = ["CallPaths", "Leak", "StrictLimits", "ToolChoice", "Tools", "WebSearchFlags"]


_FromZero = Annotated[int, Meta(ge=0)]


class ToolChoice(Base, frozen=True):
    """The values of tool_choice that an endpoint accepts."""

    allowed: list[Literal["auto", "none", "required", "named"]] | None = None
    """The choices that the endpoint accepts. Why: Many endpoints refuse a forced call, often only while the model
    reasons.
    """
    otherwise: Literal["auto", "narrow", "reasoning-off", "error"] | None = None
    """What happens to another choice; narrow: auto, with only the named tool offered. Why: Some endpoints refuse other
    choices, some ignore them, and the best replacement differs.
    """


class CallPaths(Base, frozen=True):
    """The paths inside of a tool call, where an endpoint has others than its wire.

    Why: No endpoint of the file needs it yet; servers that copy the wire rename its fields.
    """

    id: Annotated[str | None, WRITE_PATH] = None
    """The path of the call's id."""
    name: Annotated[str | None, WRITE_PATH] = None
    """The path of the function's name."""
    arguments: Annotated[str | None, WRITE_PATH] = None
    """The path of the arguments."""


class StrictLimits(Base, frozen=True):
    """The most that the strict functions of one request may have together; those beyond it are sent without `strict`.

    Why: Each of them alone can be what makes the grammar too large.
    """

    functions: _FromZero | None = None
    """The number of functions."""
    optional: _FromZero | None = None
    """The number of properties in their parameters that are not required, nested ones included."""
    unions: _FromZero | None = None
    """The number of values in their parameters that have several types."""


class Tools(Base, frozen=True):
    """The endpoint's rules for tools."""

    supported: Annotated[bool | None, EVERY_WIRE] = None
    """Whether the endpoint accepts tools at all. Why: Some models refuse a request with tools, or answer as if there
    were none.
    """
    otherwise: Annotated[Literal["prompt", "drop"] | None, EVERY_WIRE] = None
    """What happens to tools where the endpoint accepts none; prompt: cnllm describes them in the prompt, and reads
    calls from the text. Why: Some models without tools follow such a description well.
    """
    parallel: bool | None = None
    """Whether the endpoint accepts parallel_tool_calls. Why: Some endpoints refuse the parameter, others ignore it."""
    strict: bool | None = None
    """Whether the endpoint accepts `strict` on a function. Why: Some endpoints refuse the key."""
    strict_all: bool | None = None
    """Whether all functions must be strict if one is. Why: Some endpoints refuse a list in which only some functions
    are strict.
    """
    strict_limits: StrictLimits | None = None
    """The limits of all strict functions of one request together. Why: Some agents make all of their functions strict,
    and an endpoint that makes one grammar of them refuses the request where it becomes too large.
    """
    custom: bool | None = None
    """Whether the endpoint knows custom tools, whose input is plain text, with their grammars. If not, each of them is
    a function with one argument, and cnllm checks the input. Why: Most endpoints know functions alone.
    """
    search: bool | None = None
    """Whether the endpoint can search tools: it takes `defer_loading` on a tool, and a tool for the search. If not, all
    tools are offered in full. Why: Agents with many tools let the model find the one it needs, and most endpoints
    cannot do that.
    """
    parameters: bool | None = None
    """Whether every function must have parameters, even empty ones. Why: Some endpoints refuse a function without
    parameters.
    """
    schema: Annotated[
        list[
            Literal[
                "inline-refs",
                "root-refs",
                "any-of-only",
                "one-type",
                "branch-types",
                "no-tuples",
                "typed",
                "root-object",
            ]
        ]
        | None,
        EVERY_WIRE,
    ] = None
    """Changes that put a function's parameters, and the schema of an answer, into the endpoint's subset of JSON Schema.
    Why: Endpoints refuse a schema outside their subset, and no two subsets are alike.
    """
    schema_drop: Annotated[list[str] | None, EVERY_WIRE] = None
    """The keywords of JSON Schema that the endpoint refuses. Why: Some endpoints refuse keywords that others accept."""
    name_max_length: Annotated[int | None, EVERY_WIRE, formerly("names_max")] = None
    """The length of the longest function name, in characters. Why: Names of tools from a registry of tools are often
    longer than endpoints allow.
    """
    name_pattern: Annotated[str | None, EVERY_WIRE] = None
    """A regular expression that function names must match as a whole. Why: Endpoints refuse a request with a name that
    has a dot, a space or a Chinese character in it, also in earlier turns.
    """
    call_id_pattern: Annotated[str | None, formerly("ids")] = None
    """A regular expression that call ids must match as a whole. Why: Some endpoints refuse the ids of other endpoints.
    """
    hosted_call_ids: list[str] | None = None
    """The beginnings of the ids of calls that the endpoint itself has answered: they are blocks of its own, and no
    calls for the client. Why: Some endpoints report the steps of their own search as calls of custom tools.
    """
    calls_field: Annotated[str | None, WRITE_PATH] = None
    """The path of the calls in an assistant's message and in a delta, where it is not `tool_calls`. Why: No endpoint of
    the file needs it yet; servers that copy the wire rename its fields.
    """
    call_paths: CallPaths | None = None
    """The paths inside of a call, in replies and in earlier turns. Why: Servers that copy the wire write calls in a
    form of their own.
    """
    arguments: Literal["text", "object"] | None = None
    """The form of the arguments in the calls of earlier turns: JSON as text, or a JSON object. In a reply both are
    read. Why: Some servers hand the arguments to a chat template that takes only an object.
    """
    result_role: str | None = None
    """The role of a message with a tool result, where it is not `tool`. Why: No endpoint of the file needs it yet;
    servers that copy the wire rename its fields.
    """
    result_id: Annotated[str | None, WRITE_PATH] = None
    """The path of the call's id in a tool result, where it is not `tool_call_id`. Why: No endpoint of the file needs it
    yet; servers that copy the wire rename its fields.
    """
    result_field: Annotated[str | None, WRITE_PATH] = None
    """The path of the text in a tool result, where it is not `content`. Why: No endpoint of the file needs it yet;
    servers that copy the wire rename its fields.
    """
    result_name: bool | None = None
    """Whether a tool result carries the tool's name. Why: Some wires pair results with calls by name, others refuse the
    key.
    """
    result_media: bool | None = None
    """Whether a result may hold pictures. If not, they follow in a user message. Why: Many endpoints take only text in
    a result.
    """


class WebSearchFlags(Base, frozen=True):
    """The way to ask the endpoint for a web search, and its price.

    Where there is no `tool`, the paths are those of the body. Why: Every vendor has a form of its own for a search that
    it runs itself.
    """

    tool: dict[str, Any] | None = None
    """The tool that is offered, as the endpoint takes it."""
    set: dict[str, Any] | None = None
    """The keys of the body that turn the search on."""
    always: bool | None = None
    """Whether the model searches for every answer, without a request. Why: Some vendors sell a search engine that
    answers as a model.
    """
    count: Annotated[str | None, WRITE_PATH] = None
    """The path of the number of results, in the tool or the body."""
    domains: Annotated[str | None, WRITE_PATH] = None
    """The path of the list of domains to search, in the tool or the body."""
    one_domain: bool | None = None
    """Whether `domains` is the path of one domain as a text, not of a list. Why: Some endpoints limit a search to one
    domain.
    """
    force: dict[str, Any] | None = None
    """The keys of the tool or the body that make the search certain. Why: Some endpoints leave it to the model unless a
    key of their own says otherwise.
    """
    choice: str | dict[str, Any] | None = None
    """The `tool_choice` that makes the search certain. Why: Wires name such a tool in different ways."""
    reasoning: bool | None = None
    """Whether the endpoint searches while the model reasons. If not, reasoning is off for this call; a search that a
    client offers beside its functions is left out. Why: Some endpoints refuse the combination.
    """
    with_functions: dict[str, Any] | None = None
    """The keys of the body that a search beside functions needs. The choice `auto`, which is the default, is not
    written then. Why: One vendor refuses the two together without a switch, and the choice with it.
    """
    echo: str | None = None
    """The function whose calls are answered with their own arguments: the endpoint searches when it gets them back.
    Why: One vendor hands its search to the client as a call of a function.
    """
    forms: list[str] | None = None
    """Patterns of the types of a client's own search tools that the endpoint takes as they are. Why: The wires have
    several versions of the tool, and endpoints take some of them.
    """
    uses: Annotated[list[str] | None, READ_PATH] = None
    """The paths of the number of searches in a body or a chunk; of a list, its length counts. Why: Vendors charge for
    searches, and report them in different places.
    """
    item: str | None = None
    """The type of the block or item of a reply that stands for one search. Why: Some wires report a search as a part of
    the reply, and have no count of them.
    """
    fee: float | None = None
    """The price of a search, in the currency of the prices. Why: Vendors charge for a search beside the tokens."""
    fee_per: Literal["search", "request"] | None = None
    """Whether each search is charged, or each request with one or more of them; left out: each search. Why: A model may
    search several times for one answer.
    """


class Leak(Base, frozen=True):
    """Markup in which a model may write a tool call as text."""

    open: list[str]
    """The markers that begin a block, each spelling; a bar stands for every kind of bar. Why: Each model family has
    markers of its own, and writes them in several spellings.
    """
    close: list[str]
    """The markers that end it. Why: A block without its end is not a whole call."""
    format: list[
        Literal[
            "json",
            "invoke",
            "arg-pairs",
            "function",
            "sections",
            "element",
            "channels",
            "braces",
            "named-json",
            "pythonic",
            "recipient",
        ]
    ]
    """The grammars of the text between the markers, tried in order. Why: Models of one family write calls in several
    grammars between the same markers.
    """
    parts: list[str] | dict[str, list[str]] | None = None
    """The keywords of the grammar: for invoke and function where they differ, for arg-pairs those of a key and a value,
    or the tokens before a key, before its value and behind it, for sections begin, separator and end, for channels the
    tokens that open, close and separate, for braces the quote, for named-json those before the arguments and the id,
    for recipient the one between the tool and its arguments; a table has them by grammar. Why:
    Families that share a grammar use different keywords in it.
    """
    then: TextCalls = "recover"
    """What happens to a block: it becomes a call, is removed, or stays text. It is not named `otherwise`, because it
    does not depend on what the endpoint accepts. Why: Some users do not want text turned into calls.
    """
    strict: bool = False
    """Whether a block is text unless it holds calls with arguments and nothing else. Why: Some markers are also those
    of ordinary code blocks.
    """
    whole: bool = False
    """Whether a block counts only where it is the whole answer, and calls nothing but tools that were offered. Why:
    Some models write calls without markers of their own: as JSON, or as Python does.
    """
