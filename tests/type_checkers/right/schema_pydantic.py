"""A pydantic model as the schema."""

from typing import assert_type

import pydantic

import cnllm


class City(pydantic.BaseModel):
    """A city."""

    name: str


reply = cnllm.call("glm-4.7", "The largest city?", schema=City)
assert_type(reply, cnllm.Reply[City])
assert_type(reply.parsed, City | None)
if reply.parsed is not None:
    print(reply.parsed.name.upper())
if reply.parsed:
    print(reply.parsed.model_dump())
