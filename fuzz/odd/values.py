"""Odd values: what a caller may pass by mistake, and what an attacker may pass on purpose."""

from __future__ import annotations

import collections
import dataclasses
import datetime
import decimal
import enum
import fractions
import functools
import itertools
import pathlib
import threading
import types
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import pydantic

import cnllm

__all__ = ["JSON", "VALUES", "deep"]


class Colour(enum.Enum):
    RED = "red"


class Word(str):
    """A subclass of str that says nothing else."""


class LoudWord(str):
    """A str whose methods raise."""

    def __eq__(self, other: object) -> bool:
        raise RuntimeError("no comparison")

    __hash__ = str.__hash__


@dataclasses.dataclass
class Point:
    x: int = 1


class Person(pydantic.BaseModel):
    name: str = "x"


class BrokenMapping(Mapping[str, Any]):
    """A mapping that raises whatever is asked of it."""

    def __getitem__(self, key: str) -> Any:
        raise RuntimeError("no item")

    def __iter__(self) -> Iterator[str]:
        raise RuntimeError("no keys")

    def __len__(self) -> int:
        raise RuntimeError("no length")


class BrokenSequence(Sequence[Any]):
    """A sequence that raises whatever is asked of it."""

    def __getitem__(self, key: Any) -> Any:
        raise RuntimeError("no item")

    def __len__(self) -> int:
        raise RuntimeError("no length")


class BrokenObject:
    """Raises from everything that is looked at."""

    def __repr__(self) -> str:
        raise RuntimeError("no repr")

    __str__ = __repr__

    def __bool__(self) -> bool:
        raise RuntimeError("no truth")

    def __eq__(self, other: object) -> bool:
        raise RuntimeError("no comparison")

    def __hash__(self) -> int:
        raise RuntimeError("no hash")


class BrokenAttributes:
    """Raises for every attribute that it does not have."""

    def __getattr__(self, name: str) -> Any:
        raise RuntimeError(f"no {name}")


class AnyAttribute:
    """Return a value for every attribute, as a mock does."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return AnyAttribute()

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return AnyAttribute()


class Counted(collections.UserDict[str, Any]):
    """A mapping that is no dict."""


def deep(kind: str, levels: int = 20_000) -> Any:
    """Return a list or a dict that many others hold, one in another."""
    value: Any = "x"
    for _ in range(levels):
        value = [value] if kind == "list" else {"a": value}
    return value


def _itself(kind: str) -> Any:
    if kind == "list":
        items: list[Any] = []
        items.append(items)
        return items
    table: dict[str, Any] = {}
    table["a"] = table
    return table


def _fails() -> Iterator[Any]:
    yield "x"
    raise RuntimeError("broke off")


async def _awaited() -> None:
    return None


def _coroutine() -> Any:
    made = _awaited()
    made.close()
    return made


def _function(x: int = 1) -> int:
    return x


def _cached(make: Callable[[], Any]) -> Callable[[], Any]:
    return functools.cache(make)


JSON: dict[str, Callable[[], Any]] = {
    "null": lambda: None,
    "true": lambda: True,
    "zero": lambda: 0,
    "minus": lambda: -1,
    "half": lambda: 0.5,
    "big": lambda: 10**30,
    "empty text": lambda: "",
    "text": lambda: "odd",
    "nul": lambda: "\0",
    "not ascii": lambda: "é中\U0001f600",
    "empty list": list,
    "list": lambda: [1, "x", None],
    "lists": lambda: [[[]]],
    "list of tables": lambda: [{}, {"a": 1}],
    "empty table": dict,
    "table": lambda: {"a": {"b": [1]}},
    "typed table": lambda: {"type": "text", "text": 5, "name": [], "id": {}},
}
"""Values that JSON can hold."""

VALUES: dict[str, Callable[[], Any]] = {
    **JSON,
    "false": lambda: False,
    "nan": lambda: float("nan"),
    "inf": lambda: float("inf"),
    "minus inf": lambda: float("-inf"),
    "10**400": lambda: 10**400,
    "10**5000": lambda: 10**5000,
    "long text": _cached(lambda: "x" * 100_000),
    "half of a character": lambda: "\ud800",
    "text with half": lambda: "a\udfffb",
    "line break": lambda: "a\r\nb: c",
    "controls": lambda: "\x1b[2J\x7f\u202e",
    "address": lambda: "http://xn--a/",
    "another address": lambda: "http://[::1",
    "port": lambda: "http://a:99999999/",
    "number as text": lambda: "12",
    "bytes": lambda: b"odd\xff",
    "bytearray": lambda: bytearray(b"odd"),
    "memoryview": lambda: memoryview(b"odd"),
    "deep list": _cached(lambda: deep("list")),
    "deep table": _cached(lambda: deep("table")),
    "list in itself": _cached(lambda: _itself("list")),
    "table in itself": _cached(lambda: _itself("table")),
    "tuple": lambda: (1, 2),
    "empty tuple": tuple,
    "list of None": lambda: [None],
    "set": lambda: {1, "x"},
    "frozenset": frozenset,
    "generator": lambda: (x for x in ("a", "b")),
    "failing generator": _fails,
    "iterator": lambda: iter([1]),
    "zip": lambda: zip([1], [2], strict=True),
    "range": lambda: range(3),
    "repeat": lambda: itertools.repeat("x", 2),
    "object": object,
    "class": lambda: object,
    "type": lambda: type,
    "dict class": lambda: dict,
    "int class": lambda: int,
    "function": lambda: _function,
    "builtin": lambda: len,
    "lambda": lambda: lambda: None,
    "lambda of *args": lambda: lambda *a, **k: None,
    "method": lambda: "x".upper,
    "partial": lambda: functools.partial(_function, x=2),
    "module": lambda: itertools,
    "table with int keys": lambda: {1: 2},
    "table with tuple keys": lambda: {(1, 2): "x"},
    "table with None key": lambda: {None: "x"},
    "table with bytes keys": lambda: {b"a": "x"},
    "table of an object": lambda: {"a": object()},
    "table of a set": lambda: {"a": {1}},
    "table of nan": lambda: {"a": float("nan")},
    "table of bytes": lambda: {"a": b"\xff"},
    "table of half": lambda: {"a\ud800": "\udfff"},
    "list of an object": lambda: [object()],
    "list of lists": lambda: [["a"], ["b"]],
    "enum": lambda: Colour.RED,
    "enum class": lambda: Colour,
    "decimal": lambda: decimal.Decimal("1.5"),
    "decimal nan": lambda: decimal.Decimal("sNaN"),
    "fraction": lambda: fractions.Fraction(1, 3),
    "complex": lambda: 1j,
    "datetime": lambda: datetime.datetime(2026, 1, 1),
    "timedelta": lambda: datetime.timedelta(seconds=5),
    "uuid": lambda: uuid.UUID(int=5),
    "path": lambda: pathlib.Path("nowhere/odd"),
    "str subclass": lambda: Word("odd"),
    "loud str": lambda: LoudWord("odd"),
    "mapping": lambda: Counted({"a": 1}),
    "proxy": lambda: types.MappingProxyType({"a": 1}),
    "deque": lambda: collections.deque(["a"]),
    "broken mapping": BrokenMapping,
    "broken sequence": BrokenSequence,
    "broken object": BrokenObject,
    "broken attributes": BrokenAttributes,
    "any attribute": AnyAttribute,
    "coroutine": _coroutine,
    "coroutine function": lambda: _awaited,
    "model class": lambda: Person,
    "model": Person,
    "dataclass": Point,
    "dataclass class": lambda: Point,
    "exception": lambda: ValueError("odd"),
    "exception class": lambda: RuntimeError,
    "lock": threading.Lock,
    "ellipsis": lambda: ...,
    "not implemented": lambda: NotImplemented,
    "slice": lambda: slice(1, 2),
    "message": lambda: cnllm.Message("user", (cnllm.Text("x"),)),
    "message of odd parts": lambda: cnllm.Message("user", ("x", 5, None)),  # type: ignore[arg-type]
    "message of odd text": lambda: cnllm.Message("user", (cnllm.Text(object()),)),  # type: ignore[arg-type]
    "part": lambda: cnllm.Text("x"),
    "note": lambda: cnllm.Note("tier", "b", "c", "d"),
    "tool": lambda: cnllm.Tool("x"),
}
"""What can be passed as any argument; each is made anew."""
