"""A web search that an endpoint runs itself, in one form for all endpoints."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

from msgspec import Struct

from cnllm.types import checks

__all__ = ["SEARCH", "WebSearch"]

SEARCH = "web_search"
"""The name of the search as a tool, which a tool choice may name."""


class WebSearch(Struct, frozen=True):
    """A web search as the caller wants it: the number of results, and the domains to search; None leaves it open.

    `other_settings` names further settings of a client's own form of the search, which have no equal in other forms.
    `is_offer`: a client lists the search among its tools, where agents have it in every request.
    """

    count: int | None = None
    domains: tuple[str, ...] | None = None
    other_settings: tuple[str, ...] = ()
    is_offer: bool = False

    @staticmethod
    def of_client(settings: Mapping[str, Any], domains: Any = None, known: Collection[str] = ()) -> WebSearch:
        """Return a search of the settings in a client's own form; `known` are those that need no note."""
        names = tuple(name for name in domains if isinstance(name, str)) if isinstance(domains, list) else ()
        others = tuple(name for name, value in settings.items() if name not in known and value is not None)
        return WebSearch(None, names or None, others)

    @staticmethod
    def of(count: Any, domains: Any) -> WebSearch:
        """Return a search of a caller's values. Raises `TypeError` or `ValueError` naming the value that is wrong."""
        if count is not None:
            checks.require_type("count", count, int, "a number of results or None")
            if count is True or count is False or not 0 < count < 2**31:
                raise checks.wrong_value("count", count, "a number of results, 1 or more,")
        if domains is None:
            return WebSearch(count)
        names = checks.as_list("domains", [domains] if isinstance(domains, str) else domains, "a list of domains")
        for name in names:
            checks.require_text("domains: one of them", name)
        if not names:
            raise checks.wrong_value("domains", domains, "a list of domains with at least one, or None")
        return WebSearch(count, tuple(map(str.__str__, names)))
