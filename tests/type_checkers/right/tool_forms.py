"""Tools in each form."""

from typing import Any

import cnllm


@cnllm.tool
def weather(city: str) -> str:
    """Return the weather."""
    return city


@cnllm.tool(timeout=5, strict=True)
async def degrees(city: str) -> int:
    """Return the degrees."""
    return len(city)


def clock(zone: str = "UTC") -> str:
    """Return the time."""
    return zone


def names(tools: list[cnllm.Tool]) -> list[str]:
    """Return their names."""
    return [tool.name for tool in tools]


tools = [weather, degrees]
cnllm.run("glm-4.7", "Hi", tools=tools)
cnllm.run("glm-4.7", "Hi", tools=[weather, degrees, clock])
cnllm.run("glm-4.7", "Hi", tools=(clock,))
several = [clock, len, weather]
cnllm.call("glm-4.7", "Hi", tools=several)
cnllm.call("glm-4.7", "Hi", tools=[{"type": "function", "function": {"name": "look_up", "parameters": {}}}, weather])
definitions: list[dict[str, Any]] = [{"name": "look_up"}]
cnllm.call("glm-4.7", "Hi", tools=definitions, tool_choice={"type": "function", "function": {"name": "look_up"}})
cnllm.call("glm-4.7", "Hi", tools=[cnllm.Tool("look_up", "Look it up.", {"type": "object"})])
print(names([weather, degrees, cnllm.tool(clock, name="time")]))
