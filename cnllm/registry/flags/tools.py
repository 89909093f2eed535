"""Flags of tools: the endpoint's rules for them, and the markup in which a model may write a call as text."""

from typing import Annotated, Any, Literal

from cnllm.registry.flags.describe import Base, flag
from cnllm.types.policy import TextCalls

__all__ = ["CallPaths", "Leak", "ToolChoice", "Tools", "WebSearchFlags"]


class ToolChoice(Base, frozen=True):
    """The values of tool_choice that an endpoint accepts."""

    allowed: Annotated[
        list[Literal["auto", "none", "required", "named"]] | None,
        flag(
            "The choices that the endpoint accepts.",
            "Many endpoints refuse a forced call, often only while the model reasons.",
        ),
    ] = None
    otherwise: Annotated[
        Literal["auto", "narrow", "reasoning-off", "error"] | None,
        flag(
            "What happens to another choice; narrow: auto, with only the named tool offered.",
            "Some endpoints refuse other choices, some ignore them, and the best replacement differs.",
        ),
    ] = None


_NO_ENDPOINT = "No endpoint of the file needs it yet; servers that copy the wire rename its fields."


class CallPaths(Base, frozen=True):
    """The paths inside of a tool call, where an endpoint has others than its wire."""

    id: Annotated[str | None, flag("The path of the call's id.", _NO_ENDPOINT, path="write")] = None
    name: Annotated[str | None, flag("The path of the function's name.", _NO_ENDPOINT, path="write")] = None
    arguments: Annotated[str | None, flag("The path of the arguments.", _NO_ENDPOINT, path="write")] = None


class Tools(Base, frozen=True):
    """The endpoint's rules for tools."""

    supported: Annotated[
        bool | None,
        flag(
            "Whether the endpoint accepts tools at all.",
            "Some models refuse a request with tools, or answer as if there were none.",
            every_wire=True,
        ),
    ] = None
    otherwise: Annotated[
        Literal["prompt", "drop"] | None,
        flag(
            "What happens to tools where the endpoint accepts none; prompt: cnllm describes them in the prompt, and "
            "reads calls from the text.",
            "Some models without tools follow such a description well.",
            every_wire=True,
        ),
    ] = None
    parallel: Annotated[
        bool | None,
        flag(
            "Whether the endpoint accepts parallel_tool_calls.",
            "Some endpoints refuse the parameter, others ignore it.",
        ),
    ] = None
    strict: Annotated[
        bool | None,
        flag("Whether the endpoint accepts `strict` on a function.", "Some endpoints refuse the key."),
    ] = None
    strict_all: Annotated[
        bool | None,
        flag(
            "Whether all functions must be strict if one is.",
            "Some endpoints refuse a list in which only some functions are strict.",
        ),
    ] = None
    custom: Annotated[
        bool | None,
        flag(
            "Whether the endpoint knows custom tools, whose input is plain text, with their grammars. If not, each of "
            "them is a function with one argument, and cnllm checks the input.",
            "Most endpoints know functions alone.",
        ),
    ] = None
    search: Annotated[
        bool | None,
        flag(
            "Whether the endpoint can search tools: it takes `defer_loading` on a tool, and a tool for the search. If "
            "not, all tools are offered in full.",
            "Agents with many tools let the model find the one it needs, and most endpoints cannot do that.",
        ),
    ] = None
    parameters: Annotated[
        bool | None,
        flag(
            "Whether every function must have parameters, even empty ones.",
            "Some endpoints refuse a function without parameters.",
        ),
    ] = None
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
        flag(
            "Changes to a function's parameters that put them into the endpoint's subset of JSON Schema.",
            "Endpoints refuse a schema outside their subset, and no two subsets are alike.",
            every_wire=True,
        ),
    ] = None
    schema_drop: Annotated[
        list[str] | None,
        flag(
            "The keywords of JSON Schema that the endpoint refuses.",
            "Some endpoints refuse keywords that others accept.",
            every_wire=True,
        ),
    ] = None
    name_max_length: Annotated[
        int | None,
        flag(
            "The length of the longest function name, in characters.",
            "Names of tools from a registry of tools are often longer than endpoints allow.",
            formerly="names_max",
            every_wire=True,
        ),
    ] = None
    call_id_pattern: Annotated[
        str | None,
        flag(
            "A regular expression that call ids must match as a whole.",
            "Some endpoints refuse the ids of other endpoints.",
            formerly="ids",
        ),
    ] = None
    calls_field: Annotated[
        str | None,
        flag(
            "The path of the calls in an assistant's message and in a delta, where it is not `tool_calls`.",
            _NO_ENDPOINT,
            path="write",
        ),
    ] = None
    call_paths: Annotated[
        CallPaths | None,
        flag(
            "The paths inside of a call, in replies and in earlier turns.",
            "Servers that copy the wire write calls in a form of their own.",
        ),
    ] = None
    arguments: Annotated[
        Literal["text", "object"] | None,
        flag(
            "The form of the arguments in the calls of earlier turns: JSON as text, or a JSON object. In a reply both "
            "are read.",
            "Some servers hand the arguments to a chat template that takes only an object.",
        ),
    ] = None
    result_role: Annotated[
        str | None,
        flag("The role of a message with a tool result, where it is not `tool`.", _NO_ENDPOINT),
    ] = None
    result_id: Annotated[
        str | None,
        flag("The path of the call's id in a tool result, where it is not `tool_call_id`.", _NO_ENDPOINT, path="write"),
    ] = None
    result_field: Annotated[
        str | None,
        flag("The path of the text in a tool result, where it is not `content`.", _NO_ENDPOINT, path="write"),
    ] = None
    result_name: Annotated[
        bool | None,
        flag(
            "Whether a tool result carries the tool's name.",
            "Some wires pair results with calls by name, others refuse the key.",
        ),
    ] = None
    result_media: Annotated[
        bool | None,
        flag(
            "Whether a result may hold pictures. If not, they follow in a user message.",
            "Many endpoints take only text in a result.",
        ),
    ] = None


_SEARCH = "Every vendor has a form of its own for a search that it runs itself."


class WebSearchFlags(Base, frozen=True):
    """The way to ask the endpoint for a web search, and its price.

    Where there is no `tool`, the paths are those of the body.
    """

    tool: Annotated[dict[str, Any] | None, flag("The tool that is offered, as the endpoint takes it.", _SEARCH)] = None
    set: Annotated[dict[str, Any] | None, flag("The keys of the body that turn the search on.", _SEARCH)] = None
    always: Annotated[
        bool | None,
        flag(
            "Whether the model searches for every answer, without a request.",
            "Some vendors sell a search engine that answers as a model.",
        ),
    ] = None
    count: Annotated[
        str | None,
        flag("The path of the number of results, in the tool or the body.", _SEARCH, path="write"),
    ] = None
    domains: Annotated[
        str | None,
        flag("The path of the list of domains to search, in the tool or the body.", _SEARCH, path="write"),
    ] = None
    one_domain: Annotated[
        bool | None,
        flag(
            "Whether `domains` is the path of one domain as a text, not of a list.",
            "Some endpoints limit a search to one domain.",
        ),
    ] = None
    force: Annotated[
        dict[str, Any] | None,
        flag(
            "The keys of the tool or the body that make the search certain.",
            "Some endpoints leave it to the model unless a key of their own says otherwise.",
        ),
    ] = None
    choice: Annotated[
        str | dict[str, Any] | None,
        flag("The `tool_choice` that makes the search certain.", "Wires name such a tool in different ways."),
    ] = None
    reasoning: Annotated[
        bool | None,
        flag(
            "Whether the endpoint searches while the model reasons. If not, reasoning is off for this call; a search "
            "that a client offers beside its functions is left out.",
            "Some endpoints refuse the combination.",
        ),
    ] = None
    echo: Annotated[
        str | None,
        flag(
            "The function whose calls are answered with their own arguments: the endpoint searches when it gets them "
            "back.",
            "One vendor hands its search to the client as a call of a function.",
        ),
    ] = None
    forms: Annotated[
        list[str] | None,
        flag(
            "Patterns of the types of a client's own search tools that the endpoint takes as they are.",
            "The wires have several versions of the tool, and endpoints take some of them.",
        ),
    ] = None
    uses: Annotated[
        list[str] | None,
        flag(
            "The paths of the number of searches in a body or a chunk; of a list, its length counts.",
            "Vendors charge for searches, and report them in different places.",
            path="read",
        ),
    ] = None
    item: Annotated[
        str | None,
        flag(
            "The type of the block or item of a reply that stands for one search.",
            "Some wires report a search as a part of the reply, and have no count of them.",
        ),
    ] = None
    fee: Annotated[
        float | None,
        flag(
            "The price of a search, in the currency of the prices.",
            "Vendors charge for a search beside the tokens.",
        ),
    ] = None
    fee_per: Annotated[
        Literal["search", "request"] | None,
        flag(
            "Whether each search is charged, or each request with one or more of them; left out: each search.",
            "A model may search several times for one answer.",
        ),
    ] = None


class Leak(Base, frozen=True):
    """Markup in which a model may write a tool call as text."""

    open: Annotated[
        list[str],
        flag(
            "The markers that begin a block, each spelling; a bar stands for every kind of bar.",
            "Each model family has markers of its own, and writes them in several spellings.",
        ),
    ]
    close: Annotated[list[str], flag("The markers that end it.", "A block without its end is not a whole call.")]
    format: Annotated[
        list[
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
        ],
        flag(
            "The grammars of the text between the markers, tried in order.",
            "Models of one family write calls in several grammars between the same markers.",
        ),
    ]
    parts: Annotated[
        list[str] | dict[str, list[str]] | None,
        flag(
            "The keywords of the grammar: for invoke and function where they differ, for arg-pairs those of a key and "
            "a value, for sections begin, separator and end, for channels the tokens that open, close and separate, "
            "for braces the quote, for named-json those before the arguments and the id, for recipient the one between "
            "the tool and its arguments; a table has them by grammar.",
            "Families that share a grammar use different keywords in it.",
        ),
    ] = None
    then: Annotated[
        TextCalls,
        flag(
            "What happens to a block: it becomes a call, is removed, or stays text. It is not named `otherwise`, "
            "because it does not depend on what the endpoint accepts.",
            "Some users do not want text turned into calls.",
        ),
    ] = "recover"
    strict: Annotated[
        bool,
        flag(
            "Whether a block is text unless it holds calls with arguments and nothing else.",
            "Some markers are also those of ordinary code blocks.",
        ),
    ] = False
    whole: Annotated[
        bool,
        flag(
            "Whether a block counts only where it is the whole answer, and calls nothing but tools that were offered.",
            "Some models write calls without markers of their own: as JSON, or as Python does.",
        ),
    ] = False
