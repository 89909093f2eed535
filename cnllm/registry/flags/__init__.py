"""The flags of the registry: the behaviour of an endpoint on the wire, as data.

One class per table of providers.toml, one text below each flag: what it does, and why it exists. From these classes
come the checks of a registry file, its JSON Schema (`cnllm registry schema`) and the tables of the manual. Absent
(None) means unknown, for every flag; unknown is neither false nor zero. Paths are dotted (`thinking.budget_tokens`);
a number in a path is an index.

One word for one thing: `otherwise` is what becomes of something asked for that the endpoint does not take. An `if_…`
flag says what is done when something happens.
"""

import datetime
from typing import Annotated, Any, Literal

from cnllm.registry.flags.batch import Batch
from cnllm.registry.flags.describe import (
    EVERY_WIRE,
    WRITE_PATH,
    Base,
    about,
    flag_texts,
    formerly,
    inner_table,
    table_text,
    walk_flags,
)
from cnllm.registry.flags.endpoint import Auth, LimitFlags, PaidCall, Price, RateHeaders, Rates, Site, Status, Upstream
from cnllm.registry.flags.reasoning import BudgetFlags, Effort, Patch, ReasoningFlags
from cnllm.registry.flags.reply import (
    CitationPaths,
    ErrorPaths,
    ErrorRule,
    IterationPaths,
    RecoveryFlags,
    ReplyPaths,
    ReportedCost,
    StreamFlags,
    UsagePaths,
)
from cnllm.registry.flags.request import Body, CallFlags, Messages, Param, Prefill, Schema
from cnllm.registry.flags.tools import CallPaths, Leak, StrictLimits, ToolChoice, Tools, WebSearchFlags
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
    "IterationPaths",
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
    "StrictLimits",
    "Table",
    "ToolChoice",
    "Tools",
    "Upstream",
    "UsagePaths",
    "WebSearchFlags",
    "about",
    "flag_texts",
    "inner_table",
    "table_text",
    "walk_flags",
]


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


class Flags(Base, frozen=True):
    """The flags of a table: the behaviour of one endpoint and model, in one mode."""

    # An inner table of which nothing is known is empty, and its flags are unknown. It is None only where a table says
    # something by being there, or is handed on as a value of its own.

    # By identity, because lists have no hash: each model keeps the flags of a mode, and what depends on flags alone is
    # cached by them.
    __hash__ = object.__hash__

    title: Annotated[str | None, EVERY_WIRE] = None
    """The provider's name for readers. Why: Names of providers are short, and several endpoints belong to one vendor.
    """
    protocol: Annotated[str | None, EVERY_WIRE] = None
    """The wire protocol of a call that names none. Why: Many endpoints speak several wires, one of them better than the
    others.
    """
    supported: bool | None = None
    """In a table under `on`: whether the endpoint answers for the model on that wire. A gateway whose client speaks it
    asks there. Why: An address that a vendor has is not open to each of its models, and what only the client's wire can
    say is lost on another one.
    """
    base_url: Annotated[str | None, EVERY_WIRE] = None
    """The URL of the endpoint, without the path of a request. Why: Each has an address of its own, and some have one
    for each wire.
    """
    path: str | None = None
    """The path of a request after base_url; {model} is replaced by the model's id. Why: Endpoints that copy a wire do
    not always copy its path.
    """
    stream_path: str | None = None
    """The path when streaming, where it differs. Why: Some wires stream from another address."""
    auth: Auth | None = None
    """The header that carries the key. Why: Endpoints that copy a wire often keep their own header for the key."""
    headers: Annotated[dict[str, str] | None, EVERY_WIRE] = None
    """Fixed headers. Why: Some endpoints answer only programs that send a header of theirs."""
    keys: Annotated[list[str] | None, EVERY_WIRE] = None
    """The environment variables that may hold the key, best first. Why: Programs of one vendor use different names for
    the same key.
    """
    site: Annotated[Site | None, EVERY_WIRE] = None
    """The place of the provider among the sites of one vendor. Why: The variable that is set says which site a bare
    name of a model means.
    """
    weights: Annotated[str | None, EVERY_WIRE] = None
    """The open weights that a model is, by the name under which its maker publishes them. Why: One model stands at many
    endpoints, under ids of their own; a similar id may be another model.
    """
    upstream: Upstream | None = None
    """How a router is made to use one endpoint behind it; a provider that has it is a router. Why: What a router
    answers is a mixture of endpoints, unless it is told to use one.
    """
    status: Annotated[Status | None, EVERY_WIRE] = None
    """Whether the model is current, in preview or retired. Why: Calls of a retired model fail, mostly without naming
    its successor.
    """
    limits: Annotated[LimitFlags, EVERY_WIRE] = LimitFlags()
    """The limits of tokens. Why: Endpoints refuse a request that asks for more."""
    rates: Annotated[Rates | None, EVERY_WIRE] = None
    """How much the endpoint takes in a time. Why: A batch that sends more is refused."""
    batch: Batch | None = None
    """The endpoint's own batch interface. Why: Many vendors serve requests that can wait for a fraction of the price.
    """
    idempotency: Annotated[str | None, EVERY_WIRE] = None
    """The header that makes a request that is sent again count once. Why: After a timeout nobody knows whether a
    request was served, and without it a second one is paid twice.
    """
    price: Annotated[Price | None, EVERY_WIRE] = None
    """The prices of tokens. Why: Replies do not say what they cost."""
    input: Annotated[list[str] | None, EVERY_WIRE] = None
    """The kinds of input that the model reads: text, image, audio, video, file. Why: Endpoints refuse, or silently
    drop, what a model does not read.
    """
    reasoning: ReasoningFlags = ReasoningFlags()
    """How reasoning is requested, how it arrives and how it is sent back. Why: Only the newest wire defines it, so each
    vendor chose its own way.
    """
    tool_choice: ToolChoice = ToolChoice()
    """The values of tool_choice that the endpoint accepts. Why: Many endpoints take only some, and fewer while they
    reason.
    """
    tools: Tools = Tools()
    """The endpoint's rules for tools. Why: Endpoints refuse schemas, names and ids that others take."""
    web_search: WebSearchFlags | None = None
    """How the endpoint is asked to search the web; absent: whether it can is unknown. Why: Vendors search for their
    models, each in a form of its own.
    """
    params: Annotated[dict[str, str | bool | Param] | None, WRITE_PATH] = None
    """Each parameter: true or its path on the wire where it works, false where it is refused, "ignored" where it is
    taken and without effect, or a table; absent is unknown. Why: Endpoints rename, limit, refuse and ignore parameters
    of the wire that they copy.
    """
    messages: Messages = Messages()
    """The endpoint's rules for messages. Why: Endpoints and chat templates refuse conversations that others take."""
    schema: Schema = Schema()
    """How structured output is requested. Why: Each endpoint has some of the ways, and refuses or ignores the others.
    """
    body: Body = Body()
    """Changes to the body of every request. Why: Some needs of one endpoint have no flag of their own."""
    finish: dict[str, Literal["stop", "pause", "length", "tool_calls", "content_filter", "error", "pending"]] | None = (
        None
    )
    """The endpoint's finish reasons → cnllm's. `pending`: the reply goes on. `pause`: the reply ends, and its turn goes
    on where it is sent back. A word that is not here ends no stream.
    Why: Endpoints add words of their own for a length, a filter, an error, and placeholders on every chunk.
    """
    reply: ReplyPaths = ReplyPaths()
    """The paths of the choices, the message, the delta and the finish reason. Why: Servers that copy a wire wrap its
    replies in objects of their own.
    """
    citations: CitationPaths = CitationPaths()
    """The paths of the sources of an answer. Why: The wire has a place for them in the message, and some endpoints use
    another one.
    """
    usage: UsagePaths = UsagePaths()
    """The paths of token counts. Why: Each wire, and many an endpoint, has names of its own for them."""
    stream: StreamFlags = StreamFlags()
    """The behaviour of its streams. Why: Servers end, cut and repeat streams in different ways."""
    error: ErrorPaths = ErrorPaths()
    """The paths of an error's message and code. Why: Endpoints and the gateways before them wrap errors differently."""
    errors: Annotated[list[ErrorRule] | None, EVERY_WIRE] = None
    """Rules that map an error to its kind; a rule about the sentence goes before one about the status, the nearest
    layer first. Why: What can be done about an error depends on its kind, and endpoints use one status for several.
    """
    simulator: Simulator = Simulator()
    """Rules that only the simulator reads. Why: A client does not need them; a test of the endpoint's refusals does."""
    leaks: Annotated[list[Leak] | None, EVERY_WIRE] = None
    """The markup in which the model may write tool calls as text, in addition to that of lower layers; [] removes all
    of it. Why: Servers without the right parser return calls as text, in the markup of the model's family.
    """
    fallback: Annotated[dict[str, str] | None, EVERY_WIRE] = None
    """The sentence for an answer that holds nothing but markup, by the script of the prompt (han, kana, …, other);
    {call} is the command, the query, the path or the call in the markup, {wish} is a phrase about it, SCRIPT-time,
    -command, -file, -search or -call; SCRIPT-unnamed is the sentence for markup without a name. Why: Some models answer
    with a call of a tool that they do not have, and nothing else.
    """
    resume: Annotated[dict[str, str] | None, EVERY_WIRE] = None
    """The message that a tool loop sends, as its last attempt, when a reply keeps breaking off; by script as in
    `fallback`. Why: Some models stop in the middle of a task until they receive a message.
    """
    recovery: RecoveryFlags = RecoveryFlags()
    """The attempts after a reply that breaks off or is empty. Why: Some endpoints break off more often than others, and
    attempts cost money.
    """
    call: Annotated[dict[str, Any] | None, EVERY_WIRE] = None
    """The default options of a call, by their names. Why: Some models work well only with options that their makers
    recommend.
    """

    def __repr__(self) -> str:  # names alone: a value may be a password
        flags = zip(self.__struct_fields__, self.__struct_defaults__, strict=True)
        names = [name for name, unknown in flags if getattr(self, name) is not unknown]
        return f"<{type(self).__name__} {', '.join(names)}>"


How = Literal["docs", "recorded", "code", "catalogue", "issue", "probe", "inferred"]


class RouteSettings(Base, frozen=True):
    """The models behind one name of a gateway's clients."""

    targets: list[str] | None = None
    """The models or tiers, best first; `?protocol=WIRE` behind a model chooses its wire."""
    weights: list[float] | None = None
    """How often each target comes first, as numbers that are compared; left out: always in order. Why: Several keys or
    endpoints share the load.
    """
    first_token: float | None = None
    """The seconds in which the first piece of a stream must arrive, or the next target is asked. Why: An endpoint may
    accept a request and keep it waiting.
    """
    cooldown: float | None = None
    """The seconds in which a target that failed is passed over; 30 where it is left out."""
    order: Literal["measured"] | None = None
    """The targets are ordered by what was seen of them in the last hour; left out: as they are listed. Why: The same
    weights fail more often on one host than on another, and hosts degrade and recover.
    """
    report: str | None = None
    """The path of a report of `cnllm compare`, which counts in `order` until enough was seen."""


class GatewayFlags(Base, frozen=True):
    """Settings of a gateway (`cnllm serve`)."""

    models: dict[str, str] | None = None
    """The model or tier that a client's name or pattern stands for, "claude-*" for example; `?protocol=WIRE` behind a
    model chooses its wire.
    """
    routes: dict[str, RouteSettings] | None = None
    """Names of clients that stand for several models: the next one takes over where one fails."""


class Mcp(Base, frozen=True):
    """An MCP server, for `--mcp NAME`. Only the file in the config folder may have this table."""

    command: str | list[str] | None = None
    """The command that starts the server, as one text or as its words."""
    url: str | None = None
    """The address of a server that runs already (streamable HTTP)."""
    env: list[str] | None = None
    """The variables that the server's process gets: NAME, or NAME=VALUE. Why: It gets PATH, HOME and the like, and no
    keys that it does not need.
    """
    cwd: str | None = None
    """The folder in which the command runs."""
    headers: dict[str, str] | None = None
    """Headers for the url; {key} in one stands for the key in `key_env`."""
    key_env: str | None = None
    """The variable that holds the key for the url; it goes as `Authorization: Bearer`."""
    tools: list[str] | None = None
    """The tools that are offered, by the server's names; left out: all."""
    timeout: float | None = None
    """The seconds that a call may take; 60 where it is left out."""
    start_timeout: float | None = None
    """The seconds that the start may take; 60 where it is left out."""
    list_timeout: float | None = None
    """The seconds in which the server must list its tools; 30 where it is left out."""


class Source(Base, frozen=True):
    """A source of facts, named once for the whole file."""

    url: str
    """A URL, repository:path@commit, or a thread."""
    seen: datetime.date
    """The day on which it was read."""
    how: How
    """The kind of source: the endpoint's own documentation, recorded traffic, program code, a third party's list or
    description of models, a report of a user, a probe of the endpoint, or a conclusion from something similar.
    """
    path: str | None = None
    """The file or folder inside a package or repository that holds the values; `{provider}` stands for the name of the
    provider whose table cites it.
    """


class SourceFacts(Base, frozen=True):
    """The facts that a table takes from a source: a field that stands here wins over the named source.

    One that names a `url` stands for itself; it needs `seen` and `how`.
    """

    backs: list[str]
    """The flags of this table that it supports."""
    path: str | None = None
    """The file or folder inside a package or repository that holds the values; `{provider}` stands for the name of the
    provider whose table cites it.
    """
    how: How | None = None
    """The kind of source."""
    rounded: bool | None = None
    """Whether the source has a more exact value than this table."""
    quote: str | None = None
    """A short quotation."""
    seen: datetime.date | None = None
    """The day on which it was read."""
    url: str | None = None
    """A URL, repository:path@commit, or a thread."""


class Table(Flags, frozen=True):
    """A layer of the registry: flags, and the keys that only a layer has."""

    match: Annotated[list[str] | None, EVERY_WIRE] = None
    """families: globs of the model ids that belong to the family."""
    extends: Annotated[str | None, EVERY_WIRE] = None
    """providers, models: the name of another one, whose table this one starts from. Its price and its status are not
    taken over; its limits, its input and its weights only with `same_weights`.
    """
    same_weights: Annotated[bool | None, EVERY_WIRE] = None
    """models: whether the model that this one extends has the same weights, so that its name of weights, its limits and
    its input hold here as well.
    """
    unset: list[str] | None = None
    """Flags to remove after merging."""
    on: dict[str, dict[str, Any]] | None = None
    """Flags that hold on one wire protocol only."""
    when: dict[str, dict[str, Any]] | None = None
    """Flags that hold in one mode only, `reasoning+tools`, `no-stream`, …."""
    families: dict[str, dict[str, Any]] | None = None
    """providers: flags of one family as this provider serves it."""
    unread: dict[str, str] | None = None
    """protocols: the flags that this wire never reads, each with the reason. `cnllm registry check` refuses them in the
    table of an endpoint that speaks it. Why: A flag that does nothing is an error that nobody notices.
    """
    corrects: Annotated[dict[str, float | str | list[str]] | None, EVERY_WIRE] = None
    """models: the values of public lists that this table's values correct, by flag. `cnllm registry update` leaves such
    a value alone, and says when the lists have caught up. Why: Public lists repeat an error long after somebody has
    found it.
    """
    sources: Annotated[dict[str, str | list[str | SourceFacts] | SourceFacts] | None, EVERY_WIRE] = None
    """What backs this table's facts, by the name of a source: its flags, or a table where something differs. A `?`
    behind a flag: inferred.
    """


class RegistryFile(Base, frozen=True):
    """A whole registry file."""

    schema: int | None = None
    """The version of this format."""
    defaults: Table | None = None
    """The flags that hold where no other layer sets them."""
    protocols: dict[str, Table] | None = None
    """The wire protocols."""
    families: dict[str, Table] | None = None
    """Model families: the behaviour that belongs to the weights, on every server."""
    providers: dict[str, Table] | None = None
    """The endpoints."""
    models: dict[str, Table] | None = None
    """The models, by "provider/id-on-the-wire"."""
    sources: dict[str, Source] | None = None
    """The sources, each named once, which tables cite."""
    aliases: dict[str, str] | None = None
    """Short names, each of one model."""
    family_aliases: dict[str, str] | None = None
    """Names of families, each of the newest model of the family at its vendor's own endpoint."""
    default_models: list[str] | None = None
    """Models for calls that name none: the first one that has a key is asked."""
    tiers: dict[str, list[str]] | None = None
    """Models for a purpose, best first."""
    gateway: GatewayFlags | None = None
    """Settings of a gateway."""
    mcp: dict[str, Mcp] | None = None
    """Your MCP servers, by name; only the file in the config folder may have them."""
    prefer: list[str] | None = None
    """Providers that a short name prefers, if they serve the model."""
