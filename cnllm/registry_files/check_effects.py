"""Check that the flags of a registry file do something: on their wire, and beside the other flags."""

from __future__ import annotations

import typing
from collections.abc import Iterator
from typing import Any

from cnllm.errors import CnllmError
from cnllm.registry.flags import ReasoningFlags
from cnllm.registry.merge import find_path
from cnllm.registry.problem import Problem, dotted_path

if typing.TYPE_CHECKING:
    from cnllm.registry.documents import Document
    from cnllm.registry.model import Model
    from cnllm.registry.registry import Registry

__all__ = ["effect_problems"]

_ANY_MODEL = "any"  # the id of a model that no file describes


def effect_problems(document: Document, registry: Registry) -> Iterator[Problem]:
    """Yield the flags of endpoints and models that have no effect."""
    suspects = {flag for wire in registry._layers.names("protocols") for flag in registry._layers.unread(wire)}
    suspects |= {"reasoning.shape", "reasoning.replay_as", "reasoning.part_form", "supported"}
    for section in ("providers", "models"):
        for name, table in document.data.get(section, {}).items():
            for path, flags, wire in _tables_by_wire([section, name], table):
                if not any(find_path(flags, flag.split(".")) for flag in suspects):
                    continue  # nearly all: a model takes time to resolve
                if wire is None and "supported" in flags:
                    where = [*path, "supported"]
                    message = f"{dotted_path(where)} has no effect: it belongs in a table under `on`"
                    yield Problem(document.label, document.line(where), message)
                model = _model(section, name, wire, registry)
                protocol = wire or ("" if model is None else model.protocol)
                rules = None if model is None else model.flags.reasoning or ReasoningFlags()
                for flag, reason in _no_effects(flags, rules, registry._layers.unread(protocol)):
                    where = [*path, *flag.split(".")]
                    message = f"{dotted_path(where)} has no effect on {protocol}: {reason}"
                    yield Problem(document.label, document.line(where), message)


def _tables_by_wire(
    path: list[str], table: dict[str, Any], wire: str | None = None
) -> Iterator[tuple[list[str], dict[str, Any], str | None]]:
    """Yield (path, table, wire) for a table and those for one wire or mode in it; None is the wire of its calls."""
    yield path, table, wire
    for mode, flags in table.get("when", {}).items():
        yield [*path, "when", mode], flags, flags.get("protocol", wire)
    for name, inner in table.get("on", {}).items():
        yield from _tables_by_wire([*path, "on", name], inner, name)


def _model(section: str, name: str, wire: str | None, registry: Registry) -> Model | None:
    """Return the model that a table describes, or any model of a provider; None where it cannot be resolved."""
    try:
        return registry.resolve(name if section == "models" else f"{name}/{_ANY_MODEL}", protocol=wire)
    except CnllmError:
        return None  # another check names the reason


def _no_effects(
    flags: dict[str, Any], rules: ReasoningFlags | None, unread: dict[str, str]
) -> Iterator[tuple[str, str]]:
    """Yield (flag, reason) for the flags of a table that do nothing; `rules` are the model's for reasoning."""
    for flag, reason in unread.items():
        if find_path(flags, flag.split(".")) is not None:
            yield flag, reason
    own = flags.get("reasoning", {})
    if rules is None:
        return
    for key in ("shape", "replay_as"):
        if own.get(key) == "tags" and not rules.tags:
            yield f"reasoning.{key}", "reasoning.tags is not set"
        if own.get(key) == "content-parts" and not rules.part and "reasoning.part" not in unread:
            yield f"reasoning.{key}", "reasoning.part is not set"
    if "part_form" in own and not rules.part and "reasoning.part" not in unread:
        yield "reasoning.part_form", "reasoning.part is not set"
