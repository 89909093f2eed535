"""The answer may be None."""

import dataclasses

import cnllm


@dataclasses.dataclass
class City:
    """A city."""

    name: str
    people: int


reply = cnllm.call("glm-4.7", "The largest city?", schema=City)
print(reply.parsed.name)  # type: ignore  # refused
