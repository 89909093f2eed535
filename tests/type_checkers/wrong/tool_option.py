"""An option of a tool has a typing error."""

import cnllm


def weather(city: str) -> str:
    """Return the weather."""
    return city


cnllm.tool(weather, timout=5)  # type: ignore  # refused
