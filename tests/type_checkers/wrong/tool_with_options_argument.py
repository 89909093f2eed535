"""A tool with options keeps its signature, too."""

import cnllm


@cnllm.tool(timeout=5)
def weather(city: str) -> str:
    """Return the weather."""
    return city


weather(town="Bern")  # type: ignore  # refused
