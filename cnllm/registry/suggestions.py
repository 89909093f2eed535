"""Suggest names for a model that is not known: the vendor's own endpoint first, and no retired model.

This is used for errors only, so it may resolve models.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from cnllm.errors import CnllmError, UnknownModel
from cnllm.registry.layers import Layers
from cnllm.registry.model import Model

__all__ = ["NameSearch"]

_MAX_NAMES = 5
_IN_HINT = 3
_MIN_PART = 3  # letters of a family's name that another name may contain by chance
_MIN_INNER = 5  # letters that do not stand within another word by chance
_CUTOFF = 0.62
_LONGEST_NAME = 256  # characters of a name that is compared with others
_SEPARATOR = "[-_. :@]"
_SEPARATORS = re.compile(f"{_SEPARATOR}+")


class NameSearch:
    """The names of a registry, in the order in which they are suggested."""

    def __init__(self, layers: Layers, resolve: Callable[[str], Model]) -> None:
        self._layers = layers
        self._resolve = resolve
        self._families = layers.section("family_aliases")
        aliases = layers.section("aliases")
        self._targets: dict[str, str] = {name: name for name in sorted(layers.names("models"))} | aliases
        for alias, target in self._families.items():
            self._targets.setdefault(alias, target)
        self._aliased = set(aliases.values())
        self._vendors: dict[str, set[str]] = {}
        for target in self._families.values():
            provider, _, id = target.partition("/")
            if (family := layers.family(id)) is not None:
                self._vendors.setdefault(family, set()).add(provider)

    def unknown_model(
        self, name: str, serving: list[str], *, suggest: bool = True, is_moved: bool = False
    ) -> UnknownModel:
        """Return the error for a name that no model has, or that the models in `serving` share.

        `is_moved`: the caller gives the address of the endpoint.
        """
        if serving:
            current = self.current_models(serving)
            return UnknownModel(
                f"{name} is served by several providers: {', '.join(current)}",
                close=current,
                hint=f"use one of these names, for example {current[0]}",
            )
        if not name.strip():
            return UnknownModel("the name of the model is empty", hint="`cnllm models list` lists all")
        if len(name) > _LONGEST_NAME:
            message = f"no model is called {name[:_LONGEST_NAME]}… ({len(name):,} characters)"
            return UnknownModel(message, hint="`cnllm models list` lists all")
        if not suggest:
            return UnknownModel(f"no model is called {name}")
        close = self._similar(name)
        provider, slash, id = name.partition("/")
        elsewhere = f"for any other endpoint use openai-compatible/{id or provider} and a base URL"
        message, hint = f"no model is called {name}", "`cnllm models list` lists all"
        is_named = provider in self._layers.names("providers") or provider.casefold() in self._families
        if slash and not is_named:  # also beside similar names: a file of the user's that is not read has the provider
            message = f"no model is called {name}: there is no provider {provider}"
            hint = elsewhere
        if close:
            hint = f"did you mean {', '.join(close[:_IN_HINT])}?"
        if is_moved and not slash:
            hint = elsewhere
        return UnknownModel(message, close=close, hint=hint)

    def current_models(self, serving: list[str]) -> list[str]:
        """List the models that are not retired, the vendor's own first; all of them where none is left."""
        ranked = sorted(serving, key=self._rank)
        return list(self._current(ranked)) or ranked

    def _rank(self, name: str) -> tuple[Any, ...]:
        """Return the sort key of a name: the vendor's own endpoint first, then short names."""
        target = self._targets.get(name, name)
        provider, _, id = target.partition("/")
        vendors = self._vendors.get(self._layers.family(id) or "")
        is_own = provider in vendors if vendors else target in self._aliased
        return (not is_own, "/" in name, len(name), name)

    def _current(self, names: Iterable[str]) -> Iterator[str]:
        """Yield the names whose models are not retired, each model once."""
        seen: set[str] = set()
        for name in names:
            target = self._targets.get(name, name)
            if target in seen:
                continue
            seen.add(target)
            if target.partition("/")[0] not in self._layers.names("providers"):
                continue  # an alias of nothing; resolving it would search for similar names again
            try:
                status = self._resolve(target).flags.status
            except CnllmError:  # `cnllm registry check` reports it
                continue
            if status is None or status.is_ != "retired":
                yield name

    def _similar(self, name: str) -> list[str]:
        """List the names that contain a name, then those spelt alike, then the families that a name contains."""
        out: dict[str, str] = {}  # by id: of one that many endpoints serve, the first is enough
        for candidate in self._current(self._candidates(name)):
            target = self._targets[candidate]
            out.setdefault(_key(target.partition("/")[2]), target if "/" in name else candidate)
            if len(out) == _MAX_NAMES:
                break
        return list(out.values())

    def _candidates(self, name: str) -> Iterator[str]:
        vendor, slash, id = name.partition("/")
        own = self._families.get(vendor.casefold()) if slash else None  # a vendor's name in place of its provider
        if own is not None and (target := f"{own.partition('/')[0]}/{id}") in self._targets:
            yield target
        queries = [name, id] if slash and id else [name]
        keys = {candidate: _key(candidate) for candidate in self._targets}
        for query in queries:
            if len(part := _key(query)) > 1:
                found = [candidate for candidate, key in keys.items() if part in key and _contains(candidate, part)]
                # the vendor's own ones, and among them the closest in length
                yield from sorted(found, key=lambda c: (self._rank(c)[0], abs(len(keys[c]) - len(part)), self._rank(c)))
        for query in queries:
            yield from self._spelt_alike(query, keys)
        for query in queries:
            word = _key(query)
            families = [f for f in self._families if len(_key(f)) >= _MIN_PART and _key(f) in word]
            yield from sorted(families, key=len, reverse=True)

    def _spelt_alike(self, query: str, keys: dict[str, str]) -> list[str]:
        """List the names whose spelling is close to a name's, nearest first."""
        word = _key(query)
        ids = {candidate: _key(candidate.partition("/")[2] or candidate) for candidate in keys}
        matcher = difflib.SequenceMatcher(b=word)
        scores: dict[str, float] = {}
        for candidate in keys:
            for form in {keys[candidate], ids[candidate]}:
                matcher.set_seq1(form)
                if matcher.real_quick_ratio() >= _CUTOFF and matcher.quick_ratio() >= _CUTOFF:
                    score = matcher.ratio()
                    if score >= _CUTOFF:
                        scores[candidate] = max(scores.get(candidate, 0), score)
        return sorted(scores, key=lambda c: (-round(scores[c], 2), self._rank(c)))


def _contains(name: str, part: str) -> bool:
    """Whether a part of a name begins with a word of it. A long part may begin anywhere."""
    letters = f"{_SEPARATOR}*".join(map(re.escape, part))
    return len(part) >= _MIN_INNER or re.search(f"(^|/|{_SEPARATOR}){letters}", name.casefold()) is not None


def _key(name: str) -> str:
    """Return a name without case and separators, as it is compared."""
    return _SEPARATORS.sub("", name.casefold())
