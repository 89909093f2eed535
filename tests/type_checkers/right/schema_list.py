"""Lists and dicts as the schema."""

import dataclasses
from typing import assert_type

import cnllm


@dataclasses.dataclass
class City:
    """A city."""

    name: str
    people: int


names = cnllm.call("glm-4.7", "The largest cities?", schema=list[str]).parsed
assert_type(names, list[str] | None)
print([name.upper() for name in names or []])
cities = cnllm.call("glm-4.7", "The largest cities?", schema=list[City]).parsed
assert_type(cities, list[City] | None)
people = cnllm.call("glm-4.7", "The largest cities?", schema=dict[str, int]).parsed
assert_type(people, dict[str, int] | None)
count = cnllm.call("glm-4.7", "How many cities?", schema=int).parsed
assert_type(count, int | None)
