"""An argument of a tool has another name."""

import cnllm


@cnllm.tool
def weather(city: str, days: int = 1) -> str:
    """Return the weather."""
    return f"{city}: {days}"


weather("Bern", day=3)  # type: ignore  # refused
