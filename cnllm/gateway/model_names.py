"""Resolve the model that a client names: a name of the registry, a tier, or a name that a pattern maps.

A model is asked on the wire of the client where the registry says that its endpoint answers there, so that nothing is
lost that only this wire can say. `?protocol=WIRE` behind a model in a pattern or a route chooses another one.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from cnllm.errors import CnllmError, RegistryError, UnknownModel, Untrusted
from cnllm.registry import Registry
from cnllm.registry.model import Model
from cnllm.registry.routing import split_wire
from cnllm.registry.sites import choose_site
from cnllm.registry.tiers import PREFIX, choose_model
from cnllm.types import Note, Request, checks
from cnllm.types.checks import matches_pattern
from cnllm.types.policy import Fallback

__all__ = ["ChosenModels", "ModelNames", "client_wire", "names_of_models", "narrow_route"]

_RULES = ("first_token", "cooldown", "weights", "order", "report")
_MOST = 2048
"""The number of resolved names that are kept: clients choose the names."""


def client_wire(model: Model, protocol: str | None) -> Model:
    """Return a model over the wire of a client if its endpoint answers there by the registry, else the model."""
    if protocol in (None, model.protocol) or model.over is None:
        return model
    try:
        other = model.over(str(protocol))
    except UnknownModel:  # the endpoint has no such wire
        return model
    return other if other.flags.supported else model


class ChosenModels(Struct, frozen=True):
    """The models of one request: the first, those that take over on a route, and notes on the choice."""

    first: Model
    fallback: Fallback | None
    notes: list[Note]


def names_of_models(models: Any) -> dict[str, str]:
    """Return the names of clients with the model of each. Raises `TypeError` for other values."""
    table = checks.as_dict("models", models, "a dict of names, each with the name of a model,")
    for name, model in table.items():
        checks.require_text("a name in models", name)
        checks.require_text(f"models[{checks.short_text(name)}]", model)
    return table


class ModelNames:
    """The names that clients may use.

    `patterns` maps names to models; `*` and `?` stand for any text and any character. A name without a wildcard
    wins over patterns, and a pattern with more characters of its own wins over one with fewer. A pattern comes before
    the registry, so that it can replace a model. `suggest`: an error names similar models, for a person who reads it.
    """

    def __init__(self, registry: Registry, patterns: Mapping[str, str] | None = None, *, suggest: bool = True) -> None:
        self.registry = registry
        self._suspended: frozenset[str] = frozenset()
        self._suggest = True  # here: a wrong name in a file is read by a person
        patterns = patterns or {}
        self._exact = {name: model for name, model in patterns.items() if not _is_pattern(name)}
        wildcards = sorted((p for p in patterns if _is_pattern(p)), key=lambda p: (-_own_characters(p), p))
        self._patterns = [(pattern, patterns[pattern]) for pattern in wildcards]
        self._models: dict[tuple[str, str | None], Model | str] = {}
        self._wired: dict[tuple[str, str], Fallback] = {}  # routes whose targets are on the wire of a client
        tables = registry.gateway_routes.items()
        self._all_routes = {name: _route(name, table) for name, table in tables if name not in self._exact}
        self._routes = self._all_routes  # without the models that are suspended
        targets = [(name, target) for name, (first, rest) in self._routes.items() for target in (first, *rest.targets)]
        for name, model in (*patterns.items(), *targets):
            try:
                self._resolve(model)
            except UnknownModel as error:
                raise UnknownModel(f"{name}={model}: {error.message}", close=error.close, hint=error.hint) from error
        self._suggest = suggest

    def suspend(self, suspended: frozenset[str]) -> None:
        """Let nobody use these providers and models until new names replace these. Routes go on to their others."""
        self._suspended = suspended
        self._models.clear()
        self._wired.clear()
        self._routes = {name: self._usable_route(*route) for name, route in self._all_routes.items()}

    def _usable_route(self, first: str, fallback: Fallback) -> tuple[str, Fallback]:
        """Return a route without its suspended models; where all of them are, its first one is refused."""
        targets = (first, *fallback.targets)
        indexes = [index for index, target in enumerate(targets) if not self._is_suspended(target)] or [0]
        return targets[indexes[0]], narrow_route(fallback, indexes)

    def resolve(self, name: str, protocol: str | None = None) -> Model | str:
        """Return the model of a name, or the name of a tier, for a client that speaks `protocol`.

        Raises `UnknownModel`, and `Untrusted` if it is suspended: a file that nobody trusts yet would send its key
        elsewhere.
        """
        model = self._models.get((name, protocol))
        if model is None:
            entry = self.target(name)
            target = name if entry is None else entry
            model = self._find(target, protocol, is_given=entry is not None)
            if self._depends_on_keys(target, is_given=entry is not None):
                return model
            if len(self._models) >= _MOST:
                self._models.clear()
            self._models[name, protocol] = model
        return model

    def choose(
        self,
        request: Request,
        protocol: str,
        *,
        offline: bool,
        usable: Callable[[Sequence[Model]], Sequence[Model]] | None = None,
    ) -> ChosenModels:
        """Return the models of a request for a client that speaks `protocol`: one of each tier.

        `usable` returns those of some models that the client may use; where it returns none, each may be chosen, and is
        refused later. A tier of a route in which no model fits is passed over. Raises as `resolve` does.
        """
        assert request.model is not None
        first, fallback = self.resolve(request.model, protocol), self.fallback(request.model, protocol)
        targets = (first,) if fallback is None else (first, *fallback.targets)
        models: dict[int, Model] = {}
        notes: list[Note] = []
        failure: UnknownModel | None = None
        for index, target in enumerate(targets):
            if isinstance(target, Model):
                models[index] = target
                continue
            try:
                models[index], note = self._choose_member(target, request, protocol, offline, usable)
            except UnknownModel as error:
                failure = failure or error
                note = Note("target-passed-over", "route", target, error.message)
            notes.append(note)
        if failure is not None and not models:
            raise failure
        places, (head, *others) = list(models), models.values()
        if fallback is not None and notes:
            fallback = replace(narrow_route(fallback, places), targets=tuple(others))
        return ChosenModels(head, fallback, notes)

    def _choose_member(
        self,
        tier: str,
        request: Request,
        protocol: str,
        offline: bool,
        usable: Callable[[Sequence[Model]], Sequence[Model]] | None,
    ) -> tuple[Model, Note]:
        """Return the model of a tier for a request, and a note on it. Raises `UnknownModel` where none fits."""
        names = None if usable is None else {model.name for model in usable(self._members(tier))}

        def objection(model: Model) -> str | None:
            """Return why a model is not used, as far as the gateway knows."""
            if self._has_suspended(model):
                return "it is suspended"
            return "the key may not use it" if names and model.name not in names else None

        model, note = choose_model(
            tier, request.messages, request.options, self.registry, offline=offline, objection=objection
        )
        return client_wire(model, protocol), note

    def models(self, name: str) -> list[Model]:
        """Return all models that may answer to a name of a client: those of its route and of its tiers.

        Raises as `resolve` does.
        """
        targets = [self.resolve(name)]
        if (fallback := self.fallback(name)) is not None:
            targets += [self._find(target, None, is_given=True) for target in fallback.targets]
        models: list[Model] = []
        for target in targets:
            models += [target] if isinstance(target, Model) else self._members(target)
        return models

    def _members(self, tier: str) -> list[Model]:
        """Return the models of a tier that are not suspended."""
        models: list[Model] = []
        for name in self.registry.tiers[tier.removeprefix(PREFIX)]:
            with contextlib.suppress(UnknownModel):
                models.append(choose_site(self.registry, name, suggest=False))
        return [model for model in models if not self._has_suspended(model)]

    def _find(self, target: str, protocol: str | None, *, is_given: bool) -> Model | str:
        """Return a model or the name of a tier; `is_given`: the operator wrote its name, and perhaps its wire."""
        if self._is_suspended(target):
            raise Untrusted(f"{target} is suspended: a file that nobody trusts yet has another address", origin="")
        model = self._resolve(target, is_given=is_given)
        return model if isinstance(model, str) else client_wire(model, protocol)

    def _depends_on_keys(self, target: str, *, is_given: bool) -> bool:
        """Whether the keys that are set at the moment of a request say which site of a vendor a name means."""
        model = split_wire(target)[0] if is_given else target
        return not model.startswith(PREFIX) and self.registry.site_group(model, suggest=False) is not None

    def _is_suspended(self, target: str) -> bool:
        """Whether the model of a name is suspended, by the name itself or by that of its model, or all of a tier."""
        if not self._suspended:
            return False
        if split_wire(target)[0] in self._suspended or _provider(target) in self._suspended:
            return True
        model = self._resolve(target)
        return self._has_suspended(model) if isinstance(model, Model) else not self._members(model)

    def _has_suspended(self, model: Model) -> bool:
        """Whether a model is suspended, or its provider."""
        return not self._suspended.isdisjoint((model.name, model.provider))

    def target(self, name: str) -> str | None:
        """Return the model that a pattern maps a name to, or the first one of its route, or None."""
        if (route := self._routes.get(name)) is not None:
            return route[0]
        if (target := self._exact.get(name)) is not None:
            return target
        return next((target for pattern, target in self._patterns if matches_pattern(name, pattern)), None)

    def fallback(self, name: str, protocol: str | None = None) -> Fallback | None:
        """Return the models that take over for the first one of a route; None for a name of one model.

        For a client that speaks `protocol` each is resolved; a tier stays a name.
        """
        route = self._routes.get(name)
        if route is None or protocol is None:
            return None if route is None else route[1]
        wired = self._wired.get((name, protocol))
        if wired is None:
            models = tuple(self._find(target, protocol, is_given=True) for target in route[1].targets)
            wired = self._wired[name, protocol] = replace(route[1], targets=models)
        return wired

    def names(self) -> list[str]:
        """Return the names that a client may list: mapped names without wildcards, then the registry's."""
        own = dict.fromkeys((*self._exact, *self._routes))
        return [*own, *(name for name in self.registry.names() if name not in own)]

    def _resolve(self, name: str, *, is_given: bool = True) -> Model | str:
        """Return the model of a name of the registry, with the wire that it names, or the name of a tier that exists.

        A client names no wire: it speaks one.
        """
        if not name.startswith(PREFIX):
            model, wire = split_wire(name) if is_given else (name, None)
            return choose_site(self.registry, model, protocol=wire, suggest=self._suggest)
        tier = name.removeprefix(PREFIX)
        if tier not in self.registry.tiers:
            raise UnknownModel(f"no tier is called {tier}", close=sorted(self.registry.tiers))
        return name


def narrow_route(fallback: Fallback, places: Sequence[int]) -> Fallback:
    """Return the models of a route that take over, of those at some places; place 0 is that of its first model."""
    weights = fallback.weights
    if weights is not None:
        weights = tuple(weights[index] for index in places)
        weights = weights if any(weights) else None
    targets = tuple(fallback.targets[index - 1] for index in places[1:])
    return replace(fallback, targets=targets, weights=weights)


def _route(name: str, table: Mapping[str, Any]) -> tuple[str, Fallback]:
    """Return the first model of a route, and the others. Raises `RegistryError` for a route that cannot be used."""
    rules = {key: value for key, value in table.items() if key in _RULES}
    targets = table.get("targets")
    if not targets:
        raise RegistryError(f"gateway.routes.{name} has no targets", hint='targets = ["provider/model", …]')
    try:
        fallback = Fallback(targets=tuple(targets[1:]), **rules)
    except (TypeError, ValueError) as error:
        raise RegistryError(f"gateway.routes.{name}: {error}", hint="`cnllm registry check` names the line") from error
    if fallback.report is not None:
        _check_report(name, str(fallback.report))
    return targets[0], fallback


def _check_report(name: str, path: str) -> None:
    """Raise `RegistryError` for a report that a route cannot use: now, not at the first request."""
    from cnllm.client.measurements import read_turns

    if not Path(path).expanduser().is_absolute():
        raise RegistryError(
            f"gateway.routes.{name}: the report {path} has a relative path", hint="write its full path, or ~/PATH"
        )
    try:
        read_turns(path)
    except CnllmError as error:
        raise RegistryError(f"gateway.routes.{name}: {error.message}", hint=error.hint) from error


def _provider(name: str) -> str:
    """Return the provider of a name, or the whole name where it has none."""
    return name.partition("/")[0]


def _is_pattern(name: str) -> bool:
    """Whether a name has a wildcard."""
    return any(character in name for character in "*?")


def _own_characters(pattern: str) -> int:
    """Return the number of characters that are no wildcards."""
    return sum(character not in "*?" for character in pattern)
