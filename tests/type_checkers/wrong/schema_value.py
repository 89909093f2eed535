"""An instance is no schema."""

import dataclasses

import cnllm


@dataclasses.dataclass
class City:
    """A city."""

    name: str
    people: int


cnllm.call("glm-4.7", "Hi", schema=City("Bern", 3))  # type: ignore  # refused
