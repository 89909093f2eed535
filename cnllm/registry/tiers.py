"""Choose a model from a tier: the first of an ordered list that has a key and fits the request."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from cnllm.config import keys
from cnllm.errors import UnknownModel
from cnllm.registry.model import Model
from cnllm.registry.registry import Registry
from cnllm.types import Media, Note
from cnllm.types.convert import as_messages
from cnllm.types.media import media_kind

__all__ = ["PREFIX", "choose_model"]

PREFIX = "tier:"


def choose_model(
    name: str, messages: Any, options: Mapping[str, Any], registry: Registry, *, offline: bool
) -> tuple[Model, Note]:
    """Return the model of a tier for one call, and a note that says which and why.

    With `offline` no key is needed. Raises `UnknownModel` where there is no such tier, or no model in it fits.
    """
    tier = name.removeprefix(PREFIX)
    candidates = registry.tiers.get(tier)
    if candidates is None:
        names = ", ".join(sorted(registry.tiers)) or "none; [tiers] in a registry file makes them"
        raise UnknownModel(f"no tier is called {tier}", close=sorted(registry.tiers), hint=f"tiers: {names}")
    skipped: list[str] = []
    for candidate in candidates:
        model = registry.resolve(candidate)
        reason = _obstacle(model, messages, options) or (None if offline else _missing_key(model, options))
        if reason is None:
            reasons = f" ({'; '.join(skipped)})" if skipped else ""
            return model, Note("tier", "tiers", name, f"{model.name}{reasons}")
        skipped.append(f"{candidate}: {reason}")
    raise UnknownModel(f"no model of tier {tier} fits: {'; '.join(skipped)}", hint="set a key, or name a model")


def _missing_key(model: Model, options: Mapping[str, Any]) -> str | None:
    """Return that the model's key is missing; None where it is not."""
    names = model.flags.keys or []
    if not names or options.get("api_key") or keys.find_key(names) is not None:
        return None
    return f"{names[0]} is not set"


def _obstacle(model: Model, messages: Any, options: Mapping[str, Any]) -> str | None:
    """Return why a model cannot serve a request; None where it can, or where that is unknown."""
    flags = model.flags
    if flags.status is not None and flags.status.is_ == "retired":
        return "it is retired"
    if options.get("tools") and flags.tools is not None and flags.tools.supported is False:
        return "it takes no tools"
    has_images = any(type(p) is Media and media_kind(p) == "image" for m in as_messages(messages) for p in m.parts)
    if has_images and flags.input is not None and "image" not in flags.input:
        return "it takes no images"
    mode = flags.reasoning.mode if flags.reasoning else None
    reasoning = options.get("reasoning")
    if reasoning == "off" and mode == "always":
        return "its reasoning cannot be turned off"
    if reasoning not in (None, "off") and mode == "never":
        return "it does not reason"
    return None
