"""The value `Tool`, and how to make one from functions and definitions."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Generic, Protocol, TypedDict, Unpack, cast, overload

from msgspec import Struct
from msgspec.structs import replace

from cnllm.types import checks
from cnllm.types.tools import SEARCH, WebSearch, check_names, custom_function

if TYPE_CHECKING:
    from typing_extensions import ParamSpec, TypeVar

    P = ParamSpec("P", default=...)
    R_co = TypeVar("R_co", default=Any, covariant=True)
    R = TypeVar("R")
else:
    from typing import ParamSpec, TypeVar

    P = ParamSpec("P")
    R_co = TypeVar("R_co", covariant=True)

__all__ = [
    "Tool",
    "ToolMaker",
    "ToolOptions",
    "ToolSet",
    "as_tool",
    "as_tools",
    "expand_sets",
    "has_sets",
    "set_labels",
    "tool",
    "web_search",
]

Function = Callable[..., Any]


class Tool(Struct, Generic[P, R_co], frozen=True):
    """A tool as it is offered, with the function that executes it. It can be called like the function.

    `parameters` is a JSON Schema whose root is an object. `function` may be sync or async; without one the tool is
    offered but cannot be executed. `timeout` is in seconds, for one call. `definition` is set for a built-in tool of an
    endpoint, and is sent unchanged. `extra` holds other keys of a definition (cache marks), for endpoints that know
    them. `custom` is set for a custom tool, whose input is plain text: its own `description` and `format`, for
    endpoints that know such tools. For all others the tool is a function with one argument, `input`, and cnllm checks
    the input by the grammar of the format.
    `search` is set for a web search by the endpoint (`web_search`), which is sent in the endpoint's own form.
    """

    name: str
    description: str | None = None
    parameters: dict[str, Any] | None = None
    function: Callable[P, R_co] | None = None
    strict: bool | None = None
    timeout: float | None = None
    definition: dict[str, Any] | None = None
    extra: dict[str, Any] | None = None
    custom: dict[str, Any] | None = None
    search: WebSearch | None = None

    def __call__(self, /, *args: P.args, **kwargs: P.kwargs) -> R_co:
        """Call the function. The result of an async function is a coroutine."""
        if self.function is None:
            raise TypeError(f"the tool {self.name} has no function to call")
        return self.function(*args, **kwargs)


class ToolMaker(Protocol):
    """Make a tool of a function. `tool(name=…)` returns this where it has no function yet."""

    def __call__(self, function: Callable[P, R], /) -> Tool[P, R]:
        """Make a tool from a function."""


class ToolOptions(TypedDict, total=False):
    """The options of `tool`."""

    name: str | None
    description: str | None
    strict: bool | None
    timeout: float | None
    format: Mapping[str, Any] | None


@overload
def tool(function: Callable[P, R], /, **options: Unpack[ToolOptions]) -> Tool[P, R]: ...


@overload
def tool(function: None = None, /, **options: Unpack[ToolOptions]) -> ToolMaker: ...


def tool(
    function: Function | None = None,
    /,
    *,
    name: str | None = None,
    description: str | None = None,
    strict: bool | None = None,
    timeout: float | None = None,
    format: Mapping[str, Any] | None = None,
) -> Tool[..., Any] | ToolMaker:
    """Make a tool from a typed function: `@tool`, `@tool(timeout=5)`, or `tool(function, name="…")`.

    The schema comes from the annotations and defaults, the descriptions from the docstring (Google, NumPy and Sphinx
    style) or from `Annotated[str, "…"]`, which goes before it. A Tool is copied with the new values. `format` makes a
    custom tool: the function has one parameter, `input`, a text that the format describes, with a grammar for example.
    Raise `TypeError`, naming the parameter, where no JSON Schema exists for it.
    """
    for key, value, kind, expected in (
        ("name", name, str, "a string or None"),
        ("description", description, str, "a string or None"),
        ("strict", strict, bool, "True, False or None"),
        ("timeout", timeout, int | float, "a number of seconds or None"),
        ("format", format, Mapping, "a dict or None"),
    ):
        if value is not None and not isinstance(value, kind):
            raise checks.wrong_type(key, value, expected)
    if function is None:

        def make(target: Callable[P, R], /) -> Tool[P, R]:
            return tool(target, name=name, description=description, strict=strict, timeout=timeout, format=format)

        return cast(ToolMaker, make)
    if isinstance(function, Tool):
        if format is not None:
            raise TypeError("format: it makes a custom tool of a function, and this is a Tool already")
        changes: dict[str, Any] = {"name": name, "description": description, "strict": strict, "timeout": timeout}
        if function.custom is not None and description is not None:
            forms = custom_function(function.name, {**function.custom, "description": description})
            changes.update(description=forms["function"]["description"], custom=forms["custom"])
        return replace(function, **{key: value for key, value in changes.items() if value is not None})
    if not callable(function):
        raise checks.wrong_type("function", function, "a function")
    from cnllm.tools.signature import docstring_summary, function_name, signature

    tool_name = name or function_name(function)
    parameters = signature(function)
    if description is None:
        description = docstring_summary(function)
    if format is None:
        schema = parameters.strict if strict else parameters.schema
        return Tool(tool_name, description, schema, function, strict, timeout)
    properties = parameters.schema.get("properties") or {}
    if list(properties) != ["input"] or properties["input"].get("type") != "string":
        raise TypeError(f"{tool_name} is a custom tool, and its function needs one parameter: input, a str")
    forms = custom_function(tool_name, {"description": description, "format": checks.as_dict("format", format)})
    body = forms["function"]
    return Tool(tool_name, body["description"], body["parameters"], function, None, timeout, custom=forms["custom"])


def web_search(*, count: int | None = None, domains: Sequence[str] | None = None) -> Tool[..., Any]:
    """Return a tool with which the endpoint searches the web itself: `tools=[cnllm.web_search()]`.

    It goes to each endpoint in the form that the registry has for it. A model without a search is called without one,
    and a note says so. `count` is the number of results, `domains` are those that are searched; a note says where an
    endpoint has no such setting. The sources of an answer are in `Reply.citations`. Raise `TypeError` or `ValueError`
    naming the value that is wrong.
    """
    return Tool(SEARCH, search=WebSearch.of(count, domains))


def as_tools(items: Sequence[Any]) -> list[Tool]:
    """Return each item as a Tool: Tools, functions, OpenAI's definitions, bare ones, and MCP's (dicts or objects).

    A set of tools stands for all of its tools. Raise `TypeError` or `ValueError` naming the item, and `ValueError`
    where two have the same name and are not equal, because a call would be ambiguous.
    """
    if not isinstance(items, Sequence) or isinstance(items, str):
        raise TypeError(f"items (the tools) is {checks.kind_of(items)}, a list is expected")
    if type(items) is not list:
        items = checks.as_list("items (the tools)", items, "a list")
    tools = [as_tool(item, f"tools[{index}]") for index, item in enumerate(expand_sets(items))]
    check_names(tools)
    return tools


def as_tool(item: Any, place: str) -> Tool:
    """Return one item as a Tool; `where` names it in errors."""
    if type(item) is dict:
        return _from_definition(item, place)
    if isinstance(item, Tool):
        return _check_tool(item, place)
    if isinstance(item, Mapping):
        return _from_definition(checks.as_dict(place, item), place)
    if callable(item):
        try:
            result: Tool = tool(item)
        except (TypeError, ValueError) as error:
            raise type(error)(f"{place}: {error}") from error
        return result
    try:
        if isinstance(getattr(item, "name", None), str) and hasattr(item, "inputSchema"):
            fields = {key: getattr(item, key, None) for key in ("name", "description", "inputSchema")}
            return _from_definition(fields, place)
    except (TypeError, ValueError):
        raise
    except Exception as error:  # a caller's object may raise any error
        raise checks.unreadable(place, error) from error
    raise TypeError(f"{place} is {type(item).__name__}, a Tool, a function or a dict is meant")


def _check_tool(item: Tool, place: str) -> Tool:
    """Return a Tool with checked fields. Raise `TypeError` for a field of another type."""
    if type(item.name) is not str:
        checks.require_type(f"{place}.name", item.name, str, "a string")
        item = replace(item, name=str.__str__(item.name))
    if item.description is not None and type(item.description) is not str:
        checks.require_type(f"{place}.description", item.description, str, "a string or None")
        item = replace(item, description=str.__str__(item.description))
    for key in ("parameters", "definition", "extra", "custom"):
        value = getattr(item, key)
        if value is not None and type(value) is not dict:
            item = replace(item, **{key: checks.as_dict(f"{place}.{key}", value, "a dict or None")})
    if item.function is not None and not callable(item.function):
        raise checks.wrong_type(f"{place}.function", item.function, "a function or None")
    if item.strict is not None and type(item.strict) is not bool:
        raise checks.wrong_type(f"{place}.strict", item.strict, "True, False or None")
    if item.search is not None:
        checks.require_type(f"{place}.search", item.search, WebSearch, "what `cnllm.web_search` sets, or None,")
    return item


_FUNCTION_KEYS = {"type", "function", "name", "description", "parameters", "inputSchema", "input_schema", "strict"}
"""Keys of a function's definition, in any of the shapes."""


_WRAPPER_KEYS = {"type", "function", "custom"}
_SCHEMA_KEYS = {"function", "parameters", "inputSchema", "input_schema"}


def _from_definition(item: Mapping[str, Any], place: str) -> Tool:
    """Return a Tool of a definition: OpenAI's wrapping, a bare definition, or the shape of MCP and Anthropic."""
    if item.get("type") == "custom" and not item.keys() & _SCHEMA_KEYS:
        custom = checks.plain(place, item.get("custom", item))
        if type(custom) is not dict or not isinstance(custom.get("name"), str):
            raise ValueError(f"{place} has no name of a custom tool")
        item = custom_function(str.__str__(custom["name"]), custom)
    function = checks.plain(f"{place}.function", item.get("function", item))
    if type(function) is not dict or not isinstance(function.get("name"), str):
        if isinstance(item.get("type"), str) and item["type"] != "function":
            return Tool(item["type"], definition=dict(item))
        if item and not item.keys() & _FUNCTION_KEYS and all(isinstance(value, Mapping) for value in item.values()):
            # built-in tools of an endpoint, each under its name
            return Tool(checks.as_text(place, next(iter(item))), definition=dict(item))
        raise ValueError(f"{place} has no function name")
    kind = item.get("type", "function")
    if isinstance(kind, str) and str.__str__(kind) not in ("function", "custom"):  # a built-in tool of an endpoint
        return Tool(function["name"], definition=dict(item))
    schema = function.get("parameters")
    if schema is None:
        schema = function.get("inputSchema", function.get("input_schema"))
    parameters = checks.plain(f"{place}.parameters", schema)
    if parameters is not None and type(parameters) is not dict:
        raise TypeError(f"{place}.parameters is {type(schema).__name__}, a JSON Schema (dict) is meant")
    name, description, strict = function["name"], function.get("description"), function.get("strict")
    if description is not None and not isinstance(description, str):
        raise checks.wrong_type(f"{place}.description", description, "a string or None")
    if strict is not None and type(strict) is not bool:
        raise checks.wrong_type(f"{place}.strict", strict, "True, False or None")
    if function is item:
        extra = {"cache_control": item["cache_control"]} if "cache_control" in item else None
    else:
        extra = {key: value for key, value in item.items() if key not in _WRAPPER_KEYS} or None
    custom = item.get("custom") if function is not item else None
    if custom is not None and type(custom) is not dict:
        custom = checks.as_dict(f"{place}.custom", custom)
    own = None if parameters is None else dict(parameters)
    return Tool(str.__str__(name), description, own, strict=strict, extra=extra, custom=custom)


class ToolSet(ABC):
    """A set of tools, which may stand in a list of tools. What its tools need is open from `retain` to `release`.

    Both are counted: the last `release` closes it. Without any, `tools` opens it for as long as it takes.
    """

    @property
    @abstractmethod
    def label(self) -> str:
        """Return the word that the names of the tools begin with. It holds no double underscore."""

    @abstractmethod
    def tools(self, label: str | None = None) -> Sequence[Tool]:
        """Return the tools. `label` takes the place of the set's own."""

    @abstractmethod
    def retain(self) -> None:
        """Open what the tools need, or wait until it is open. Raise where that fails; then there is nothing to release.

        It may block for seconds.
        """

    @abstractmethod
    def release(self) -> None:
        """Undo one `retain`. It may block for seconds."""


def has_sets(items: Any) -> bool:
    """Whether a list of tools holds a set."""
    if not isinstance(items, list | tuple):
        return False
    kinds = {*map(type, items)}
    return kinds != {dict} and any(issubclass(kind, ToolSet) for kind in kinds)  # most tools are dicts


def expand_sets(items: Sequence[Any]) -> Sequence[Any]:
    """Return the list with the tools of each set in its place; the same object where it holds no set."""
    if not has_sets(items):
        return items
    labels = iter(set_labels([item for item in items if isinstance(item, ToolSet)]))
    expanded: list[Any] = []
    for item in items:
        if isinstance(item, ToolSet):
            expanded += item.tools(next(labels))
        else:
            expanded.append(item)
    return expanded


def set_labels(sets: Sequence[ToolSet]) -> list[str]:
    """Return the label of each set. Of two with the same one the later gets a number, so that names stay unique."""
    labels: list[str] = []
    for item in sets:
        label, number = item.label, 2
        while label in labels:
            label, number = f"{item.label}{number}", number + 1
        labels.append(label)
    return labels
