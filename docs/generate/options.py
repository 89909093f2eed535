"""The options of a call and of a tool loop, and the settings from the environment."""

from __future__ import annotations

import inspect
import types
import typing
from collections.abc import Callable
from typing import Any

from msgspec import Meta

from cnllm import Client
from cnllm.config.settings import VARIABLES
from cnllm.engine.options import EXTRA_PARAMS
from cnllm.types.call_options import CallOptions, RunOptions
from docs.generate.markdown import cell, table

__all__ = ["page"]


def page() -> str:
    """Return a page with every option: what it takes, and what it does."""
    defaults = {name: one.default for name, one in inspect.signature(Client.run).parameters.items()}
    further = ", ".join(f"`{name}`" for name in EXTRA_PARAMS)
    return "\n\n".join(
        [
            "# Options",
            "All are keywords and optional, for `call`, `stream`, `plan`, `run`, `run_stream`, `fit` and "
            "`engine.build_request`. `None` is the same as left out.",
            "## Of a call",
            table(["option", "values", "meaning"], [_row(name, kind) for name, kind in _hints(CallOptions)]),
            f"Further parameters ({further}, and whatever the model's registry entry names under `params`) are options "
            "of their own names. What only the endpoint knows goes into `extra_body`.",
            "## Of a tool loop",
            "`run` and `run_stream` take these as well.",
            table(
                ["option", "values", "default", "meaning"],
                [
                    [*(row := _row(name, kind))[:2], f"`{defaults[name]!r}`", row[2]]
                    for name, kind in _hints(RunOptions)
                ],
            ),
            "## Of the environment",
            "A client takes these where it is not told otherwise.",
            table(["variable", "meaning"], [[f"`{name}`", cell(text)] for name, text in VARIABLES.items()]),
        ]
    ) + "\n"  # fmt: skip


def _hints(options: Any) -> list[tuple[str, Any]]:
    return list(typing.get_type_hints(options, include_extras=True).items())


def _row(name: str, kind: Any) -> list[str]:
    (meta,) = (one for one in typing.get_args(kind)[1:] if isinstance(one, Meta))
    return [f"`{name}`", ", ".join(_values(typing.get_args(kind)[0])), cell(meta.description or "")]


_WORDS = {bool: "true or false", int: "whole number", float: "number", str: "text"}


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
