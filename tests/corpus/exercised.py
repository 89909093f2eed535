"""Which values of the registry the recordings exercise: mutation testing, with the registry as the program.

Every recorded exchange is written and read with its endpoint's own entry. A value is exercised when it does matter
there: were it gone, or another one, some request or reply would not be what it is. An item of a list is exercised also
when it alone does what the list does; that is so where two paths lead to the same number. What only the simulator goes
by (`SHOWN`) is exercised when a recording shows it.

Not asked about is what a recording cannot tell: keys and headers are never in one, and names, prices, limits, what a
model reads and what its default options are do not belong to the dialect.
"""

from __future__ import annotations

import functools
import json
import re
import types
import typing
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import msgspec

from cnllm import CannotSend, Model, Plan, Registry, RegistryError, UnknownModel, engine
from cnllm.protocols import PROTOCOLS
from cnllm.registry.documents import Document
from cnllm.registry.flags import ErrorRule, Flags, Patch, Table
from cnllm.registry.layers import SharedTables

from .corpus import BASE_URL, HOMELESS, PROVIDERS, Exchange, described, exchanges
from .oracle import content_of, frames
from .reading import Outcome, fold, read_stream, read_whole, reply_dict
from .rebuild import asked

NO_DIALECT = {
    *("title", "protocol", "keys", "auth", "headers", "status", "limits", "price", "input", "call"),
    *("weights", "upstream"),
    *({field.encode_name for field in msgspec.structs.fields(Table)} - {*Flags.__struct_fields__}),
}
"""Keys of a table that are no dialect, or are looked into on their own."""

KEYED = ("params", "finish")
"""Tables whose keys are the endpoint's words: a flag each."""

WHOLE = ("reasoning.tags", "tool_choice.allowed")
"""Lists that say one thing."""

PATTERNS = ("tools.call_id_pattern",)
"""Text that stands for other text; a pattern that fits nothing would be no test of it."""

KEPT: Any = object()
GONE: Any = object()
"""In place of a value: what is there, and nothing."""

NEVER = "no-such-thing"
"""In place of a word or a path: what occurs in no recording."""

Path = tuple[str, ...]


# ── what the registry says ───────────────────────────────────────────────────


@dataclass(frozen=True)
class Value:
    """One value that a table sets. If it stands in a list, `among` is that list and `place` where it stands there."""

    table: Path
    path: Path
    value: Any
    kind: Any
    among: tuple[Any, ...] | None = None
    place: int = 0

    @property
    def flag(self) -> str:
        """Its dotted name, with the wire or mode it is for."""
        return ".".join(self.path)

    @property
    def bare(self) -> str:
        """Its dotted name without."""
        return ".".join(_bare(self.path))

    def __str__(self) -> str:
        if self.among is None:
            return self.flag
        if isinstance(self.value, dict):
            told = [_word(v) for k, v in self.value.items() if k not in ("body", "retry")]
            return f"{self.flag}={told[0]}:{'/'.join(told[1:])}"
        return f"{self.flag}={_word(self.value)}"


def _bare(path: Path) -> Path:
    while path and path[0] in ("on", "when"):
        path = path[2:]
    return path


def _word(value: Any) -> str:
    """A value in short, without blanks."""
    if isinstance(value, list):
        value = value[0] if len(value) == 1 else f"{value[0]},…"
    text = str(value).replace(" ", "_").replace("\n", "⏎")
    return text if len(text) <= 40 else f"{text[:39]}…"


def values(document: Document) -> Iterator[Value]:
    """Every value of the dialect that a registry file sets for the wires under test."""
    for section in ("defaults", "protocols", "families", "providers", "models"):
        data = document.data.get(section, {})
        tables: dict[Path, Any] = {(): data} if section == "defaults" else {(name,): data[name] for name in data}
        for name, table in tables.items():
            if section != "protocols" or name[0] in PROTOCOLS:
                yield from _of_table((section, *name), table)


def _of_table(table: Path, data: dict[str, Any]) -> Iterator[Value]:
    yield from _said(table, data, ())
    for name, inner in data.get("families", {}).items():
        yield from _of_table((*table, "families", name), inner)


def _said(table: Path, data: dict[str, Any], prefix: Path) -> Iterator[Value]:
    unset = tuple(data.get("unset", ()))
    for place, path in enumerate(unset):
        if (_bare(tuple(path.split("."))) or ("when",))[0] not in NO_DIALECT:
            yield Value(table, (*prefix, "unset"), path, str, unset, place)
    for condition, inner in data.get("when", {}).items():
        yield from _said(table, inner, (*prefix, "when", condition))
    for wire, inner in data.get("on", {}).items():
        if wire in PROTOCOLS:
            yield from _said(table, inner, (*prefix, "on", wire))
    own = {key: value for key, value in data.items() if key not in NO_DIALECT}
    yield from _leaves(table, prefix, own, Flags)


def _leaves(table: Path, path: Path, value: Any, kind: Any) -> Iterator[Value]:
    kind = _kind(kind, value)
    name = ".".join(_bare(path))
    if isinstance(value, dict) and isinstance(kind, type) and issubclass(kind, msgspec.Struct) and kind is not Patch:
        kinds = {field.encode_name: field.type for field in msgspec.structs.fields(kind)}
        for key, inner in value.items():
            yield from _leaves(table, (*path, key), inner, kinds[key])
    elif isinstance(value, dict) and name in KEYED:
        for key, inner in value.items():
            yield from _leaves(table, (*path, key), inner, typing.get_args(kind)[1])
    elif isinstance(value, list) and value and name not in WHOLE and typing.get_args(kind):
        for place, inner in enumerate(value):
            yield Value(table, path, inner, _kind(typing.get_args(kind)[0], inner), tuple(value), place)
    else:
        yield Value(table, path, value, kind)


def _kind(kind: Any, value: Any) -> Any:
    """The type of a flag without description and None; of several, the one that its value has."""
    while typing.get_origin(kind) is typing.Annotated:
        kind = typing.get_args(kind)[0]
    if typing.get_origin(kind) not in (types.UnionType, typing.Union):
        return kind
    several = [one for one in typing.get_args(kind) if one is not type(None)]
    return _kind(next((one for one in several if _fits(value, one)), several[-1]), value)


def _fits(value: Any, kind: Any) -> bool:
    if typing.get_origin(kind) is typing.Literal:
        return value in typing.get_args(kind) if isinstance(value, str) else False
    return type(value) is kind


# ── the registry with something else in place of a value ─────────────────────


def contrasts(value: Value) -> Iterator[tuple[Any, Any]]:
    """What may stand in place of the flag, in pairs: the value matters where one of a pair acts unlike the other."""
    others = _others(value)
    if value.among is None:
        gone = [] if value.bare == "base_url" else [GONE]  # without an address nothing is sent at all
        yield from ((KEPT, other) for other in [*gone, *others])
        return
    before, after = [*value.among[: value.place]], [*value.among[value.place + 1 :]]
    yield KEPT, [*before, *after]
    if value.kind is ErrorRule:  # another that says the same may come after it
        yield from ((KEPT, [*before, other, *after]) for other in others)
    elif value.path[-1] != "unset":  # another that leads to the same may stand beside it
        yield [value.value], [NEVER] if value.kind is str else []


def _others(value: Value) -> list[Any]:
    """Other values that a flag of its type can have."""
    now, kind = value.value, value.kind
    if typing.get_origin(kind) is typing.Literal:
        return [word for word in typing.get_args(kind) if word != now]
    if kind is ErrorRule:
        return [now | {"kind": "context" if now["kind"] == "bad-key" else "bad-key"}]
    if value.bare == "tool_choice.allowed":
        words = typing.get_args(typing.get_args(kind)[0])
        return [[word for word in words if (word in now) != (word == turned)] for turned in words]
    if value.bare == "reasoning.tags":
        return [[f"<{NEVER}>", f"</{NEVER}>"]] if now else []
    if isinstance(now, bool):
        return [not now]
    return [NEVER] if isinstance(now, str) and value.bare not in PATTERNS else []


def altered(document: Document, keys: Iterable[str], new: Any) -> Document:
    """The file with `new` under these keys. It knows no lines: to look them up takes longer than all the rest."""
    return Document(document.path, document.label, b"", _with(document.data, [*keys], new), builtin=True)


def _with(table: Mapping[str, Any], keys: list[str], new: Any) -> dict[str, Any]:
    head, rest = keys[0], keys[1:]
    out = dict(table)
    out[head] = _with(table.get(head, {}), rest, new) if rest else new
    if out[head] is GONE:
        del out[head]
    return out


# ── what comes of the recordings ─────────────────────────────────────────────

MORE = {"zhipu": ("zai-coding-plan",)}
"""Further endpoints that were recorded. What they do is what those of `PROVIDERS` do, with which all tests read."""


class Replay:
    """One exchange, as its endpoint's own entry has it written and read."""

    def __init__(self, exchange: Exchange, provider: str) -> None:
        self.exchange = exchange
        self.name = f"{provider}/{exchange.model}"
        self._base_url = BASE_URL if provider in HOMELESS else None
        self._asked: tuple[list[Any], dict[str, Any]] | None = None
        self._address = (exchange.request or {}).get("url", "").partition("?")[0]
        self._cut = exchange.content[: exchange.content.rstrip().rfind(b"\n\n") + 2]

    def tables(self, registry: Registry) -> set[Path]:
        """The tables that its model's entry is made of."""
        provider, _, id = self.name.partition("/")
        wire = self.exchange.protocol
        own = registry._layers.model_layers(registry._layers.extends_chain("models", f"{provider}/{id}"), wire)
        paths = [
            layer.path
            for layer in (
                *registry._layers.provider_layers(SharedTables(provider, registry._layers.family(id), wire)),
                *own,
            )
        ]
        return {path[:-2] if path[-2:-1] == ("on",) else path for path in paths}

    def outcome(self, registry: Registry) -> Any:
        """The body and whether it goes where it went; the reply, and what is left of it without its last frame."""
        try:
            model = registry.resolve(self.name, protocol=self.exchange.protocol, base_url=self._base_url)
        except (UnknownModel, RegistryError) as error:  # without its path an endpoint does not speak that wire
            return str(error)
        plan, wrote = self._written(model)
        return wrote, [_told(read) for read in self._read(model, plan)]

    def _written(self, model: Model) -> tuple[Plan | None, Any]:
        if self.exchange.sent is None:
            return None, None
        if self._asked is None:
            try:
                self._asked = asked(self.exchange, model)
            except ValueError as error:  # it was not taken either
                return None, str(error)
        messages, options = self._asked
        try:
            plan = engine.build_request(model, messages, stream=self.exchange.stream, **options)
        except CannotSend as error:
            return None, error.note
        return plan, (plan.content, plan.url.partition("?")[0] == self._address, plan.stream, plan.renamed)

    def _read(self, model: Model, plan: Plan | None) -> Iterator[Outcome]:
        exchange = self.exchange
        if not exchange.stream:
            yield read_whole(model, exchange, plan)
            return
        yield read_stream(model, exchange, [exchange.content], plan)
        yield read_stream(model, exchange, [self._cut], plan)


def _told(outcome: Outcome) -> Any:
    error = outcome.error
    failed = (type(error), str(error), getattr(error, "code", None), getattr(error, "retryable", None))
    return failed, fold(outcome.events), outcome.reply and reply_dict(outcome.reply)


# ── what the recordings exercise ─────────────────────────────────────────────

SHARED = ("defaults", "protocols", "families")


class Exercise:
    """A registry file, held against the recordings."""

    def __init__(self, document: Document) -> None:
        parts = document.data.items()
        data = {key: dict(part) if isinstance(part, Mapping) else part for key, part in parts}  # all tables at hand
        self._document = Document(document.path, document.label, b"", data, builtin=True)
        self._registry = Registry([self._document])
        self._outcomes: dict[Replay, Any] = {}

    @functools.cached_property
    def values(self) -> dict[str, list[Value]]:
        """The values of each section: the shared ones, and every provider with its models."""
        found: dict[str, list[Value]] = {name: [] for name in (*SHARED, *self._registry.providers)}
        for value in values(self._document):
            found[value.table[0] if value.table[0] in SHARED else value.table[1].partition("/")[0]].append(value)
        return found

    @functools.cached_property
    def replays(self) -> dict[Path, list[Replay]]:
        """What speaks for each table: the exchanges whose entries are made of it, the shortest first, each once."""
        found: dict[Path, list[Replay]] = {}
        spoken_here = (one for one in exchanges() if one.protocol in PROTOCOLS)
        for exchange in sorted(spoken_here, key=lambda one: (len(one.body), one.id)):
            spoken: set[Path] = set()
            for provider in (*PROVIDERS.get(exchange.folder, ()), *MORE.get(exchange.folder, ())):
                if not described(provider, exchange.protocol):
                    continue
                replay = Replay(exchange, provider)
                for table in replay.tables(self._registry) - spoken:
                    found.setdefault(table, []).append(replay)
                    spoken.add(table)
        return found

    def exercised(self, value: Value) -> bool:
        """Does a recording exercise it?"""
        replays = self.replays.get(value.table, [])
        if value.bare in SHOWN:
            return any(SHOWN[value.bare](value.value, replay.exchange) for replay in replays)
        for one, other in contrasts(value):
            first, second = self._altered(value, one), self._altered(value, other)
            if any(self._outcome(replay, first) != self._outcome(replay, second) for replay in replays):
                return True
        return False

    def _altered(self, value: Value, new: Any) -> Registry:
        if new is KEPT:
            return self._registry
        return Registry([altered(self._document, [*value.table, *value.path], new)])

    def _outcome(self, replay: Replay, registry: Registry) -> Any:
        if registry is not self._registry:
            return replay.outcome(registry)
        if replay not in self._outcomes:
            self._outcomes[replay] = replay.outcome(registry)
        return self._outcomes[replay]


def _shows_refusal(refusal: dict[str, Any], exchange: Exchange) -> bool:
    """Is that how the endpoint worded it?"""
    words = re.sub(r"\\\{[a-z]+\\\}", ".*", re.escape(_ordered(refusal["body"])))
    same = re.fullmatch(words, _ordered(exchange.body), re.DOTALL)
    return exchange.status == refusal["status"] and same is not None


def _ordered(body: str) -> str:
    """JSON with its keys in order, as some recordings have it; other text as it is."""
    try:
        return json.dumps(json.loads(body), sort_keys=True)
    except ValueError:
        return body


def _shows_place(place: str, exchange: Exchange) -> bool:
    """Does the usage of this stream come there?"""
    read = exchange.protocol == "openai-chat" and exchange.stream and exchange.expected is not None
    return read and place == _place_of_usage(frames(exchange.content))


def _place_of_usage(parts: Iterable[dict[str, Any]]) -> str:
    found = "none"
    for part in parts:
        choices = part.get("choices") or []
        if part.get("usage"):
            found = "last" if choices else "chunk"
        elif any(choice.get("usage") for choice in choices):
            found = "choice"
    return found


def _shows_shape(shape: str, exchange: Exchange) -> bool:
    """Does reasoning arrive in this shape?"""
    answers = frames(exchange.content) if exchange.stream else [json.loads(exchange.body)] if exchange.accepted else []
    choices = [choice for answer in answers for choice in answer.get("choices") or []]
    return shape in {_shape_of(choice.get("delta") or choice.get("message") or {}) for choice in choices}


def _shape_of(message: dict[str, Any]) -> str:
    if message.get("reasoning_content") or message.get("reasoning"):
        return "field"
    return "details" if message.get("reasoning_details") else "content-parts" if content_of(message, "thinking") else ""


def _shows_object(one: bool, exchange: Exchange) -> bool:
    """Were arguments sent as a JSON object, and taken (or not)?"""
    messages = (exchange.sent or {}).get("messages", [])
    calls = [call for message in messages for call in message.get("tool_calls") or []]
    return one == exchange.accepted and any(isinstance(call["function"].get("arguments"), dict) for call in calls)


SHOWN: Mapping[str, Callable[[Any, Exchange], bool]] = {
    "reasoning.shape": _shows_shape,
    "simulator.refusals": _shows_refusal,
    "simulator.stream_usage": _shows_place,
    "simulator.object_arguments": _shows_object,
}
"""Flags that a reading does not go by, and whether an exchange shows such a value."""


# ── the report ───────────────────────────────────────────────────────────────


def block(exercise: Exercise, section: str) -> str:
    """How much of a section is exercised, and line by line what is not; how often, where models have the same."""
    found = exercise.values[section]
    missing = [value for value in found if not exercise.exercised(value)]
    lines: dict[str, Counter[str]] = {}
    for value in missing:
        head = value.bare.partition(".")[0]
        word = str(value).removeprefix(head).lstrip(".=") or head
        lines.setdefault(f"{_place(exercise, value)}{head}", Counter())[word] += 1
    told = [f"  {label}: {' '.join(_times(*word) for word in sorted(lines[label].items()))}" for label in sorted(lines)]
    return "\n".join([f"{section}: {len(found) - len(missing)} of {len(found)}", *told])


def _place(exercise: Exercise, value: Value) -> str:
    """Where in its section a value stands."""
    match value.table:
        case ("families", name) | ("providers", _, "families", name):
            return f"families.{name} "
        case ("models", *_):
            return "models " if value.table in exercise.replays else "models not recorded "
    return ""


def _times(word: str, count: int) -> str:
    return f"{word} ×{count}" if count > 1 else word
