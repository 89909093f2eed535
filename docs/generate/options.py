"""The options of a call and of a tool loop."""

from __future__ import annotations

import inspect
import types
import typing
from collections.abc import Callable
from typing import Any

from cnllm.client.runs import LoopSettings
from cnllm.types.call_options import CallOptions, LoopOptions, MixedList
from docs.generate.markdown import cell, table
from docs.generate.option_docs import descriptions

__all__ = ["page"]


def page() -> str:
    """Return a page with every option: what it takes, and what it does."""
    defaults = {name: one.default for name, one in inspect.signature(LoopSettings).parameters.items()}
    return "\n\n".join(
        [
            "# Options",
            "All are keywords and optional, for `call`, `stream`, `plan`, `run`, `run_stream`, `fit` and "
            "`engine.build_request`.",
            "## Of a call",
            "`None` is the same as left out.",
            table(["option", "values", "meaning"], _rows(CallOptions)),
            "Further parameters that the model's registry entry names under `params` are options of their own names. "
            "What only the endpoint knows goes into `extra_body`.",
            "## Of a tool loop",
            "`run` and `run_stream` take these as well.",
            table(
                ["option", "values", "default", "meaning"],
                [[*row[:2], f"`{defaults[row[0].strip('`')]!r}`", row[2]] for row in _rows(LoopOptions)],
            ),
            "Waits, attempts, limits and the raw log of a client can also come from [the settings](settings.md).",
        ]
    ) + "\n"  # fmt: skip


def _rows(options: Any) -> list[list[str]]:
    texts = descriptions(options.__name__)
    kinds = typing.get_type_hints(options)
    return [[f"`{name}`", ", ".join(_values(kinds[name])), cell(text)] for name, text in texts.items()]


_WORDS = {
    bool: "true or false",
    int: "whole number",
    float: "number",
    str: "text",
    MixedList: "list",
    types.UnionType: "union",
}


def _values(kind: Any) -> list[str]:
    """Return the type of an option without None, because every option may be left out."""
    origin, inside = typing.get_origin(kind), typing.get_args(kind)
    if origin in (types.UnionType, typing.Union):
        text = [word for one in inside if one is not type(None) for word in _values(one)]
        return list(dict.fromkeys(text))
    if origin is typing.Literal:
        return [f'`"{value}"`' for value in inside]
    if origin is type:
        return ["class"]
    if origin is not None and issubclass(origin, Callable):  # type: ignore[arg-type]
        return ["function"]
    if origin is not None:
        return ["list" if issubclass(origin, typing.Sequence) else "dict"]
    return [_WORDS.get(kind) or f"`{kind.__name__}`"]
