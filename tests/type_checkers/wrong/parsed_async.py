"""The answer of the async client has no such attribute."""

import dataclasses

import cnllm


@dataclasses.dataclass
class City:
    """A city."""

    name: str
    people: int


async def ask(client: cnllm.AsyncClient) -> str:
    """Return the name."""
    reply = await client.call("glm-4.7", "The largest city?", schema=City)
    assert reply.parsed is not None
    return reply.parsed.nam  # type: ignore  # refused
