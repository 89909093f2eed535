"""Data of a client's request that means something on the client's own protocol only."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from cnllm.types.tools import WebSearch

if TYPE_CHECKING:
    from cnllm.types import Reply

__all__ = ["EMPTY", "CarriedBody", "ClientData", "count_text"]

EMPTY: tuple[Any, ...] = (None, "", [], {})
"""Values of keys that say nothing: to leave one out needs no note."""


def count_text(path: str, count: int) -> str:
    """Return the path of a key, with how often it stands in a request."""
    return path if count == 1 else f"{path} ({count} times)"


class ClientData(dict[str, Any]):
    """A dict that goes to endpoints of one protocol only; the engine leaves it out anywhere else, with a note.

    The options of a decoded request hold such dicts: keys of the body without an option of their own, tools that are
    no functions, headers that ask for features of the protocol. `search` is the web search that the data ask for, in
    the form for all endpoints; None where they ask for none. `inner_keys` counts the keys inside messages and tools
    that mean something on the protocol only, by their path and the name by which other protocols may know them.
    """

    __slots__ = ("inner_keys", "protocol", "search")

    def __init__(
        self,
        protocol: str = "",
        data: Mapping[str, Any] | None = None,
        search: WebSearch | None = None,
        inner_keys: Mapping[tuple[str, str | None], int] | None = None,
    ) -> None:
        super().__init__(data or {})
        self.inner_keys = inner_keys or {}
        self.protocol = protocol
        self.search = search


class CarriedBody(dict[str, Any]):
    """A caller's `extra_body` in a loop, beside the earlier replies of the loop.

    An endpoint that wrote one of them may want data about it back, in a key of the body.
    """

    __slots__ = ("replies",)

    def __init__(self, own: Mapping[str, Any], replies: Sequence[Reply]) -> None:
        super().__init__(own)
        self.replies = replies
