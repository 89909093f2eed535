"""What the judge looks at, and what it finds."""

from __future__ import annotations

from typing import Any

from msgspec import Struct

from cnllm.registry.flags import Flags
from cnllm.registry.model import Model
from cnllm.simulator.request import ParsedRequest

__all__ = ["RequestContext", "Violation"]


class RequestContext(Struct, frozen=True):
    """A request at an endpoint: the flags of its mode, its headers in lower case, whether the model thinks.

    `worded` holds the kinds of refusal that the entry has words for. `strict`: all that the flags deny is refused, in
    general words where the entry has none. `unlisted`: the endpoint serves no such model. `general`: words name nobody.
    """

    model: Model
    flags: Flags
    request: ParsedRequest
    headers: dict[str, str]
    thinks: bool | None
    worded: frozenset[str]
    strict: bool = False
    unlisted: bool = False
    general: bool = False

    @property
    def refuses_by_name(self) -> bool:
        """Does the endpoint refuse a parameter that it does not take? Recordings show some that merely ignore it.

        The flag says false for both. One that refuses says which parameter it minds, so its words tell.
        """
        return self.strict or next(("{param}" in r.body for r in self.flags.refusals or () if r.on == "param"), False)

    def refuses(self, kind: str) -> bool:
        """Does the endpoint make a refusal of this kind, which only some make?"""
        return self.strict or kind in self.worded

    @property
    def body(self) -> dict[str, Any]:
        """The request's body."""
        return self.request.body


class Violation(Struct, frozen=True):
    """One thing an endpoint refuses: its kind (`Refusal.on`), a sentence, what fills a refusal's blanks."""

    on: str
    message: str
    param: str | None = None
    value: Any = None
    role: str | None = None
    index: int | None = None
    choice: str | None = None
