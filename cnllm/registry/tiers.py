"""Choose a model from a tier: the first of an ordered list that has a key and fits the request."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any
from urllib.parse import urlsplit

from cnllm.config import keys
from cnllm.errors import UnknownModel
from cnllm.registry.model import Model
from cnllm.registry.obstacles import obstacle
from cnllm.registry.registry import Registry
from cnllm.registry.sites import choose_site
from cnllm.types import Note
from cnllm.types.checks import is_loopback
from cnllm.types.messages import as_messages

__all__ = ["PREFIX", "choose_model"]

PREFIX = "tier:"


def choose_model(
    name: str,
    messages: Any,
    options: Mapping[str, Any],
    registry: Registry,
    *,
    offline: bool,
    objection: Callable[[Model], str | None] = lambda model: None,
) -> tuple[Model, Note]:
    """Return the model of a tier for one call, and a note that says which and why.

    With `offline` no key is needed. `objection` returns a reason why the caller wants no such model. Raises
    `UnknownModel` where there is no such tier, or no model in it fits.
    """
    tier = name.removeprefix(PREFIX)
    candidates = registry.tiers.get(tier)
    if candidates is None:
        names = ", ".join(sorted(registry.tiers)) or "none; [tiers] in a registry file makes them"
        raise UnknownModel(f"no tier is called {tier}", close=sorted(registry.tiers), hint=f"tiers: {names}")
    history = as_messages(messages)
    skipped: list[str] = []
    for candidate in candidates:
        model = choose_site(registry, candidate, api_key=options.get("api_key"))
        reason = objection(model) or obstacle(model, history, options)
        if reason is None and not offline:
            reason = _missing_key(model, options)
        if reason is None:
            reasons = f" ({'; '.join(skipped)})" if skipped else ""
            return model, Note("tier", "tiers", name, f"{model.name}{reasons}")
        skipped.append(f"{candidate}: {reason}")
    raise UnknownModel(f"no model of tier {tier} fits: {'; '.join(skipped)}", hint="set a key, or name a model")


def _missing_key(model: Model, options: Mapping[str, Any]) -> str | None:
    """Return that the model's key is missing; None where it is not, or where the endpoint is on this machine."""
    names = model.flags.keys or []
    if not names or options.get("api_key") or keys.find_key(names) is not None:
        return None
    if is_loopback(urlsplit(model.flags.base_url or "").hostname or ""):
        return None
    return f"{names[0]} is not set"
