"""Arithmetic with amounts of money that does not depend on the decimal context of the program."""

from __future__ import annotations

from collections.abc import Callable
from decimal import ROUND_HALF_EVEN, Context, DivisionByZero, InvalidOperation, Overflow, localcontext
from functools import wraps
from typing import ParamSpec, TypeVar

__all__ = ["exact"]

P = ParamSpec("P")
T = TypeVar("T")

_CONTEXT = Context(
    prec=200,  # digits: no sum of amounts has so many
    rounding=ROUND_HALF_EVEN,
    Emin=-999_999,
    Emax=999_999,
    capitals=1,
    clamp=0,
    traps=[DivisionByZero, InvalidOperation, Overflow],
)


def exact(function: Callable[P, T]) -> Callable[P, T]:
    """Return a function that counts in a context of its own: the caller's may round, or trap what is not exact."""

    @wraps(function)
    def count(*args: P.args, **kwargs: P.kwargs) -> T:
        with localcontext(_CONTEXT):
            return function(*args, **kwargs)

    return count
