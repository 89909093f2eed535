"""Decide which calls a reply may hold, by what the request offered and chose.

Calls that break these rules are noted and never executed.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal

from msgspec import Struct

from cnllm.engine.options import RequestOptions
from cnllm.types.function import Function

if TYPE_CHECKING:
    from cnllm.types.note_codes import NoteCode

__all__ = ["CallRules", "Exclusion", "call_rules"]

_TOOL_KEYS = frozenset({"tools", "tool_choice", "functions", "function_call", "toolConfig", "tool_config"})
"""Keys of a body that offer or choose tools, on any wire."""


class Exclusion(Struct, frozen=True):
    """The reason why a call is never executed; `code` and `flag` are those of its note."""

    code: NoteCode
    flag: str
    reason: str


class CallRules(Struct, frozen=True, kw_only=True):
    """The calls that the caller allows.

    `names` are the tools of the request. It is None where none was offered, or where the endpoint brings its own tools:
    a call of any name is shown then, and there is no function that could be executed.

    `choice` and `tool_name` are the caller's. `forced` means that the request demands a call, `single` that it allows
    one at most. `answer` is the tool whose call is the answer, which nobody executes.
    """

    names: frozenset[str] | None = None
    choice: Literal["auto", "none", "required", "named"] | None = None
    tool_name: str | None = None
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
        if self.choice == "named" and name != self.tool_name:
            return Exclusion("call-excluded", "tool_choice", f"tool_choice={self.tool_name!r} excludes it")
        return None

    def ignored_wishes(self, calls: Sequence[str]) -> list[tuple[NoteCode, str, str]]:
        """Return (code, said, did) for each option that a whole reply with these calls did not follow."""
        out: list[tuple[NoteCode, str, str]] = []
        if self.forced and not any(self.choice == "required" or name == self.tool_name for name in calls):
            subject = f"tool_choice={self.tool_name or self.choice!r}"
            out.append(("tool-choice-ignored", subject, "the endpoint ignored it: the reply holds no such call"))
        if self.single and len(calls) > 1:
            subject = "parallel_tool_calls=False"
            out.append(("parallel-ignored", subject, f"the endpoint ignored it: the reply holds {len(calls)} calls"))
        return out


def call_rules(
    options: RequestOptions,
    offered: Sequence[Function],
    patch: Mapping[str, Any],
    *,
    forced: bool,
    single: bool,
) -> CallRules | None:
    """Return the rules of a request; None where it has none, or the caller's own body offers or chooses the tools.

    `options` holds the caller's choice, before an endpoint's limits changed it; `patch` is the registry's change of the
    body.
    """
    if not _TOOL_KEYS.isdisjoint(options.extra_body):
        return None
    if options.choice is None and not offered:
        return None
    names = [tool.name for tool in offered if tool.definition is None]
    has_builtin = len(names) < len(offered) or not _TOOL_KEYS.isdisjoint(patch)
    return CallRules(
        names=frozenset(names) if names and not has_builtin else None,
        choice=options.choice,
        tool_name=options.tool_name,
        forced=forced,
        single=single,
    )
