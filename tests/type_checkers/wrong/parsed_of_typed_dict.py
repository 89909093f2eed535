"""The answer of a TypedDict has no such key."""

from typing import TypedDict

import cnllm


class City(TypedDict):
    """A city."""

    name: str


reply = cnllm.call("glm-4.7", "The largest city?", schema=City)
assert reply.parsed is not None
print(reply.parsed["people"])  # type: ignore  # refused
