"""List what the built-in file says with which source."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from msgspec import Struct

from cnllm.registry import Registry
from cnllm.registry.documents import Document, layer_tables
from cnllm.registry.merge import find_path, flatten, unset_path
from cnllm.registry.problem import dotted_path
from cnllm.registry.provenance import SHARED, cited_flags

__all__ = ["COMPARED", "Claim", "claims", "inherited"]

LIMITS = ("limits.context", "limits.input", "limits.output")
PRICES = ("price.input", "price.output", "price.cached", "price.cache_write")
COMPARED = (*LIMITS, *PRICES, "input", "reasoning.mode", "tools.supported")
"""The flags whose values catalogues have."""


class Claim(Struct, frozen=True):
    """A value and one source that backs it.

    `model` is empty for what holds for a wire, a family or a provider. `heir` is a model that takes the value over from
    `model` without a source of its own.
    """

    table: str
    where: str
    model: str
    flag: str
    value: Any
    name: str
    url: str
    path: str = ""
    how: str = ""
    rounded: bool = False
    quote: str = ""
    heir: str = ""


def claims(document: Document) -> Iterator[Claim]:
    """Yield the values of a file with their sources; a flag that no catalogue has comes with its first value."""
    for path, table in layer_tables(document.data):
        cited = list(cited_flags(document.data, path, table))
        for place, name, source in cited:
            for back in source["backs"]:
                if back.startswith(SHARED) and path[0] in ("providers", "defaults"):
                    continue  # the tables of the models have it
                where = f"{document.label}:{document.line(place if place[: len(path)] == path else path) or ''}"
                values = _values(table, back)
                model = path[1] if path[0] == "models" and len(path) == 2 else ""
                for flag, value in values.items():
                    if flag not in COMPARED or not model:
                        continue
                    if not _is_overruled(flag, back, cited):
                        yield _claim(path, where, model, flag, value, name, source)
                if not model or not any(flag in COMPARED for flag in values):
                    value = next(iter(values.values()), None)
                    yield _claim(path, where, "", back, value, name, source)


def inherited(registry: Registry, own: list[Claim]) -> Iterator[Claim]:
    """Yield the claims of `own` once more for every model that takes their value over from another one."""
    by_flag: dict[tuple[str, str, str], Claim] = {(c.model, c.flag, c.url): c for c in own if c.model}
    for name in registry.names():
        model = registry.resolve(name)
        for fact in model.explain():
            giver = fact.layer.removeprefix("models.")
            if fact.flag in COMPARED and giver != model.name and giver != fact.layer:
                claim = by_flag.get((giver, fact.flag, fact.source or ""))
                if claim is not None:
                    yield Claim(**{f: getattr(claim, f) for f in Claim.__struct_fields__ if f != "heir"}, heir=name)


def _values(table: Mapping[str, Any], back: str) -> dict[str, Any]:
    """Return the values of a table below a path, by flag."""
    keys = unset_path(back)
    if (spelled := find_path(table, keys)) is None:
        return {}
    value: Any = table
    for key in spelled:
        value = value[key]
    if not isinstance(value, dict):
        return {back: value}
    return {".".join([back, *inner]): leaf for inner, leaf in flatten(value)}


def _is_overruled(flag: str, back: str, cited: list[tuple[list[str], str, dict[str, Any]]]) -> bool:
    """Whether another source of the table backs a flag more precisely than `back`."""
    backs = [other for _, _, source in cited for other in source["backs"]]
    return any((flag == b or flag.startswith(b + ".")) and len(b) > len(back) for b in backs)


def _claim(
    place: Sequence[str], where: str, model: str, flag: str, value: Any, name: str, source: Mapping[str, Any]
) -> Claim:
    """Return a claim of the table at `place`, with what its source says of itself."""
    provider = place[1].partition("/")[0] if place[0] in ("providers", "models") else ""
    return Claim(
        dotted_path(list(place)),
        where,
        model,
        flag,
        value,
        name,
        str(source["url"]).replace("{provider}", provider),
        str(source.get("path", "")).replace("{provider}", provider),
        str(source.get("how", "")),
        bool(source.get("rounded", False)),
        str(source.get("quote", "")),
    )
