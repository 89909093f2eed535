"""Read how reasoning goes back: as it arrives, unless the endpoint takes it in another form or under another key."""

from __future__ import annotations

from cnllm.registry.flags import ReasoningFlags

__all__ = ["BOTH", "form", "is_replayed", "place", "text_place"]

BOTH = "details-and-field"


def is_replayed(rules: ReasoningFlags) -> bool:
    """Whether reasoning goes back at all. Where the endpoint's demand is unknown, none does."""
    return rules.replay not in (None, "never", "unknown")


def form(rules: ReasoningFlags) -> str:
    """Return the form in which reasoning goes back: a value of `replay_as`."""
    return rules.replay_as or rules.shape or "field"


def place(rules: ReasoningFlags) -> str | None:
    """Return the key under which reasoning goes back; None where no key is known."""
    return rules.replay_field or (rules.fields[0] if rules.fields else None)


def text_place(rules: ReasoningFlags) -> str | None:
    """Return the key that must hold reasoning which goes back: of two keys, the one of the text."""
    return rules.fields[0] if form(rules) == BOTH and rules.fields else place(rules)
