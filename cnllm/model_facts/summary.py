"""List providers, models and aliases for listings and completion, from a cache where one exists.

A listing resolves all models once. The cache holds plain data, under a name that depends on the content of every loaded
file and on the code: after an edit, with other files or in another version it is not found. Importing this module does
not load the registry.
"""

from __future__ import annotations

import json
import os
from typing import TYPE_CHECKING, Any, NamedTuple

from cnllm._version import VERSION
from cnllm.errors import CnllmError
from cnllm.registry import cache
from cnllm.registry.files import builtin_file, catalogue_file, data_files, overlay_files
from cnllm.registry.levels import LEVELS
from cnllm.system.files import read_bounded

if TYPE_CHECKING:
    from cnllm.registry.model import Model
    from cnllm.registry.registry import Registry

__all__ = ["Listing", "Names", "endpoint", "levels", "listing", "names", "row", "short_names"]

_FORMAT = "cnllm-summary-8"
_CODE = (
    "model_facts",
    "registry",
    "registry/flags",
    "types/__init__.py",
)  # the modules that a listing is computed by, or folders
_PACKED = ("title", "context", "input_limit", "output", "input", "reasoning", "price", "status")
_STATE_BY_LETTER = {"1": True, "0": False, "?": None}


class Names(NamedTuple):
    """The providers and models, sorted, and the aliases and family aliases with the "provider/id" of each."""

    providers: list[str]
    aliases: dict[str, str]
    models: list[str]
    family_aliases: dict[str, str]

    def complete(self, prefix: str) -> list[str]:
        """List the names, aliases and family aliases that begin with `prefix`."""
        names = {**self.aliases, **self.family_aliases, **dict.fromkeys(self.models)}
        return sorted(name for name in names if name.startswith(prefix))


class Listing(NamedTuple):
    """The providers, the aliases, the models, the names of the capabilities (`kinds`), and the facts on each model.

    `left_out` counts the models of a public list that are not among them; `short` has the aliases of each model.
    """

    providers: list[str]
    aliases: dict[str, str]
    models: list[str]
    kinds: list[str]
    rows: dict[str, list[Any] | None]
    left_out: int
    short: dict[str, list[str]]

    def row(self, name: str) -> dict[str, Any]:
        """Return what `--json` prints for a model; null is unknown. Raise `CnllmError` for one with a fault."""
        packed = self.rows[name]
        if packed is None:
            model = _load_registry().resolve(name)
            return row(model, self.short.get(model.name, []))
        full, protocol, *values, letters = packed
        full = full or name
        provider, _, id = full.partition("/")
        return {
            "name": full,
            "id": id,
            "provider": provider,
            "protocol": protocol,
            "short": self.short.get(full, []),
            **dict(zip(_PACKED, values, strict=True)),
            "capabilities": dict(zip(self.kinds, map(_STATE_BY_LETTER.__getitem__, letters), strict=True)),
        }


def names() -> Names:
    """List models from the loaded files and the catalogue. Raises `RegistryError` as `Registry.load` does."""
    entry = cache.read_entry(_entry("names", _file_contents()))
    if entry is not None:
        return Names(*json.loads(bytes(entry)))
    registry = _load_registry()
    providers = sorted([*registry.providers, *registry.catalogue_providers()])
    listed = Names(providers, registry.aliases, registry.names(catalogue=True), registry.family_aliases)
    _write_cache("names", registry, list(listed))
    return listed


def listing(*, catalogue: bool = False) -> Listing:
    """Return the listing of the loaded files. Raises `RegistryError` as `Registry.load` does.

    With `catalogue` it also has the models of which only a public list knows.
    """
    kind = "catalogue" if catalogue else "models"
    entry = cache.read_entry(_entry(kind, _file_contents()))
    data = _listing_data(kind, catalogue=catalogue) if entry is None else json.loads(bytes(entry))
    return Listing._make([*data, short_names(data[1])])


def _listing_data(kind: str, *, catalogue: bool) -> list[Any]:
    """Return the fields of a listing but the last one, which are cached unless a model has a fault."""
    from cnllm.model_facts.capabilities import KINDS

    registry = _load_registry()
    providers = sorted([*registry.providers, *(registry.catalogue_providers() if catalogue else ())])
    models = registry.names(catalogue=catalogue)
    rows = {name: _packed_row(registry, name) for name in models}
    left_out = 0 if catalogue else len(registry.names(catalogue=True)) - len(models)
    data: list[Any] = [providers, registry.aliases, models, list(KINDS), rows, left_out]
    if None not in rows.values():
        _write_cache(kind, registry, data)
    return data


def _packed_row(registry: Registry, name: str) -> list[Any] | None:
    """Return what `Listing.row` unpacks; None for a model with a fault, which is reported when that model is used."""
    try:
        facts = row(registry.resolve(name), [])
    except CnllmError:
        return None
    letters = {state: letter for letter, state in _STATE_BY_LETTER.items()}
    states = "".join(letters[state] for state in facts["capabilities"].values())
    full = None if facts["name"] == name else facts["name"]
    return [full, facts["protocol"], *(facts[key] for key in _PACKED), states]


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
        "context": limits.context,
        "input_limit": limits.input,
        "output": limits.output,
        "input": flags.input,
        "reasoning": flags.reasoning.mode,
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


def endpoint(model: Model) -> str:
    """Return the address of a model's endpoint, without a password."""
    from cnllm.config import redact

    url = f"{(model.flags.base_url or '').rstrip('/')}{model.flags.path or ''}"
    return redact.redact_url(url.replace("{model}", model.id))


def levels(model: Model) -> list[str]:
    """Return the levels of reasoning that a call can choose, in order."""
    effort = model.flags.reasoning.effort
    return [level for level in LEVELS if effort is not None and getattr(effort, level) is not None]


def _load_registry() -> Registry:
    """Load the registry."""
    from cnllm.registry.registry import Registry

    return Registry.load()


# ── cache entries ────────────────────────────────────────────────────────────
def _file_contents() -> list[bytes] | None:
    """Return the content of the loaded files; None where one cannot be read: the registry reports that better."""
    try:
        return [read_bounded(place) for place in (builtin_file(), *data_files(), *overlay_files())]
    except (OSError, ValueError):
        return None


def _entry(kind: str, contents: list[bytes] | None) -> str | None:
    """Return the path of a cache entry; None where there can be none."""
    code = _code_stamp()
    if contents is None or code is None:
        return None
    digests = [cache.digest(b"", content) for content in (code, _catalogue_stamp(), *contents)]
    return cache.cache_entry(kind, _FORMAT.encode(), *digests)


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
