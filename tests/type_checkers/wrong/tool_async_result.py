"""The result of an async tool is awaited."""

import cnllm


@cnllm.tool
async def degrees(city: str) -> int:
    """Return the degrees."""
    return len(city)


print(degrees("Bern") + 1)  # type: ignore  # refused
