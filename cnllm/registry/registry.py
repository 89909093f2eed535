"""Resolve names to models, from the loaded registry files."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from threading import RLock
from typing import Any

import msgspec

from cnllm.errors import CnllmError, RegistryError, UnknownModel
from cnllm.fork import cached_property, fork_safe
from cnllm.registry import data_layer, key_trust, merge, provenance
from cnllm.registry.documents import (
    CATALOGUE,
    Document,
    builtin_path,
    catalogue_path,
    data_paths,
    layer_tables,
    overlay_paths,
    read,
)
from cnllm.registry.flags import Flags
from cnllm.registry.layers import Layers
from cnllm.registry.merge import Layer
from cnllm.registry.model import Model
from cnllm.registry.routing import path_problem
from cnllm.types import Note, checks

__all__ = ["Registry", "resolve_model"]

_MOST_MODELS = 2048  # that are kept: a program may make names up


class Registry:
    """The loaded registry files, the built-in one first."""

    def __init__(
        self, documents: list[Document], *, overlays: Sequence[Path] | None = None, watch: bool = False
    ) -> None:
        documents = checks.as_list("documents", documents, "a list of registry files, as Registry.load reads them,")
        for document in documents:
            checks.require_type(
                "documents", document, Document, "a list of registry files, as Registry.load reads them,"
            )
        self._overlays = overlays  # None: the user's files, found anew at each reload
        self._watch = watch
        self._file_stamps: tuple[tuple[str, int, int], ...] = ()
        self._lock = fork_safe(RLock())  # no thread may store results of old files beside new ones
        self._set_documents(documents)

    def _set_documents(self, documents: list[Document]) -> None:
        """Use these files from now on, and drop everything that was computed from others."""
        self._documents = documents
        self._models: dict[tuple[str, str | None, str | None], Model] = {}
        self._layers = Layers(data_layer.documents_in_force(documents))
        self._data_version = data_layer.DataVersion(documents)
        self._key_origins: dict[str, set[str] | None] = {}  # by the name of a key
        self._wide: Registry | None = None  # over the catalogue too, once that was needed
        for name in [key for key, value in vars(Registry).items() if isinstance(value, cached_property)]:
            self.__dict__.pop(name, None)

    def _with_catalogue(self) -> Registry:
        """Return a registry over the catalogue and these files, which win; this one where it has no built-in file."""
        if not self._documents or self._documents[0].path.name != builtin_path().name or not self._documents[0].builtin:
            return self
        with self._lock:
            if self._wide is None:
                self._wide = Registry([read(catalogue_path(), builtin=True), *self._documents])
            return self._wide

    @staticmethod
    def load(*overlays: str | os.PathLike[str], watch: bool = False) -> Registry:
        """Read the built-in file with the data files and the user's overlays, or with the given ones instead.

        Later files override earlier ones. With `watch` an edited overlay is read again at the next use of the registry;
        otherwise `reload` reads it. Raises `RegistryError` (file, line) when a file is missing, is not TOML, or holds a
        value that no flag can have.
        """
        for path in overlays:
            checks.require_path("overlays: a path", path)
        checks.require_type("watch", watch, bool, "True or False")
        paths = [Path(p) for p in overlays] if overlays else None
        registry = Registry([], overlays=paths, watch=watch)
        registry.reload()
        return registry

    def reload(self) -> None:
        """Read the files again, for models resolved from now on. If a file has a fault, the old files stay.

        Raises `RegistryError` as `load` does.
        """
        stamps = self._current_stamps() if self._watch else ()  # before reading: a later edit is noticed next time
        documents = _read_all(self._overlays)
        with self._lock:
            self._set_documents(documents)
            self._file_stamps = stamps

    def _refresh(self) -> None:
        """Read the files again after an edit, if `watch` is set."""
        if self._watch and self._current_stamps() != self._file_stamps:
            self.reload()

    def _current_stamps(self) -> tuple[tuple[str, int, int], ...]:
        """Return the times and sizes of the overlays, which an edit changes."""
        paths = [*data_paths(), *overlay_paths()] if self._overlays is None else self._overlays
        stats = ((str(p), p.stat()) for p in paths if p.exists())
        return tuple((name, stat.st_mtime_ns, stat.st_size) for name, stat in stats)

    # ── names and sections ───────────────────────────────────────────────────

    @property
    def files(self) -> list[str]:
        """List the paths of the loaded files, the built-in one first."""
        self._refresh()
        return [str(d.path) for d in self._documents]

    @property
    def version(self) -> str:
        """Return the version of the data: the package's with a hash of its file, and the data files on top of it."""
        self._refresh()
        return self._data_version.text

    @property
    def documents(self) -> tuple[Document, ...]:
        """Return the loaded files, the built-in one first."""
        self._refresh()
        return tuple(self._documents)

    def corrections(self, model: str) -> dict[str, Any]:
        """Return the values of public lists that a model's table says are wrong, by flag; `model` is "provider/id"."""
        found: dict[str, Any] = {}
        for document in self._documents:
            found.update(document.data.get("models", {}).get(model, {}).get("corrects", {}))
        return found

    def contents(self) -> list[bytes]:
        """Return the content of the loaded files as it was read, the built-in one first."""
        return [document.text for document in self._documents]

    @property
    def providers(self) -> list[str]:
        """List the ids of all providers, sorted."""
        self._refresh()
        return sorted(self._layers.names("providers"))

    @property
    def aliases(self) -> dict[str, str]:
        """Return the aliases with their "provider/id"."""
        self._refresh()
        return self._layers.section("aliases")

    @property
    def family_aliases(self) -> dict[str, str]:
        """Return the names of families with the "provider/id" of the model that each stands for."""
        self._refresh()
        return self._layers.section("family_aliases")

    @property
    def default_models(self) -> list[str]:
        """List the models for calls that name none: the first one that has a key is asked."""
        self._refresh()
        lists = (d.data["default_models"] for d in reversed(self._documents) if "default_models" in d.data)
        return list(next(lists, ()))

    def parameters(self) -> set[str]:
        """Return the names of the parameters that the files have rules for, whatever the layer."""
        self._refresh()
        names: set[str] = set()
        for document in self._documents:
            for _, table in layer_tables(document.data):
                names.update(table.get("params", ()))
                for flags in table.get("when", {}).values():
                    names.update(flags.get("params", ()))
        return names

    def flag_tables(self, protocol: str) -> Iterator[dict[str, Any]]:
        """Yield the tables of all layers that describe endpoints on one wire, without those of the catalogue."""
        self._refresh()
        for document in self._documents:
            providers = document.data.get("providers", {})
            for path, table in layer_tables(document.data):
                if path[-2:-1] == ["on"]:
                    wire = path[-1]
                elif path[0] == "protocols":
                    wire = path[1]
                else:
                    owner = providers.get(path[1].partition("/")[0], {}) if len(path) > 1 else {}
                    wire = owner.get("protocol") or "openai-chat"
                if wire == protocol:
                    yield table
                    yield from table.get("when", {}).values()

    def own_models(self) -> list[str]:
        """List the models that the user's own files describe, as "provider/id", in the order of the files."""
        self._refresh()
        own = (name for d in self._documents if not (d.builtin or d.is_data) for name in d.data.get("models", {}))
        return list(dict.fromkeys(own))

    def names(self, *, catalogue: bool = False) -> list[str]:
        """List all described models as "provider/id", sorted. With `catalogue` also those of which little is known."""
        self._refresh()
        return sorted((self._with_catalogue() if catalogue else self)._layers.names("models"))

    def catalogue_providers(self) -> list[str]:
        """List the ids of the providers that only the catalogue has, sorted."""
        self._refresh()
        return sorted(self._with_catalogue()._layers.names("providers").keys() - self._layers.names("providers").keys())

    @property
    def tiers(self) -> dict[str, list[str]]:
        """Return the tiers: ordered lists of models for a purpose, such as "fast", best first."""
        self._refresh()
        return self._layers.section("tiers")

    @property
    def gateway_models(self) -> dict[str, str]:
        """Return the names and patterns of a gateway's clients, with the model that each stands for."""
        self._refresh()
        models: dict[str, str] = {}
        for document in self._documents:
            models.update(document.data.get("gateway", {}).get("models", {}))
        return models

    @property
    def gateway_routes(self) -> dict[str, dict[str, Any]]:
        """Return the names of a gateway's clients that stand for several models, with the table of each."""
        self._refresh()
        routes: dict[str, dict[str, Any]] = {}
        for document in self._documents:
            routes.update(document.data.get("gateway", {}).get("routes", {}))
        return routes

    def complete(self, prefix: str) -> list[str]:
        """List the names, aliases and family aliases that begin with `prefix`, those of the catalogue too."""
        checks.require_text("prefix", prefix)
        names = {**self.aliases, **self.family_aliases, **dict.fromkeys(self.names(catalogue=True))}
        return sorted(name for name in names if name.startswith(prefix))

    def family(self, id: str) -> str | None:
        """Return the family of the model with an id on the wire; None where it belongs to none."""
        return self._layers.family(_text("id", id))

    # ── resolution ───────────────────────────────────────────────────────────

    def resolve(
        self, name: str, *, protocol: str | None = None, base_url: str | None = None, suggest: bool = True
    ) -> Model:
        """Return the model with a name: an alias, an id that one provider serves, or "provider/id-on-the-wire".

        `protocol` selects another wire of the endpoint, `base_url` another address. Reads no environment variable. A
        name that the built-in file does not have is looked up in the catalogue, which is read then; these files win
        over it. Raises `UnknownModel`, with similar names if `suggest` is true: to find them takes long. An id that its
        provider does not list gives a note.
        """
        self._refresh()
        if type(name) is not str or protocol is not None or base_url is not None:
            name, protocol, base_url = _text("name", name), _option("protocol", protocol), _option("base_url", base_url)
        key = (name, protocol, base_url)
        model = self._models.get(key)
        if model is None:
            with self._lock:
                model = self._find_model(name, protocol, base_url, suggest)
                if len(self._models) >= _MOST_MODELS:
                    self._models.clear()
                self._models[key] = model
        return model

    def _find_model(self, name: str, protocol: str | None, base_url: str | None, suggest: bool) -> Model:
        """Build the model with a name, over the catalogue where the other files do not describe it."""
        if "/" in name and self._is_catalogued(name):
            return self._with_catalogue()._resolve(name, protocol, base_url, suggest)
        model: Model | None = None
        failure: CnllmError | None = None
        try:
            model = self._resolve(name, protocol, base_url, suggest)
        except (RegistryError, UnknownModel) as error:
            if self._serving(name):
                raise
            failure = error.with_traceback(None)  # it would hold this frame, which holds the error
        if model is not None and (base_url is not None or self._is_described(model)):
            return model  # what the catalogue says of a provider does not hold at another address
        wide = self._with_catalogue()
        if model is not None:
            is_listed = model.name in wide._layers.names("models")
            return wide._resolve(name, protocol, base_url, suggest) if is_listed else model
        assert failure is not None
        if wide is self:
            raise failure
        try:
            return wide._resolve(name, protocol, base_url, suggest)
        except (RegistryError, UnknownModel) as error:
            is_better = wide._serving(name) or (isinstance(failure, UnknownModel) and not failure.close)
            raise (error if is_better else failure) from None

    def _is_described(self, model: Model) -> bool:
        """Whether the catalogue adds nothing: the built-in file has the model, or a user's file has its limits."""
        builtin = self._documents[0].data
        if model.name in builtin.get("models", {}):
            return True  # the catalogue leaves these out
        if model.name not in self._layers.names("models"):
            return False
        if model.provider in builtin.get("providers", {}):  # the catalogue may have what the user's file lacks
            return model.flags.limits is not None and model.flags.price is not None
        return model.flags.limits is not None or model.flags.price is not None

    def _is_catalogued(self, name: str) -> bool:
        """Whether a name is a model of a provider that only the catalogue has."""
        provider = _split(name)[0]
        if _registry_spelling(self._layers.names("providers"), provider) is not None:
            return False
        if any(name.casefold() in aliases for aliases in self._spellings["aliases"]):
            return False
        return provider in self._with_catalogue()._layers.names("providers")

    def _resolve(self, name: str, protocol: str | None, base_url: str | None, suggest: bool) -> Model:
        """Build the model with a name."""
        provider, id, alias = self._locate(name, suggest)
        family = self._layers.family(id)
        lineage = self._layers.extends_chain("models", f"{provider}/{id}")
        model_layers = self._layers.model_layers(lineage, None)
        shared_layers = self._layers.provider_layers(provider, family, None)
        own_layers = layers = [*shared_layers, *model_layers]
        own_protocol = _declared_protocol(layers)
        wire = protocol or own_protocol
        if not isinstance(wire, str):
            raise self._layers.error(["providers", provider], f"providers.{provider} names no protocol")
        if wire == own_protocol and wire not in self._layers.names("protocols"):
            raise self._unknown_protocol(wire, layers)
        self._require_protocol(provider, wire, own_protocol)
        # a model may name another protocol than its provider, whose tables are then about another wire
        foreign = wire != (_declared_protocol(shared_layers) or own_protocol)
        if wire != own_protocol or any("on" in layer.table for layer in model_layers):
            model_layers = self._layers.model_layers(lineage, wire, wire != own_protocol)
        layers = [*self._layers.provider_layers(provider, family, wire, foreign), *model_layers]
        # how a wire's batches look says nothing of an endpoint that is not known to offer any
        not_of_wire = frozenset() if merge.offers_batches(layers) else merge.OFFERED_FLAGS
        if not_of_wire:
            layers = [*self._layers.provider_layers(provider, family, wire, foreign, not_of_wire), *model_layers]
        overrides = {} if base_url is None else {"base_url": base_url}
        if overrides:
            model_layers = [*model_layers, Layer("the call", self._documents[0], (), overrides)]
            layers.append(model_layers[-1])
        shared = (provider, family, wire, foreign, not_of_wire)
        table = merge.merge_layers(model_layers, self._layers.merged_table(*shared))
        when: dict[str, Any] = table.pop("when", {})
        if "supported" in table and (overrides or self._is_moved(own_layers, layers)):
            del table["supported"]  # it is unknown which wires the other address has
        flags = msgspec.convert(table, Flags)
        for key in ("path", "stream_path"):
            if (problem := path_problem(getattr(flags, key))) is not None:
                layer = next(la for la in reversed(layers) if key in la.table)
                raise self._layers.error([*layer.path, key], f"{layer.name}.{key} {problem}")
        is_listed = f"{provider}/{id}" in self._layers.names("models")
        holders = [d for d in self._documents if not d.is_data and f"{provider}/{id}" in d.data.get("models", {})]
        is_catalogued = is_listed and all(document.path.name == CATALOGUE for document in holders)

        def flags_for(mode: frozenset[str]) -> Flags:
            active = _active_conditions(when, mode)
            if not active:
                return flags
            merged = table
            for key in active:
                merged = merge.stack_layers(merged, when[key])
            values = {top: merged[top] for key in active for top in when[key] if top not in overrides}
            part = msgspec.convert(values, Flags)
            return msgspec.structs.replace(flags, **{top: getattr(part, top) for top in values})

        def path(flag: str, mode: frozenset[str]) -> list[str]:
            keys = flag.split(".")
            for key in () if flag in overrides else reversed(_active_conditions(when, mode)):
                if merge.find_path(when[key], keys) is not None:
                    return ["when", key, *keys]
            return keys

        trust = key_trust.KeyTrust(layers)
        return Model(
            id=id,
            provider=provider,
            protocol=wire,
            flags=flags,
            notes=lambda: self._resolution_notes(alias, provider, id, is_listed, is_catalogued, flags, layers),
            distrusts=lambda env, origin: trust.distrusted_place(origin, self._origins_of(env)),
            flags_for=flags_for,
            where=lambda flag, mode: provenance.setting_line(layers, path(flag, mode)),
            layer=lambda flag, mode: provenance.setting_layer(layers, path(flag, mode)),
            explain=lambda: list(
                provenance.facts(layers, table, when, self._layers.traces(*shared), f"{provider}/{id}")
            ),
            family=lambda other: self._layers.family(other),  # by the files in use, also after a reload
            data_version=self._data_version,
            # where the caller chose the wire, there is no other
            over=None if protocol else lambda other: self.resolve(name, protocol=other, base_url=base_url),
        )

    def _is_moved(self, own: list[Layer], layers: list[Layer]) -> bool:
        """Whether a later file than the one that says which wires an endpoint has gives it another address.

        An address that this file gives for the wire itself is such a statement, too. `own` are the layers without
        those of a wire.
        """

        def last(flag: str, among: list[Layer]) -> int:
            """Return the number of the last file that sets a flag, -1 for none."""
            return max((self._documents.index(layer.document) for layer in among if flag in layer.table), default=-1)

        of_wire = [layer for layer in layers if layer.path[-2:-1] == ("on",)]
        return last("base_url", own) > max(last("supported", layers), last("base_url", of_wire))

    def _locate(self, name: str, suggest: bool) -> tuple[str, str, str | None]:
        """Return (provider, id on the wire, family alias) for a name; the last is None for any other name."""
        models = self._layers.names("models")
        providers = self._layers.names("providers")
        if (found := self._alias_target("aliases", name)) is not None:
            return (*found[:2], None)
        provider, slash, id = name.partition("/")
        provider = _registry_spelling(providers, provider) or provider
        if slash and id and provider in providers:
            if (listed := _registry_spelling(models, f"{provider}/{id}")) is not None:
                return (*_split(listed), None)
            family = self._alias_target("family_aliases", id)
            if family is not None and (family[0] == provider or f"{provider}/{family[1]}" in models):
                return (provider, *family[1:])
            return (provider, id, None)
        serving = self._serving(name)
        if len(serving) == 1:
            return (*_split(serving[0]), None)
        for preferred in self.preferred_providers if serving else ():
            if match := [m for m in serving if _split(m)[0] == preferred]:
                return (*_split(match[0]), None)
        if (family := self._alias_target("family_aliases", name)) is not None:
            return family
        from cnllm.registry import suggestions

        if serving and len(current := suggestions.current_models(self, serving)) == 1:
            return (*_split(current[0]), None)
        raise suggestions.unknown_model(self, name, serving, suggest=suggest)

    def _serving(self, id: str) -> list[str]:
        """List the models with an id on the wire, at any provider."""
        return self._names_by_id.get(id.casefold(), [])

    @cached_property
    def _names_by_id(self) -> dict[str, list[str]]:
        """Return the models by their ids on the wire in lower case."""
        names: dict[str, list[str]] = {}
        for model in self._layers.names("models"):
            names.setdefault(_split(model)[1].casefold(), []).append(model)
        return names

    def _alias_target(self, section: str, name: str) -> tuple[str, str, str] | None:
        """Return (provider, id, alias) for an alias, of the last file that has it; None where none has."""
        folded = name.casefold()
        for document, spellings in zip(reversed(self._documents), self._spellings[section], strict=True):
            aliases = document.data.get(section, {})
            alias = name if name in aliases else spellings.get(folded)
            if alias is None:
                continue
            provider, id = _split(aliases[alias])
            if provider not in self._layers.names("providers"):
                raise self._layers.error([section, alias], f"alias '{alias}' names no model: '{provider}/{id}'")
            if document.builtin:
                provider, id = self._apply_preference(aliases[alias], self._layers.names("models"))
            return provider, id, alias
        return None

    @cached_property
    def _spellings(self) -> dict[str, list[dict[str, str]]]:
        """Return, by section, the aliases of each file by their form in lower case, the last file first."""
        return {
            section: [
                {alias.casefold(): alias for alias in reversed(document.data.get(section, {}))}
                for document in reversed(self._documents)
            ]
            for section in ("aliases", "family_aliases")
        }

    def _apply_preference(self, target: str, models: dict[str, None]) -> tuple[str, str]:
        """Return the target, or the same id at a provider that the user prefers."""
        provider, id = _split(target)
        for preferred in self.preferred_providers:
            if f"{preferred}/{id}" in models:
                return preferred, id
        return provider, id

    @property
    def preferred_providers(self) -> list[str]:
        """List the providers that the user prefers, best first."""
        for document in reversed(self._documents):
            if "prefer" in document.data:
                names: list[str] = document.data["prefer"]
                return names
        return []

    # ── layers ───────────────────────────────────────────────────────────────

    def _unknown_protocol(self, name: str, layers: list[Layer]) -> RegistryError:
        """Return the error for an unknown protocol."""
        from cnllm.registry.problem import did_you_mean, dotted_path

        layer = next(la for la in reversed(layers) if "protocol" in la.table)
        suggestion = did_you_mean(name, self._layers.names("protocols"))
        return self._layers.error(
            [*layer.path, "protocol"], f"{dotted_path(list(layer.path))}: no protocol is called '{name}'{suggestion}"
        )

    def _require_protocol(self, provider: str, protocol: str, own_protocol: object) -> None:
        """Raise `UnknownModel` unless the provider supports a protocol."""
        if protocol == own_protocol:
            return
        protocols = self._layers.names("protocols")
        others = self._other_protocols(provider)
        if protocol in protocols and (others is None or protocol in others):
            return
        supported = ", ".join(sorted({str(own_protocol), *(others or ())}))
        raise UnknownModel(f"{provider} does not support the protocol {protocol}", hint=f"it supports {supported}")

    def _other_protocols(self, provider: str) -> list[str] | None:
        """List the wires of a provider beside its own; None where any may be, because its address is unknown."""
        tables = [
            t
            for name in self._layers.extends_chain("providers", provider)
            for t in self._layers.table_layers(("providers", name), None)
        ]
        if not any("base_url" in layer.table for layer in tables):
            return None
        wires = {
            wire
            for layer in tables
            for wire, overrides in layer.table.get("on", {}).items()
            if "base_url" in overrides or "path" in overrides
        }
        return [wire for wire in self._layers.names("protocols") if wire in wires]

    def wires(self, name: str) -> list[str]:
        """List the protocols of a model, its own first. Raises as `resolve` does."""
        model = self.resolve(name)
        others = self._other_protocols(model.provider)
        rest = list(self._layers.names("protocols")) if others is None else others
        return [model.protocol, *(wire for wire in rest if wire != model.protocol)]

    # ── notes ────────────────────────────────────────────────────────────────

    def _resolution_notes(
        self,
        alias: str | None,
        provider: str,
        id: str,
        is_listed: bool,
        is_catalogued: bool,
        flags: Flags,
        layers: list[Layer],
    ) -> Iterator[Note]:
        """Yield notes on assumptions about a model."""
        if alias is not None:
            place = self._layers.place(["family_aliases", alias])
            yield Note("family-alias", f"family_aliases.{alias}", alias, f"{provider}/{id}", place)
        if not is_listed:
            yield Note(
                "unknown-model",
                "models",
                f"{provider}/{id}",
                "only the provider's flags apply; whether it reasons is unknown",
                provenance.setting_line([la for la in layers if la.path], ["protocol"]),
            )
        elif is_catalogued:
            yield Note(
                "catalogue-model",
                "models",
                f"{provider}/{id}",
                "limits and prices are those of a public list; nobody has described how this model behaves here",
                self._layers.place(["models", f"{provider}/{id}"]),
            )
        if flags.status is not None and flags.status.is_ == "retired":
            use = f"; use {flags.status.use}" if flags.status.use else ""
            since = f" since {flags.status.since}" if flags.status.since else ""
            yield Note(
                "retired",
                "status",
                f"{provider}/{id}",
                f"retired{since}{use}",
                provenance.setting_line(layers, ["status", "is"]),
            )

    # ── keys ─────────────────────────────────────────────────────────────────

    def _origins_of(self, env: str) -> set[str] | None:
        """Return the origins of the built-in providers that name the key `env`; None where no provider names it."""
        if env not in self._key_origins:
            self._key_origins[env] = key_trust.builtin_origins(Layers([d for d in self._documents if d.builtin]), env)
        return self._key_origins[env]


def _text(name: str, value: Any) -> str:
    checks.require_text(name, value)
    return str.__str__(value)


def _option(name: str, value: Any) -> str | None:
    if value is not None and not isinstance(value, str):
        raise checks.wrong_type(name, value, "a string or None")
    return None if value is None else str.__str__(value)


def _read_all(overlays: Sequence[Path] | None) -> list[Document]:
    """Read the built-in file and the overlays."""
    data = [read(path, is_data=True) for path in data_paths()] if overlays is None else []
    paths = overlay_paths() if overlays is None else overlays
    return [read(builtin_path(), builtin=True), *data, *(read(p) for p in paths)]


def _active_conditions(when: dict[str, Any], mode: frozenset[str]) -> list[str]:
    """List the conditions that hold in a mode, those with more atoms later."""
    return sorted((k for k in when if set(k.split("+")) <= mode), key=lambda k: (k.count("+"), k))


def _split(name: str) -> tuple[str, str]:
    """Split a name into provider and id."""
    provider, _, id = name.partition("/")
    return provider, id


def _declared_protocol(layers: list[Layer]) -> object:
    """Return the protocol that the layers set, without merging them."""
    for layer in reversed(layers):
        if "protocol" in layer.table:
            return layer.table["protocol"]
        if "protocol" in layer.table.get("unset", ()):
            return None
    return None


def _registry_spelling(names: Mapping[str, Any], name: str) -> str | None:
    """Return a name in the registry's spelling, whatever its case; None where it is unknown."""
    if name in names:
        return name
    folded = name.casefold()
    return next((n for n in names if n.casefold() == folded), None)


def resolve_model(model: str | Model) -> Model:
    """Return the model with this name in the registry of this process, or the model itself."""
    if isinstance(model, str):
        return Registry.load().resolve(model)
    checks.require_type("model", model, Model, "a name or a cnllm.Model")
    return model
