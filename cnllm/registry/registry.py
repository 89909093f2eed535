"""Resolve names to models, from the loaded registry files."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from threading import RLock
from typing import Any, NoReturn

from msgspec import Struct

from cnllm.errors import CnllmError, RegistryError, UnknownModel
from cnllm.registry.documents import Document, layer_tables
from cnllm.registry.flags import LimitFlags
from cnllm.registry.layers import Layers
from cnllm.registry.model import Model
from cnllm.registry.read import builtin_path, catalogue_path, data_paths, load_documents, overlay_paths, read
from cnllm.registry.resolver import Resolver
from cnllm.system.processes import fork_safe
from cnllm.types import checks

__all__ = ["Registry", "SiteGroup", "resolve_model"]

_MOST_MODELS = 2048  # that are kept: a program may make names up
_WIDE_SECTIONS = frozenset(("defaults", "protocols", "families"))
"""The sections of a file whose flags hold for providers that the file does not name."""


class SiteGroup(Struct, frozen=True):
    """The sites of a vendor that may serve a model whose name has no provider, that of `Registry.resolve` first.

    `default` is the provider of `Registry.resolve`; None where it finds several. `listed` are the sites for which the
    files describe the model; `readers` are the sites that read a variable, and `owners` the site that one means alone.
    `is_own`: the user's file describes it at the default. `models` keeps the models that were chosen.
    """

    id: str
    vendor: str
    default: str | None
    sites: tuple[str, ...]
    listed: frozenset[str]
    readers: dict[str, tuple[str, ...]]
    owners: dict[str, str]
    is_own: bool
    models: dict[tuple[str, str | None, str], Model]


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

    def __repr__(self) -> str:
        files = ", ".join(str(document.path) for document in self._documents)
        return f"<Registry {len(self._layers.names('providers'))} providers: {files}>"

    def __reduce__(self) -> NoReturn:
        raise TypeError("a registry cannot be copied; load its files anew: Registry.load()")

    def _set_documents(self, documents: list[Document]) -> None:
        """Use these files from now on, and drop everything that was computed from others."""
        self._documents = documents
        self._models: dict[tuple[str, str | None, str | None], Model] = {}
        self._site_groups: dict[tuple[str, bool], SiteGroup | None] = {}
        self._resolver = self._resolver_of(documents)
        self._layers = self._resolver.layers
        self._wide: Resolver | None = None  # over the catalogue too, once that was needed

    def _resolver_of(self, documents: list[Document]) -> Resolver:
        return Resolver(
            documents, lambda name, protocol, base_url: self.resolve(name, protocol=protocol, base_url=base_url)
        )

    def _with_catalogue(self) -> Resolver:
        """Return a resolver over the catalogue and these files, which win; theirs where none is the built-in one."""
        wide = self._wide
        if wide is not None:
            return wide
        if not self._documents or self._documents[0].path.name != builtin_path().name or not self._documents[0].builtin:
            return self._resolver
        with self._lock:
            if self._wide is None:
                self._wide = self._resolver_of([read(catalogue_path(), builtin=True), *self._documents])
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
        documents = load_documents(self._overlays)
        with self._lock:
            self._set_documents(documents)
            self._file_stamps = stamps

    def _refresh(self) -> None:
        """Read the files again after an edit, if `watch` is set."""
        if self._watch and self._current_stamps() != self._file_stamps:
            self.reload()

    @property
    def _current_layers(self) -> Layers:
        """Return the layers of the files as they are now."""
        self._refresh()
        return self._layers

    def _current_stamps(self) -> tuple[tuple[str, int, int], ...]:
        """Return the times and sizes of the overlays, which an edit changes."""
        paths = [*data_paths(), *overlay_paths()] if self._overlays is None else self._overlays
        stats = ((str(p), p.stat()) for p in paths if p.exists())
        return tuple((name, stat.st_mtime_ns, stat.st_size) for name, stat in stats)

    # ── names and sections ───────────────────────────────────────────────────

    @property
    def files(self) -> list[str]:
        """List the paths of the loaded files, the built-in one first."""
        return [str(d.path) for d in self.documents]

    @property
    def version(self) -> str:
        """Return the version of the data: the package's with a hash of its file, and the data files on top of it."""
        self._refresh()
        return self._resolver.data_version()

    @property
    def documents(self) -> tuple[Document, ...]:
        """Return the loaded files, the built-in one first."""
        self._refresh()
        return tuple(self._documents)

    def corrections(self, model: str) -> dict[str, Any]:
        """Return the values of public lists that a model's table says are wrong, by flag; `model` is "provider/id"."""
        return self._layers.section("models", model, "corrects")

    def contents(self) -> list[bytes]:
        """Return the content of the loaded files as it was read, the built-in one first."""
        return [document.text for document in self._documents]

    @property
    def providers(self) -> list[str]:
        """List the ids of all providers, sorted."""
        return sorted(self._current_layers.names("providers"))

    def sites(self, provider: str) -> dict[str, dict[str, Any]]:
        """Return the sites of a provider's vendor, its own among them, each with its `site`; empty where it has none.

        `keys` holds all variables that mean this site alone: those that no other site reads, and those of `site.keys`.
        """
        checks.require_type("provider", provider, str, "the name of a provider")
        self._refresh()
        return self._resolver.sites(provider)

    @property
    def aliases(self) -> dict[str, str]:
        """Return the aliases with their "provider/id"."""
        return self._current_layers.section("aliases")

    @property
    def family_aliases(self) -> dict[str, str]:
        """Return the names of families with the "provider/id" of the model that each stands for."""
        return self._current_layers.section("family_aliases")

    @property
    def default_models(self) -> list[str]:
        """List the models for calls that name none: the first one that has a key is asked."""
        return list(self._current_layers.setting("default_models") or ())

    @property
    def sets_default_models(self) -> bool:
        """Whether a file of the user's own lists the default models."""
        return any("default_models" in d.data for d in self._own_documents())

    def parameters(self) -> set[str]:
        """Return the names of the parameters that the files have rules for, whatever the layer."""
        tables = (table for document in self.documents for _, table in layer_tables(document.data))
        modes = (flags for table in tables for flags in (table, *table.get("when", {}).values()))
        return {name for flags in modes for name in flags.get("params", ())}

    def flag_tables(self, protocol: str) -> Iterator[dict[str, Any]]:
        """Yield the tables of all layers that describe endpoints on one wire, without those of the catalogue."""
        for document in self.documents:
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

    def own_providers(self) -> list[str]:
        """List the providers that the user's own files may change, sorted: those they name, and those that extend one.

        These are all providers, where a file has flags that hold for any.
        """
        own = self._own_documents()
        if any(not _WIDE_SECTIONS.isdisjoint(document.data) for document in own):
            return self.providers
        names = {name for document in own for name in document.data.get("providers", {})}
        return [name for name in self.providers if names and self._is_based_on(name, names)]

    def _is_based_on(self, provider: str, names: set[str]) -> bool:
        """Whether a provider is one of these or extends one, or extends what is not there."""
        try:
            return not names.isdisjoint(self._current_layers.extends_chain("providers", provider))
        except RegistryError:
            return True  # `endpoint` raises the error, with the line of the file

    def own_models(self) -> list[str]:
        """List the models that the user's own files describe, as "provider/id", in the order of the files."""
        return list(dict.fromkeys(name for d in self._own_documents() for name in d.data.get("models", {})))

    def _own_documents(self) -> list[Document]:
        """Return the user's own files."""
        return [d for d in self.documents if not (d.builtin or d.is_data)]

    def names(self, *, catalogue: bool = False) -> list[str]:
        """List all described models as "provider/id", sorted. With `catalogue` also those of which little is known."""
        self._refresh()
        return sorted((self._with_catalogue() if catalogue else self._resolver).layers.names("models"))

    def catalogue_providers(self) -> list[str]:
        """List the ids of the providers that only the catalogue has, sorted."""
        self._refresh()
        return sorted(self._with_catalogue().layers.names("providers").keys() - self._layers.names("providers").keys())

    @property
    def tiers(self) -> dict[str, list[str]]:
        """Return the tiers: ordered lists of models for a purpose, such as "fast", best first."""
        return self._current_layers.section("tiers")

    @property
    def gateway_models(self) -> dict[str, str]:
        """Return the names and patterns of a gateway's clients, with the model that each stands for."""
        return self._current_layers.section("gateway", "models")

    @property
    def gateway_routes(self) -> dict[str, dict[str, Any]]:
        """Return the names of a gateway's clients that stand for several models, with the table of each."""
        return self._current_layers.section("gateway", "routes")

    @property
    def families(self) -> dict[str, list[str]]:
        """Return the families, each with the patterns of its ids."""
        layers = self._current_layers
        return {name: list(layers.setting("families", name, "match") or ()) for name in layers.names("families")}

    def hosts(self, model: str) -> list[str]:
        """List the models with the same open weights as a model, as "provider/id", that model first.

        Empty where the registry does not know the weights of the model. Raises as `resolve` does.
        """
        resolved = self.resolve(_text("model", model))
        weights = resolved.flags.weights
        if weights is None:
            return []
        return [resolved.name, *(name for name in self._layers.with_weights(weights) if name != resolved.name)]

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
                model = self._keep_model(key, self._find_model(name, protocol, base_url, suggest=suggest))
        return model

    def endpoint(self, provider: str) -> Model:
        """Return the endpoint of a provider: a model of which nothing more is known. Raises `UnknownModel`.

        The catalogue is read only for a provider that no other file has.
        """
        self._refresh()
        name = f"{_text('provider', provider)}/any"
        key = (f"{provider}/", None, None)  # no model has such a name
        model = self._models.get(key)
        if model is None:
            with self._lock:
                resolver = self._with_catalogue() if self._is_catalogued(name) else self._resolver
                try:
                    found = resolver.build(name, None, None, suggest=False)
                except UnknownModel:
                    hint = "`cnllm models list` lists models by provider"
                    raise UnknownModel(f"no provider is called {provider}", hint=hint) from None
                model = self._keep_model(key, found)
        return model

    def _keep_model(self, key: tuple[str, str | None, str | None], model: Model) -> Model:
        """Keep a model that was built, within a bound, and return it. The lock is held."""
        if len(self._models) >= _MOST_MODELS:
            self._models.clear()
        self._models[key] = model
        return model

    def _find_model(self, name: str, protocol: str | None, base_url: str | None, *, suggest: bool) -> Model:
        """Build the model with a name, over the catalogue where the other files do not describe it."""
        if "/" in name and self._is_catalogued(name):
            return self._with_catalogue().build(name, protocol, base_url, suggest=suggest)
        model: Model | None = None
        failure: CnllmError | None = None
        try:
            model = self._resolver.build(name, protocol, base_url, suggest=suggest)
        except (RegistryError, UnknownModel) as error:
            if self._resolver.serving(name):
                raise
            failure = error.with_traceback(None)  # it would hold this frame, which holds the error
        if model is not None and (base_url is not None or self._is_described(model)):
            return model  # what the catalogue says of a provider does not hold at another address
        wide = self._with_catalogue()
        if model is not None:
            is_listed = model.name in wide.layers.names("models")
            return wide.build(name, protocol, base_url, suggest=suggest) if is_listed else model
        assert failure is not None
        if wide is self._resolver:
            raise failure
        try:
            return wide.build(name, protocol, base_url, suggest=suggest)
        except (RegistryError, UnknownModel) as error:
            is_better = wide.serving(name) or (isinstance(failure, UnknownModel) and not failure.close)
            raise (error if is_better else failure) from None

    def _is_described(self, model: Model) -> bool:
        """Whether the catalogue adds nothing: the built-in file has the model, or a user's file has its limits."""
        builtin = self._documents[0].data
        if model.name in builtin.get("models", {}):
            return True  # the catalogue leaves these out
        if model.name not in self._layers.names("models"):
            return False
        has_limits, price = model.flags.limits != LimitFlags(), model.flags.price
        has_price = price is not None and price.input is not None  # a provider may have rules for prices alone
        if model.provider in builtin.get("providers", {}):  # the catalogue may have what the user's file lacks
            return has_limits and has_price
        return has_limits or has_price

    def _is_catalogued(self, name: str) -> bool:
        """Whether a name is a model of a provider that only the catalogue has."""
        provider = name.partition("/")[0]
        if self._layers.spelling("providers", provider) is not None:
            return False
        return not self._resolver.is_alias(name) and provider in self._with_catalogue().layers.names("providers")

    @property
    def preferred_providers(self) -> list[str]:
        """List the providers that the user prefers, best first."""
        self._refresh()
        return self._resolver.preferred_providers

    def site_group(self, name: str, *, is_bare: bool = False, suggest: bool = True) -> SiteGroup | None:
        """Return the sites among which a key may choose for a name; None where the name or the user says which.

        A full name, an alias of the user's own and a preferred provider say so; with `is_bare` a full name does not.
        Raises as `resolve` does where no site serves the name.
        """
        self._refresh()
        key = (_text("name", name), bool(is_bare))
        if key not in self._site_groups:
            group = self._find_site_group(key[0], is_bare=key[1], suggest=suggest)
            with self._lock:
                if len(self._site_groups) >= _MOST_MODELS:
                    self._site_groups.clear()
                self._site_groups[key] = group
        return self._site_groups[key]

    def _find_site_group(self, name: str, *, is_bare: bool, suggest: bool) -> SiteGroup | None:
        if self._resolver.is_alias_of_user(name):
            return None
        default: Model | None = None
        try:
            default = self.resolve(name, suggest=suggest)
        except UnknownModel:
            serving = self._resolver.serving(name) or self._with_catalogue().serving(name)
            providers = [model.partition("/")[0] for model in serving]
            if len(providers) < 2 or len(members := self.sites(providers[0])) < 2 or not members.keys() >= {*providers}:
                raise
            first, id = providers[0], serving[0].partition("/")[2]
        else:
            first, id = default.provider, default.id
            providers = [first]
            is_full = name.casefold() == default.name.casefold() or self._names_provider(name)
            if (is_full and not is_bare) or first in self.preferred_providers:
                return None
        resolver = self._resolver if default is None or self._is_described(default) else self._with_catalogue()
        members = self.sites(first)
        sites = tuple(dict.fromkeys([*providers, *members]))
        variables = {site: resolver.key_variables(site) for site in sites}
        readers = {key: tuple(s for s in sites if key in variables[s]) for site in sites for key in variables[site]}
        return SiteGroup(
            id=id,
            vendor=str(members[first]["vendor"]) if members else first,
            default=None if default is None else first,
            sites=sites,
            listed=frozenset(site for site in sites if f"{site}/{id}" in resolver.layers.names("models")),
            readers=readers,
            owners={key: site for site, table in members.items() for key in table["keys"]},
            is_own=default is not None and default.name in self.own_models(),
            models={},
        )

    def _names_provider(self, name: str) -> bool:
        """Whether a name begins with a provider and is no id that some endpoint has on the wire."""
        provider, slash, _ = name.partition("/")
        if not slash or self._resolver.is_alias(name):
            return False
        known = (self._layers, self._with_catalogue().layers) if self._is_catalogued(name) else (self._layers,)
        return any(layers.spelling("providers", provider) is not None for layers in known)

    def plans(self, group: SiteGroup) -> list[str]:
        """List the providers that have the model of a group and extend one of its sites, as a vendor's plans do."""
        checks.require_type("group", group, SiteGroup, "the value of `site_group`")
        models = self._layers.names("models")
        others = [n for n in self._layers.names("providers") if f"{n}/{group.id}" in models and n not in group.sites]
        return [n for n in others if not {*self._layers.extends_chain("providers", n)}.isdisjoint(group.sites)]

    def wires(self, name: str) -> list[str]:
        """List the protocols of a model, its own first. Raises as `resolve` does."""
        model = self.resolve(name)
        resolver = self._with_catalogue() if self._is_catalogued(model.name) else self._resolver
        others = resolver.other_protocols(model.provider)
        rest = list(self._layers.names("protocols")) if others is None else others
        return [model.protocol, *(wire for wire in rest if wire != model.protocol)]


def _text(name: str, value: Any) -> str:
    checks.require_text(name, value)
    return str.__str__(value)


def _option(name: str, value: Any) -> str | None:
    if value is not None and not isinstance(value, str):
        raise checks.wrong_type(name, value, "a string or None")
    return None if value is None else str.__str__(value)


def resolve_model(model: str | Model) -> Model:
    """Return the model with this name in the registry of this process, or the model itself."""
    if isinstance(model, str):
        return Registry.load().resolve(model)
    checks.require_type("model", model, Model, "a name or a cnllm.Model")
    return model
