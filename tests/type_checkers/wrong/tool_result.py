"""The result of a tool has no such attribute."""

import cnllm


@cnllm.tool
def weather(city: str, days: int = 1) -> str:
    """Return the weather."""
    return f"{city}: {days}"


weather("Bern").degrees()  # type: ignore  # refused
