"""The flags of the registry: the behaviour of an endpoint on the wire, as data.

One class per table of providers.toml, one description per flag: what it does, and why it exists. From these classes
come the checks of a registry file, its JSON Schema (`cnllm registry schema`) and the tables of the manual. Absent
(None) means unknown, for every flag; unknown is neither false nor zero. Paths are dotted (`thinking.budget_tokens`);
a number in a path is an index.

One word for one thing: `otherwise` is what becomes of something asked for that the endpoint does not take. An `if_…`
flag says what is done when something happens.
"""

from typing import Annotated, Any, Literal

from cnllm.registry.flags.batch import Batch
from cnllm.registry.flags.call import CallFlags
from cnllm.registry.flags.describe import Base, about, flag, inner_table
from cnllm.registry.flags.endpoint import Auth, LimitFlags, PaidCall, Price, RateHeaders, Rates, Site, Status, Upstream
from cnllm.registry.flags.reasoning import BudgetFlags, Effort, Patch, ReasoningFlags
from cnllm.registry.flags.reply import (
    CitationPaths,
    ErrorPaths,
    ErrorRule,
    RecoveryFlags,
    ReplyPaths,
    ReportedCost,
    StreamFlags,
    UsagePaths,
)
from cnllm.registry.flags.request import Body, Messages, Param, Prefill, Schema
from cnllm.registry.flags.settings import GatewayFlags, Mcp
from cnllm.registry.flags.simulator import RefusalWords, Simulator
from cnllm.registry.flags.sources import Source, SourceFacts
from cnllm.registry.flags.tools import CallPaths, Leak, ToolChoice, Tools, WebSearchFlags
from cnllm.registry.levels import LEVELS

__all__ = [
    "LEVELS",
    "Auth",
    "Batch",
    "Body",
    "BudgetFlags",
    "CallFlags",
    "CallPaths",
    "CitationPaths",
    "Effort",
    "ErrorPaths",
    "ErrorRule",
    "Flags",
    "Leak",
    "LimitFlags",
    "Mcp",
    "Messages",
    "PaidCall",
    "Param",
    "Patch",
    "Prefill",
    "Price",
    "RateHeaders",
    "Rates",
    "ReasoningFlags",
    "RecoveryFlags",
    "RefusalWords",
    "RegistryFile",
    "ReplyPaths",
    "ReportedCost",
    "Schema",
    "Simulator",
    "Site",
    "Source",
    "SourceFacts",
    "Status",
    "StreamFlags",
    "Table",
    "ToolChoice",
    "Tools",
    "Upstream",
    "UsagePaths",
    "WebSearchFlags",
    "about",
    "inner_table",
]


class Flags(Base, frozen=True):
    """The flags of a table: the behaviour of one endpoint and model, in one mode."""

    # By identity, because lists have no hash: each model keeps the flags of a mode, and what depends on flags alone is
    # cached by them.
    __hash__ = object.__hash__

    title: Annotated[
        str | None,
        flag(
            "The provider's name for readers.",
            "Names of providers are short, and several endpoints belong to one vendor.",
            every_wire=True,
        ),
    ] = None
    protocol: Annotated[
        str | None,
        flag(
            "The wire protocol of a call that names none.",
            "Many endpoints speak several wires, one of them better than the others.",
            every_wire=True,
        ),
    ] = None
    supported: Annotated[
        bool | None,
        flag(
            "In a table under `on`: whether the endpoint answers for the model on that wire. A gateway whose client "
            "speaks it asks there.",
            "An address that a vendor has is not open to each of its models, and what only the client's wire can say "
            "is lost on another one.",
        ),
    ] = None
    base_url: Annotated[
        str | None,
        flag(
            "The URL of the endpoint, without the path of a request.",
            "Each has an address of its own, and some have one for each wire.",
            every_wire=True,
        ),
    ] = None
    path: Annotated[
        str | None,
        flag(
            "The path of a request after base_url; {model} is replaced by the model's id.",
            "Endpoints that copy a wire do not always copy its path.",
        ),
    ] = None
    stream_path: Annotated[
        str | None, flag("The path when streaming, where it differs.", "Some wires stream from another address.")
    ] = None
    auth: Annotated[
        Auth | None,
        flag("The header that carries the key.", "Endpoints that copy a wire often keep their own header for the key."),
    ] = None
    headers: Annotated[
        dict[str, str] | None,
        flag("Fixed headers.", "Some endpoints answer only programs that send a header of theirs.", every_wire=True),
    ] = None
    keys: Annotated[
        list[str] | None,
        flag(
            "The environment variables that may hold the key, best first.",
            "Programs of one vendor use different names for the same key.",
            every_wire=True,
        ),
    ] = None
    site: Annotated[
        Site | None,
        flag(
            "The place of the provider among the sites of one vendor.",
            "The variable that is set says which site a bare name of a model means.",
            every_wire=True,
        ),
    ] = None
    weights: Annotated[
        str | None,
        flag(
            "The open weights that a model is, by the name under which its maker publishes them.",
            "One model stands at many endpoints, under ids of their own; a similar id may be another model.",
            every_wire=True,
        ),
    ] = None
    upstream: Annotated[
        Upstream | None,
        flag(
            "How a router is made to use one endpoint behind it; a provider that has it is a router.",
            "What a router answers is a mixture of endpoints, unless it is told to use one.",
        ),
    ] = None
    status: Annotated[
        Status | None,
        flag(
            "Whether the model is current, in preview or retired.",
            "Calls of a retired model fail, mostly without naming its successor.",
            every_wire=True,
        ),
    ] = None
    limits: Annotated[
        LimitFlags | None,
        flag("The limits of tokens.", "Endpoints refuse a request that asks for more.", every_wire=True),
    ] = None
    rates: Annotated[
        Rates | None,
        flag("How much the endpoint takes in a time.", "A batch that sends more is refused.", every_wire=True),
    ] = None
    batch: Annotated[
        Batch | None,
        flag(
            "The endpoint's own batch interface.",
            "Many vendors serve requests that can wait for a fraction of the price.",
        ),
    ] = None
    idempotency: Annotated[
        str | None,
        flag(
            "The header that makes a request that is sent again count once.",
            "After a timeout nobody knows whether a request was served, and without it a second one is paid twice.",
            every_wire=True,
        ),
    ] = None
    price: Annotated[
        Price | None, flag("The prices of tokens.", "Replies do not say what they cost.", every_wire=True)
    ] = None
    input: Annotated[
        list[str] | None,
        flag(
            "The kinds of input that the model reads: text, image, audio, video, file.",
            "Endpoints refuse, or silently drop, what a model does not read.",
            every_wire=True,
        ),
    ] = None
    reasoning: Annotated[
        ReasoningFlags | None,
        flag(
            "How reasoning is requested, how it arrives and how it is sent back.",
            "Only the newest wire defines it, so each vendor chose its own way.",
        ),
    ] = None
    tool_choice: Annotated[
        ToolChoice | None,
        flag(
            "The values of tool_choice that the endpoint accepts.",
            "Many endpoints take only some, and fewer while they reason.",
        ),
    ] = None
    tools: Annotated[
        Tools | None,
        flag("The endpoint's rules for tools.", "Endpoints refuse schemas, names and ids that others take."),
    ] = None
    web_search: Annotated[
        WebSearchFlags | None,
        flag(
            "How the endpoint is asked to search the web; absent: whether it can is unknown.",
            "Vendors search for their models, each in a form of its own.",
        ),
    ] = None
    params: Annotated[
        dict[str, str | bool | Param] | None,
        flag(
            'Each parameter: true or its path on the wire where it works, false where it is refused, "ignored" where '
            "it is taken and without effect, or a table; absent is unknown.",
            "Endpoints rename, limit, refuse and ignore parameters of the wire that they copy.",
            path="write",
        ),
    ] = None
    messages: Annotated[
        Messages | None,
        flag(
            "The endpoint's rules for messages.", "Endpoints and chat templates refuse conversations that others take."
        ),
    ] = None
    schema: Annotated[
        Schema | None,
        flag(
            "How structured output is requested.",
            "Each endpoint has some of the ways, and refuses or ignores the others.",
        ),
    ] = None
    body: Annotated[
        Body | None,
        flag("Changes to the body of every request.", "Some needs of one endpoint have no flag of their own."),
    ] = None
    finish: Annotated[
        dict[str, Literal["stop", "length", "tool_calls", "content_filter", "error", "pending"]] | None,
        flag(
            "The endpoint's finish reasons → cnllm's. `pending`: the reply goes on. A word that is not here ends no "
            "stream.",
            "Endpoints add words of their own for a length, a filter, an error, and placeholders on every chunk.",
        ),
    ] = None
    reply: Annotated[
        ReplyPaths | None,
        flag(
            "The paths of the choices, the message, the delta and the finish reason.",
            "Servers that copy a wire wrap its replies in objects of their own.",
        ),
    ] = None
    citations: Annotated[
        CitationPaths | None,
        flag(
            "The paths of the sources of an answer.",
            "The wire has a place for them in the message, and some endpoints use another one.",
        ),
    ] = None
    usage: Annotated[
        UsagePaths | None,
        flag("The paths of token counts.", "Each wire, and many an endpoint, has names of its own for them."),
    ] = None
    stream: Annotated[
        StreamFlags | None,
        flag("The behaviour of its streams.", "Servers end, cut and repeat streams in different ways."),
    ] = None
    error: Annotated[
        ErrorPaths | None,
        flag(
            "The paths of an error's message and code.",
            "Endpoints and the gateways before them wrap errors differently.",
        ),
    ] = None
    errors: Annotated[
        list[ErrorRule] | None,
        flag(
            "Rules that map an error to its kind; a rule about the sentence goes before one about the status, the "
            "nearest layer first.",
            "What can be done about an error depends on its kind, and endpoints use one status for several.",
            every_wire=True,
        ),
    ] = None
    simulator: Annotated[
        Simulator | None,
        flag(
            "Rules that only the simulator reads.",
            "A client does not need them; a test of the endpoint's refusals does.",
        ),
    ] = None
    leaks: Annotated[
        list[Leak] | None,
        flag(
            "The markup in which the model may write tool calls as text, in addition to that of lower layers; [] "
            "removes all of it.",
            "Servers without the right parser return calls as text, in the markup of the model's family.",
            every_wire=True,
        ),
    ] = None
    fallback: Annotated[
        dict[str, str] | None,
        flag(
            "The sentence for an answer that holds nothing but markup, by the script of the prompt (han, kana, …, "
            "other); {call} is the command, the query, the path or the call in the markup, {wish} is a phrase about "
            "it, SCRIPT-time, -command, -file, -search or -call; SCRIPT-unnamed is the sentence for markup without a "
            "name.",
            "Some models answer with a call of a tool that they do not have, and nothing else.",
            every_wire=True,
        ),
    ] = None
    resume: Annotated[
        dict[str, str] | None,
        flag(
            "The message that a tool loop sends, as its last attempt, when a reply keeps breaking off; by script as in "
            "`fallback`.",
            "Some models stop in the middle of a task until they receive a message.",
            every_wire=True,
        ),
    ] = None
    recovery: Annotated[
        RecoveryFlags | None,
        flag(
            "The attempts after a reply that breaks off or is empty.",
            "Some endpoints break off more often than others, and attempts cost money.",
        ),
    ] = None
    call: Annotated[
        dict[str, Any] | None,
        flag(
            "The default options of a call, by their names.",
            "Some models work well only with options that their makers recommend.",
            every_wire=True,
        ),
    ] = None

    def __repr__(self) -> str:  # names alone: a value may be a password
        names = [name for name in self.__struct_fields__ if getattr(self, name) is not None]
        return f"<{type(self).__name__} {', '.join(names)}>"


class Table(Flags, frozen=True):
    """A layer of the registry: flags, and the keys that only a layer has."""

    match: Annotated[
        list[str] | None, flag("families: globs of the model ids that belong to the family.", every_wire=True)
    ] = None
    extends: Annotated[
        str | None,
        flag(
            "providers, models: the name of another one, whose table this one starts from. Its price and its status "
            "are not taken over; its limits, its input and its weights only with `same_weights`.",
            every_wire=True,
        ),
    ] = None
    same_weights: Annotated[
        bool | None,
        flag(
            "models: whether the model that this one extends has the same weights, so that its name of weights, its "
            "limits and its input hold here as well.",
            every_wire=True,
        ),
    ] = None
    unset: Annotated[list[str] | None, flag("Flags to remove after merging.")] = None
    on: Annotated[dict[str, dict[str, Any]] | None, flag("Flags that hold on one wire protocol only.")] = None
    when: Annotated[
        dict[str, dict[str, Any]] | None,
        flag("Flags that hold in one mode only, `reasoning+tools`, `no-stream`, …."),
    ] = None
    families: Annotated[
        dict[str, dict[str, Any]] | None, flag("providers: flags of one family as this provider serves it.")
    ] = None
    unread: Annotated[
        dict[str, str] | None,
        flag(
            "protocols: the flags that this wire never reads, each with the reason. `cnllm registry check` refuses "
            "them in the table of an endpoint that speaks it.",
            "A flag that does nothing is an error that nobody notices.",
        ),
    ] = None
    corrects: Annotated[
        dict[str, float | str | list[str]] | None,
        flag(
            "models: the values of public lists that this table's values correct, by flag. `cnllm registry update` "
            "leaves such a value alone, and says when the lists have caught up.",
            "Public lists repeat an error long after somebody has found it.",
            every_wire=True,
        ),
    ] = None
    sources: Annotated[
        dict[str, str | list[str | SourceFacts] | SourceFacts] | None,
        flag(
            "What backs this table's facts, by the name of a source: its flags, or a table where something differs. "
            "A `?` behind a flag: inferred.",
            every_wire=True,
        ),
    ] = None


class RegistryFile(Base, frozen=True):
    """A whole registry file."""

    schema: Annotated[int | None, flag("The version of this format.")] = None
    defaults: Annotated[Table | None, flag("The flags that hold where no other layer sets them.")] = None
    protocols: Annotated[dict[str, Table] | None, flag("The wire protocols.")] = None
    families: Annotated[
        dict[str, Table] | None, flag("Model families: the behaviour that belongs to the weights, on every server.")
    ] = None
    providers: Annotated[dict[str, Table] | None, flag("The endpoints.")] = None
    models: Annotated[dict[str, Table] | None, flag('The models, by "provider/id-on-the-wire".')] = None
    sources: Annotated[dict[str, Source] | None, flag("The sources, each named once, which tables cite.")] = None
    aliases: Annotated[dict[str, str] | None, flag("Short names, each of one model.")] = None
    family_aliases: Annotated[
        dict[str, str] | None,
        flag("Names of families, each of the newest model of the family at its vendor's own endpoint."),
    ] = None
    default_models: Annotated[
        list[str] | None, flag("Models for calls that name none: the first one that has a key is asked.")
    ] = None
    tiers: Annotated[dict[str, list[str]] | None, flag("Models for a purpose, best first.")] = None
    gateway: Annotated[GatewayFlags | None, flag("Settings of a gateway.")] = None
    mcp: Annotated[
        dict[str, Mcp] | None, flag("Your MCP servers, by name; only the file in the config folder may have them.")
    ] = None
    prefer: Annotated[list[str] | None, flag("Providers that a short name prefers, if they serve the model.")] = None
