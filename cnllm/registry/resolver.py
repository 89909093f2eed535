"""Build the model of a name, from registry files that do not change."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import cache, partial
from typing import Any

import msgspec

from cnllm.errors import RegistryError, UnknownModel
from cnllm.registry import data_layer, merge, provenance, routing
from cnllm.registry.documents import CATALOGUE, Document
from cnllm.registry.flags import Flags
from cnllm.registry.layers import Layers, SharedTables
from cnllm.registry.merge import Layer
from cnllm.registry.model import Model, ModelSource
from cnllm.registry.problem import did_you_mean, dotted_path
from cnllm.registry.routing import path_problem
from cnllm.system.processes import cached_property
from cnllm.types import Note

__all__ = ["Resolver"]

_SIMILAR = 0.6
_LONGEST_ID = 100  # characters that are compared


Resolve = Callable[[str, str | None, str | None], Model]
"""Returns the model of a name over a protocol and at an address."""


class _Stack(msgspec.Struct, frozen=True):
    """The layers of a model over a wire: those of its `shared` tables and then its `own`.

    `without_wire` are the layers without the settings of any wire.
    """

    wire: str
    shared: SharedTables
    own: list[Layer]
    layers: list[Layer]
    without_wire: list[Layer]


class _Modes(msgspec.Struct, frozen=True):
    """The flags of a model in each mode of a request.

    `base` are those of a request in no mode, read from `table`; `when` has the tables of conditions, and `overrides`
    what no condition changes.
    """

    base: Flags
    table: dict[str, Any]
    when: dict[str, Any]
    overrides: dict[str, Any]

    def flags(self, mode: frozenset[str]) -> Flags:
        """Return the flags in a mode."""
        active = _active_conditions(self.when, mode)
        if not active:
            return self.base
        merged = self.table
        for key in active:
            merged = merge.stack_layers(merged, self.when[key])
        values = {top: merged[top] for key in active for top in self.when[key] if top not in self.overrides}
        part = msgspec.convert(values, Flags)
        return msgspec.structs.replace(self.base, **{top: getattr(part, top) for top in values})

    def addresses(self) -> tuple[str, ...]:
        """Return the addresses in all modes."""
        others = () if "base_url" in self.overrides else (table.get("base_url") for table in self.when.values())
        return tuple(dict.fromkeys(url for url in (self.base.base_url, *others) if url))

    def path(self, flag: str, mode: frozenset[str]) -> list[str]:
        """Return the keys that lead to a flag's setting in a mode."""
        keys = flag.split(".")
        for key in () if flag in self.overrides else reversed(_active_conditions(self.when, mode)):
            if merge.find_path(self.when[key], keys) is not None:
                return ["when", key, *keys]
        return keys


class Resolver:
    """Builds models from documents, the built-in one first.

    `resolve` is that of the registry, which has other files after a reload: models ask it later. `data_version` returns
    the version of the data, which the first reply asks for.
    """

    def __init__(self, documents: list[Document], resolve: Resolve) -> None:
        self.documents = documents
        self.layers = Layers(data_layer.documents_in_force(documents))
        self.data_version = cache(partial(data_layer.data_version, documents))
        self._resolve = resolve
        self._sites: dict[str, dict[str, dict[str, Any]]] = {}
        self._key_origins: dict[str, set[str] | None] = {}  # by the name of a key
        self._shared_flags: dict[SharedTables, Flags] = {}

    def build(self, name: str, protocol: str | None, base_url: str | None, *, suggest: bool) -> Model:
        """Build the model with a name. Raises `UnknownModel` or `RegistryError`."""
        provider, id, alias = self._locate(name, base_url, suggest=suggest)
        overrides = {} if base_url is None else {"base_url": base_url}
        stack = self._stack(provider, id, protocol, overrides)
        layers, shared = stack.layers, stack.shared
        table = merge.merge_layers(stack.own, self.layers.merged_table(shared))
        when: dict[str, Any] = table.pop("when", {})
        if "supported" in table and (overrides or self._is_moved(stack.without_wire, layers)):
            del table["supported"]  # the wires of the other address are unknown
        flags = self._read_flags(table, shared)
        self._check_paths(flags, layers)
        modes = _Modes(flags, table, when, overrides)
        full_name = f"{provider}/{id}"
        holders = [document for document in self.documents if full_name in document.data.get("models", {})]

        def nearest() -> str | None:
            return None if overrides or full_name in self.layers.names("models") else self._nearest(provider, id)

        trust = routing.KeyTrust(layers)
        return Model(
            id=id,
            provider=provider,
            protocol=stack.wire,
            flags=flags,
            source=ModelSource(
                notes=lambda: self._resolution_notes(full_name, alias, flags, layers, holders, nearest),
                distrusts=lambda env, origin: trust.distrusted_place(origin, self._origins_of(env)),
                flags_for=modes.flags,
                addresses=modes.addresses(),
                where=lambda flag, mode: provenance.setting_line(layers, modes.path(flag, mode)),
                layer=lambda flag, mode: provenance.setting_layer(layers, modes.path(flag, mode)),
                explain=lambda: list(provenance.facts(layers, table, when, self.layers.traces(shared), full_name)),
                family=self.layers.family,
                nearest=nearest,
                sites=lambda: [site for site in self.sites(provider) if site != provider],
                data_version=self.data_version,
                # no other wire is taken where the caller chose one
                over=None if protocol else lambda other: self._resolve(name, other, base_url),
            ),
        )

    def _stack(self, provider: str, id: str, protocol: str | None, overrides: dict[str, Any]) -> _Stack:
        """Return the layers of a model over a protocol; None is its own. `overrides` are settings of the call.

        Raises `UnknownModel` for a protocol that the provider does not have, `RegistryError` for one that nobody has.
        """
        family = self.layers.family(id)
        lineage = self.layers.extends_chain("models", f"{provider}/{id}")
        own = self.layers.model_layers(lineage, None)
        shared_layers = self.layers.provider_layers(SharedTables(provider, family, None))
        without_wire = [*shared_layers, *own]
        own_protocol = _declared_protocol(without_wire)
        wire = protocol or own_protocol
        if not isinstance(wire, str):
            protocols = ", ".join(self.layers.names("protocols"))
            message = f"providers.{provider} names no protocol; it is one of {protocols}"
            raise self.layers.error(["providers", provider], message)
        if wire == own_protocol and wire not in self.layers.names("protocols"):
            raise self._unknown_protocol(wire, without_wire)
        self._require_protocol(provider, wire, own_protocol)
        # a model may name another protocol than its provider; the provider's tables are then about another wire
        foreign = wire != (_declared_protocol(shared_layers) or own_protocol)
        own = self.layers.model_layers(lineage, wire, foreign=wire != own_protocol)
        shared = SharedTables(provider, family, wire, foreign)
        # the table of a wire describes its batches; these flags count only where the endpoint is known to have batches
        if not merge.offers_batches([*self.layers.provider_layers(shared), *own]):
            shared = msgspec.structs.replace(shared, not_of_wire=merge.OFFERED_FLAGS)
        if overrides:
            own = [*own, Layer("the call", self.documents[0], (), overrides)]
        return _Stack(wire, shared, own, [*self.layers.provider_layers(shared), *own], without_wire)

    def _check_paths(self, flags: Flags, layers: list[Layer]) -> None:
        """Raise `RegistryError` for a path that would lead out of the endpoint's address."""
        for key in ("path", "stream_path"):
            if (problem := path_problem(getattr(flags, key))) is not None:
                layer = next(la for la in reversed(layers) if key in la.table)
                raise self.layers.error([*layer.path, key], f"{layer.name}.{key} {problem}")

    def _read_flags(self, table: dict[str, Any], shared: SharedTables) -> Flags:
        """Return the flags of a merged table. Those that a model does not change are one object for all of them."""
        under = self.layers.merged_table(shared)
        flags = self._shared_flags.get(shared)
        if flags is None:
            flags = msgspec.convert({name: value for name, value in under.items() if name != "when"}, Flags)
            self._shared_flags[shared] = flags
        changed = [name for name, value in table.items() if under.get(name) is not value]
        removed = [name for name in under if name not in table and name != "when"]
        own = msgspec.convert({name: table[name] for name in changed}, Flags)
        return msgspec.structs.replace(flags, **{name: getattr(own, name) for name in (*changed, *removed)})

    def _is_moved(self, own: list[Layer], layers: list[Layer]) -> bool:
        """Whether a later file than the one that says which wires an endpoint has gives it another address.

        An address that this file gives for the wire itself is such a statement, too. `own` are the layers without
        those of a wire.
        """

        def last(flag: str, among: list[Layer]) -> int:
            """Return the number of the last file that sets a flag, -1 for none."""
            return max((self.documents.index(layer.document) for layer in among if flag in layer.table), default=-1)

        of_wire = [layer for layer in layers if layer.path[-2:-1] == ("on",)]
        return last("base_url", own) > max(last("supported", layers), last("base_url", of_wire))

    def _locate(self, name: str, base_url: str | None, *, suggest: bool) -> tuple[str, str, str | None]:
        """Return (provider, id on the wire, family alias) for a name; the last is None for any other name."""
        models = self.layers.names("models")
        providers = self.layers.names("providers")
        if (found := self._alias_target("aliases", name)) is not None:
            return (*found[:2], None)
        provider, slash, id = name.partition("/")
        provider = self.layers.spelling("providers", provider) or provider
        if slash and id and provider in providers:
            if (listed := self.layers.spelling("models", f"{provider}/{id}")) is not None:
                return (*_split(listed), None)
            family = self._alias_target("family_aliases", id)
            if family is not None and (family[0] == provider or f"{provider}/{family[1]}" in models):
                return (provider, *family[1:])
            return (provider, id, None)
        serving = self.serving(name)
        if len(serving) == 1:
            return (*_split(serving[0]), None)
        for preferred in self.preferred_providers if serving else ():
            if match := [m for m in serving if _split(m)[0] == preferred]:
                return (*_split(match[0]), None)
        if (family := self._alias_target("family_aliases", name)) is not None:
            return family
        from cnllm.registry.suggestions import NameSearch

        search = NameSearch(self.layers, lambda name: self._resolve(name, None, None))
        if serving and len(current := search.current_models(serving)) == 1:
            return (*_split(current[0]), None)
        raise search.unknown_model(name, serving, suggest=suggest, is_moved=base_url is not None)

    def serving(self, id: str) -> list[str]:
        """List the models with an id on the wire, at any provider."""
        return self._names_by_id.get(id.casefold(), [])

    @cached_property
    def _names_by_id(self) -> dict[str, list[str]]:
        """Return the models by their ids on the wire in lower case."""
        names: dict[str, list[str]] = {}
        for model in self.layers.names("models"):
            names.setdefault(_split(model)[1].casefold(), []).append(model)
        return names

    def _alias_target(self, section: str, name: str) -> tuple[str, str, str] | None:
        """Return (provider, id, alias) for an alias, of the last file that has it; None where none has."""
        found = self._aliases[section].get(name.casefold())
        if found is None:
            return None
        document, alias = found
        aliases = document.data[section]
        alias = name if name in aliases else alias
        provider, id = _split(aliases[alias])
        if provider not in self.layers.names("providers"):
            raise self.layers.error([section, alias], f"alias '{alias}' names no model: '{aliases[alias]}'")
        if document.builtin:
            provider, id = self._apply_preference(aliases[alias])
        return provider, id, alias

    def is_alias(self, name: str) -> bool:
        """Whether a file has an alias of this name, in whatever case."""
        return name.casefold() in self._aliases["aliases"]

    def is_alias_of_user(self, name: str) -> bool:
        """Whether a file of the user's own says which model a name stands for."""
        found = [aliases[name.casefold()] for aliases in self._aliases.values() if name.casefold() in aliases]
        return bool(found) and not (found[0][0].builtin or found[0][0].is_data)

    @cached_property
    def _aliases(self) -> dict[str, dict[str, tuple[Document, str]]]:
        """Return, by section, the last file that has an alias and its spelling there, by its form in lower case."""
        return {
            section: {
                alias.casefold(): (document, alias)
                for document in self.documents
                for alias in reversed(document.data.get(section, {}))  # of two, the first counts
            }
            for section in ("aliases", "family_aliases")
        }

    def _apply_preference(self, target: str) -> tuple[str, str]:
        """Return the target, or the same id at a provider that the user prefers, where it is not retired."""
        provider, id = _split(target)
        models = self.layers.names("models")
        for preferred in self.preferred_providers:
            name = f"{preferred}/{id}"
            if name in models and (not self._is_retired(name) or self._is_retired(target)):
                return preferred, id
        return provider, id

    def _is_retired(self, name: str) -> bool:
        """Whether a model is retired. It inherits no status."""
        return bool(self.layers.setting("models", name, "status", "is") == "retired")

    @property
    def preferred_providers(self) -> list[str]:
        """List the providers that the user prefers, best first."""
        return self.layers.setting("prefer") or []

    def _unknown_protocol(self, name: str, layers: list[Layer]) -> RegistryError:
        """Return the error for an unknown protocol."""
        layer = next(la for la in reversed(layers) if "protocol" in la.table)
        suggestion = did_you_mean(name, self.layers.names("protocols"))
        return self.layers.error(
            [*layer.path, "protocol"], f"{dotted_path(list(layer.path))}: no protocol is called '{name}'{suggestion}"
        )

    def _require_protocol(self, provider: str, protocol: str, own_protocol: object) -> None:
        """Raise `UnknownModel` unless the provider supports a protocol."""
        if protocol == own_protocol:
            return
        protocols = self.layers.names("protocols")
        others = self.other_protocols(provider)
        if protocol in protocols and (others is None or protocol in others):
            return
        supported = ", ".join(sorted({str(own_protocol), *(protocols if others is None else others)}))
        raise UnknownModel(f"{provider} does not support the protocol {protocol}", hint=f"it supports {supported}")

    def other_protocols(self, provider: str) -> list[str] | None:
        """List the wires of a provider beside its own; None where any may be, because its address is unknown."""
        layers = self.layers.endpoint_layers(provider)
        if not any("base_url" in layer.table for layer in layers):
            return None
        wires = {
            wire
            for layer in layers
            for wire, overrides in layer.table.get("on", {}).items()
            if "base_url" in overrides or "path" in overrides
        }
        return [wire for wire in self.layers.names("protocols") if wire in wires]

    def key_variables(self, provider: str) -> list[str]:
        """Return the variables of a provider's key, best first, without building a model."""
        names: list[str] = []
        for layer in self.layers.endpoint_layers(provider):
            names = [] if "keys" in layer.table.get("unset", ()) else layer.table.get("keys", names)
        return names

    def sites(self, provider: str) -> dict[str, dict[str, Any]]:
        """Return the sites of a provider's vendor, each with the variables that mean it alone; empty without any."""
        if provider not in self._sites:
            self._sites[provider] = self._find_sites(provider)
        return self._sites[provider]

    def _find_sites(self, provider: str) -> dict[str, dict[str, Any]]:
        vendor = self.layers.setting("providers", provider, "site", "vendor")
        if vendor is None:
            return {}  # reading all providers would take milliseconds
        sites = {name: self.layers.section("providers", name, "site") for name in self.layers.names("providers")}
        members = {name: site for name, site in sites.items() if site.get("vendor") == vendor}
        variables = {name: self.key_variables(name) for name in members}
        claimed = [key for site in members.values() for key in site.get("keys", ())]
        every = [key for keys in variables.values() for key in keys]
        return {
            name: {
                **site,
                "keys": [
                    key
                    for key in variables[name]
                    if key in site.get("keys", ()) or (every.count(key) == 1 and key not in claimed)
                ],
            }
            for name, site in members.items()
        }

    def _nearest(self, provider: str, id: str) -> str | None:
        """Return the model of a provider with the most similar id, and no retired one; None where none is similar."""
        from difflib import get_close_matches

        own = [name for name in self.layers.names("models") if _split(name)[0] == provider]
        names = {_split(name)[1].casefold(): name for name in own}
        close = get_close_matches(id[:_LONGEST_ID].casefold(), names, n=10, cutoff=_SIMILAR)
        return next((name for name in map(names.__getitem__, close) if not self._is_retired(name)), None)

    def _resolution_notes(
        self,
        name: str,
        alias: str | None,
        flags: Flags,
        layers: list[Layer],
        holders: list[Document],
        nearest: Callable[[], str | None],
    ) -> Iterator[Note]:
        """Yield notes on assumptions about a model. `holders` are the files that have a table of it."""
        if alias is not None:
            place = self.layers.place(["family_aliases", alias])
            yield Note("family-alias", f"family_aliases.{alias}", alias, name, place)
        if name not in self.layers.names("models"):
            meaning = f"; did you mean {near}?" if (near := nearest()) else ""
            family = self.layers.family(_split(name)[1])
            if flags.reasoning.mode in (None, "unknown"):
                meaning = f"; whether it reasons is unknown{meaning}"
            if family is None:
                did = f"only the provider's flags apply{meaning}"
            else:
                did = f"only the flags of the provider and of the family {family} apply{meaning}"
            place = provenance.setting_line([la for la in layers if la.path], ["protocol"])
            yield Note("unknown-model", "models", name, did, place)
        elif all(document.path.name == CATALOGUE for document in holders if not document.is_data):
            did = "limits and prices are those of a public list; nobody has described how this model behaves here"
            yield Note("catalogue-model", "models", name, did, self.layers.place(["models", name]))
        if flags.status is not None and flags.status.is_ == "retired":
            use = f"; use {flags.status.use}" if flags.status.use else ""
            since = f" since {flags.status.since}" if flags.status.since else ""
            place = provenance.setting_line(layers, ["status", "is"])
            yield Note("retired", "status", name, f"retired{since}{use}", place)

    def _origins_of(self, env: str) -> set[str] | None:
        """Return the origins of the built-in providers that name the key `env`; None where no provider names it."""
        if env not in self._key_origins:
            self._key_origins[env] = routing.builtin_origins(Layers([d for d in self.documents if d.builtin]), env)
        return self._key_origins[env]


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
