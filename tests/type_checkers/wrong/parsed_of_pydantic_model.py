"""The answer of a pydantic model has no such attribute."""

import pydantic

import cnllm


class City(pydantic.BaseModel):
    """A city."""

    name: str


reply = cnllm.call("glm-4.7", "The largest city?", schema=City)
assert reply.parsed is not None
print(reply.parsed.people)  # type: ignore  # refused
