"""Types and functions of an application, as people write them, with annotations that are text."""

from __future__ import annotations

import datetime
import functools
from collections.abc import Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from enum import Enum, IntEnum
from typing import Annotated, Any, Literal, NamedTuple, NotRequired, Optional, Union

from pydantic import BaseModel, Field
from typing_extensions import TypedDict


class Unit(Enum):
    CELSIUS = "C"
    FAHRENHEIT = "F"


class Level(IntEnum):
    LOW = 1
    HIGH = 2


@dataclass
class Place:
    """A place."""

    city: str
    country: str = "CH"


@dataclass
class Node:
    """A tree."""

    value: int
    children: list[Node] = field(default_factory=list)


@dataclass
class Square:
    side: int
    unit: str = "m"


@dataclass
class Circle:
    radius: int
    unit: str = "m"


class Dog(BaseModel):
    kind: Literal["dog"]
    name: str = "Rex"


class Cat(BaseModel):
    kind: Literal["cat"]
    name: str = "Tom"


def either(shape: Square | Circle | list[Square | Circle] | str) -> Any:
    """One of several kinds."""
    return shape


def tagged(pet: Annotated[Dog | Cat, Field(discriminator="kind")]) -> Any:
    """One of two kinds that say which they are."""
    return pet


class Filter(TypedDict):
    key: str
    value: NotRequired[int]


class Person(BaseModel):
    name: str = Field(description="The whole name")
    age: int = Field(ge=0)


class Point(NamedTuple):
    x: float
    y: float


class Connection:
    """Something that no JSON can say."""


def simple(text: str, count: int, ratio: float, on: bool) -> str:
    """Do something."""
    return f"{text} {count} {ratio} {on}"


def defaults(city: str, unit: Literal["C", "F"] = "C", days: int = 3, near: float | None = None) -> None: ...


def enums(unit: Unit, level: Level = Level.LOW) -> None: ...


def objects(place: Place, person: Person, filters: list[Filter]) -> None: ...


def unions(a: int | str, b: Optional[int], c: Union[Place, Person, None] = None) -> None:  # noqa: UP007, UP045
    ...


def lists(
    a: list[int], b: Sequence[str], c: dict[str, int], d: tuple[int, str], e: tuple[int, ...], f: set[str]
) -> None: ...


def described(
    city: Annotated[str, "The city's name"], person: Annotated[int, Field(ge=1, description="Who")] = 1
) -> None:
    """Look it up.

    Args:
        city: What the docstring says.
        person: not this either
    """


def tree(root: Node) -> int:
    return root.value + sum(tree(child) for child in root.children)


def dated(day: datetime.date, amount: Decimal, at: Point) -> tuple[Any, ...]:
    return day, amount, at


def anything(value: Any, other=None) -> None:  # type: ignore[no-untyped-def]
    ...


def stringly(place: Place) -> Place:
    return place


def hidden(connection: Connection, text: str = "") -> None: ...


def starred(text: str, *more: str) -> None: ...


def keyworded(text: str, **more: str) -> None: ...


def positional(text: str, /) -> None: ...


def unheard(text: str, of: Nowhere) -> None:  # type: ignore[name-defined]  # noqa: F821
    ...


def foreign(text: str) -> Nowhere:  # type: ignore[name-defined]  # noqa: F821
    """What it returns is known to type checkers alone."""


def senseless(text: str, of: 1 + None) -> None:  # type: ignore[valid-type]
    ...


class Store:
    """An object with methods and a call."""

    def __init__(self) -> None:
        self.kept: dict[str, str] = {}

    def put(self, key: str, value: str) -> str:
        """Keep a value."""
        self.kept[key] = value
        return "kept"

    def __call__(self, key: str) -> str | None:
        """Get a value."""
        return self.kept.get(key)


async def waits(seconds: float) -> str:
    """Wait."""
    return f"waited {seconds}"


class Exact(BaseModel, strict=True):
    day: datetime.date


def exact(of: Exact) -> None: ...


def odd_names(_x: int, schema: str, json: int, model_name: str, copy: Unit) -> tuple[Any, ...]:
    return _x, schema, json, model_name, copy


def fielded(text: str, count: int = Field(ge=1)) -> None: ...


@dataclass
class Picky:
    text: str

    def __post_init__(self) -> None:
        raise LookupError(f"{self.text} is not known here")


def picky(of: Picky) -> None: ...


partly = functools.partial(simple, text="x")
