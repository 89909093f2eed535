"""A tool with the types of its function written out."""

import cnllm


@cnllm.tool
def weather(city: str, days: int = 1) -> str:
    """Return the weather."""
    return f"{city}: {days}"


typed: cnllm.Tool[[str, int], str] = cnllm.tool(lambda city, days: city * days, name="repeat")
any_tool: cnllm.Tool = weather
print(typed.name, any_tool.name)
print(any_tool("Bern"))
