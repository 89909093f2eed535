"""What the judge looks at, and what it finds."""

from __future__ import annotations

from typing import Any

from msgspec import Struct

from cnllm.registry.flags import Flags, Refusal
from cnllm.registry.model import Model
from cnllm.simulator.request import Asked

__all__ = ["Case", "Wrong", "refusals_of"]


class Case(Struct, frozen=True):
    """A request at an endpoint: the flags of its mode, its headers in lower case, whether the model thinks.

    `worded` holds the kinds of refusal that the entry has words for. `strict`: all that the flags deny is refused, in
    general words where the entry has none. `unlisted`: the endpoint serves no such model. `general`: words name nobody.
    """

    model: Model
    flags: Flags
    asked: Asked
    headers: dict[str, str]
    thinks: bool | None
    worded: frozenset[str]
    strict: bool = False
    unlisted: bool = False
    general: bool = False

    @property
    def refuses_by_name(self) -> bool:
        """Whether the endpoint refuses what the flags merely do not name, and a parameter that counts as refused.

        Many a `false` is inferred from clients that leave it out. An endpoint whose words name the parameter refuses.
        """
        return self.strict or next(("{param}" in r.body for r in refusals_of(self.flags) if r.on == "param"), False)

    def refuses(self, kind: str) -> bool:
        """Does the endpoint make a refusal of this kind, which only some make?"""
        return self.strict or kind in self.worded

    @property
    def body(self) -> dict[str, Any]:
        """The request's body."""
        return self.asked.body


class Wrong(Struct, frozen=True):
    """One thing an endpoint refuses: its kind (`Refusal.on`), a sentence, what fills a refusal's blanks."""

    on: str
    message: str
    param: str | None = None
    value: Any = None
    role: str | None = None
    index: int | None = None
    choice: str | None = None


def refusals_of(flags: Flags) -> list[Refusal]:
    """Return the endpoint's own words of refusal."""
    return (flags.simulator.refusals if flags.simulator is not None else None) or []
