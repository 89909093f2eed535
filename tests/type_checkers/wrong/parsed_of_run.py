"""The answer of a tool loop has no such attribute."""

import dataclasses

import cnllm


@dataclasses.dataclass
class City:
    """A city."""

    name: str
    people: int


run = cnllm.run("glm-4.7", "The largest city?", schema=City)
assert run.reply.parsed is not None
print(run.reply.parsed.nam)  # type: ignore  # refused
