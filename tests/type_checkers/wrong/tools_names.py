"""A list of names is not a list of tools."""

import cnllm


@cnllm.tool
def weather(city: str, days: int = 1) -> str:
    """Return the weather."""
    return f"{city}: {days}"


cnllm.run("glm-4.7", "Hi", tools=["weather"])  # type: ignore  # refused
