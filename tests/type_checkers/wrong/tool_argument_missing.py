"""An argument of a tool is missing."""

import cnllm


@cnllm.tool
def weather(city: str, days: int = 1) -> str:
    """Return the weather."""
    return f"{city}: {days}"


weather(days=3)  # type: ignore  # refused
