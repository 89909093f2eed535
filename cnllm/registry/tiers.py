"""`tier:fast` → the first of an ordered list of models that there is a key for and that can do what is asked."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from cnllm.config import keys
from cnllm.errors import UnknownModel
from cnllm.registry.model import Model
from cnllm.registry.registry import Registry
from cnllm.types import Media, Note
from cnllm.types.convert import as_messages

__all__ = ["PREFIX", "choose_model"]

PREFIX = "tier:"


def choose_model(
    name: str, messages: Any, options: Mapping[str, Any], registry: Registry, *, offline: bool
) -> tuple[Model, Note]:
    """The model a tier comes to for one call, and a note that says which and why.

    `offline`: no key is needed. Raises `UnknownModel` when there is no such tier, or nothing in it will do.
    """
    tier = name.removeprefix(PREFIX)
    listed = registry.tiers.get(tier)
    if listed is None:
        known = ", ".join(sorted(registry.tiers)) or "none; [tiers] in a registry file makes them"
        raise UnknownModel(f"no tier is called {tier}", close=sorted(registry.tiers), hint=f"tiers: {known}")
    passed: list[str] = []
    for candidate in listed:
        model = registry.resolve(candidate)
        why = _unfit(model, messages, options) or (None if offline else _locked(model, options))
        if why is None:
            because = f" ({'; '.join(passed)})" if passed else ""
            return model, Note("tier", "tiers", name, f"{model.name}{because}")
        passed.append(f"{candidate}: {why}")
    raise UnknownModel(f"nothing in tier {tier} will do: {'; '.join(passed)}", hint="set a key, or name a model")


def _locked(model: Model, options: Mapping[str, Any]) -> str | None:
    names = model.flags.keys or []
    if not names or options.get("api_key") or keys.find_key(names) is not None:
        return None
    return f"{names[0]} is not set"


def _unfit(model: Model, messages: Any, options: Mapping[str, Any]) -> str | None:
    """What it is known not to do; what is unknown may be tried."""
    flags = model.flags
    if flags.status is not None and flags.status.is_ == "retired":
        return "it is retired"
    if options.get("tools") and flags.tools is not None and flags.tools.supported is False:
        return "it takes no tools"
    pictures = any(type(p) is Media and p.type.startswith("image") for m in as_messages(messages) for p in m.parts)
    if pictures and flags.input is not None and "image" not in flags.input:
        return "it takes no images"
    mode = flags.reasoning.mode if flags.reasoning else None
    wanted = options.get("reasoning")
    if wanted == "off" and mode == "always":
        return "its reasoning cannot be turned off"
    if wanted not in (None, "off") and mode == "never":
        return "it does not reason"
    return None
