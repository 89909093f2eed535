"""A Literal and a union as the schema."""

import dataclasses
from typing import Any, Literal

import cnllm


@dataclasses.dataclass
class City:
    """A city."""

    name: str
    people: int


word = cnllm.call("glm-4.7", "Yes or no?", schema=Literal["yes", "no"]).parsed
print(word)
city = cnllm.call("glm-4.7", "The largest city?", schema=City | None).parsed
print(city)
schema: dict[str, Any] = {"type": "object", "properties": {"name": {"type": "string"}}}
table = cnllm.call("glm-4.7", "The largest city?", schema=schema).parsed
if table is not None:
    print(table["name"])
