"""Describe a route: the models that may answer one request, and when the next one takes over."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

from msgspec import Struct
from msgspec.structs import force_setattr

from cnllm.types import checks

__all__ = ["Fallback"]

_MOST_TARGETS = 32


class Fallback(Struct, frozen=True, kw_only=True):
    """The models that take over, in order, and the rules for it. A target is a name, or a `cnllm.Model`.

    `first_token`: seconds in which the first piece of a stream must arrive; None means no limit. `cooldown`: seconds in
    which a target that failed is passed over. With `weights`, one for each target with the first model included, each
    request draws its order. With `order="measured"` the models are ordered by what was seen of them in the last hour;
    `report` is the path of a report of `cnllm compare`, which counts until enough was seen. For one request at most
    `most` models are asked.
    """

    targets: tuple[Any, ...]
    first_token: float | None = None
    cooldown: float = 30.0
    weights: tuple[float, ...] | None = None
    order: str | None = None
    report: str | os.PathLike[str] | None = None
    most: int = _MOST_TARGETS + 1

    def __post_init__(self) -> None:
        targets = _names("targets", self.targets, 'a list of names such as ["provider/model"]')
        if len(targets) > _MOST_TARGETS:
            raise checks.wrong_value("targets", len(targets), f"at most {_MOST_TARGETS} names")
        force_setattr(self, "targets", targets)
        force_setattr(self, "first_token", checks.seconds("first_token", self.first_token))
        cooldown: Any = checks.seconds("cooldown", self.cooldown, zero=True)
        if cooldown is None:
            raise checks.wrong_value("cooldown", self.cooldown, "a finite number of seconds from 0")
        force_setattr(self, "cooldown", cooldown)
        if self.weights is not None:
            force_setattr(self, "weights", _weights(self.weights, len(targets) + 1))
        if type(self.most) is not int or self.most < 1:
            raise checks.wrong_value("most", self.most, "a number from 1")
        if self.order not in (None, "measured"):
            raise checks.wrong_value("order", self.order, '"measured", or None for the order of the list')
        if self.order is not None and self.weights is not None:
            raise ValueError('order="measured" and weights exclude each other: leave one of them out')
        if self.report is not None:
            if not isinstance(self.report, str | os.PathLike) or not os.fspath(self.report):
                raise checks.wrong_value("report", self.report, "the path of a report of cnllm compare")
            if self.order is None:
                raise ValueError('a report orders nothing without order="measured"')
            force_setattr(self, "report", os.fspath(self.report))

    @staticmethod
    def of(fallback: Any) -> Fallback:
        """Return the rules, also from a list of names or a dict. Raises `TypeError` or `ValueError` for others."""
        if isinstance(fallback, Fallback):
            return fallback
        if isinstance(fallback, Mapping):
            table = checks.as_dict("fallback", fallback)
            names = Fallback.__struct_fields__
            if "targets" not in table or any(name not in names for name in table):
                raise checks.wrong_value("fallback", sorted(map(str, table)), f"a dict of {', '.join(names)}")
            return Fallback(**table)
        return Fallback(targets=_names("fallback", fallback, "a list of names, or a cnllm.Fallback"))


def _names(argument: str, names: Any, expected: str) -> tuple[Any, ...]:
    """Return the names of models, or models. Raises `TypeError` with the argument's name for anything else."""
    found = checks.as_list(argument, names, expected)
    for name in found:
        if not hasattr(name, "flags_for"):  # a cnllm.Model
            checks.require_text(argument, name)
    return tuple(found)


def _weights(weights: Any, count: int) -> tuple[float, ...]:
    """Return the weights. Raises `ValueError` unless there is one for each target, and one above 0."""
    expected = f"a list of {count} numbers from 0, one for each target and not all 0,"
    found = checks.as_list("weights", weights, expected)
    if len(found) != count:
        raise checks.wrong_value("weights", weights, expected)
    for weight in found:
        if isinstance(weight, bool) or not isinstance(weight, int | float) or not 0 <= weight < float("inf"):
            raise checks.wrong_value("weights", weight, expected)
    if not any(found):
        raise checks.wrong_value("weights", weights, expected)
    return tuple(map(float, found))
