"""Check the names in a registry file: protocols, families, providers, models, and the sources that its tables cite."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator
from typing import TYPE_CHECKING, Any

from cnllm.errors import CnllmError, RegistryError
from cnllm.registry.documents import layer_tables
from cnllm.registry.merge import flatten
from cnllm.registry.problem import (
    Problem,
    corrected_key,
    corrected_line,
    did_you_mean,
    dotted_path,
    problem_from_error,
    suggested_word,
)
from cnllm.registry.provenance import SHARED, citations, cited_flags, precision_of, written_citations
from cnllm.registry.routing import split_wire
from cnllm.registry_files.sources import unsourced_paths
from cnllm.types.policy import Fallback

if TYPE_CHECKING:
    from cnllm.registry.documents import Document
    from cnllm.registry.registry import Registry

__all__ = [
    "citation_problems",
    "reference_problems",
]


_READABLE = ("docs", "code", "catalogue")
"""The kinds of source whose values stand in a file that a program can read again."""

_ARCHIVE = re.compile(r"^https://(?:www\.npmjs\.com/package|pypi\.org/project)/|^[\w.-]+/[\w.-]+(?:@\S+)?$")
"""The URLs of packages, and of repositories without a path."""


def reference_problems(document: Document, registry: Registry) -> Iterator[Problem]:
    """Yield the faults of references: unknown names, a toggle without its switch."""
    check = _ReferenceCheck(document, registry)
    yield from check.tables()
    yield from check.general()
    yield from check.providers()
    yield from check.models()
    yield from check.aliases()
    yield from check.routes()


class _ReferenceCheck:
    """The check of the names in one file, against all names of the registry."""

    def __init__(self, document: Document, registry: Registry) -> None:
        self._document = document
        self._registry = registry
        self._layers = registry._layers
        self._lines = document.source.split("\n")
        self._models = set(registry.names())
        self._providers = set(registry.providers)

    def _problem(self, path: list[str], message: str) -> Problem:
        """Return the problem of a place, with the corrected line if the message suggests a word."""
        line = self._document.line(path)
        corrected = corrected_line(self._lines, line, path[-1], suggested_word(message) or None) if path else ""
        return Problem(self._document.label, line, message, corrected=corrected)

    def _unknown(self, path: list[str], place: str, noun: str, name: str, names: Collection[str]) -> Iterator[Problem]:
        """Yield the problem of a name that does not exist; nothing for one that does."""
        if name not in names:
            yield self._problem(path, f"{place}: no {noun} is called '{name}'{did_you_mean(name, names)}")

    def tables(self) -> Iterator[Problem]:
        """Check the names in each table of flags."""
        protocols, families = self._layers.names("protocols"), self._layers.names("families")
        for path, table in layer_tables(self._document.data):
            place = dotted_path(path)
            if (wire := table.get("protocol")) is not None:
                yield from self._unknown([*path, "protocol"], place, "protocol", wire, protocols)
            for mode, flags in table.get("when", {}).items():
                if (wire := flags.get("protocol")) is not None:
                    mode_path = [*path, "when", mode, "protocol"]
                    yield from self._unknown(mode_path, f"{place}.when", "protocol", wire, protocols)
            for kind, noun, names in (("on", "protocol", protocols), ("families", "family", families)):
                for name in table.get(kind, {}):
                    yield from self._unknown([*path, kind, name], f"{place}.{kind}", noun, name, names)
            yield from self._status(path, place, table.get("status", {}))
            for flag in table.get("corrects", {}):
                if flag not in _flags(table):
                    message = f"{place}.corrects names '{flag}', which is not there: set the right value as well"
                    yield self._problem([*path, "corrects", flag], message)

    def _status(self, path: list[str], place: str, status: dict[str, Any]) -> Iterator[Problem]:
        """Check the successor that a status names."""
        use = status.get("use")
        if use is not None:
            yield from self._unknown([*path, "status"], place, "model", use, self._models)
        elif status.get("is") == "retired" and not self._document.is_data:
            yield self._problem([*path, "status"], f"{place} is retired and names no successor")

    def general(self) -> Iterator[Problem]:
        """Check the defaults and the list of preferred providers."""
        document = self._document
        if not document.builtin and document.data.get("defaults", {}).get("leaks") == []:
            yield Problem(
                document.label,
                document.line(["defaults", "leaks"]),
                "defaults.leaks = [] removes only the general markup, not that of families; to remove all: "
                '[defaults.call] recover_text_calls = "keep"',
                "warning",
            )
        for name in document.data.get("prefer", ()):
            yield from self._unknown(["prefer"], "prefer", "provider", name, self._providers)

    def providers(self) -> Iterator[Problem]:
        """Check what providers extend, and their sites."""
        providers = self._document.data.get("providers", {})
        for name in providers:
            try:
                self._layers.extends_chain("providers", name)
            except RegistryError as error:
                yield problem_from_error(error, self._document.label)
        for name, table in providers.items():
            yield from self._site(name, table.get("site", {}))

    def _site(self, name: str, site: dict[str, Any]) -> Iterator[Problem]:
        """Check the vendor and the keys of a provider's site."""
        registry, path = self._registry, ["providers", name, "site"]
        if site.get("vendor") is not None and len(registry.sites(name)) == 1:
            message = f"{dotted_path(path)}.vendor: no other provider has '{site['vendor']}'"
            yield self._problem([*path, "vendor"], message)
        others = (other for other in registry._documents if other is not self._document)
        if any("keys" in other.data.get("providers", {}).get(name, {}) for other in others):
            return  # a file of the user's has other variables
        for key in site.get("keys", ()):
            if key not in (registry.endpoint(name).flags.keys or ()):
                message = f"{dotted_path(path)}.keys: '{key}' is not a variable of its `keys`"
                yield self._problem([*path, "keys"], message)

    def models(self) -> Iterator[Problem]:
        """Check that each model can be resolved, and that a toggle has its switch."""
        for name, table in self._document.data.get("models", {}).items():
            provider = name.partition("/")[0]
            path = ["models", name]
            if provider not in self._providers:
                yield from self._unknown(path, f'models."{name}"', "provider", provider, self._providers)
                continue
            try:
                model = self._registry.resolve(name)
            except RegistryError as error:
                yield problem_from_error(error, self._document.label)
                continue
            if table.get("same_weights") and len(self._layers.extends_chain("models", name)) == 1:
                message = f'models."{name}" has same_weights, but extends no model'
                yield self._problem([*path, "same_weights"], message)
            reasoning = model.flags.reasoning
            if reasoning.mode == "toggle" and not (reasoning.on or reasoning.off or reasoning.effort):
                message = f'models."{name}": reasoning.mode is toggle, but nothing says how to switch it'
                yield self._problem(path, message)

    def aliases(self) -> Iterator[Problem]:
        """Check the models that aliases, default models and tiers name."""
        data, models = self._document.data, self._models
        for section in ("aliases", "family_aliases"):
            for alias, target in data.get(section, {}).items():
                if target not in models:
                    message = f"alias '{alias}' names no model: '{target}'{did_you_mean(target, models)}"
                    yield self._problem([section, alias], message)
        for target in data.get("default_models", ()):
            yield from self._unknown(["default_models"], "default_models", "model", target, models)
        for tier, targets in data.get("tiers", {}).items():
            for target in targets:
                if target.partition("/")[0] not in self._providers:
                    yield from self._unknown(["tiers", tier], f"tiers.{tier}", "model", target, models)

    def routes(self) -> Iterator[Problem]:
        """Check the routes of the gateway, then every model that its names stand for."""
        gateway = self._document.data.get("gateway", {})
        names, routes = gateway.get("models", {}), gateway.get("routes", {})
        for name, route in routes.items():
            path = ["gateway", "routes", name]
            targets = route.get("targets", [])
            try:
                Fallback(**route | {"targets": targets[1:]})
            except (TypeError, ValueError) as error:
                yield self._problem(path, f"{dotted_path(path)}: {error}")
            if not targets:
                yield self._problem(path, f"{dotted_path(path)} has no targets")
            if name in names:
                yield self._problem(path, f"{dotted_path(path)} stands in gateway.models, too: one of them has to go")
        for name, target in names.items():
            yield from self._target(["gateway", "models", name], target)
        for name, route in routes.items():
            for target in route.get("targets", []):
                yield from self._target(["gateway", "routes", name], target)

    def _target(self, path: list[str], target: str) -> Iterator[Problem]:
        """Check a model or a tier that a name of the gateway stands for."""
        try:
            if not target.startswith("tier:"):
                name, wire = split_wire(target)
                self._registry.resolve(name, protocol=wire)
            elif target.removeprefix("tier:") not in self._registry.tiers:
                yield self._problem(path, f"{dotted_path(path)} names no tier: '{target}'")
        except CnllmError as error:
            yield self._problem(path, f"{dotted_path(path)}: {error.message}")


# ── citations ────────────────────────────────────────────────────────────────


def citation_problems(document: Document) -> Iterator[Problem]:
    """Yield the faults of citations: unknown and unused sources, flags that are not there."""
    sources = document.data.get("sources", {})
    unused = dict.fromkeys(sources)
    lines = document.source.split("\n")

    def problem(path: list[str], message: str, corrected: str = "") -> Problem:
        return Problem(document.label, document.line(path), message, corrected=corrected)

    for path, table in layer_tables(document.data):
        flags = _flags(table)
        for name, value in table.get("sources", {}).items():
            place = [*path, "sources", name]
            unused.pop(name, None)
            for citation in written_citations(value):
                if "url" in citation:
                    if document.builtin:
                        yield problem(place, f"{dotted_path(place)} has a url; name the source under [sources]")
                elif name not in sources:
                    question = did_you_mean(name, sources)
                    line = document.line(place)
                    yield problem(
                        place,
                        f"{dotted_path(path)}.sources: no source is called '{name}'{question}",
                        corrected_key(lines, line, name, suggested_word(question)),
                    )
                yield from (
                    problem(place, f"{dotted_path(place)} backs '{flag}', which is not there")
                    for flag in citation["backs"]
                    # `models.FLAG` is a flag of the models of a provider, or of all, in this file
                    if not (flag.startswith(SHARED) and path[0] in ("providers", "defaults")) and flag not in flags
                )
    if document.builtin:
        yield from (problem(place, message) for place, message in _missing_paths(document))
        yield from (problem(place, f"{dotted_path(place)} has no source") for place in unsourced_paths(document))
    yield from (problem(place, message) for place, message in _idle_shares(document))
    for name in unused:
        yield Problem(
            document.label,
            document.line(["sources", name]),
            f"sources.{name} backs nothing",
            "error" if document.builtin else "warning",
        )


def _idle_shares(document: Document) -> Iterator[tuple[list[str], str]]:
    """Yield (path, fault) for each shared flag that backs nothing: the tables of models cite sources of their own."""
    needed: set[tuple[str, ...]] = set()
    for path, table in layer_tables(document.data):
        for place, _, source in cited_flags(document.data, path, table) if path[0] == "models" else ():
            needed.update((*place, flag) for flag in source["backs"])
    for path, table in layer_tables(document.data):
        for name, source in citations(document.data, table) if path[0] in ("providers", "defaults") else ():
            for flag in source["backs"]:
                place = [*path, "sources", name]
                back = flag.removeprefix(SHARED)
                if flag != back and not any(n[:-1] == tuple(place) and precision_of(n[-1], (back,)) for n in needed):
                    yield place, f"{dotted_path(place)} backs '{flag}', which no model takes from it"


def _missing_paths(document: Document) -> Iterator[tuple[list[str], str]]:
    """Yield (path, fault) for citations of a package or repository that do not say which of its files has the value."""
    for path, table in layer_tables(document.data):
        for name, source in citations(document.data, table):
            is_readable = source["how"] in _READABLE and _ARCHIVE.search(source["url"])
            if is_readable and "path" not in source:
                place = [*path, "sources", name]
                yield place, f"{dotted_path(place)} has no path; name the file of {source['url']} that has the value"


def _flags(table: dict[str, Any]) -> set[str]:
    """Return the dotted paths of all values of a table, and of the tables in it."""
    return {".".join(keys[:length]) for keys, _ in flatten(table) for length in range(1, len(keys) + 1)}
