"""The answer has no such attribute."""

import dataclasses

import cnllm


@dataclasses.dataclass
class City:
    """A city."""

    name: str
    people: int


reply = cnllm.call("glm-4.7", "The largest city?", schema=City)
if reply.parsed is not None:
    print(reply.parsed.nam)  # type: ignore  # refused
