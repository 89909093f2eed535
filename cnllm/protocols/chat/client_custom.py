"""Read calls of custom tools as calls of functions: their input, a plain text, is one argument.

A stream has an input in pieces, and no mark of its end: the indexes of calls whose input may go on are kept.
"""

from __future__ import annotations

from typing import Any

from cnllm.types.tools import custom_arguments

__all__ = ["as_functions", "end_inputs"]


def as_functions(items: Any, open_inputs: set[Any], *, whole: bool) -> Any:
    """Return the items of a message or a delta; those of custom tools are ones of functions."""
    if type(items) is not list or not any(map(_is_custom, items)):
        return items
    return [_as_function(item, open_inputs, whole=whole) if _is_custom(item) else item for item in items]


def end_inputs(open_inputs: set[Any]) -> list[dict[str, Any]]:
    """Return the items that end the calls whose input is open, and close these."""
    items = [{"index": index, "function": {"arguments": '"}'}} for index in open_inputs]
    open_inputs.clear()
    return items


def _is_custom(item: Any) -> bool:
    """Whether an item is a call of a custom tool, or a piece of one."""
    return type(item) is dict and type(item.get("custom")) is dict


def _as_function(item: dict[str, Any], open_inputs: set[Any], *, whole: bool) -> dict[str, Any]:
    """Return the item of a function for one of a custom tool."""
    custom, index = item["custom"], item.get("index")
    input = custom.get("input")
    index = index if type(index) is int else None
    arguments = custom_arguments(input if type(input) is str else "")[1]
    if not whole:
        head, _, text = arguments[:-2].partition(':"')  # without the end of the text and of the object
        arguments = text if index in open_inputs else f'{head}:"{text}'
        open_inputs.add(index)
    rest = {key: value for key, value in item.items() if key not in ("type", "custom")}
    return {**rest, "function": {"name": custom.get("name"), "arguments": arguments}}
