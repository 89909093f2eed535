"""The answer of a stream has no such attribute."""

import dataclasses

import cnllm


@dataclasses.dataclass
class City:
    """A city."""

    name: str
    people: int


with cnllm.stream("glm-4.7", "The largest city?", schema=City) as stream:
    parsed = stream.reply.parsed
assert parsed is not None
print(parsed.nam)  # type: ignore  # refused
