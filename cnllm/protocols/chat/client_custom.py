"""Read calls of custom tools as calls of functions: their input, a plain text, is one argument."""

from __future__ import annotations

from typing import Any

from cnllm.types.tools import custom_arguments

__all__ = ["CustomCalls"]


def _is_custom(item: Any) -> bool:
    """Whether an item is a call of a custom tool, or a piece of one."""
    return type(item) is dict and type(item.get("custom")) is dict


class CustomCalls:
    """The calls of custom tools in one reply. A stream has their inputs in pieces, and no mark of their end."""

    __slots__ = ("_open",)

    def __init__(self) -> None:
        self._open: dict[Any, None] = {}  # the indexes of calls whose input may go on

    def as_functions(self, items: Any, *, whole: bool) -> Any:
        """Return the items of a message or a delta; those of custom tools are ones of functions."""
        if type(items) is not list or not any(map(_is_custom, items)):
            return items
        return [self._item(item, whole=whole) if _is_custom(item) else item for item in items]

    def _item(self, item: dict[str, Any], *, whole: bool) -> dict[str, Any]:
        """Return the item of a function for one of a custom tool."""
        custom, index = item["custom"], item.get("index")
        input = custom.get("input")
        index = index if type(index) is int else None
        arguments = custom_arguments(input if type(input) is str else "")[1]
        if not whole:
            head, _, text = arguments[:-2].partition(':"')  # without the end of the text and of the object
            arguments = text if index in self._open else f'{head}:"{text}'
            self._open[index] = None
        rest = {key: value for key, value in item.items() if key not in ("type", "custom")}
        return {**rest, "function": {"name": custom.get("name"), "arguments": arguments}}

    def end(self) -> list[dict[str, Any]]:
        """Return the items that end the open calls."""
        items = [{"index": index, "function": {"arguments": '"}'}} for index in self._open]
        self._open.clear()
        return items
