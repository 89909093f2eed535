"""Tools: what a model may call. From typed functions, from dicts, or from an MCP server's definitions.

    @cnllm.tool
    def weather(city: str, unit: Literal["C", "F"] = "C") -> str:
        \"""The weather in a city now.\"""

A `Tool` is a value; nothing here runs one. `check` raises what is wrong with its parameters, `problem_with` says what
is wrong with a call in words for the model, `bound` makes the arguments that the function takes, `unjudged` says which
patterns of its schema no call is checked for, `shown` makes a result text.
"""

from cnllm.tools.arguments import bound, check_parameters, decode_encoded_arguments, problem_with, undecided_parameters
from cnllm.tools.results import shown
from cnllm.tools.values import Tool, as_tools, tool

__all__ = [
    "Tool",
    "as_tools",
    "bound",
    "check_parameters",
    "decode_encoded_arguments",
    "problem_with",
    "shown",
    "tool",
    "undecided_parameters",
]
