"""An item of the answer has no such attribute."""

import dataclasses

import cnllm


@dataclasses.dataclass
class City:
    """A city."""

    name: str
    people: int


reply = cnllm.call("glm-4.7", "The largest cities?", schema=list[City])
for city in reply.parsed or []:
    print(city.nam)  # type: ignore  # refused
