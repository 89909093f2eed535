"""The value `Tool`, and how one is made of what callers have."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, overload

from msgspec import Struct
from msgspec.structs import replace

from cnllm.types import checks

__all__ = ["Tool", "as_tool", "as_tools", "tool"]

Function = Callable[..., Any]


class Tool(Struct, frozen=True):
    """A tool as it is offered, with the function that does it. It can be called like the function.

    `parameters` is a JSON Schema whose root is an object. `function` may be sync or async; without one the tool is
    offered but cannot be run here. `timeout` is in seconds, for one call. `definition` is set for what is no function
    but an endpoint's own tool: it is sent as it is. `extra` holds what a definition has beside the function (cache
    marks), for endpoints that know such a thing.
    """

    name: str
    description: str | None = None
    parameters: dict[str, Any] | None = None
    function: Function | None = None
    strict: bool | None = None
    timeout: float | None = None
    definition: dict[str, Any] | None = None
    extra: dict[str, Any] | None = None

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Call the function; of an async one this is the coroutine."""
        if self.function is None:
            raise TypeError(f"the tool {self.name} has no function to call")
        return self.function(*args, **kwargs)


@overload
def tool(
    function: Function,
    /,
    *,
    name: str | None = None,
    description: str | None = None,
    strict: bool | None = None,
    timeout: float | None = None,
) -> Tool: ...


@overload
def tool(
    function: None = None,
    /,
    *,
    name: str | None = None,
    description: str | None = None,
    strict: bool | None = None,
    timeout: float | None = None,
) -> Callable[[Function], Tool]: ...


def tool(
    function: Function | None = None,
    /,
    *,
    name: str | None = None,
    description: str | None = None,
    strict: bool | None = None,
    timeout: float | None = None,
) -> Tool | Callable[[Function], Tool]:
    """A typed function as a tool: `@tool`, `@tool(timeout=5)`, or `tool(function, name="…")`.

    The schema comes from the annotations and defaults, the descriptions from the docstring (Google, NumPy and Sphinx
    style) or from `Annotated[str, "…"]`, which goes before it. A Tool is made into another one, with what is given
    here. Raises `TypeError`, naming the parameter, for what no JSON Schema can say.
    """
    for key, value, kind, expected in (
        ("name", name, str, "a string or None"),
        ("description", description, str, "a string or None"),
        ("strict", strict, bool, "True, False or None"),
        ("timeout", timeout, int | float, "a number of seconds or None"),
    ):
        if value is not None and not isinstance(value, kind):
            raise checks.wrong_type(key, value, expected)
    if function is None:
        return lambda given: tool(given, name=name, description=description, strict=strict, timeout=timeout)
    if isinstance(function, Tool):
        said = {"name": name, "description": description, "strict": strict, "timeout": timeout}
        return replace(function, **{key: value for key, value in said.items() if value is not None})
    if not callable(function):
        raise checks.wrong_type("function", function, "a function")
    from cnllm.tools.signature import docstring_summary, function_name, signature

    called = name or function_name(function)
    taken = signature(function)
    return Tool(
        called,
        docstring_summary(function) if description is None else description,
        taken.strict if strict else taken.schema,
        function,
        strict,
        timeout,
    )


def as_tools(items: Sequence[Any]) -> list[Tool]:
    """Each item as a Tool: Tools, functions, OpenAI's definitions, bare ones, and MCP's (dicts or objects).

    Raises `TypeError` or `ValueError` naming the item, and `ValueError` where two have one name: nobody could tell
    which of them a call means.
    """
    if not isinstance(items, Sequence) or isinstance(items, str):
        raise TypeError(f"items (the tools) is {checks.kind_of(items)}, a list is expected")
    if type(items) is not list:
        items = checks.as_list("items (the tools)", items, "a list")
    made = [as_tool(item, f"tools[{index}]") for index, item in enumerate(items)]
    names = [one.name for one in made if one.definition is None]
    for index, name in enumerate(names):
        if name in names[:index]:
            raise ValueError(f"two tools are called {name}; give one of them another name")
    return made


def as_tool(item: Any, where: str) -> Tool:
    """One item as a Tool; `where` names it in errors."""
    if type(item) is dict:
        return _defined(item, where)
    if isinstance(item, Tool):
        return _sound(item, where)
    if isinstance(item, Mapping):
        return _defined(checks.as_dict(where, item), where)
    if callable(item):
        try:
            made: Tool = tool(item)
        except (TypeError, ValueError) as error:
            raise type(error)(f"{where}: {error}") from error
        return made
    try:
        if isinstance(getattr(item, "name", None), str) and hasattr(item, "inputSchema"):
            said = {key: getattr(item, key, None) for key in ("name", "description", "inputSchema")}
            return _defined(said, where)
    except (TypeError, ValueError):
        raise
    except Exception as error:  # what a caller's object raises for its attributes
        raise checks.unreadable(where, error) from error
    raise TypeError(f"{where} is {type(item).__name__}, a Tool, a function or a dict is meant")


def _sound(item: Tool, where: str) -> Tool:
    """The tool. Raises `TypeError` for a field that is no value of its type."""
    if type(item.name) is not str:
        checks.require_type(f"{where}.name", item.name, str, "a string")
        item = replace(item, name=str.__str__(item.name))
    if item.description is not None and type(item.description) is not str:
        checks.require_type(f"{where}.description", item.description, str, "a string or None")
        item = replace(item, description=str.__str__(item.description))
    for key in ("parameters", "definition", "extra"):
        value = getattr(item, key)
        if value is not None and type(value) is not dict:
            item = replace(item, **{key: checks.as_dict(f"{where}.{key}", value, "a dict or None")})
    if item.function is not None and not callable(item.function):
        raise checks.wrong_type(f"{where}.function", item.function, "a function or None")
    if item.strict is not None and type(item.strict) is not bool:
        raise checks.wrong_type(f"{where}.strict", item.strict, "True, False or None")
    return item


_OURS = {"type", "function", "name", "description", "parameters", "inputSchema", "input_schema", "strict"}
"""Keys of a definition of a function, in whatever shape."""


_WRAPPING = {"type", "function"}


def _is_table(value: Any) -> bool:
    """A mapping. Nearly always it is a dict, which is told much sooner."""
    return type(value) is dict or isinstance(value, Mapping)


def _as_table(name: str, value: Mapping[str, Any]) -> dict[str, Any]:
    return dict(value) if type(value) is dict else checks.as_dict(name, value)


def _defined(item: Mapping[str, Any], where: str) -> Tool:
    """OpenAI's wrapping of a function, a bare definition, or one as MCP and Anthropic write it."""
    said = item.get("function", item)
    if type(said) is not dict and isinstance(said, Mapping):
        said = checks.as_dict(f"{where}.function", said)
    if not _is_table(said) or not isinstance(said.get("name"), str):
        if isinstance(item.get("type"), str) and item["type"] != "function":
            return Tool(item["type"], definition=dict(item))
        if item and not item.keys() & _OURS and all(isinstance(value, Mapping) for value in item.values()):
            return Tool(
                checks.as_text(where, next(iter(item))), definition=dict(item)
            )  # an endpoint's own tools, each under its name
        raise ValueError(f"{where} has no function name")
    kind = item.get("type", "function")
    if isinstance(kind, str) and str.__str__(kind) not in ("function", "custom") and "function" not in item:
        return Tool(said["name"], definition=dict(item))
    schema = said.get("parameters")
    if schema is None:
        schema = said.get("inputSchema", said.get("input_schema"))
    if schema is not None and not _is_table(schema):
        raise TypeError(f"{where}.parameters is {type(schema).__name__}, a JSON Schema (dict) is meant")
    parameters = None if schema is None else _as_table(f"{where}.parameters", schema)
    name, description, strict = said["name"], said.get("description"), said.get("strict")
    if description is not None and not isinstance(description, str):
        raise checks.wrong_type(f"{where}.description", description, "a string or None")
    if strict is not None and type(strict) is not bool:
        raise checks.wrong_type(f"{where}.strict", strict, "True, False or None")
    if said is item:
        extra = {"cache_control": item["cache_control"]} if "cache_control" in item else None
    else:
        extra = {key: value for key, value in item.items() if key not in _WRAPPING} or None
    return Tool(str.__str__(name), description, parameters, strict=strict, extra=extra)
