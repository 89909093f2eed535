"""Build the document that holds the registry for other programs: tables that are stated once, models as differences.

A table has `facts` by flag, and under `without` the flags of the tables below it that do not hold. A model over a wire
is its wire, its family, its provider on that wire, the provider's part for the family, and its own table, one over the
other. What no table has is unknown.
"""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import Any, Literal

import msgspec
from msgspec import UNSET, Struct, UnsetType, field
from msgspec.structs import fields, replace

from cnllm._version import VERSION
from cnllm.model_facts.capabilities import capabilities
from cnllm.registry.files import packaged_text
from cnllm.registry.flags import Flags, flag_texts, inner_table, walk_flags
from cnllm.registry.model import Fact, Model
from cnllm.registry.registry import Registry
from cnllm.registry_files.schema import tidy

__all__ = ["ExportDocument", "build_document", "document_schema", "encode_document", "licenses", "value_reference"]

FORMAT = "1.0.0"  # semantic: a reader of 1.x reads every 1.y
UNKNOWN: Literal["unknown"] = "unknown"
_DEFAULT = "default"
_LONG = 200  # bytes: a longer value stands once
_UNLISTED = "unlisted"  # an id that no provider has: it gets what a provider says of every model
_EVERY_MODEL = ("limits.context", "limits.output", "price.input", "price.output", "input")


class ExportFact(Struct, frozen=True, eq=False, omit_defaults=True):
    """A value, or "unknown", and the name of its source. `rounded`: the source has a more exact value.

    A long value stands once, under `values`; then `ref` is its name, and there is no `value`.
    """

    source: str
    value: Any = UNSET
    ref: str | UnsetType = UNSET
    rounded: bool = False


class ExportSource(Struct, frozen=True):
    """A source: where facts were read, when, and how, or "unknown". How "default": cnllm's own assumption."""

    url: str
    seen: str
    how: str


class FlagInfo(Struct, frozen=True):
    """A flag: its value where no table has it, its meaning, why it exists, and the JSON Schema of a known value."""

    value: Literal["unknown"]
    meaning: str
    reason: str
    schema: dict[str, Any]


class FactTable(Struct, frozen=True, omit_defaults=True, kw_only=True):
    """A table: facts by flag, and the flags of the tables below it that do not hold."""

    facts: dict[str, ExportFact]
    without: list[str] = []


class Family(FactTable, frozen=True, kw_only=True):
    """A family: what belongs to its weights, on every server. `match`: patterns of the ids."""

    match: list[str]


class WirePart(FactTable, frozen=True, omit_defaults=True, kw_only=True):
    """A provider on one wire, with a part for each family that it serves in its own way."""

    families: dict[str, FactTable] = {}


class Provider(Struct, frozen=True):
    """A provider. `described`: somebody has described how it behaves; otherwise all comes from a public list."""

    title: str
    described: bool
    wires: dict[str, WirePart]


class ExportModel(FactTable, frozen=True, omit_defaults=True, kw_only=True):
    """A model: its difference on its own wire, and in `wires` that on others. `can` is derived from the facts."""

    provider: str
    id: str
    wire: str
    family: str
    status: Literal["current", "preview", "retired", "unknown"]
    described: bool
    can: dict[str, bool | Literal["unknown"]]
    wires: dict[str, FactTable] = {}


class ExportDocument(Struct, frozen=True, kw_only=True):
    """The registry. `format` is the version of this form; `version` that of cnllm, with a digest of the data."""

    schema_file: str = field(name="$schema", default="registry-export.schema.json")
    format: str = FORMAT
    version: str
    read: str
    """The last day on which a source was read."""
    licenses: dict[str, str]
    sources: dict[str, ExportSource]
    values: dict[str, Any]
    flags: dict[str, FlagInfo]
    wires: dict[str, FactTable]
    families: dict[str, Family]
    providers: dict[str, Provider]
    models: dict[str, ExportModel]
    aliases: dict[str, str]


def licenses() -> dict[str, str]:
    """Return the licence, and where the data come from: they go with every copy."""
    return {name: packaged_text(name) for name in ("LICENSE", "DATA_SOURCES.md")}


def document_schema() -> dict[str, Any]:
    """Return the JSON Schema of the document."""
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", **tidy(msgspec.json.schema(ExportDocument))}


def value_reference(document: ExportDocument, value: Any) -> str | None:
    """Return the name of a long value among those of the document; None for any other."""
    name = _name(_text(value))
    return name if name in document.values else None


def encode_document(document: ExportDocument) -> bytes:
    """Return the document as JSON: keys in order, and a line for each entry, so that two versions can be compared."""
    parts: list[bytes] = []
    for member in fields(ExportDocument):
        value = getattr(document, member.name)
        text = _text(value)
        if isinstance(value, dict):
            text = b"{\n" + b",\n".join(_text(key) + b":" + _text(value[key]) for key in sorted(value)) + b"\n}"
        parts.append(_text(member.encode_name) + b":" + text)
    return b"{\n" + b",\n".join(parts) + b"\n}\n"


def build_document(registry: Registry, *, catalogue: bool = False, providers: Collection[str] = ()) -> ExportDocument:
    """Return the document of a registry, with the catalogue if that is asked for, of these providers or of all."""
    tables = _Tables()
    described, names = set(registry.names()), registry.names(catalogue=catalogue)
    origins = dict.fromkeys(registry.providers, True)
    origins |= dict.fromkeys(registry.catalogue_providers() if catalogue else (), False)
    if providers:
        origins = {name: origins[name] for name in origins if name in providers}
        names = [name for name in names if name.partition("/")[0] in origins]
    unlisted = {name: _rows(registry, tables, f"{name}/{_UNLISTED}") for name in origins}
    models = {name: _rows(registry, tables, name) for name in names}
    # a model may have a wire of its own, which its provider does not have for others
    endpoints = {(model.provider, wire): FactTable(facts={}) for model, rows in models.values() for wire in rows}
    for name, (_, rows) in unlisted.items():
        endpoints |= {(name, wire): tables.difference(tables.wires[wire], wire, row) for wire, row in rows.items()}
    shared: dict[tuple[str, str, str], tuple[FactTable, dict[str, ExportFact]]] = {}

    def own_part(model: Model, family: str, wire: str, row: _ModelRow) -> FactTable:
        key = (model.provider, wire, family)
        if key not in shared:
            under = {**tables.wires[wire], **tables.families.get(family, {})}
            under = _over(under, endpoints[model.provider, wire])
            facts = {flag: fact for flag, fact in tables.parts.get(key, {}).items() if under.get(flag) is not fact}
            shared[key] = FactTable(facts=dict(sorted(facts.items()))), {**under, **facts}
        return tables.difference(shared[key][1], wire, row)

    out: dict[str, ExportModel] = {}
    for name, (model, rows) in models.items():
        family = registry.family(model.id) or UNKNOWN
        parts = {wire: own_part(model, family, wire, row) for wire, row in rows.items()}
        own = parts.pop(model.protocol)
        flags = rows[model.protocol].flags
        missing = [flag for flag in _EVERY_MODEL if not any(f == flag or f.startswith(f"{flag}.") for f in flags)]
        status = model.flags.status
        out[name] = ExportModel(
            provider=model.provider,
            id=model.id,
            wire=model.protocol,
            family=family,
            status=status.is_ if status is not None and status.is_ is not None else "unknown",
            described=name in described,
            can={k: UNKNOWN if c.value is None else c.value for k, c in capabilities(model, ()).items()},
            facts=dict(sorted({**own.facts, **dict.fromkeys(missing, tables.unknown)}.items())),
            without=own.without,
            wires=parts,
        )
    document = ExportDocument(
        version=VERSION,
        read=max((source.seen for source in tables.sources.values() if source.seen != UNKNOWN), default=UNKNOWN),
        licenses=licenses(),
        sources=tables.sources,
        values=tables.values,
        flags=dict(_vocabulary(registry)),
        wires={wire: FactTable(facts=facts) for wire, facts in tables.wires.items()},
        families={
            name: Family(match=patterns, facts=tables.families.get(name, {}))
            for name, patterns in registry.families.items()
        },
        providers={
            name: Provider(
                title=unlisted[name][0].flags.title or name,
                described=described,
                wires={
                    wire: WirePart(
                        facts=endpoints[name, wire].facts,
                        without=endpoints[name, wire].without,
                        families={
                            k[2]: part for k, (part, _) in shared.items() if k[:2] == (name, wire) and part.facts
                        },
                    )
                    for provider, wire in sorted(endpoints)
                    if provider == name
                },
            )
            for name, described in origins.items()
        },
        models=out,
        aliases={
            alias: name
            for alias, name in (registry.family_aliases | registry.aliases).items()
            if name.partition("/")[0] in origins
        },
    )
    digest = hashlib.blake2b(encode_document(document), digest_size=4).hexdigest()
    return replace(document, version=f"{VERSION}+{digest}")


_text = msgspec.json.Encoder(order="deterministic").encode  # equal values have equal bytes


class _ModelRow(Struct, frozen=True):
    """A model over one wire: its facts that are not those of the wire, and the flags of all."""

    facts: dict[str, ExportFact]
    flags: frozenset[str]


class _Tables:
    """The shared tables, filled while models are read. Equal facts are one object."""

    def __init__(self) -> None:
        self.wires: dict[str, dict[str, ExportFact]] = {}
        self.families: dict[str, dict[str, ExportFact]] = {}
        self.parts: dict[tuple[str, str, str], dict[str, ExportFact]] = {}
        self.sources = {name: ExportSource(UNKNOWN, UNKNOWN, name) for name in (UNKNOWN, _DEFAULT)}
        self.values: dict[str, Any] = {}
        self.unknown = ExportFact(UNKNOWN, UNKNOWN)
        self._facts: dict[tuple[bytes, str, bool], ExportFact] = {}
        self._texts: dict[int, tuple[Any, bytes]] = {}
        self._names: dict[tuple[str | None, ...], str] = {}
        self._flags: dict[frozenset[str], frozenset[str]] = {}

    def row(self, provider: str, family: str, wire: str, facts: Iterable[Fact]) -> _ModelRow:
        """Return the row of a model, and take up what belongs to its wire, its family or its provider."""
        own: dict[str, ExportFact] = {}
        flags: list[str] = []
        base = self.wires.setdefault(wire, {})
        for entry in facts:
            flag, layer = entry.flag, entry.layer
            flags.append(flag)
            fact = self._fact(entry)
            if layer == "defaults" or layer.startswith("protocols."):
                if base.setdefault(flag, fact) is fact:
                    continue
            elif layer.startswith("families."):
                self.families.setdefault(family, {}).setdefault(flag, fact)
            elif layer.startswith("providers."):
                self.parts.setdefault((provider, wire, family), {}).setdefault(flag, fact)
            own[flag] = fact
        known = frozenset(flags)
        return _ModelRow(own, self._flags.setdefault(known, known))

    def difference(self, under: Mapping[str, ExportFact], wire: str, row: _ModelRow) -> FactTable:
        """Return the table that makes the row of `under`."""
        base = self.wires[wire]
        facts = ((flag, row.facts.get(flag) or base[flag]) for flag in sorted(row.flags))
        own = {flag: fact for flag, fact in facts if under.get(flag) is not fact}
        return FactTable(facts=own, without=sorted(under.keys() - row.flags))

    def _fact(self, entry: Fact) -> ExportFact:
        value = entry.value
        known = self._texts.get(id(value))
        if known is None:  # with the value, which keeps its id
            known = self._texts[id(value)] = value, _text(value)
        key = (known[1], self._source(entry), entry.rounded)
        fact = self._facts.get(key)
        if fact is None:
            ref: str | UnsetType = UNSET
            if len(known[1]) > _LONG:
                ref = _name(known[1])
                self.values[ref], value = value, UNSET
            fact = self._facts[key] = ExportFact(key[1], value, ref, entry.rounded)
        return fact

    def _source(self, entry: Fact) -> str:
        key = (entry.source, entry.seen, entry.how)
        name = self._names.get(key)
        if name is None:
            if entry.source is None:
                return _DEFAULT if entry.layer == "defaults" else UNKNOWN
            source = ExportSource(entry.source, entry.seen or UNKNOWN, entry.how or UNKNOWN)
            name = self._names[key] = _name(_text(source))
            self.sources[name] = source
        return name


def _name(content: bytes) -> str:
    """Return a name for a content, which stays the same while others come and go."""
    return hashlib.blake2b(content, digest_size=5).hexdigest()


def _rows(registry: Registry, tables: _Tables, name: str) -> tuple[Model, dict[str, _ModelRow]]:
    """Return a model, and its rows by wire, its own first."""
    model = registry.resolve(name)
    family = registry.family(model.id) or UNKNOWN
    over = {wire: registry.resolve(name, protocol=wire) for wire in registry.wires(name)[1:]}
    return model, {
        wire: tables.row(model.provider, family, wire, one.explain())
        for wire, one in {model.protocol: model, **over}.items()
    }


def _over(under: Mapping[str, ExportFact], part: FactTable) -> dict[str, ExportFact]:
    """Return the facts of a table over those below it."""
    return {**{flag: fact for flag, fact in under.items() if flag not in part.without}, **part.facts}


def _vocabulary(registry: Registry) -> Iterator[tuple[str, FlagInfo]]:
    """Yield every flag that the registry can know, and each parameter that it has a rule for."""
    for name, table, member in walk_flags(Flags):
        schema = _plain(tidy(msgspec.json.schema(member.type, schema_hook=lambda kind: {})))
        if schema == {"type": "object"} and inner_table(member.type) is not None:
            continue
        flag = FlagInfo(UNKNOWN, *flag_texts(table).get(member.encode_name, ("", "")), schema)
        yield name, flag
        if name == "params":
            for parameter in sorted(registry.parameters()):
                yield f"params.{parameter}", replace(flag, schema=schema.get("additionalProperties", {}))


def _plain(schema: Any) -> Any:
    """Return a tidy schema without descriptions and the members of a table."""
    if isinstance(schema, list):
        return [_plain(one) for one in schema]
    if not isinstance(schema, dict):
        return schema
    if "$ref" in schema:
        return {"type": "object"}
    return {key: _plain(one) for key, one in schema.items() if key not in ("description", "$defs", "default")}
