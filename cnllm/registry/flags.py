"""Every flag a registry can set: what an endpoint does on the wire, as data.

One class per table of providers.toml, one description per flag. From these classes come the checks of a registry
file, its JSON Schema (`cnllm registry schema`) and the flag table in README. Absent (None) means unknown, for every
flag; unknown is neither false nor zero. Paths are dotted (`thinking.budget_tokens`); a number in a path is an index.
"""

import datetime
from typing import Annotated, Any, Literal, get_origin

from msgspec import Meta, Struct, field

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
    "Source",
    "Status",
    "Stream",
    "Table",
    "ToolChoice",
    "Tools",
    "UsagePaths",
    "formerly",
]


def _d(text: str, *, formerly: str | None = None) -> Meta:
    """Describe a flag; `formerly` is the name that it had, for the hint about a file that still says it."""
    return Meta(description=text, extra={"formerly": formerly} if formerly else None)


def formerly(kind: Any) -> str | None:
    """Return the name that a flag of this type had, or None."""
    extra = getattr(kind.__metadata__[-1], "extra", None) if get_origin(kind) is Annotated else None
    return None if extra is None else extra.get("formerly")


_FromZero = Annotated[int, Meta(ge=0)]
_FromOne = Annotated[int, Meta(ge=1)]


class _Base(Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """A table of the registry: every key is optional, unknown keys are refused."""


class Auth(_Base, frozen=True):
    header: Annotated[str | None, _d("the header that carries the key")] = None
    value: Annotated[str | None, _d("its value, `{key}` standing for the key")] = None


class Status(_Base, frozen=True):
    is_: Annotated[Literal["current", "preview", "retired"] | None, _d("where the model is in its life")] = field(
        default=None, name="is"
    )
    since: Annotated[datetime.date | None, _d("the day that began")] = None
    use: Annotated[str | None, _d("the successor of a retired model, as provider/id")] = None


class Limits(_Base, frozen=True):
    context: Annotated[int | None, _d("tokens that fit into the window, input and output together")] = None
    output: Annotated[int | None, _d("the most tokens one reply may have; a larger max_tokens is clamped to it")] = None


class Price(_Base, frozen=True):
    """Per million tokens."""

    currency: Annotated[str | None, _d("ISO 4217 code of the prices")] = None
    input: Annotated[float | None, _d("a million input tokens")] = None
    output: Annotated[float | None, _d("a million output tokens, reasoning included")] = None
    cached: Annotated[float | None, _d("a million input tokens read from the endpoint's cache")] = None
    cache_write: Annotated[float | None, _d("a million input tokens written to the cache")] = None
    tiers: Annotated[
        list[dict[str, float]] | None,
        _d("other prices from `above` input tokens on: {above, input, output, cached}"),
    ] = None
    off_peak: Annotated[
        dict[str, Any] | None,
        _d("prices outside the `peak` hours, which are in the `zone`; a public holiday counts as any day"),
    ] = None


class Patch(_Base, frozen=True):
    set: Annotated[dict[str, Any] | None, _d("a table merged into the body")] = None
    drop: Annotated[list[str] | None, _d("paths taken out of the body")] = None


class Effort(_Base, frozen=True):
    at: Annotated[str | None, _d("where the level goes in the body")] = None
    minimal: Annotated[str | None, _d("the wire's word for this level")] = None
    low: Annotated[str | None, _d("the wire's word for this level")] = None
    medium: Annotated[str | None, _d("the wire's word for this level")] = None
    high: Annotated[str | None, _d("the wire's word for this level")] = None
    xhigh: Annotated[str | None, _d("the wire's word for this level")] = None
    max: Annotated[str | None, _d("the wire's word for this level")] = None


class Budget(_Base, frozen=True):
    at: Annotated[str | None, _d("where the number of tokens goes in the body")] = None
    min: Annotated[int | None, _d("the fewest tokens it takes")] = None
    max: Annotated[int | None, _d("the most tokens it takes")] = None
    under: Annotated[str | None, _d("the parameter it must stay below (max_tokens)")] = None


class Reasoning(_Base, frozen=True):
    mode: Annotated[
        Literal["unknown", "never", "toggle", "always"] | None, _d("can the caller turn it on and off?")
    ] = None
    default: Annotated[Literal["off", "on"] | None, _d("what the endpoint does when nothing is sent")] = None
    on: Annotated[Patch | None, _d("what turns it on")] = None
    off: Annotated[Patch | None, _d("what turns it off")] = None
    effort: Annotated[Effort | None, _d("where a level goes, and the wire's word for each")] = None
    budget: Annotated[Budget | None, _d("where a number of tokens goes, and its range")] = None
    effort_budgets: Annotated[
        dict[str, int] | None,
        _d("tokens each level stands for where only a number can be sent, or the reverse", formerly="scale"),
    ] = None
    fields: Annotated[list[str] | None, _d("where it arrives, in a message and in a delta, tried in order")] = None
    shape: Annotated[
        Literal["text", "details", "content-parts"] | None,
        _d("how it is written there: a string, a list of {text}, or parts of `content`"),
    ] = None
    part: Annotated[str | None, _d("the type of a part of `content` that holds it, under a key of the same name")] = (
        None
    )
    tags: Annotated[
        list[str] | None, _d("opening and closing tag where it arrives inside content; further pairs may follow")
    ] = None
    tags_at: Annotated[
        Literal["start", "start-open", "anywhere"] | None,
        _d("where the opening tag may stand; start-open: the prompt template has already written it"),
    ] = None
    replay: Annotated[
        Literal["never", "tool-turns", "since-user", "always"] | None,
        _d("which earlier turns of the same model carry it back"),
    ] = None
    replay_as: Annotated[
        Literal["field", "details", "tags", "content-parts", "seal"] | None,
        _d("the form in which it goes back"),
    ] = None
    replay_field: Annotated[str | None, _d("the field in which it goes back")] = None
    if_missing: Annotated[
        Literal["omit", "empty", "space", "reasoning-off", "error"] | Patch | None,
        _d(
            "what a turn carries that must have it and has none; reasoning-off: nothing, the call goes without; set: "
            "what its first call is sealed with instead"
        ),
    ] = None
    if_foreign: Annotated[
        Literal["drop", "text"] | None, _d("what becomes of reasoning another model wrote", formerly="foreign")
    ] = None
    replay_patch: Annotated[
        Patch | None, _d("a switch that must go along when reasoning is sent back", formerly="keep")
    ] = None


class ToolChoice(_Base, frozen=True):
    allowed: Annotated[
        list[Literal["auto", "none", "required", "named"]] | None, _d("the choices the endpoint takes")
    ] = None
    otherwise: Annotated[
        Literal["auto", "narrow", "reasoning-off", "error"] | None,
        _d("what becomes of another choice; narrow: auto, with only the wanted tool offered"),
    ] = None


class Tools(_Base, frozen=True):
    supported: Annotated[bool | None, _d("does it take tools at all?")] = None
    otherwise: Annotated[
        Literal["prompt", "drop"] | None,
        _d("what becomes of tools where it takes none; prompt: described in the prompt, calls read from the text"),
    ] = None
    parallel: Annotated[bool | None, _d("does it take parallel_tool_calls?")] = None
    strict: Annotated[bool | None, _d("does it take `strict` on a function?")] = None
    strict_all: Annotated[bool | None, _d("must all functions be strict where one is?")] = None
    parameters: Annotated[bool | None, _d("must every function have parameters, even empty ones?")] = None
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
        _d("the subset of JSON Schema it takes: what is done to a function's parameters"),
    ] = None
    schema_drop: Annotated[list[str] | None, _d("keywords of JSON Schema it refuses")] = None
    name_max_length: Annotated[
        int | None, _d("the longest function name it takes, in characters", formerly="names_max")
    ] = None
    call_id_pattern: Annotated[
        str | None, _d("a regular expression that call ids must match as a whole", formerly="ids")
    ] = None
    result_name: Annotated[bool | None, _d("does a tool result carry the tool's name?")] = None
    result_media: Annotated[bool | None, _d("may a result hold pictures? If not, they follow in a user message")] = None
    one_object: Annotated[bool | None, _d("may arguments be a JSON object instead of a string?")] = None


class Param(_Base, frozen=True):
    as_: Annotated[str | None, _d("the wire's path for it")] = field(default=None, name="as")
    min: Annotated[float | None, _d("the least value")] = None
    max: Annotated[float | None, _d("the greatest value")] = None
    above: Annotated[float | None, _d("must be greater than this")] = None
    below: Annotated[float | None, _d("must be less than this")] = None
    step: Annotated[float | None, _d("how far inside an open bound a clamped value lands")] = None
    items: Annotated[int | None, _d("the most items of a list")] = None
    ignored: Annotated[bool | None, _d("is it taken and without effect, whatever its value?")] = None
    fixed: Annotated[Any, _d("the only value it takes; another is left out, which has the same effect")] = None
    otherwise: Annotated[
        Literal["clamp", "drop", "error"] | None, _d("what becomes of a value out of range", formerly="outside")
    ] = None
    default: Annotated[
        Any,
        _d("what is sent when the caller names nothing; of a list the first that is known, where a text names a flag"),
    ] = None


class Prefill(_Base, frozen=True):
    """How a conversation is sent that ends with the beginning of the reply, without reasoning."""

    set: Annotated[dict[str, Any] | None, _d("keys of that last message")] = None
    path: Annotated[str | None, _d("what follows base_url for such a request, where it differs")] = None


class Messages(_Base, frozen=True):
    system: Annotated[
        Literal["any", "first", "user"] | None,
        _d("where system messages may stand: anywhere, as one leading message, or only as user text"),
    ] = None
    developer: Annotated[bool | None, _d("does it take the role developer? If not, system is sent")] = None
    empty: Annotated[
        Literal["null", "empty", "omit", "space"] | None,
        _d("what `content` is beside tool calls when there is no text"),
    ] = None
    content: Annotated[
        Literal["parts", "string"] | None, _d("does it take a list of text parts, or only a string?")
    ] = None
    consecutive_roles: Annotated[
        Literal["keep", "join"] | None, _d("may neighbours have the same role, or are they joined?", formerly="runs")
    ] = None
    first_user: Annotated[bool | None, _d("must the first message after system be the user's?")] = None
    fields: Annotated[list[str] | None, _d("further keys of a message that the endpoint takes")] = None
    files: Annotated[
        Literal["all", "vision"] | None,
        _d("for which of its models does the endpoint read files, beside those whose `input` names them?"),
    ] = None
    file_url: Annotated[
        Literal["file", "file_url"] | None,
        _d("the content part for a file by URL; file_url: this is the only way to give it one"),
    ] = None
    audio_url: Annotated[
        Literal["audio_url", "input_audio"] | None, _d("the content part for a sound by URL, where it takes one")
    ] = None
    prefill: Annotated[
        Prefill | None, _d("does it go on from the beginning of a reply? A cut one is then continued, not asked anew")
    ] = None


class Schema(_Base, frozen=True):
    methods: Annotated[
        list[Literal["json_schema", "json_object", "tool", "prompt"]] | None,
        _d("how an answer that follows a JSON Schema is asked for, best first; tool: as a tool's arguments"),
    ] = None
    word: Annotated[str | None, _d("a word the prompt must hold when JSON is asked for")] = None


class UsagePaths(_Base, frozen=True):
    at: Annotated[list[str] | None, _d("where the usage object is, in a body or a chunk, tried in order")] = None
    input: Annotated[list[str] | None, _d("paths inside it, tried in order")] = None
    output: Annotated[list[str] | None, _d("paths inside it, tried in order")] = None
    total: Annotated[list[str] | None, _d("paths inside it, tried in order")] = None
    reasoning: Annotated[list[str] | None, _d("paths inside it, tried in order")] = None
    cached: Annotated[list[str] | None, _d("paths inside it, tried in order")] = None
    cache_write: Annotated[list[str] | None, _d("paths inside it, tried in order")] = None
    excluded_from_totals: Annotated[
        list[Literal["reasoning", "cached", "cache_write"]] | None,
        _d("what the endpoint does not count into its output or input and we must add", formerly="apart"),
    ] = None


class Stream(_Base, frozen=True):
    terminator: Annotated[
        Literal["finish", "done", "any"] | None,
        _d("what proves that a stream is whole: a finish reason, the closing [DONE], or either", formerly="proof"),
    ] = None
    if_cut: Annotated[Literal["error", "again-whole", "keep"] | None, _d("what becomes of a stream that was cut")] = (
        None
    )
    deltas: Annotated[
        Literal["incremental", "cumulative", "either"] | None,
        _d("does a delta hold what is new, or all so far? either: seen to do both, each stream is told apart"),
    ] = None
    tools: Annotated[bool | None, _d("can a reply with tool calls be streamed? If not, it is taken whole")] = None
    required: Annotated[bool | None, _d("does it answer only when streaming? Then whole calls are streamed too")] = None
    usage: Annotated[
        Literal["chunk", "last", "choice", "none"] | None,
        _d("where usage comes: a chunk of its own, the last chunk with a choice, inside that choice, nowhere"),
    ] = None


class Recovery(_Base, frozen=True):
    """What is tried where a reply breaks off, or comes empty. A call's `recovery` option wins."""

    steps: Annotated[_FromZero | None, _d("how often a tool loop takes an empty or broken step again")] = None
    streams: Annotated[_FromZero | None, _d("how often a cut stream is asked for again, whole")] = None
    resume: Annotated[bool | None, _d("does a tool loop ask the model, at last, to go on? `resume` has the words")] = (
        None
    )
    cycle: Annotated[_FromOne | None, _d("how many steps a circle of the same calls and results may have")] = None


class ErrorPaths(_Base, frozen=True):
    at: Annotated[list[str] | None, _d("where an error object hides in a body or a chunk, tried in order")] = None
    message: Annotated[list[str] | None, _d("paths to its sentence, tried in order")] = None
    code: Annotated[list[str] | None, _d("paths to its code, tried in order")] = None


class ErrorRule(_Base, frozen=True):
    """Each given key must match; `text`, `pattern` and `code` match when one of theirs does, `unless` when none does.

    Patterns are matched in linear time: they know no look-around and no back-references.
    """

    kind: Annotated[
        Literal["bad-key", "quota", "rate", "overloaded", "context", "filtered", "replay", "bad-request", "other"],
        _d("what such an error is", formerly="is"),
    ]
    status: Annotated[list[int] | None, _d("HTTP statuses")] = None
    code: Annotated[list[str] | None, _d("the endpoint's codes")] = None
    text: Annotated[list[str] | None, _d("pieces of its sentence, in any case")] = None
    pattern: Annotated[list[str] | None, _d("regular expressions that its sentence matches, in any case")] = None
    unless: Annotated[list[str] | None, _d("regular expressions of which its sentence must match none")] = None
    retry: Annotated[bool | None, _d("may the same request succeed later?")] = None


class Refusal(_Base, frozen=True):
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
        _d("what it refuses"),
    ]
    status: Annotated[int, _d("HTTP status")]
    body: Annotated[str, _d("what it answers; {param} {value} {role} {index} {model} {choice} are filled in")]


class Body(_Base, frozen=True):
    set: Annotated[dict[str, Any] | None, _d("a table merged into every body")] = None
    drop: Annotated[list[str] | None, _d("paths taken out of every body")] = None


class Call(_Base, frozen=True):
    """What a `call` table may hold: options that a call has unless it names its own."""

    reasoning: Annotated[
        Literal["off", "on", "minimal", "low", "medium", "high", "xhigh", "max"] | int | None,
        _d("off, on, a level, or a number of tokens"),
    ] = None
    stream: Annotated[bool | None, _d("is it streamed where the verb does not say: `cnllm call`, `plan`?")] = None
    tools: Annotated[list[dict[str, Any]] | None, _d("what is offered")] = None
    tool_choice: Annotated[str | None, _d("auto, none, required, or a tool's name")] = None
    parallel_tool_calls: Annotated[bool | None, _d("may it call several tools at once?")] = None
    temperature: Annotated[float | None, _d("how freely it samples")] = None
    top_p: Annotated[float | None, _d("the share of probability it samples from")] = None
    max_tokens: Annotated[int | None, _d("the most tokens of the reply")] = None
    stop: Annotated[str | list[str] | None, _d("what ends the reply: a text, or a list of them")] = None
    seed: Annotated[int | None, _d("what makes sampling repeatable")] = None
    schema: Annotated[dict[str, Any] | None, _d("the JSON Schema of the answer")] = None
    corrections: Annotated[int | None, _d("how often an answer that is not valid is sent back")] = None
    extra_body: Annotated[dict[str, Any] | None, _d("merged into the body last, below the call's own")] = None
    extra_headers: Annotated[dict[str, str] | None, _d("further headers, below the call's own")] = None
    on_unsupported: Annotated[
        Literal["adjust", "error", "send"] | None, _d("what becomes of what a call asks for and cannot have")
    ] = None
    if_cut: Annotated[Literal["error", "again-whole", "keep"] | None, _d("what becomes of a stream that was cut")] = (
        None
    )
    recover_text_calls: Annotated[
        Literal["recover", "strip", "keep"] | None, _d("what becomes of tool calls written as text")
    ] = None


class Leak(_Base, frozen=True):
    """Markup in which a model may write a tool call as text."""

    open: Annotated[list[str], _d("markers that begin a block, each spelling; a bar stands for every kind of bar")]
    close: Annotated[list[str], _d("markers that end it")]
    format: Annotated[
        list[Literal["json", "invoke", "arg-pairs", "function", "sections", "element"]],
        _d("the grammar of what is between, tried in order"),
    ]
    parts: Annotated[
        list[str] | None,
        _d("the grammar's own words where they differ: invoke and parameter; begin, separator and end"),
    ] = None
    inside: Annotated[Literal["content", "reasoning", "both"], _d("where it is looked for")] = "both"
    then: Annotated[
        Literal["recover", "strip", "keep"], _d("what becomes of it: a call, nothing, or the text it is")
    ] = "recover"
    strict: Annotated[bool, _d("whether all that does not read as a call, with arguments and no more, is text")] = False


class Flags(_Base, frozen=True):
    """What one (endpoint, model, mode) does."""

    title: Annotated[str | None, _d("who answers, in words")] = None
    protocol: Annotated[str | None, _d("the wire protocol spoken unless another is asked for")] = None
    base_url: Annotated[str | None, _d("where the endpoint is")] = None
    path: Annotated[str | None, _d("what follows base_url; {model} is filled in")] = None
    stream_path: Annotated[str | None, _d("the path when streaming, where it differs")] = None
    auth: Annotated[Auth | None, _d("how the key is sent")] = None
    headers: Annotated[dict[str, str] | None, _d("fixed headers")] = None
    keys: Annotated[list[str] | None, _d("environment variables that may hold the key, best first")] = None
    status: Annotated[Status | None, _d("current, preview or retired")] = None
    limits: Annotated[Limits | None, _d("tokens")] = None
    price: Annotated[Price | None, _d("per million tokens")] = None
    input: Annotated[list[str] | None, _d("what it reads: text, image, audio, video, file")] = None
    reasoning: Annotated[Reasoning | None, _d("thinking: how it is asked for, arrives and goes back")] = None
    tool_choice: Annotated[ToolChoice | None, _d("which tool choices it takes")] = None
    tools: Annotated[Tools | None, _d("what it demands of tools")] = None
    params: Annotated[
        dict[str, str | bool | Param] | None,
        _d('each parameter: its path on the wire, false: refused, "ignored": taken and without effect, or a table'),
    ] = None
    messages: Annotated[Messages | None, _d("what it demands of messages")] = None
    schema: Annotated[Schema | None, _d("structured output")] = None
    body: Annotated[Body | None, _d("anything else about the body")] = None
    finish: Annotated[dict[str, str] | None, _d("its words for why a reply ended → ours")] = None
    usage: Annotated[UsagePaths | None, _d("where token counts are")] = None
    stream: Annotated[Stream | None, _d("how its streams behave")] = None
    error: Annotated[ErrorPaths | None, _d("where errors say what")] = None
    errors: Annotated[
        list[ErrorRule] | None, _d("what an error is; a sentence goes before a status, the nearest layer first")
    ] = None
    refusals: Annotated[list[Refusal] | None, _d("the endpoint's own words of refusal, for the simulator")] = None
    leaks: Annotated[
        list[Leak] | None,
        _d("markup in which it may write tool calls as text, beside what lower layers say; [] takes all of it away"),
    ] = None
    fallback: Annotated[
        dict[str, str] | None,
        _d(
            "what is said when an answer was nothing but markup, by the script of the prompt (han, kana, …, other); "
            "{call} is the tool or the command that the model wanted, SCRIPT-unnamed is said where nobody can tell"
        ),
    ] = None
    resume: Annotated[
        dict[str, str] | None,
        _d("what a tool loop says, as the last resort, where a reply keeps breaking off; by script as `fallback`"),
    ] = None
    recovery: Annotated[Recovery | None, _d("what is tried where a reply breaks off, or comes empty")] = None
    call: Annotated[dict[str, Any] | None, _d("default options of a call, by their names")] = None

    def __repr__(self) -> str:  # names alone: a value may be a password
        said = [name for name in self.__struct_fields__ if getattr(self, name) is not None]
        return f"<{type(self).__name__} {', '.join(said)}>"


class Source(_Base, frozen=True):
    """Where facts of the same table come from."""

    url: Annotated[str, _d("a URL, repository:path@commit, or a thread")]
    seen: Annotated[datetime.date, _d("the day it was read")]
    how: Annotated[Literal["docs", "recorded", "code", "issue", "probe", "inferred"], _d("what kind of source it is")]
    backs: Annotated[list[str], _d("the flags of this table that it supports")]
    quote: Annotated[str | None, _d("its own words, in short")] = None


class Table(Flags, frozen=True):
    """A layer of the registry: flags, and what a layer may hold besides."""

    match: Annotated[list[str] | None, _d("families: globs of the ids that belong to it")] = None
    extends: Annotated[str | None, _d("providers, models: another one whose table this one starts from")] = None
    unset: Annotated[list[str] | None, _d("flags to take away after merging")] = None
    on: Annotated[dict[str, dict[str, Any]] | None, _d("flags that hold on one wire protocol only")] = None
    when: Annotated[
        dict[str, dict[str, Any]] | None,
        _d("flags that hold in one mode only, `reasoning+tools`, `no-stream`, …"),
    ] = None
    families: Annotated[
        dict[str, dict[str, Any]] | None, _d("providers: flags of one family as this provider serves it")
    ] = None
    sources: Annotated[dict[str, Source] | None, _d("where the facts of this table come from")] = None


class File(_Base, frozen=True):
    """A whole registry file."""

    schema: Annotated[int | None, _d("version of this format")] = None
    defaults: Annotated[Table | None, _d("what holds when nothing else is said")] = None
    protocols: Annotated[dict[str, Table] | None, _d("the wires")] = None
    families: Annotated[dict[str, Table] | None, _d("what travels with the weights, whoever serves them")] = None
    providers: Annotated[dict[str, Table] | None, _d("who answers")] = None
    models: Annotated[dict[str, Table] | None, _d('models, by "provider/id-on-the-wire"')] = None
    aliases: Annotated[dict[str, str] | None, _d("short names, each of one model")] = None
    tiers: Annotated[dict[str, list[str]] | None, _d("models to choose from for a purpose, best first")] = None
    prefer: Annotated[list[str] | None, _d("providers to take for a short name when they serve it too")] = None
