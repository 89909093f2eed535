"""Find how a model is asked to search the web itself."""

from __future__ import annotations

from cnllm.registry.flags import Flags, WebSearchFlags
from cnllm.registry.model import Model, conditions

__all__ = ["SEARCH_MODE", "search_rules", "usable_search"]

SEARCH_MODE = conditions(search=True)
"""The mode of a request with a search, whatever else it holds."""


def usable_search(flags: Flags) -> WebSearchFlags | None:
    """Return the rules of a search that the model can run; None where none is known.

    A search that works only without reasoning is none for a model that always reasons.
    """
    rules = flags.web_search
    if rules is None or (rules.reasoning is False and flags.reasoning.mode == "always"):
        return None
    return rules if rules.tool is not None or rules.set is not None or rules.always else None


def search_rules(model: Model) -> WebSearchFlags | None:
    """Return the rules of a search over the wire that takes it; None where none is known."""
    flags = model.flags_for(SEARCH_MODE)
    if model.over is not None and flags.protocol not in (None, model.protocol):
        flags = model.over(str(flags.protocol)).flags_for(SEARCH_MODE)
    return usable_search(flags)
