"""A TypedDict and an Enum as the schema."""

import enum
from typing import TypedDict

import cnllm


class City(TypedDict):
    """A city."""

    name: str


class Size(enum.Enum):
    """How large it is."""

    SMALL = "small"
    LARGE = "large"


reply = cnllm.call("glm-4.7", "The largest city?", schema=City)
if reply.parsed is not None:
    print(reply.parsed["name"].upper())
size = cnllm.call("glm-4.7", "How large?", schema=Size).parsed
if size is Size.LARGE:
    print(size.value)
