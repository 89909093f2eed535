"""The tools of a request, in one form for all endpoints: functions, custom tools, and a web search of the endpoint.

A custom tool, whose input is plain text, is a function with one text argument. Such a function has the key `custom`
beside it, with the tool's own `description` and `format`.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from cnllm.types import checks
from cnllm.types.lenient_json import decode_arguments, json_text
from cnllm.types.parts import CACHE_MARK, ToolCall

__all__ = [
    "SEARCH",
    "Function",
    "WebSearch",
    "arguments_of",
    "check_names",
    "custom_arguments",
    "custom_function",
    "custom_grammar",
    "custom_input",
    "json_arguments",
    "without_mark",
]


_FIELD = "input"

SEARCH = "web_search"
"""The name of the search as a tool, which a tool choice may name."""


class Function(Struct, frozen=True):
    """A tool as offered.

    `definition` is set for a tool that is not a function (an endpoint's own tool), which is sent as it is. `extra`
    holds the keys beside the function (cache marks). `custom` is set for a function that stands for a custom tool: the
    tool's own description and format. `search` is set for a web search that has no endpoint's form yet.
    """

    name: str
    description: str | None = None
    parameters: dict[str, Any] | None = None
    strict: bool | None = None
    definition: dict[str, Any] | None = None
    extra: dict[str, Any] | None = None
    custom: dict[str, Any] | None = None
    search: WebSearch | None = None

    def head(self, names: Mapping[str, str]) -> dict[str, Any]:
        """Return the name and the description as every wire has them. `names` renames functions."""
        name, description = names.get(self.name, self.name), self.description
        return {"name": name} if description is None else {"name": name, "description": description}


def check_names(tools: Sequence[Any]) -> None:
    """Raise `ValueError` where two different functions have one name: a call of it would be ambiguous.

    Those that differ in a cache mark alone are equal. An endpoint's own tools are not functions.
    """
    places: dict[str, int] = {}
    for index, tool in enumerate(tools):
        if tool.definition is None and tool.search is None:
            first = places.setdefault(tool.name, index)
            if first != index and without_mark(tools[first]) != without_mark(tool):
                raise ValueError(
                    f"two tools have the name {tool.name}, tools[{first}] and tools[{index}], and are not equal; "
                    "rename one of them"
                )


def without_mark(tool: Any) -> Any:
    """Return a tool without its cache mark."""
    extra = tool.extra
    if not extra or CACHE_MARK not in extra:
        return tool
    return replace(tool, extra={key: value for key, value in extra.items() if key != CACHE_MARK} or None)


class WebSearch(Struct, frozen=True):
    """A web search as the caller wants it: the number of results, and the domains to search; None leaves it open.

    `other_settings` names further settings of a client's own form of the search, which have no equal in other forms.
    `is_offer`: a client lists the search among its tools, where agents have it in every request.
    """

    count: int | None = None
    domains: tuple[str, ...] | None = None
    other_settings: tuple[str, ...] = ()
    is_offer: bool = False

    @staticmethod
    def of_client(settings: Mapping[str, Any], domains: Any = None, known: Collection[str] = ()) -> WebSearch:
        """Return a search of the settings in a client's own form; `known` are those that need no note."""
        names = tuple(name for name in domains if isinstance(name, str)) if isinstance(domains, list) else ()
        others = tuple(name for name, value in settings.items() if name not in known and value is not None)
        return WebSearch(None, names or None, others)

    @staticmethod
    def of(count: Any, domains: Any) -> WebSearch:
        """Return a search of a caller's values. Raises `TypeError` or `ValueError` naming the value that is wrong."""
        if count is not None:
            checks.require_type("count", count, int, "a number of results or None")
            if count is True or count is False or not 0 < count < 2**31:
                raise checks.wrong_value("count", count, "a number of results, 1 or more,")
        if domains is None:
            return WebSearch(count)
        names = checks.as_list("domains", [domains] if isinstance(domains, str) else domains, "a list of domains")
        for name in names:
            checks.require_text("domains: one of them", name)
        if not names:
            raise checks.wrong_value("domains", domains, "a list of domains with at least one, or None")
        return WebSearch(count, tuple(map(str.__str__, names)))


# ── custom tools ─────────────────────────────────────────────────────────────


def custom_function(name: str, tool: Mapping[str, Any]) -> dict[str, Any]:
    """Return the function for a custom tool. Its description holds the grammar, if the tool has one."""
    own = {key: tool[key] for key in ("description", "format") if tool.get(key) is not None}
    texts = [own["description"]] if isinstance(own.get("description"), str) and own["description"] else []
    texts.append(f"Call this function with one argument, `{_FIELD}`: a string that holds the whole input, unchanged.")
    if (grammar := custom_grammar(own)) is not None:
        texts.append(f"The input follows this grammar ({grammar[0]}):\n{grammar[1]}")
    parameters = {
        "type": "object",
        "properties": {_FIELD: {"type": "string", "description": "The whole input of the tool."}},
        "required": [_FIELD],
        "additionalProperties": False,
    }
    function = {"name": name, "description": "\n\n".join(texts), "parameters": parameters}
    return {"type": "function", "function": function, "custom": own}


def custom_grammar(custom: Mapping[str, Any]) -> tuple[str, str] | None:
    """Return the syntax and the definition of the grammar for a custom tool's input; None where it has none.

    Chat completions write the grammar as an object of its own inside the format, Responses in the format itself.
    """
    format = custom.get("format")
    if not isinstance(format, Mapping):
        return None
    grammar = format.get("grammar") if isinstance(format.get("grammar"), Mapping) else format
    if not isinstance(grammar, Mapping) or not isinstance(grammar.get("definition"), str):
        return None
    return str(grammar.get("syntax", "lark")), grammar["definition"]


def custom_arguments(input: str) -> tuple[dict[str, Any], str]:
    """Return the arguments of the function for an input, decoded and as JSON."""
    arguments = {_FIELD: input}
    return arguments, json_text(arguments)


def arguments_of(call: ToolCall) -> dict[str, Any] | None:
    """Return the arguments of a call as an object; None where they cannot be read as one."""
    return call.arguments if call.arguments is not None else decode_arguments(call.raw)[0]


def json_arguments(call: ToolCall) -> str:
    """Return the arguments of a function's call as text: an empty object where an endpoint wrote nothing, or null."""
    if call.raw and (call.arguments is None or call.raw.strip() not in ("", "null")):
        return call.raw
    return msgspec.json.encode(call.arguments or {}).decode()


def custom_input(call: ToolCall) -> str:
    """Return the input of a call. Arguments in another form are the input themselves."""
    arguments = arguments_of(call)
    value = None if arguments is None else arguments.get(_FIELD)
    return value if isinstance(value, str) else call.raw
