"""A tool as a request offers it."""

from __future__ import annotations

from typing import Any

from msgspec import Struct

from cnllm.types.web_search import WebSearch

__all__ = ["Function"]


class Function(Struct, frozen=True):
    """A tool as offered.

    `definition` is set for a tool that is not a function (an endpoint's own tool), which is sent as it is. `extra`
    holds the keys beside the function (cache marks). `custom` is set for a function that stands for a custom tool: the
    tool's own description and format. `search` is set for a web search that has no endpoint's form yet.
    """

    name: str
    description: str | None = None
    parameters: dict[str, Any] | None = None
    strict: bool | None = None
    definition: dict[str, Any] | None = None
    extra: dict[str, Any] | None = None
    custom: dict[str, Any] | None = None
    search: WebSearch | None = None
