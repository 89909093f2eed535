"""Check the names in a registry file: protocols, families, providers, models, and the sources that its tables cite."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator
from typing import TYPE_CHECKING, Any

from cnllm.errors import CnllmError, RegistryError
from cnllm.registry.documents import layer_tables
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
from cnllm.registry_files.sources import unsourced_flags
from cnllm.types.route import Fallback

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
    models = set(registry.names())
    providers = set(registry.providers)
    protocols = registry._layers.names("protocols")
    families = registry._layers.names("families")

    lines = document.source.split("\n")

    def problem(path: list[str], message: str) -> Problem:
        line = document.line(path)
        corrected = corrected_line(lines, line, path[-1], suggested_word(message) or None) if path else ""
        return Problem(document.label, line, message, corrected=corrected)

    def unknown(path: list[str], place: str, noun: str, name: str, names: Collection[str]) -> Iterator[Problem]:
        if name not in names:
            yield problem(path, f"{place}: no {noun} is called '{name}'{did_you_mean(name, names)}")

    for path, table in layer_tables(document.data):
        place = dotted_path(path)
        if (wire := table.get("protocol")) is not None:
            yield from unknown([*path, "protocol"], place, "protocol", wire, protocols)
        for mode, flags in table.get("when", {}).items():
            if (wire := flags.get("protocol")) is not None:
                yield from unknown([*path, "when", mode, "protocol"], f"{place}.when", "protocol", wire, protocols)
        for kind, noun, names in (("on", "protocol", protocols), ("families", "family", families)):
            for name in table.get(kind, {}):
                yield from unknown([*path, kind, name], f"{place}.{kind}", noun, name, names)
        use = table.get("status", {}).get("use")
        if use is not None:
            yield from unknown([*path, "status"], place, "model", use, models)
        if table.get("status", {}).get("is") == "retired" and use is None and not document.is_data:
            yield problem([*path, "status"], f"{place} is retired and names no successor")
        for flag in table.get("corrects", {}):
            if not _has_flag(table, flag):
                yield problem(
                    [*path, "corrects", flag],
                    f"{place}.corrects names '{flag}', which is not there: set the right value as well",
                )
    if not document.builtin and document.data.get("defaults", {}).get("leaks") == []:
        yield Problem(
            document.label,
            document.line(["defaults", "leaks"]),
            "defaults.leaks = [] removes only the general markup, not that of families; to remove all: "
            '[defaults.call] recover_text_calls = "keep"',
            "warning",
        )
    for name in document.data.get("prefer", ()):
        yield from unknown(["prefer"], "prefer", "provider", name, providers)
    for name in document.data.get("providers", {}):
        try:
            registry._layers.extends_chain("providers", name)
        except RegistryError as error:
            yield problem_from_error(error, document.label)
    for name, table in document.data.get("providers", {}).items():
        path = ["providers", name, "site"]
        site = table.get("site", {})
        if site.get("vendor") is not None and len(registry.sites(name)) == 1:
            yield problem([*path, "vendor"], f"{dotted_path(path)}.vendor: no other provider has '{site['vendor']}'")
        if any("keys" in d.data.get("providers", {}).get(name, {}) for d in registry._documents if d is not document):
            continue  # a file of the user's has other variables
        for key in site.get("keys", ()):
            if key not in (registry.endpoint(name).flags.keys or ()):
                yield problem([*path, "keys"], f"{dotted_path(path)}.keys: '{key}' is not a variable of its `keys`")
    for name in document.data.get("models", {}):
        provider = name.partition("/")[0]
        path = ["models", name]
        if provider not in providers:
            yield from unknown(path, f'models."{name}"', "provider", provider, providers)
            continue
        try:
            model = registry.resolve(name)
        except RegistryError as error:
            yield problem_from_error(error, document.label)
            continue
        if (
            document.data["models"][name].get("same_weights")
            and len(registry._layers.extends_chain("models", name)) == 1
        ):
            yield problem([*path, "same_weights"], f'models."{name}" has same_weights, but extends no model')
        reasoning = model.flags.reasoning
        if reasoning and reasoning.mode == "toggle" and not (reasoning.on or reasoning.off or reasoning.effort):
            yield problem(path, f'models."{name}": reasoning.mode is toggle, but nothing says how to switch it')
    for section in ("aliases", "family_aliases"):
        for alias, target in document.data.get(section, {}).items():
            if target not in models:
                yield problem(
                    [section, alias],
                    f"alias '{alias}' names no model: '{target}'{did_you_mean(target, models)}",
                )
    for target in document.data.get("default_models", ()):
        yield from unknown(["default_models"], "default_models", "model", target, models)
    for tier, targets in document.data.get("tiers", {}).items():
        for target in targets:
            if target.partition("/")[0] not in providers:
                yield from unknown(["tiers", tier], f"tiers.{tier}", "model", target, models)
    gateway = document.data.get("gateway", {})
    for name, route in gateway.get("routes", {}).items():
        path = ["gateway", "routes", name]
        targets = route.get("targets", [])
        try:
            Fallback(**route | {"targets": targets[1:]})
        except (TypeError, ValueError) as error:
            yield problem(path, f"{dotted_path(path)}: {error}")
        if not targets:
            yield problem(path, f"{dotted_path(path)} has no targets")
        if name in gateway.get("models", {}):
            yield problem(path, f"{dotted_path(path)} stands in gateway.models, too: one of them has to go")
    mapped = [(["gateway", "models", name], target) for name, target in gateway.get("models", {}).items()]
    mapped += [
        (["gateway", "routes", name], target)
        for name, route in gateway.get("routes", {}).items()
        for target in route.get("targets", [])
    ]
    for path, target in mapped:
        try:
            if not target.startswith("tier:"):
                name, wire = split_wire(target)
                registry.resolve(name, protocol=wire)
            elif target.removeprefix("tier:") not in registry.tiers:
                yield problem(path, f"{dotted_path(path)} names no tier: '{target}'")
        except CnllmError as error:
            yield problem(path, f"{dotted_path(path)}: {error.message}")


# ── citations ────────────────────────────────────────────────────────────────


def citation_problems(document: Document) -> Iterator[Problem]:
    """Yield the faults of citations: unknown and unused sources, flags that are not there."""
    named = document.data.get("sources", {})
    unused = dict.fromkeys(named)
    lines = document.source.split("\n")

    def problem(path: list[str], message: str, corrected: str = "") -> Problem:
        return Problem(document.label, document.line(path), message, corrected=corrected)

    for path, table in layer_tables(document.data):
        for name, value in table.get("sources", {}).items():
            place = [*path, "sources", name]
            unused.pop(name, None)
            for citation in written_citations(value):
                if "url" in citation:
                    if document.builtin:
                        yield problem(place, f"{dotted_path(place)} has a url; name the source under [sources]")
                elif name not in named:
                    meant = did_you_mean(name, named)
                    line = document.line(place)
                    yield problem(
                        place,
                        f"{dotted_path(path)}.sources: no source is called '{name}'{meant}",
                        corrected_key(lines, line, name, suggested_word(meant)),
                    )
                yield from (
                    problem(place, f"{dotted_path(place)} backs '{flag}', which is not there")
                    for flag in citation["backs"]
                    # `models.FLAG` is a flag of the models of a provider, or of all, in this file
                    if not (flag.startswith(SHARED) and path[0] in ("providers", "defaults"))
                    and not _has_flag(table, flag)
                )
    if document.builtin:
        yield from (problem(place, message) for place, message in _missing_paths(document))
        for flag in unsourced_flags([document]):
            _, _, number = flag.where.rpartition(":")
            yield Problem(document.label, int(number) if number.isdigit() else None, f"{flag.flag} has no source")
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


def _has_flag(table: dict[str, Any], flag: str) -> bool:
    """Whether a table has a value at a dotted path. A key may contain dots."""
    value: Any = table
    keys = flag.split(".")
    while keys:
        if type(value) is not dict:
            return False
        for length in range(len(keys), 0, -1):
            key = ".".join(keys[:length])
            if key in value:
                value, keys = value[key], keys[length:]
                break
        else:
            return False
    return True
