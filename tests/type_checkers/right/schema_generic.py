"""A function that is generic in its schema."""

import dataclasses
from typing import TypeVar

import cnllm


@dataclasses.dataclass
class City:
    """A city."""

    name: str
    people: int


T = TypeVar("T")


def ask(question: str, kind: type[T]) -> T:
    """Return the answer. Raise `ValueError` where there is none."""
    parsed = cnllm.call("glm-4.7", question, schema=kind).parsed
    if parsed is None:
        raise ValueError("no answer")
    return parsed


print(ask("The largest city?", City).people)
