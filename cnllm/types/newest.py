"""A dictionary of bounded length, for what clients may make any number of."""

from __future__ import annotations

from collections import OrderedDict
from typing import TypeVar

__all__ = ["Newest"]

K = TypeVar("K")
V = TypeVar("V")


class Newest(OrderedDict[K, V]):
    """The `most` entries that were set last."""

    def __init__(self, most: int) -> None:
        super().__init__()
        self.most = most

    def __setitem__(self, key: K, value: V) -> None:
        super().__setitem__(key, value)
        self.move_to_end(key)
        if len(self) > self.most:
            self.popitem(last=False)
