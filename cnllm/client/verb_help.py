"""Add the options of a verb to its docstring, so that `help(Client.call)` lists them."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any, TypeVar

from cnllm.client.option_help import CALL_OPTIONS, LOOP_OPTIONS

__all__ = ["with_options", "with_run_options"]

Verb = TypeVar("Verb", bound=Callable[..., Any])


def with_options(verb: Verb) -> Verb:
    """Add the options of a call to a verb's docstring."""
    return _add(verb, CALL_OPTIONS)


def with_run_options(verb: Verb) -> Verb:
    """Add the options of a tool loop and of a call to a verb's docstring."""
    return _add(verb, f"{LOOP_OPTIONS}\n\n{CALL_OPTIONS}")


def _add(verb: Verb, text: str) -> Verb:
    if verb.__doc__ is not None:  # `python -OO` has no docstrings
        verb.__doc__ = f"{inspect.cleandoc(verb.__doc__)}\n\n{text}"
    return verb
