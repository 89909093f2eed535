"""Find the line that set a value, and the source that backs it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import chain, groupby
from typing import Any

from msgspec import UNSET
from msgspec.structs import replace

from cnllm.registry import merge
from cnllm.registry.merge import Layer
from cnllm.registry.model import Fact
from cnllm.system.processes import cached_property

__all__ = [
    "INFERRED",
    "Trace",
    "citations",
    "cited_flags",
    "facts",
    "precision_of",
    "setting_layer",
    "setting_line",
    "shared_citations",
    "written_citations",
]

SHARED = "models."
"""Before a flag that a source of a provider, or of `defaults`, backs in the tables of models."""


INFERRED = "?"
"""Behind a flag that a source does not say in as many words."""


def setting_line(layers: list[Layer], keys: list[str]) -> str:
    """Return the "file:line" that last set (or unset) a path of keys; "" where none does."""
    for layer in reversed(layers):
        path = merge.find_path(layer.table, keys)
        if path is None and any(_starts_with(keys, merge.unset_path(u)) for u in layer.table.get("unset", ())):
            path = ["unset"]
        if path is not None:
            return _line(layer, path)
    return ""


def _line(layer: Layer, path: list[str]) -> str:
    line = layer.document.line([*layer.path, *path]) if layer.path else None
    return f"{layer.document.label}:{line}" if line else layer.name


def setting_layer(layers: list[Layer], keys: list[str]) -> str:
    """Return the layer that last set a path of keys; "" where none does."""
    return next((layer.name for layer in reversed(layers) if merge.find_path(layer.table, keys) is not None), "")


def facts(
    layers: list[Layer], table: dict[str, Any], when: dict[str, Any], traces: Mapping[int, Trace], model: str
) -> Iterator[Fact]:
    """Yield every value of a merged table with its line and its source.

    `traces` are those of layers that other models have too, by the `id` of the layer. What `model` has from the table
    of another model is inferred: its source is about that one.
    """
    traced = [traces.get(id(layer)) or Trace(layer, layers) for layer in reversed(layers)]
    for keys, value in [*merge.flatten(table), *merge.flatten({"when": when} if when else {})]:
        where: str | None = None
        head = keys[0]
        for one in traced:
            if head not in one.heads or (origin := one.origin(keys)) is None:
                continue
            if where is None:
                where = origin.where
            if origin.value is not UNSET:
                break
        else:
            raise AssertionError(f"no layer sets {'.'.join(keys)}")
        is_foreign = one.layer.path[:1] == ("models",) and one.layer.path[1] != model
        how = "inferred" if is_foreign and origin.source is not None else origin.how
        is_public = one.layer.document.builtin and one.layer.path  # the built-in files hold no secret, a call may
        safe_value = value if is_public else _redact(keys, value)
        yield replace(origin, value=safe_value, where=where, how=how)


def shared_citations(
    data: Mapping[str, Any], path: Sequence[str]
) -> Iterator[list[tuple[list[str], str, dict[str, Any]]]]:
    """Yield what a file says once for many models: (path, name, source) of the provider, then of `defaults`.

    A source there that backs `models.FLAG` backs that flag in the table of every model, unless the table cites one for
    it that is as precise.
    """
    if len(path) < 2 or path[0] != "models":
        return
    provider = path[1].partition("/")[0]
    for place, table in (
        (["providers", provider], data.get("providers", {}).get(provider, {})),
        (["defaults"], data.get("defaults", {})),
    ):
        yield [
            ([*place, "sources", name], name, {**source, "backs": backs})
            for name, source in citations(data, table)
            if (backs := [flag.removeprefix(SHARED) for flag in source["backs"] if flag.startswith(SHARED)])
        ]


def cited_flags(
    data: Mapping[str, Any], path: Sequence[str], table: Mapping[str, Any]
) -> Iterator[tuple[list[str], str, dict[str, Any]]]:
    """Yield (path, name, source) for all that backs a table: its own citations, then the shared ones.

    The flags of a shared one are those that it backs here.
    """
    covered: list[str] = []
    for name, source in citations(data, table):
        covered += source["backs"]
        yield [*path, "sources", name], name, source
    tiers = [tier for tier in shared_citations(data, path) if tier]
    if not tiers:
        return
    values = {key: value for key, value in table.items() if key not in merge.META or key == "when"}
    flags = [".".join(keys) for keys, _ in merge.flatten(values)]
    precision = {flag: precision_of(flag, covered) for flag in flags}
    for tier in tiers:
        most = {flag: max(precision_of(flag, source["backs"]) for _, _, source in tier) for flag in flags}
        for place, name, source in tier:
            backs: list[str] = []
            for back in source["backs"]:
                inner = [flag for flag in flags if precision_of(flag, (back,))]
                mine = [flag for flag in inner if len(back) == most[flag] > precision[flag]]
                backs += [back] if mine and mine == inner else mine
            if backs:
                yield place, name, {**source, "backs": backs}
        precision = {flag: max(precision[flag], most[flag]) for flag in flags}


def precision_of(flag: str, backs: Iterable[str]) -> int:
    """Return how precisely some flags name this one, or a table around it: the length of the longest; 0 for not."""
    return max((len(back) for back in backs if flag == back or flag.startswith(back + ".")), default=0)


class Trace:
    """The flags that a layer sets: computed once, because most layers are those of hundreds of models.

    `layers` are all that may hold the same table.
    """

    def __init__(self, layer: Layer, layers: list[Layer]) -> None:
        self.layer = layer
        self._unset = [merge.unset_path(path) for path in layer.table.get("unset", ())]
        self.heads = {*layer.table, *(path[0] for path in self._unset)}  # the first keys of all its flags
        self._layers = layers
        self._origins: dict[tuple[str, ...], Fact | None] = {}

    def origin(self, keys: tuple[str, ...]) -> Fact | None:
        """Return where this layer sets a flag, without its value, or unsets it (value UNSET); None for neither."""
        try:
            return self._origins[keys]
        except KeyError:
            origin = self._origins[keys] = self._find(keys)
            return origin

    def _find(self, keys: tuple[str, ...]) -> Fact | None:
        path = list(keys)
        flag = ".".join(path)
        spelled = merge.find_path(self.layer.table, path)
        if spelled is not None:
            source = self._source(flag)
            seen = str(source["seen"]) if "seen" in source else None
            line, is_rounded = _line(self.layer, spelled), source.get("rounded", False)
            details = (source.get("url"), seen, source.get("how"), is_rounded, source.get("quote"))
            return Fact(flag, None, self.layer.name, line, *details)
        if any(_starts_with(path, unset) for unset in self._unset):
            return Fact(flag, UNSET, self.layer.name, _line(self.layer, ["unset"]))
        return None

    @cached_property
    def _backed(self) -> dict[str, dict[str, Any]]:
        """Each flag with its source: of the layer's own table (in any file), then of what its file shares."""
        own_first = [self.layer, *(layer for layer in self._layers if layer is not self.layer)]
        tables = [citations(other.document.data, other.table) for other in own_first if other.path == self.layer.path]
        shared = shared_citations(self.layer.document.data, self.layer.path)
        backed: dict[str, dict[str, Any]] = {}
        for _, source in chain(*tables, ((name, source) for tier in shared for _, name, source in tier)):
            for flag in source["backs"]:
                backed.setdefault(".".join(merge.unset_path(flag)), source)
        return backed

    def _source(self, flag: str) -> dict[str, Any]:
        """Return the source that backs a flag most precisely; of several, the nearest."""
        while flag:
            if (source := self._backed.get(flag)) is not None:
                return source
            flag = flag.rpartition(".")[0]
        return {}


def _redact(path: tuple[str, ...], value: object) -> object:
    """Return a flag's value for display: a URL or a header may hold a password."""
    if not {"base_url", "headers", "auth"} & set(path):
        return value
    from cnllm.config import redact

    if path[-1] == "base_url" and isinstance(value, str):
        return redact.redact_url(value)
    if path[-1] == "headers" and isinstance(value, dict):
        return redact.redact_request_headers(value)
    if path[-2:-1] == ("headers",) and isinstance(value, str):
        return redact.redact_request_headers({path[-1]: value})[path[-1]]
    if path[-2:] == ("auth", "value") and isinstance(value, str) and "{key}" not in value:
        return redact.MARK
    return value


def _starts_with(keys: list[str], start: list[str]) -> bool:
    return keys[: len(start)] == start


def citations(data: Mapping[str, Any], table: Mapping[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield (name, source) for each citation of a table in a file's data; a name that nobody explains is left out."""
    cited = table.get("sources")
    if not cited:
        return
    sources = data.get("sources", {})
    for name, value in cited.items():
        for citation in written_citations(value):
            if "url" in citation:
                yield name, citation
            elif name in sources:
                yield name, {**sources[name], **citation}


def written_citations(value: Any) -> Iterator[dict[str, Any]]:
    """Yield the citations under one name as tables, without what the named source says.

    What stands with a `?` behind it is inferred.
    """
    cited = value if isinstance(value, list) else [value]
    for is_table, items in groupby(cited, lambda item: isinstance(item, dict)):
        for item in items if is_table else [{"backs": items}]:
            for is_inferred, flags in groupby(item["backs"], lambda flag: flag.endswith(INFERRED)):
                how = {"how": "inferred"} if is_inferred else {}
                yield {**item, "backs": [flag.removesuffix(INFERRED) for flag in flags], **how}
