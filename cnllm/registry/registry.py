"""Names → Models."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from threading import RLock
from typing import Any

import msgspec

from cnllm.config.process import cached_property, fork_safe
from cnllm.errors import RegistryError, UnknownModel
from cnllm.registry import merge, provenance
from cnllm.registry.documents import Document, builtin_path, overlay_paths, read
from cnllm.registry.flags import Flags
from cnllm.registry.merge import Layer
from cnllm.registry.model import Model
from cnllm.types import Note, checks

__all__ = ["Registry"]

_HOPS = 2  # how many `extends` may follow one another
_AIM = ("base_url", "path", "stream_path", "keys")
_HOST = ("host", ":authority")


class Registry:
    """Every registry file in force, the built-in one first."""

    def __init__(
        self, documents: list[Document], *, overlays: Sequence[Path] | None = None, watch: bool = False
    ) -> None:
        documents = checks.as_list("documents", documents, "a list of registry files, as Registry.load reads them,")
        for document in documents:
            checks.require_type(
                "documents", document, Document, "a list of registry files, as Registry.load reads them,"
            )
        self._overlays = overlays  # None: the user's, wherever they are by then
        self._watch = watch
        self._seen: tuple[tuple[str, int, int], ...] = ()
        self._lock = fork_safe(RLock())  # what one thread derives from old files must not be kept beside new ones
        self._take(documents)

    def _take(self, documents: list[Document]) -> None:
        """These files are in force from now on; what was derived from others is forgotten."""
        self._documents = documents
        self._models: dict[tuple[str, str | None, str | None], Model] = {}
        self._sections: dict[str, dict[str, None]] = {}
        self._families: dict[str, str | None] = {}
        self._bases: dict[tuple[str, str | None, str | None, bool], list[Layer]] = {}
        self._grounds: dict[tuple[str, str | None, str, bool], dict[str, Any]] = {}
        for derived in [name for name, value in vars(Registry).items() if isinstance(value, cached_property)]:
            self.__dict__.pop(derived, None)

    @staticmethod
    def load(*overlays: str | os.PathLike[str], watch: bool = False) -> Registry:
        """The built-in file with the user's overlays on it, or with the given ones instead, later files over earlier.

        With `watch` an edited overlay is noticed when a model or a listing is next asked for; otherwise `reload` takes
        it up. Raises `RegistryError` (file, line) when a file is missing, is not TOML, or says something no flag can
        say.
        """
        for place in overlays:
            checks.require_path("overlays: a path", place)
        checks.require_type("watch", watch, bool, "True or False")
        chosen = [Path(p) for p in overlays] if overlays else None
        registry = Registry([], overlays=chosen, watch=watch)
        registry.reload()
        return registry

    def reload(self) -> None:
        """Read the files again; models resolved from now on are as they say. If one is broken, all stays as it was.

        Raises `RegistryError` as `load` does.
        """
        seen = self._stamps() if self._watch else ()  # before reading: what is edited meanwhile is noticed next time
        documents = _read_all(self._overlays)
        with self._lock:
            self._take(documents)
            self._seen = seen

    def _refresh(self) -> None:
        """With `watch`: take an edit up before anything is told."""
        if self._watch and self._stamps() != self._seen:
            self.reload()

    def _stamps(self) -> tuple[tuple[str, int, int], ...]:
        """What an edit of an overlay changes."""
        paths = overlay_paths() if self._overlays is None else self._overlays
        found = ((str(p), p.stat()) for p in paths if p.exists())
        return tuple((name, stat.st_mtime_ns, stat.st_size) for name, stat in found)

    # ── what there is ────────────────────────────────────────────────────────

    @property
    def files(self) -> list[str]:
        """The paths of the files in force, the built-in one first."""
        self._refresh()
        return [str(d.path) for d in self._documents]

    def contents(self) -> list[bytes]:
        """What the files in force held when they were read, the built-in one first."""
        return [document.text for document in self._documents]

    @property
    def providers(self) -> list[str]:
        """The ids of all providers, sorted."""
        self._refresh()
        return sorted(self._names("providers"))

    @property
    def aliases(self) -> dict[str, str]:
        """Short names → "provider/id"."""
        self._refresh()
        return self._section("aliases")

    def names(self) -> list[str]:
        """Every model described, as "provider/id", sorted."""
        self._refresh()
        return sorted(self._names("models"))

    @property
    def tiers(self) -> dict[str, list[str]]:
        """Ordered lists of models by what they are good for: "fast" → names, best first."""
        self._refresh()
        return self._section("tiers")

    def complete(self, prefix: str) -> list[str]:
        """Names and aliases that begin with `prefix`."""
        checks.require_text("prefix", prefix)
        return sorted(n for n in [*self.aliases, *self.names()] if n.startswith(prefix))

    def _names(self, section: str) -> dict[str, None]:
        """What a section's tables are called, in every file."""
        found = self._sections.get(section)
        if found is None:
            with self._lock:
                found = {name: None for document in self._documents for name in document.data.get(section, ())}
                self._sections[section] = found
        return found

    def _section(self, name: str) -> dict[str, Any]:
        out: dict[str, Any] = {}
        for document in self._documents:
            out.update(document.data.get(name, {}))
        return out

    # ── names ────────────────────────────────────────────────────────────────

    def resolve(self, name: str, *, protocol: str | None = None, base_url: str | None = None) -> Model:
        """The model that goes by `name`: an alias, an id that one provider serves, or "provider/id-on-the-wire".

        `protocol` picks another wire of the endpoint, `base_url` another place. Reads no environment. Raises
        `UnknownModel` with near names; an id its provider does not list is taken, with a note.
        """
        self._refresh()
        if type(name) is not str or protocol is not None or base_url is not None:
            name, protocol, base_url = _text("name", name), _option("protocol", protocol), _option("base_url", base_url)
        key = (name, protocol, base_url)
        found = self._models.get(key)
        if found is None:
            with self._lock:
                found = self._models[key] = self._resolve(name, protocol, base_url)
        return found

    def _resolve(self, name: str, protocol: str | None, base_url: str | None) -> Model:
        provider, id = self._endpoint(name)
        family = self._family(id)
        lineage = self._lineage("models", f"{provider}/{id}")
        own = self._own(lineage, None)
        layers = [*self._shared(provider, family, None), *own]
        spoken = _spoken(layers)
        wanted = protocol or spoken
        if not isinstance(wanted, str):
            raise self._error(["providers", provider], f"providers.{provider} names no protocol")
        if wanted == spoken and wanted not in self._names("protocols"):
            raise self._no_protocol(wanted, layers)
        self._demand_protocol(provider, wanted, spoken)
        foreign = wanted != spoken
        if foreign or any("on" in layer.table for layer in own):
            own = self._own(lineage, wanted, foreign)
        layers = [*self._shared(provider, family, wanted, foreign), *own]
        asked = {} if base_url is None else {"base_url": base_url}
        if asked:
            own = [*own, Layer("the call", self._documents[0], (), asked)]
            layers.append(own[-1])
        table = merge.merge_layers(own, self._merged(provider, family, wanted, foreign))
        when: dict[str, Any] = table.pop("when", {})
        flags = msgspec.convert(table, Flags)
        for key in ("path", "stream_path"):
            if (wrong := _path_fault(getattr(flags, key))) is not None:
                layer = next(la for la in reversed(layers) if key in la.table)
                raise self._error([*layer.path, key], f"{layer.name}.{key} {wrong}")
        listed = f"{provider}/{id}" in self._names("models")

        def under(mode: frozenset[str]) -> Flags:
            held = _held(when, mode)
            if not held:
                return flags
            laid = table
            for key in held:
                laid = merge.stack_layers(laid, when[key])
            changed = {top: laid[top] for key in held for top in when[key] if top not in asked}
            part = msgspec.convert(changed, Flags)
            return msgspec.structs.replace(flags, **{top: getattr(part, top) for top in changed})

        def path(flag: str, mode: frozenset[str]) -> list[str]:
            keys = flag.split(".")
            for key in () if flag in asked else reversed(_held(when, mode)):
                if merge.find_path(when[key], keys) is not None:
                    return ["when", key, *keys]
            return keys

        return Model(
            id=id,
            provider=provider,
            protocol=wanted,
            flags=flags,
            notes=lambda: self._assumptions(provider, id, listed, flags, layers),
            distrusts=lambda env, origin: self._distrusts(layers, env, origin),
            under=under,
            where=lambda flag, mode: provenance.setting_line(layers, path(flag, mode)),
            layer=lambda flag, mode: provenance.setting_layer(layers, path(flag, mode)),
            explain=lambda: list(provenance.facts(layers, table, when)),
            family=self._family,
            # a wire that the caller named is the one that is spoken
            over=None if protocol else lambda wire: self.resolve(name, protocol=wire, base_url=base_url),
        )

    def _endpoint(self, name: str) -> tuple[str, str]:
        """(provider, id on the wire) of a name."""
        models = self._names("models")
        providers = self._names("providers")
        for document, spelled in zip(reversed(self._documents), self._spellings, strict=True):
            aliases = document.data.get("aliases", {})
            alias = name if name in aliases else spelled.get(name.casefold())
            if alias is not None:
                target = aliases[alias]
                if _split(target)[0] not in providers:
                    raise self._error(["aliases", alias], f"alias '{alias}' names no model: '{target}'")
                return self._preferred(target, models) if document.builtin else _split(target)
        provider, slash, id = name.partition("/")
        provider = _spelled(providers, provider) or provider
        if slash and id and provider in providers:
            return _split(_spelled(models, name) or f"{provider}/{id}")
        serving = [m for m in models if _split(m)[1].casefold() == name.casefold()]
        if len(serving) == 1:
            return _split(serving[0])
        if len(serving) > 1:
            for wanted in self._prefer():
                if match := [m for m in serving if _split(m)[0] == wanted]:
                    return _split(match[0])
            raise UnknownModel(
                f"{name} is served by several: {', '.join(sorted(serving))}",
                close=sorted(serving),
                hint="name one",
            )
        close = self._close(name, [*self._section("aliases"), *models])
        hint = f"did you mean {', '.join(close[:3])}?" if close else "`cnllm models list` shows all"
        if slash and provider not in providers:
            hint += f" No provider is called {provider}; an undescribed endpoint: openai-compatible/ID with a base URL."
        raise UnknownModel(f"no model is called {name}", close=close, hint=hint)

    @cached_property
    def _spellings(self) -> list[dict[str, str]]:
        """The aliases of each file as it spells them, by what they are in small letters, the last file first."""
        tables = [document.data.get("aliases", {}) for document in reversed(self._documents)]
        return [{alias.casefold(): alias for alias in reversed(table)} for table in tables]

    def _preferred(self, target: str, models: dict[str, None]) -> tuple[str, str]:
        provider, id = _split(target)
        for wanted in self._prefer():
            if f"{wanted}/{id}" in models:
                return wanted, id
        return provider, id

    def _prefer(self) -> list[str]:
        for document in reversed(self._documents):
            if "prefer" in document.data:
                chosen: list[str] = document.data["prefer"]
                return chosen
        return []

    def _close(self, name: str, names: list[str]) -> list[str]:
        import difflib

        folded = {n.casefold(): n for n in names}
        short = {n.partition("/")[2]: n for n in folded if "/" in n}
        out: list[str] = []
        for candidate in difflib.get_close_matches(name.casefold(), [*folded, *short], n=6, cutoff=0.6):
            full = folded.get(candidate) or folded[short[candidate]]
            if full not in out:
                out.append(full)
        return out[:5]

    # ── layers ───────────────────────────────────────────────────────────────

    def _own(self, lineage: list[str], protocol: str | None, foreign: bool = False) -> list[Layer]:
        """The tables of a model and those it extends, the most general first; without a protocol, not the wires'."""
        return [layer for name in reversed(lineage) for layer in self._table(("models", name), protocol, foreign)]

    def _shared(self, provider: str, family: str | None, protocol: str | None, foreign: bool = False) -> list[Layer]:
        """The layers that all models of a family at a provider have in common.

        `foreign`: the wire is not the one that the tables of providers and models tell of where they name none.
        """
        key = (provider, family, protocol, foreign)
        if key in self._bases:
            return self._bases[key]
        layers = list(self._table(("defaults",), protocol))
        if protocol is not None:
            layers += self._table(("protocols", protocol), protocol)
        if family is not None:
            layers += self._table(("families", family), protocol)
        for name in reversed(self._lineage("providers", provider)):
            layers += self._table(("providers", name), protocol, foreign)
            if family is not None:
                layers += self._table(("providers", name, "families", family), protocol, foreign)
        self._bases[key] = layers
        return layers

    def _merged(self, provider: str, family: str | None, protocol: str, foreign: bool) -> dict[str, Any]:
        """What the shared layers make, once for all models of a family at a provider."""
        key = (provider, family, protocol, foreign)
        if key not in self._grounds:
            self._grounds[key] = merge.merge_layers(self._shared(provider, family, protocol, foreign))
        return self._grounds[key]

    def _table(self, path: tuple[str, ...], protocol: str | None, foreign: bool = False) -> Iterator[Layer]:
        """One table in every file that has it, then what each says for this wire alone.

        Of a table that tells of another wire (`foreign`) only what holds on every wire counts.
        """
        held: list[tuple[Document, dict[str, Any]]] = []
        for document in self._documents:
            table: Any = document.data
            for key in path:
                table = table.get(key)
                if not table:
                    break
            else:
                held.append((document, table))
                yield Layer(".".join(path), document, path, merge.on_every_wire(table) if foreign else table)
        for document, table in held if protocol is not None else ():
            if said := table.get("on", {}).get(protocol):
                wire = (*path, "on", str(protocol))
                yield Layer(".".join(wire), document, wire, said)

    def _family(self, id: str) -> str | None:
        """The family with the pattern that says most (the longest literal start) of an id."""
        folded = id.casefold()
        if folded not in self._families:
            self._families[folded] = next((name for pieces, name in self._globs if _matches(pieces, folded)), None)
        return self._families[folded]

    @cached_property
    def _globs(self) -> list[tuple[list[str], str]]:
        """Each family's patterns as the pieces between their stars, those that say most first."""
        found: list[tuple[int, int, str, str]] = []
        for name in self._names("families"):
            said = [d.data.get("families", {}).get(name, {}).get("match") for d in self._documents]
            for pattern in next((match for match in reversed(said) if match is not None), ()):
                glob = pattern.casefold()
                found.append((glob.find("*") if "*" in glob else len(glob), len(glob), name, glob))
        return [(glob.split("*"), name) for _, _, name, glob in sorted(found, reverse=True)]

    def _lineage(self, section: str, name: str) -> list[str]:
        """A provider or model and those it extends, nearest first."""
        chain = [name]
        while True:
            parent = None
            for document in self._documents:
                parent = document.data.get(section, {}).get(chain[-1], {}).get("extends", parent)
            if parent is None:
                return chain
            place = [section, chain[-1], "extends"]
            if parent in chain or len(chain) > _HOPS:
                said = "extends itself" if parent in chain else f"extends more than {_HOPS} others in a row"
                raise self._error(place, f'{section}."{name}" {said}: {" → ".join([*chain, parent])}')
            if not any(parent in d.data.get(section, {}) for d in self._documents):
                raise self._error(place, f'{section}."{chain[-1]}" extends {parent}, which is not there')
            chain.append(parent)

    def _error(self, path: list[str], message: str) -> RegistryError:
        for document in reversed(self._documents):
            if merge.find_path(document.data, path) is not None:
                return RegistryError(message, file=document.shown, line=document.line(path), hint="mend the line")
        return RegistryError(message)

    def _no_protocol(self, name: str, layers: list[Layer]) -> RegistryError:
        from cnllm.registry.check import did_you_mean, dotted_path

        layer = next(la for la in reversed(layers) if "protocol" in la.table)
        near = did_you_mean(name, self._names("protocols"))
        return self._error(
            [*layer.path, "protocol"], f"{dotted_path(list(layer.path))}: no protocol is called '{name}'{near}"
        )

    def _demand_protocol(self, provider: str, wanted: str, spoken: object) -> None:
        if wanted == spoken:
            return
        known = self._names("protocols")
        spoken_too = self._others(provider)
        if wanted in known and (spoken_too is None or wanted in spoken_too):
            return
        speaks = ", ".join(sorted({str(spoken), *(spoken_too or ())}))
        raise UnknownModel(f"{provider} does not speak {wanted}", hint=f"it speaks {speaks}")

    def _others(self, provider: str) -> list[str] | None:
        """The wires that a provider speaks beside its own; None: any, for nobody knows where it is."""
        tables = [t for name in self._lineage("providers", provider) for t in self._table(("providers", name), None)]
        if not any("base_url" in layer.table for layer in tables):
            return None
        found = {
            wire
            for layer in tables
            for wire, said in layer.table.get("on", {}).items()
            if "base_url" in said or "path" in said
        }
        return [wire for wire in self._names("protocols") if wire in found]

    def wires(self, name: str) -> list[str]:
        """The protocols over which a model can be called, its own first. Raises as `resolve` does."""
        model = self.resolve(name)
        others = self._others(model.provider)
        rest = list(self._names("protocols")) if others is None else others
        return [model.protocol, *(wire for wire in rest if wire != model.protocol)]

    # ── what was assumed ─────────────────────────────────────────────────────

    def _assumptions(self, provider: str, id: str, listed: bool, flags: Flags, layers: list[Layer]) -> Iterator[Note]:
        if not listed:
            yield Note(
                "unknown-model",
                "models",
                f"{provider}/{id}",
                "the provider's facts alone; whether it reasons is unknown",
                provenance.setting_line([la for la in layers if la.path], ["protocol"]),
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

    def _distrusts(self, layers: list[Layer], env: str, origin: str) -> str | None:
        """Return the place that keeps the key in `env` from `origin`, or None where the key may go there.

        A key that the built-in file names goes to origins of that file. It goes elsewhere if everything that says
        where a request goes, or with which key, is in files the user trusts. Any other key goes where trusted files
        and the user's own file in the config folder say; what the call itself says is the caller's will.
        """
        home = self._homes.get(env.upper())
        if home is not None and origin in home:  # a `host` header picks another site of the same machine
            doubtful = [layer for layer in layers if not layer.document.builtin and _host(layer.table)]
        else:
            doubtful = [la for la in layers if _aim(la.table) and not (la.path and la.document.builtin)]
            if home is None:
                doubtful = [layer for layer in doubtful if layer.path]
            if not doubtful:
                return "the built-in registry"
        for layer in doubtful:
            if not layer.path:
                return layer.name
            if not self._vouched(layer.document, own=home is None):
                line = layer.document.line([*layer.path, *(_aim(layer.table) or ())])
                return f"{layer.document.shown}:{line}" if line else layer.document.shown
        return None

    @staticmethod
    def _vouched(document: Document, *, own: bool) -> bool:
        """Whether the user trusts a file; `own`: the one in the config folder needs no word."""
        if own and document.is_own:
            return True
        from cnllm.registry.trusted_files import is_trusted

        return is_trusted(document.path, document.digest)

    @cached_property
    def _homes(self) -> dict[str, set[str]]:
        """Each key that built-in providers name, with the origins of these providers."""
        own = Registry(self._documents[:1])
        out: dict[str, set[str]] = {}
        for provider in own.providers:
            tables = [
                t
                for name in reversed(own._lineage("providers", provider))
                for t in own._table(("providers", name), None)
            ]
            said = merge.merge_layers(tables)
            modes = [t for layer in tables for kind in ("on", "when") for t in layer.table.get(kind, {}).values()]
            origins = {origin_of(table["base_url"]) for table in (said, *modes) if "base_url" in table}
            for env in said.get("keys", ()):
                out.setdefault(env.upper(), set()).update(origins)
        return out


def _path_fault(path: str | None) -> str | None:
    """What is wrong with a path: put behind an address it must not change its host or port."""
    if not path:
        return None
    if not path.startswith("/"):
        return "must begin with /"
    return None if path.isprintable() and not {" ", "\\"} & set(path) else "holds a character that no address can hold"


def _text(name: str, value: Any) -> str:
    checks.require_text(name, value)
    return str.__str__(value)


def _option(name: str, value: Any) -> str | None:
    if value is not None and not isinstance(value, str):
        raise checks.wrong_type(name, value, "a string or None")
    return None if value is None else str.__str__(value)


def _aim(table: dict[str, Any]) -> list[str] | None:
    """Return the keys of the first entry that says, in some mode, where a request goes or with which key."""
    for keys, said in _modes(table):
        for key in _AIM:
            if key in said:
                return [*keys, key]
    return _host(table)


def _host(table: dict[str, Any]) -> list[str] | None:
    """Return the keys of a `host` header, or None."""
    for keys, said in _modes(table):
        for source in (said, *(v for name, v in said.get("call", {}).items() if name == "extra_headers")):
            for name in (source.get("headers") if source is said else source) or ():
                if name.strip().lower() in _HOST:
                    return [*keys, *(["headers"] if source is said else ["call", "extra_headers"]), name]
    auth = next(((k, s["auth"]) for k, s in _modes(table) if isinstance(s.get("auth"), dict)), None)
    if auth is not None and str(auth[1].get("header", "")).strip().lower() in _HOST:
        return [*auth[0], "auth"]
    return None


def _modes(table: dict[str, Any]) -> Iterator[tuple[list[str], dict[str, Any]]]:
    """A table and its `when` tables, each with the keys that lead to it."""
    yield [], table
    for condition, said in table.get("when", {}).items():
        yield ["when", condition], said


def _matches(pieces: list[str], id: str) -> bool:
    """Anything may stand between the pieces. Regular expressions would have to be compiled anew in every process."""
    first, last = pieces[0], pieces[-1]
    if len(pieces) == 1:
        return id == first
    if not id.startswith(first) or len(id) < len(first) + len(last) or not id.endswith(last):
        return False
    middle = pieces[1:-1]
    at, end = len(first), len(id) - len(last)
    for piece in middle:
        found = id.find(piece, at, end)
        if found < 0:
            return False
        at = found + len(piece)
    return True


def _read_all(overlays: Sequence[Path] | None) -> list[Document]:
    chosen = overlay_paths() if overlays is None else overlays
    return [read(builtin_path(), builtin=True), *(read(p) for p in chosen)]


def _held(when: dict[str, Any], mode: frozenset[str]) -> list[str]:
    """The conditions that hold in a mode, those with more atoms later."""
    return sorted((k for k in when if set(k.split("+")) <= mode), key=lambda k: (k.count("+"), k))


def _split(name: str) -> tuple[str, str]:
    provider, _, id = name.partition("/")
    return provider, id


def _spoken(layers: list[Layer]) -> object:
    """The protocol that layers settle on, without merging all they say."""
    for layer in reversed(layers):
        if "protocol" in layer.table:
            return layer.table["protocol"]
        if "protocol" in layer.table.get("unset", ()):
            return None
    return None


def _spelled(names: Mapping[str, Any], name: str) -> str | None:
    """A name as the registry spells it, whatever its case."""
    if name in names:
        return name
    folded = name.casefold()
    return next((n for n in names if n.casefold() == folded), None)


def origin_of(url: str) -> str:
    """Scheme, host and port of a URL, in lower case, the scheme's own port left out."""
    from urllib.parse import urlsplit

    parts = urlsplit(url)
    port = f":{parts.port}" if parts.port and (parts.scheme, parts.port) not in (("https", 443), ("http", 80)) else ""
    host = parts.hostname or ""
    return f"{parts.scheme}://{f'[{host}]' if ':' in host else host}{port}"
