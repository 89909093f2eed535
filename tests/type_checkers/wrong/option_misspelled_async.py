"""An option of the async client has a typing error."""

import cnllm


async def ask() -> None:
    """Ask."""
    async with cnllm.AsyncClient() as client:
        print(await client.call("glm-4.7", "Hi", temprature=1))  # type: ignore  # refused
