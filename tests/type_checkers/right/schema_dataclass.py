"""A dataclass as the schema."""

import dataclasses
from typing import assert_type

import cnllm


@dataclasses.dataclass
class City:
    """A city."""

    name: str
    people: int


reply = cnllm.call("glm-4.7", "The largest city?", schema=City)
assert_type(reply.parsed, City | None)
assert reply.parsed is not None
print(reply.parsed.people + 1)
