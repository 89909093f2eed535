"""Tools that a model may call: from typed functions, from dicts, or from an MCP server's definitions.

    @cnllm.tool
    def weather(city: str, unit: Literal["C", "F"] = "C") -> str:
        \"""The weather in a city now.\"""

A `Tool` is a value; this package never runs one. `problem_with` describes the error of a call for the model.
`undecided_parameters` raises an error for invalid parameters, and lists the patterns of the schema that no call is
checked for. `bound` builds the function's arguments. `shown` makes a result text. `has_sets` says whether a list of
tools holds a set of them.
"""

from cnllm.tools.arguments import bound, decode_encoded_arguments, problem_with, shown, undecided_parameters
from cnllm.tools.values import Tool, ToolSet, as_tools, has_sets, tool, web_search

__all__ = [
    "Tool",
    "ToolSet",
    "as_tools",
    "bound",
    "decode_encoded_arguments",
    "has_sets",
    "problem_with",
    "shown",
    "tool",
    "undecided_parameters",
    "web_search",
]
