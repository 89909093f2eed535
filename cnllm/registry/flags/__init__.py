"""Every flag a registry can set: what an endpoint does on the wire, as data.

One class per table of providers.toml, one description per flag: what it does, and why it exists. From these classes
come the checks of a registry file, its JSON Schema (`cnllm registry schema`) and the tables of the manual. Absent
(None) means unknown, for every flag; unknown is neither false nor zero. Paths are dotted (`thinking.budget_tokens`);
a number in a path is an index.

One word for one thing: `otherwise` is what becomes of something asked for that the endpoint does not take. An `if_…`
flag says what is done when something happens.
"""

import datetime
from typing import Annotated, Any, Literal

from cnllm.registry.flags.call import Call
from cnllm.registry.flags.describe import Base, about, flag, inner_table
from cnllm.registry.flags.endpoint import Auth, Limits, Price, Status
from cnllm.registry.flags.reasoning import Budget, Effort, Patch, Reasoning
from cnllm.registry.flags.reply import ErrorPaths, ErrorRule, Recovery, Stream, UsagePaths
from cnllm.registry.flags.request import Body, Messages, Param, Prefill, Schema
from cnllm.registry.flags.simulator import Refusal, Simulator
from cnllm.registry.flags.tools import Leak, ToolChoice, Tools
from cnllm.registry.levels import LEVELS

__all__ = [
    "LEVELS",
    "Auth",
    "Body",
    "Budget",
    "Call",
    "Effort",
    "ErrorPaths",
    "ErrorRule",
    "File",
    "Flags",
    "Leak",
    "Limits",
    "Messages",
    "Param",
    "Patch",
    "Prefill",
    "Price",
    "Reasoning",
    "Recovery",
    "Refusal",
    "Schema",
    "Simulator",
    "Source",
    "Status",
    "Stream",
    "Table",
    "ToolChoice",
    "Tools",
    "UsagePaths",
    "about",
    "inner_table",
]


class Flags(Base, frozen=True):
    """What one (endpoint, model, mode) does."""

    title: Annotated[
        str | None,
        flag(
            "Who answers, in words.",
            "Names of providers are short, and several endpoints belong to one vendor.",
            every_wire=True,
        ),
    ] = None
    protocol: Annotated[
        str | None,
        flag(
            "The wire protocol spoken unless another is asked for.",
            "Many endpoints speak several wires, one of them better than the others.",
            every_wire=True,
        ),
    ] = None
    base_url: Annotated[
        str | None,
        flag(
            "Where the endpoint is.",
            "Each has an address of its own, and some have one for each wire.",
            every_wire=True,
        ),
    ] = None
    path: Annotated[
        str | None,
        flag("What follows base_url; {model} is filled in.", "Endpoints that copy a wire do not always copy its path."),
    ] = None
    stream_path: Annotated[
        str | None, flag("The path when streaming, where it differs.", "Some wires stream from another address.")
    ] = None
    auth: Annotated[
        Auth | None, flag("How the key is sent.", "Endpoints that copy a wire often keep their own header for the key.")
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
    status: Annotated[
        Status | None,
        flag(
            "Whether it is current, in preview or retired.",
            "Calls of a retired model fail, mostly without naming its successor.",
            every_wire=True,
        ),
    ] = None
    limits: Annotated[
        Limits | None, flag("How many tokens fit.", "Endpoints refuse a request that asks for more.", every_wire=True)
    ] = None
    price: Annotated[
        Price | None, flag("What a million tokens cost.", "Replies do not say what they cost.", every_wire=True)
    ] = None
    input: Annotated[
        list[str] | None,
        flag(
            "What it reads: text, image, audio, video, file.",
            "Endpoints refuse, or silently drop, what a model does not read.",
            every_wire=True,
        ),
    ] = None
    reasoning: Annotated[
        Reasoning | None,
        flag(
            "How reasoning is asked for, arrives and goes back.",
            "No wire but the newest says, so each vendor chose its own way.",
        ),
    ] = None
    tool_choice: Annotated[
        ToolChoice | None,
        flag("Which tool choices it takes.", "Many endpoints take only some, and fewer while they reason."),
    ] = None
    tools: Annotated[
        Tools | None, flag("What it demands of tools.", "Endpoints refuse schemas, names and ids that others take.")
    ] = None
    params: Annotated[
        dict[str, str | bool | Param] | None,
        flag(
            'Each parameter: true or its path on the wire where it works, false where it is refused, "ignored" where '
            "it is taken and without effect, or a table; absent is unknown.",
            "Endpoints rename, limit, refuse and ignore parameters of the wire that they copy.",
        ),
    ] = None
    messages: Annotated[
        Messages | None,
        flag("What it demands of messages.", "Endpoints and chat templates refuse conversations that others take."),
    ] = None
    schema: Annotated[
        Schema | None,
        flag(
            "How structured output is asked for.",
            "Each endpoint has some of the ways, and refuses or ignores the others.",
        ),
    ] = None
    body: Annotated[
        Body | None, flag("Anything else about the body.", "Some needs of one endpoint are no flag of their own.")
    ] = None
    finish: Annotated[
        dict[str, str] | None,
        flag(
            "Its words for why a reply ended → ours.",
            "Endpoints add words of their own for a length, a filter, an error.",
        ),
    ] = None
    usage: Annotated[
        UsagePaths | None,
        flag("Where token counts are.", "Each wire, and many an endpoint, has names of its own for them."),
    ] = None
    stream: Annotated[
        Stream | None, flag("How its streams behave.", "Servers end, cut and repeat streams in different ways.")
    ] = None
    error: Annotated[
        ErrorPaths | None,
        flag("Where an error says what went wrong.", "Endpoints and the gateways before them wrap errors differently."),
    ] = None
    errors: Annotated[
        list[ErrorRule] | None,
        flag(
            "What an error is; a sentence goes before a status, the nearest layer first.",
            "What can be done about an error depends on its kind, and endpoints use one status for several.",
            every_wire=True,
        ),
    ] = None
    simulator: Annotated[
        Simulator | None,
        flag(
            "What only the simulator goes by.",
            "A client need not know it, and a test against the endpoint's habits does.",
        ),
    ] = None
    leaks: Annotated[
        list[Leak] | None,
        flag(
            "The markup in which it may write tool calls as text, beside what lower layers say; [] takes all of it "
            "away.",
            "Servers without the right parser pass on calls as text, in the markup of the model's family.",
            every_wire=True,
        ),
    ] = None
    fallback: Annotated[
        dict[str, str] | None,
        flag(
            "What is said when an answer was nothing but markup, by the script of the prompt (han, kana, …, other); "
            "{call} is the tool or the command that the model wanted, SCRIPT-unnamed is said where nobody can tell.",
            "Some models answer with a call of a tool that they do not have, and nothing else.",
            every_wire=True,
        ),
    ] = None
    resume: Annotated[
        dict[str, str] | None,
        flag(
            "What a tool loop says, as the last resort, where a reply keeps breaking off; by script as `fallback`.",
            "Some models stop in the middle of a task until somebody speaks.",
            every_wire=True,
        ),
    ] = None
    recovery: Annotated[
        Recovery | None,
        flag(
            "What is tried where a reply breaks off, or comes empty.",
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
        said = [name for name in self.__struct_fields__ if getattr(self, name) is not None]
        return f"<{type(self).__name__} {', '.join(said)}>"


class Source(Base, frozen=True):
    """Where facts of the same table come from."""

    url: Annotated[str, flag("A URL, repository:path@commit, or a thread.")]
    seen: Annotated[datetime.date, flag("The day it was read.")]
    how: Annotated[
        Literal["docs", "recorded", "code", "issue", "probe", "inferred"],
        flag("What kind of source it is.", reasons={"probe": "for overlays that `cnllm probe` writes"}),
    ]
    backs: Annotated[list[str], flag("The flags of this table that it supports.")]
    quote: Annotated[str | None, flag("Its own words, in short.")] = None


class Table(Flags, frozen=True):
    """A layer of the registry: flags, and what a layer may hold besides."""

    match: Annotated[list[str] | None, flag("families: globs of the ids that belong to it.", every_wire=True)] = None
    extends: Annotated[
        str | None, flag("providers, models: another one whose table this one starts from.", every_wire=True)
    ] = None
    unset: Annotated[list[str] | None, flag("Flags to take away after merging.")] = None
    on: Annotated[dict[str, dict[str, Any]] | None, flag("Flags that hold on one wire protocol only.")] = None
    when: Annotated[
        dict[str, dict[str, Any]] | None,
        flag("Flags that hold in one mode only, `reasoning+tools`, `no-stream`, …."),
    ] = None
    families: Annotated[
        dict[str, dict[str, Any]] | None, flag("providers: flags of one family as this provider serves it.")
    ] = None
    sources: Annotated[dict[str, Source] | None, flag("Where the facts of this table come from.", every_wire=True)] = (
        None
    )


class Gateway(Base, frozen=True):
    """Settings of a gateway (`cnllm serve`)."""

    models: Annotated[
        dict[str, str] | None,
        flag('The model or tier that a client\'s name or pattern stands for, "claude-*" for example.'),
    ] = None


class File(Base, frozen=True):
    """A whole registry file."""

    schema: Annotated[int | None, flag("The version of this format.")] = None
    defaults: Annotated[Table | None, flag("What holds when nothing else is said.")] = None
    protocols: Annotated[dict[str, Table] | None, flag("The wires.")] = None
    families: Annotated[dict[str, Table] | None, flag("What travels with the weights, whoever serves them.")] = None
    providers: Annotated[dict[str, Table] | None, flag("Who answers.")] = None
    models: Annotated[dict[str, Table] | None, flag('The models, by "provider/id-on-the-wire".')] = None
    aliases: Annotated[dict[str, str] | None, flag("Short names, each of one model.")] = None
    tiers: Annotated[dict[str, list[str]] | None, flag("Models to choose from for a purpose, best first.")] = None
    gateway: Annotated[Gateway | None, flag("Settings of a gateway.")] = None
    prefer: Annotated[list[str] | None, flag("Providers to take for a short name when they serve it too.")] = None
