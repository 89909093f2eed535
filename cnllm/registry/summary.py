"""What listings and completion tell of every model, worked out once and kept.

Working it out resolves all models. What is kept is plain data, under a name that depends on the content of every file
in force and on the code that worked it out: an edited file, another list of files or another version never meets it.
Importing this module brings no part of the registry.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import cnllm
from cnllm.registry import cache
from cnllm.registry.files import builtin_file, overlay_files

if TYPE_CHECKING:
    from cnllm.registry.model import Model
    from cnllm.registry.registry import Registry

__all__ = ["Listing", "Names", "listing", "names", "row", "short_names"]

_FORMAT = "cnllm-summary-1"
_FLAGS = ("__init__", "describe", "endpoint", "reasoning", "tools", "request", "reply", "simulator", "call")
_CODE = (
    *(f"registry/flags/{name}.py" for name in _FLAGS),
    "registry/model.py",
    "registry/registry.py",
    "registry/merge.py",
    "registry/documents.py",
    "registry/check.py",
    "registry/capabilities.py",
    "registry/summary.py",
    "types/__init__.py",
)
_STATES = {"1": True, "0": False, "?": None}


class Names:
    """What providers and models there are, sorted, and the short names → "provider/id"."""

    def __init__(self, providers: list[str], aliases: dict[str, str], models: list[str]) -> None:
        self.providers = providers
        self.aliases = aliases
        self.models = models

    def complete(self, prefix: str) -> list[str]:
        """Names and aliases that begin with `prefix`."""
        return sorted(name for name in [*self.aliases, *self.models] if name.startswith(prefix))


class Listing(Names):
    """The same, and what there is to say of each model."""

    kinds: list[str]
    """The names of the capabilities."""

    def row(self, name: str) -> dict[str, Any]:
        """What `--json` says of a model; null is unknown."""
        raise NotImplementedError


def names() -> Names:
    """What there is, according to the files in force. Raises `RegistryError` as `Registry.load` does."""
    found = cache.recall(_entry("names", _contents()))
    if found is not None:
        return Names(*json.loads(bytes(found)))
    registry = _loaded()
    said = Names(registry.providers, registry.aliases, registry.names())
    _remember("names", registry, [said.providers, said.aliases, said.models])
    return said


def listing() -> Listing:
    """The same with what there is to say of each model."""
    found = cache.recall(_entry("models", _contents()))
    if found is not None:
        return _Kept(*json.loads(bytes(found)))
    registry = _loaded()
    said = _Live(registry)
    _keep(registry, said)
    return said


# ── what is kept ─────────────────────────────────────────────────────────────
class _Kept(Listing):
    """Read from the cache."""

    def __init__(
        self,
        providers: list[str],
        aliases: dict[str, str],
        models: list[str],
        kinds: list[str],
        told: dict[str, list[Any]],
    ) -> None:
        super().__init__(providers, aliases, models)
        self.kinds = kinds
        self._told = told
        self._short = short_names(aliases)
        self._states: dict[str, dict[str, bool | None]] = {}

    def row(self, name: str) -> dict[str, Any]:
        full, protocol, title, context, output, reads, reasoning, price, status, said = self._told[name]
        full = full or name
        provider, _, id = full.partition("/")
        states = self._states.get(said)
        if states is None:
            states = self._states[said] = dict(zip(self.kinds, map(_STATES.__getitem__, said), strict=True))
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


class _Live(Listing):
    """Worked out from the registry when it is asked for."""

    def __init__(self, registry: Registry) -> None:
        super().__init__(registry.providers, registry.aliases, registry.names())
        from cnllm.registry.capabilities import KINDS

        self.kinds = list(KINDS)
        self._registry = registry
        self._short = short_names(self.aliases)
        self._rows: dict[str, dict[str, Any]] = {}

    def row(self, name: str) -> dict[str, Any]:
        found = self._rows.get(name)
        if found is None:
            model = self._registry.resolve(name)
            found = self._rows[name] = row(model, self._short.get(model.name, []))
        return found

    def told(self) -> Iterator[tuple[str, list[Any]]]:
        """What `_Kept` makes the same rows of."""
        letters = {state: letter for letter, state in _STATES.items()}
        for name in self.models:
            made = self.row(name)
            states = "".join(letters[state] for state in made["capabilities"].values())
            full = None if made["name"] == name else made["name"]
            said = ("protocol", "title", "context", "output", "input", "reasoning", "price", "status")
            yield name, [full, *(made[key] for key in said), states]


def row(model: Model, short: list[str]) -> dict[str, Any]:
    """What `--json` says of a model; null is unknown."""
    import msgspec

    from cnllm.registry.capabilities import capabilities

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
        "capabilities": {name: found.value for name, found in capabilities(model).items()},
    }


def short_names(aliases: dict[str, str]) -> dict[str, list[str]]:
    """The aliases of each model, by its name."""
    short: dict[str, list[str]] = {}
    for alias, name in aliases.items():
        short.setdefault(name, []).append(alias)
    return {name: sorted(found) for name, found in short.items()}


def _keep(registry: Registry, said: _Live) -> None:
    from cnllm.errors import CnllmError

    try:
        told = dict(said.told())
    except CnllmError:  # of a model that nobody may have asked for; whoever does is told
        return
    _remember("models", registry, [said.providers, said.aliases, said.models, said.kinds, told])


def _loaded() -> Registry:
    from cnllm.registry.registry import Registry

    return Registry.load()


# ── where it is kept ─────────────────────────────────────────────────────────
def _contents() -> list[bytes] | None:
    """What the files in force hold; None where one cannot be read, which the registry tells better."""
    try:
        return [_read(place) for place in (builtin_file(), *overlay_files())]
    except (OSError, ValueError):
        return None


def _read(place: str) -> bytes:
    with open(place, "rb") as file:
        return file.read()


def _entry(kind: str, contents: list[bytes] | None) -> str | None:
    code = _code()
    if contents is None or code is None:
        return None
    return cache.entry(kind, _FORMAT.encode(), code, *contents)


def _code() -> bytes | None:
    """Tells versions apart, one's own edits included; None where the code is in no file that has a time."""
    package = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
    try:
        found = [os.stat(os.path.join(package, name)) for name in _CODE]
    except OSError:
        return None
    return " ".join([cnllm.__version__, *(f"{one.st_mtime_ns}:{one.st_size}" for one in found)]).encode()


def _remember(kind: str, registry: Registry, said: list[Any]) -> None:
    """Under what was read for it, be the files as they are by now."""
    if place := _entry(kind, registry.contents()):
        cache.remember(place, json.dumps(said, ensure_ascii=False, separators=(",", ":")).encode())
