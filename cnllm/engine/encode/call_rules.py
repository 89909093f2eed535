"""Which calls a reply may hold, by what the request offered and chose, and what to note where it holds others."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal

from msgspec import Struct

from cnllm.engine.options import Function, RequestOptions

__all__ = ["CallRules", "Exclusion", "call_rules"]

_BODY = frozenset({"tools", "tool_choice", "functions", "function_call", "toolConfig", "tool_config"})
"""Keys of a body that offer tools or choose one, on any wire."""


class Exclusion(Struct, frozen=True):
    """Why a call is never executed; `code` and `flag` are those of its note."""

    code: str
    flag: str
    reason: str


class CallRules(Struct, frozen=True, kw_only=True):
    """What the caller allows.

    `names` are the tools of the request; None where none was offered, or the endpoint brings tools of its own: a call
    of any name is shown then, and there is no function that could be executed.

    `choice` and `chosen` are the caller's. `forced`: the endpoint was asked for a call; `single`: for one at most.
    `answer` is the tool whose call is the answer, which nobody executes.
    """

    names: frozenset[str] | None = None
    choice: Literal["auto", "none", "required", "named"] | None = None
    chosen: str | None = None
    forced: bool = False
    single: bool = False
    answer: str | None = None

    def exclusion(self, name: str) -> Exclusion | None:
        """Return why a call of this name is never executed; None where it may be."""
        if name == self.answer:
            return None
        if self.choice == "none":
            return Exclusion("call-excluded", "tool_choice", "tool_choice='none' excludes it")
        if self.names is not None and name not in self.names:
            return Exclusion("call-not-offered", "tools", "no tool of exactly this name was offered")
        if self.choice == "named" and name != self.chosen:
            return Exclusion("call-excluded", "tool_choice", f"tool_choice={self.chosen!r} excludes it")
        return None

    def ignored_wishes(self, calls: Sequence[str]) -> list[tuple[str, str, str]]:
        """Return (code, said, did) for each wish that a whole reply with these calls did not follow."""
        out: list[tuple[str, str, str]] = []
        if self.forced and not any(self.choice == "required" or name == self.chosen for name in calls):
            said = f"tool_choice={self.chosen or self.choice!r}"
            out.append(("tool-choice-ignored", said, "the endpoint ignored it: the reply holds no such call"))
        if self.single and len(calls) > 1:
            said = "parallel_tool_calls=False"
            out.append(("parallel-ignored", said, f"the endpoint ignored it: the reply holds {len(calls)} calls"))
        return out


def call_rules(
    asked: RequestOptions,
    offered: Sequence[Function],
    patch: Mapping[str, Any],
    *,
    forced: bool,
    single: bool,
) -> CallRules | None:
    """Return the rules of a request; None where it has none, or the caller's own body offers or chooses the tools.

    `asked` holds the caller's choice, before an endpoint's limits changed it; `patch` is what the registry puts into
    the body.
    """
    if not _BODY.isdisjoint(asked.extra_body):
        return None
    if asked.choice is None and not offered:
        return None
    names = [tool.name for tool in offered if tool.definition is None]
    own = len(names) < len(offered) or not _BODY.isdisjoint(patch)
    return CallRules(
        names=frozenset(names) if names and not own else None,
        choice=asked.choice,
        chosen=asked.chosen,
        forced=forced,
        single=single,
    )
