"""Define the context of a check, and a violation."""

from __future__ import annotations

from typing import Any

from msgspec import Struct

from cnllm.registry.flags import Flags, RefusalWords
from cnllm.registry.model import Model
from cnllm.simulator.request import ParsedRequest

__all__ = ["RequestContext", "Violation", "refusals_of"]


class RequestContext(Struct, frozen=True):
    """A request at an endpoint: the flags of its mode, its headers in lower case, whether the model thinks.

    `worded` holds the kinds of refusal for which the entry has a text. `strict`: refuse everything that the flags deny,
    with a general text if the entry has none. `unlisted`: the endpoint does not serve this model. `general`: use
    texts without names.
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
        """Whether the endpoint refuses parameters that its flags do not name, and those that count as refused.

        Many a `false` is inferred from clients that omit the parameter. An endpoint that refuses names the parameter.
        """
        return self.strict or next(("{param}" in r.body for r in refusals_of(self.flags) if r.on == "param"), False)

    def refuses(self, kind: str) -> bool:
        """Whether the endpoint makes this kind of refusal, which only some make."""
        return self.strict or kind in self.worded

    @property
    def body(self) -> dict[str, Any]:
        """Return the request's body."""
        return self.request.body


class Violation(Struct, frozen=True):
    """One violation: its kind (`Refusal.on`), a sentence, and values for a refusal's placeholders."""

    on: str
    message: str
    param: str | None = None
    value: Any = None
    role: str | None = None
    index: int | None = None
    choice: str | None = None


def refusals_of(flags: Flags) -> list[RefusalWords]:
    """Return the endpoint's own words of refusal."""
    return flags.simulator.refusals or []
