"""Read what a registry says of one parameter: its state, and where it stands in the body.

A rule is `true` or a path (the endpoint acts on it), `false` (it answers with an error), `"ignored"` (it takes it and
does nothing), or a table. No rule is unknown. `false` is the word for refused because a text is a path: one word that
is none is enough.
"""

from __future__ import annotations

from typing import Literal

from cnllm.registry.flags import Param

__all__ = ["IGNORED", "Rule", "State", "path", "state"]

Rule = str | bool | Param | None
State = Literal["works", "refused", "ignored", "unknown"]

IGNORED = "ignored"


def state(rule: Rule) -> State:
    """Return what becomes of a parameter that is sent."""
    if rule is None:
        return "unknown"
    if rule is False:
        return "refused"
    if rule == IGNORED or (type(rule) is Param and rule.ignored):
        return "ignored"
    return "works"


def path(name: str, rule: Rule) -> str:
    """Return where a parameter stands in the body; its own name where nothing says more."""
    if type(rule) is Param:
        return rule.as_ or name
    return rule if type(rule) is str and rule != IGNORED else name
