"""Replies of several types in one list."""

import dataclasses

import cnllm


@dataclasses.dataclass
class City:
    """A city."""

    name: str
    people: int


def texts(replies: list[cnllm.Reply]) -> list[str]:
    """Return their texts."""
    return [reply.text for reply in replies]


reply: cnllm.Reply = cnllm.call("glm-4.7", "Hi")
print(texts([reply, cnllm.call("glm-4.7", "Hi"), cnllm.call("glm-4.7", "A city?", schema=City)]))
