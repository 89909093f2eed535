"""The answer of an async tool loop has no such attribute."""

import dataclasses

import cnllm


@dataclasses.dataclass
class City:
    """A city."""

    name: str
    people: int


async def ask(client: cnllm.AsyncClient) -> str:
    """Return the name."""
    run = await client.run("glm-4.7", "The largest city?", schema=City)
    assert run.reply.parsed is not None
    return run.reply.parsed.nam  # type: ignore  # refused
