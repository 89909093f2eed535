"""The result of an async tool is awaited."""

import cnllm


@cnllm.tool
async def degrees(city: str) -> int:
    """Return the degrees."""
    return len(city)


async def main() -> int:
    """Return a sum."""
    return await degrees("Bern") + 1
