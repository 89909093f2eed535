"""Every verb knows the type of its answer."""

import dataclasses
from typing import assert_type

import cnllm


@dataclasses.dataclass
class City:
    """A city."""

    name: str
    people: int


client = cnllm.Client(simulate=True)
assert_type(client.call("glm-4.7", "Hi", schema=City), cnllm.Reply[City])
assert_type(client.run("glm-4.7", "Hi", schema=City, max_steps=3), cnllm.Run[City])
assert_type(client.run("glm-4.7", "Hi", schema=City).reply.parsed, City | None)
with client.stream("glm-4.7", "Hi", schema=City, temperature=0.5) as stream:
    assert_type(stream.reply, cnllm.Reply[City])
with client.run_stream("glm-4.7", "Hi", schema=City) as run:
    assert_type(run.reply.parsed, City | None)
with cnllm.stream("glm-4.7", "Hi", schema=City) as other:
    assert_type(other.reply.parsed, City | None)


async def ask(client: cnllm.AsyncClient) -> None:
    """Ask in each way."""
    assert_type(await client.call("glm-4.7", "Hi", schema=City), cnllm.Reply[City])
    assert_type((await client.run("glm-4.7", "Hi", schema=City)).reply.parsed, City | None)
    async with client.stream("glm-4.7", "Hi", schema=City) as stream:
        assert_type(stream.reply.parsed, City | None)
    async with client.run_stream("glm-4.7", "Hi", schema=City) as run:
        assert_type(run.reply.parsed, City | None)
