"""List providers, models and aliases for listings and completion, from a cache where one exists.

A listing resolves all models once. The cache holds plain data, under a name that depends on the content of every loaded
file and on the code: after an edit, with other files or in another version it is not found. Importing this module does
not load the registry.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from cnllm._version import VERSION
from cnllm.registry import cache
from cnllm.registry.files import builtin_file, catalogue_file, data_files, overlay_files

if TYPE_CHECKING:
    from cnllm.registry.model import Model
    from cnllm.registry.registry import Registry

__all__ = ["Listing", "Names", "listing", "names", "row", "short_names"]

_FORMAT = "cnllm-summary-3"
_CODE = (
    "model_facts",
    "registry",
    "registry/flags",
    "types/__init__.py",
)  # the modules that a listing is computed by, or folders
_STATE_BY_LETTER = {"1": True, "0": False, "?": None}


class Names:
    """The providers and models, sorted, and the aliases and family aliases with the "provider/id" of each."""

    def __init__(
        self, providers: list[str], aliases: dict[str, str], models: list[str], families: dict[str, str] | None = None
    ) -> None:
        self.providers = providers
        self.aliases = aliases
        self.models = models
        self.family_aliases = families or {}

    def complete(self, prefix: str) -> list[str]:
        """List the names, aliases and family aliases that begin with `prefix`."""
        names = {**self.aliases, **self.family_aliases, **dict.fromkeys(self.models)}
        return sorted(name for name in names if name.startswith(prefix))


class Listing(Names):
    """The names, and the facts on each model."""

    kinds: list[str]
    """Names of the capabilities."""

    def row(self, name: str) -> dict[str, Any]:
        """Return what `--json` prints for a model; null is unknown."""
        raise NotImplementedError


def names() -> Names:
    """List models from the loaded files and the catalogue. Raises `RegistryError` as `Registry.load` does."""
    entry = cache.read_entry(_entry("names", _file_contents()))
    if entry is not None:
        return Names(*json.loads(bytes(entry)))
    registry = _load_registry()
    providers = sorted([*registry.providers, *registry.catalogue_providers()])
    listed = Names(providers, registry.aliases, registry.names(catalogue=True), registry.family_aliases)
    _write_cache("names", registry, [listed.providers, listed.aliases, listed.models, listed.family_aliases])
    return listed


def listing(*, catalogue: bool = False) -> Listing:
    """Return the listing of the loaded files. Raises `RegistryError` as `Registry.load` does.

    With `catalogue` it also has the models of which only a public list knows.
    """
    kind = "catalogue" if catalogue else "models"
    entry = cache.read_entry(_entry(kind, _file_contents()))
    if entry is not None:
        return _CachedListing(*json.loads(bytes(entry)))
    registry = _load_registry()
    live = _RegistryListing(registry, catalogue)
    _cache_listing(registry, live, kind)
    return live


# ── listings ─────────────────────────────────────────────────────────────────
class _CachedListing(Listing):
    """A listing from the cache."""

    def __init__(
        self,
        providers: list[str],
        aliases: dict[str, str],
        models: list[str],
        kinds: list[str],
        rows: dict[str, list[Any]],
        families: dict[str, str],
    ) -> None:
        super().__init__(providers, aliases, models, families)
        self.kinds = kinds
        self._packed_rows = rows
        self._short = short_names(aliases)
        self._states: dict[str, dict[str, bool | None]] = {}

    def row(self, name: str) -> dict[str, Any]:
        full, protocol, title, context, output, reads, reasoning, price, status, letters = self._packed_rows[name]
        full = full or name
        provider, _, id = full.partition("/")
        states = self._states.get(letters)
        if states is None:
            states = self._states[letters] = dict(
                zip(self.kinds, map(_STATE_BY_LETTER.__getitem__, letters), strict=True)
            )
        return {
            "name": full,
            "id": id,
            "provider": provider,
            "protocol": protocol,
            "short": self._short.get(full, []),
            "title": title,
            "context": context,
            "output": output,
            "input": reads,
            "reasoning": reasoning,
            "price": price,
            "status": status,
            "capabilities": states,
        }


class _RegistryListing(Listing):
    """A listing from the registry, model by model on demand."""

    def __init__(self, registry: Registry, catalogue: bool) -> None:
        providers = sorted([*registry.providers, *(registry.catalogue_providers() if catalogue else ())])
        names = registry.names(catalogue=catalogue)
        super().__init__(providers, registry.aliases, names, registry.family_aliases)
        from cnllm.model_facts.capabilities import KINDS

        self.kinds = list(KINDS)
        self._registry = registry
        self._short = short_names(self.aliases)
        self._rows: dict[str, dict[str, Any]] = {}

    def row(self, name: str) -> dict[str, Any]:
        cached = self._rows.get(name)
        if cached is None:
            model = self._registry.resolve(name)
            cached = self._rows[name] = row(model, self._short.get(model.name, []))
        return cached

    def packed_rows(self) -> Iterator[tuple[str, list[Any]]]:
        """Yield the name and the packed row of each model, from which `_CachedListing` builds equal rows."""
        letters = {state: letter for letter, state in _STATE_BY_LETTER.items()}
        for name in self.models:
            unpacked = self.row(name)
            states = "".join(letters[state] for state in unpacked["capabilities"].values())
            full = None if unpacked["name"] == name else unpacked["name"]
            keys = ("protocol", "title", "context", "output", "input", "reasoning", "price", "status")
            yield name, [full, *(unpacked[key] for key in keys), states]


def row(model: Model, short: list[str]) -> dict[str, Any]:
    """Return what `--json` prints for a model; null is unknown."""
    import msgspec

    from cnllm.model_facts.capabilities import capabilities

    flags = model.flags
    limits, status = flags.limits, flags.status
    return {
        "name": model.name,
        "id": model.id,
        "provider": model.provider,
        "protocol": model.protocol,
        "short": short,
        "title": flags.title,
        "context": limits.context if limits else None,
        "output": limits.output if limits else None,
        "input": flags.input,
        "reasoning": flags.reasoning.mode if flags.reasoning else None,
        "price": msgspec.to_builtins(flags.price) if flags.price else None,
        "status": status.is_ if status else None,
        "capabilities": {name: capability.value for name, capability in capabilities(model).items()},
    }


def short_names(aliases: dict[str, str]) -> dict[str, list[str]]:
    """Return the aliases of each model, by its name."""
    short: dict[str, list[str]] = {}
    for alias, name in aliases.items():
        short.setdefault(name, []).append(alias)
    return {name: sorted(names) for name, names in short.items()}


def _cache_listing(registry: Registry, live: _RegistryListing, kind: str) -> None:
    """Write a listing to the cache."""
    from cnllm.errors import CnllmError

    try:
        rows = dict(live.packed_rows())
    except CnllmError:  # one model has a fault: it is reported when that model is used
        return
    _write_cache(kind, registry, [live.providers, live.aliases, live.models, live.kinds, rows, live.family_aliases])


def _load_registry() -> Registry:
    """Load the registry."""
    from cnllm.registry.registry import Registry

    return Registry.load()


# ── cache entries ────────────────────────────────────────────────────────────
def _file_contents() -> list[bytes] | None:
    """Return the content of the loaded files; None where one cannot be read: the registry reports that better."""
    try:
        return [_read_file(place) for place in (builtin_file(), *data_files(), *overlay_files())]
    except (OSError, ValueError):
        return None


def _read_file(path: str) -> bytes:
    """Return the content of a file."""
    with open(path, "rb") as file:
        return file.read()


def _entry(kind: str, contents: list[bytes] | None) -> str | None:
    """Return the path of a cache entry; None where there can be none."""
    code = _code_stamp()
    if contents is None or code is None:
        return None
    return cache.cache_entry(kind, _FORMAT.encode(), code, _catalogue_stamp(), *contents)


def _catalogue_stamp() -> bytes:
    """Return a stamp of the catalogue, which is too large to be read for a completion; b"" where it is not there."""
    try:
        stat = os.stat(catalogue_file())
    except OSError:
        return b""
    return f"{stat.st_mtime_ns}:{stat.st_size}".encode()


def _code_stamp() -> bytes | None:
    """Return a stamp that differs between versions and local edits; None where the code has no file times."""
    package = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
    try:
        stats = [os.stat(path) for name in _CODE for path in _modules(os.path.join(package, name))]
    except OSError:
        return None
    return " ".join([VERSION, *(f"{stat.st_mtime_ns}:{stat.st_size}" for stat in stats)]).encode()


def _modules(path: str) -> list[str]:
    """Return a module itself, or the modules of a folder in order."""
    if path.endswith(".py"):
        return [path]
    with os.scandir(path) as entries:  # only reads
        return sorted(entry.path for entry in entries if entry.name.endswith(".py"))


def _write_cache(kind: str, registry: Registry, data: list[Any]) -> None:
    """Write data to the cache, under the content from which it was computed, even if the files have changed since."""
    if entry := _entry(kind, registry.contents()):
        cache.write_entry(entry, json.dumps(data, ensure_ascii=False, separators=(",", ":")).encode())
