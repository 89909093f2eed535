"""The tools of a Responses client as functions that every model takes, and the way back to the client's own calls.

A namespace becomes functions with the namespace in their names. A custom tool, a shell of the client's machine, the
editor of its files and its own tool search become functions, too. Tools that the endpoint executes stay as they are.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Literal

from msgspec import Struct

from cnllm.protocols import Recall
from cnllm.protocols.client_tools import is_bare_input, unique_name
from cnllm.types import ToolCall
from cnllm.types.lenient_json import break_off
from cnllm.types.tools import arguments_of, custom_function, custom_input, json_arguments

__all__ = [
    "ITEM_KINDS",
    "ClientTool",
    "ClientTools",
    "built_in_arguments",
    "client_tools",
    "is_hosted_call",
    "own_space",
    "tool_definitions",
]

Kind = Literal["function", "custom", "tool_search", "local_shell", "shell", "apply_patch"]
_ITEMS: dict[Kind, tuple[str, str]] = {
    "function": ("function_call", "fc"),
    "custom": ("custom_tool_call", "ctc"),
    "tool_search": ("tool_search_call", "tsc"),
    "local_shell": ("local_shell_call", "lsh"),
    "shell": ("shell_call", "sh"),
    "apply_patch": ("apply_patch_call", "apc"),
}
"""The type of the item that calls a tool of a kind, and the beginning of the item's id."""
ITEM_KINDS = {item: kind for kind, (item, _) in _ITEMS.items()}
"""The kind of tool that an item calls, by the type of the item."""
_DEFAULT_NAMESPACE = "functions"  # its tools are called by their names alone
_STRING = {"type": "string"}
_FUNCTION_KEYS = ("description", "parameters", "strict")
_OTHER_KEYS = ("defer_loading", "allowed_callers", "async", "output_schema")


def _function(description: str, required: list[str], **properties: dict[str, Any]) -> dict[str, Any]:
    """Return the description and the parameters of a function."""
    return {
        "description": description,
        "parameters": {"type": "object", "properties": properties, "required": required},
    }


_BUILT_IN = {
    "local_shell": _function(
        "Run a command on the user's machine and return its output.",
        ["command"],
        command={"type": "array", "items": _STRING, "description": "The program and its arguments."},
        working_directory={"type": "string", "description": "The folder to run it in."},
        timeout_ms={"type": "integer", "description": "The longest time it may run, in milliseconds."},
        env={"type": "object", "description": "Environment variables.", "additionalProperties": _STRING},
    ),
    "shell": _function(
        "Run commands in a shell on the user's machine and return the output of each.",
        ["commands"],
        commands={"type": "array", "items": _STRING, "description": "The commands, one line each."},
        timeout_ms={"type": "integer", "description": "The longest time they may run, in milliseconds."},
        max_output_length={"type": "integer", "description": "The most characters of output to return."},
    ),
    "apply_patch": _function(
        "Create, update or delete a file on the user's machine.",
        ["type", "path"],
        type={"type": "string", "enum": ["create_file", "update_file", "delete_file"]},
        path={"type": "string", "description": "The path of the file."},
        diff={
            "type": "string",
            "description": "The change, without file names. Lines begin with + (new), - (gone) or a blank (unchanged); "
            "a line with @@ and a text of the file begins each place. A new file has + lines alone. Deleting needs "
            "none.",
        },
    ),
}
"""The functions for tools that clients execute and know by their types alone."""
_HOSTED = ("container_auto", "container_reference")
"""Environments of a shell that the endpoint runs itself."""


class ClientTool(Struct, frozen=True):
    """A tool of the client: its name there, and the kind of item that calls it."""

    kind: Kind
    name: str
    namespace: str | None = None


class ClientTools:
    """The tools of one request body: `tools`, and those that items of its `input` add; nobody changes them later.

    `definitions` are the tools as the request's options hold them. Raises `ValueError`.
    """

    def __init__(self, tools: Sequence[Any], input: Any = None) -> None:
        self.definitions: list[dict[str, Any]] = []
        self._tools: dict[str, ClientTool] = {}  # by the name of the function
        self._names: dict[tuple[str | None, str], str] = {}
        self._places: dict[str, int] = {}
        for index, tool in enumerate(tools):
            self._add(tool, f"tools[{index}]", None)
        self.has_more = False
        """Whether the input adds tools."""
        for place, tool in _added_tools(input):
            self.has_more = True
            self._add(tool, place, None)

    def function_name(self, name: str, namespace: str | None = None) -> str:
        """Return the name of the function for a tool of the client, whether or not it is offered."""
        if namespace == name and (namespace, name) not in self._names:  # a tool without one, which a search has found
            namespace = None
        spaces = (None, _DEFAULT_NAMESPACE) if namespace in (None, _DEFAULT_NAMESPACE) else (namespace,)
        for space in (namespace, *spaces):
            if (space, name) in self._names:
                return self._names[space, name]
        return self._new_name(name, namespace)

    def tool(self, function: str) -> ClientTool:
        """Return the client's tool for a function."""
        return self._tools.get(function) or ClientTool("function", function)

    def names_in(self, choice: Mapping[str, Any]) -> list[str]:
        """Return the names of the functions that a choice, or an entry of allowed tools, names."""
        name, namespace = choice.get("name"), choice.get("namespace")
        kind = choice.get("type")
        if kind == "namespace" and isinstance(name, str):
            return [function for (space, _), function in self._names.items() if space == name]
        if isinstance(kind, str) and (kind == "tool_search" or kind in _BUILT_IN):
            return [function for function, tool in self._tools.items() if tool.kind == kind]
        if kind == "mcp" or not isinstance(name, str):  # the tool of a server has the name that the server gave it
            return []
        namespace = namespace if isinstance(namespace, str) else None
        if (namespace, name) in self._names:
            return [self._names[namespace, name]]
        return [function for (_, own_name), function in self._names.items() if own_name == name][:1]

    def _add(self, tool: Any, place: str, namespace: str | None) -> None:
        """Add a tool. Raises `ValueError`."""
        if not isinstance(tool, dict):
            raise ValueError(f"{place} is not an object")
        kind = tool.get("type")
        if kind in ("function", "custom", "namespace") and not isinstance(tool.get("name"), str):
            raise ValueError(f"{place}.name is not a string")
        match kind:
            case "namespace" if namespace is None:
                inner = tool.get("tools")
                for index, inner_tool in enumerate(inner if isinstance(inner, list) else ()):
                    described = inner_tool if index else _with_space(inner_tool, tool)
                    self._add(described, f"{place}.tools[{index}]", tool["name"])
            case "function":
                name = self._register(ClientTool("function", tool["name"], namespace))
                keys = {key: tool[key] for key in _FUNCTION_KEYS if tool.get(key) is not None}
                open_keys = {} if "strict" in keys else {"strict": None}  # which leaves it to the endpoint
                function = {"name": name, **keys}
                self._offer(name, {"type": "function", "function": function, **_other_keys(tool), **open_keys}, place)
            case "custom":
                name = self._register(ClientTool("custom", tool["name"], namespace))
                self._offer(name, {**custom_function(name, tool), **_other_keys(tool)}, place)
            case "tool_search" if isinstance(tool.get("parameters"), dict):
                name = self._register(ClientTool("tool_search", "tool_search"))
                keys = {key: tool[key] for key in _FUNCTION_KEYS if tool.get(key) is not None}
                self._offer(name, {"type": "function", "function": {"name": name, **keys}}, place)
            case "local_shell" | "shell" | "apply_patch" if not _is_hosted(tool):
                name = self._register(ClientTool(kind, kind, own_space(kind)))
                self._offer(name, {"type": "function", "function": {"name": name, **_BUILT_IN[kind]}}, place)
            case _:
                self.definitions.append(tool)

    def _offer(self, name: str, definition: dict[str, Any], place: str) -> None:
        """Offer a function; one that a later item of the input adds replaces the one of its name."""
        if name in self._places and place.startswith("input"):
            self.definitions[self._places[name]] = definition
        else:
            self._places.setdefault(name, len(self.definitions))
            self.definitions.append(definition)

    def _register(self, tool: ClientTool) -> str:
        """Return the name of the function for a tool."""
        key = (tool.namespace, tool.name)
        name = self._names.get(key)
        if name is None:
            name = self._names[key] = self._new_name(tool.name, tool.namespace)
        self._tools[name] = tool
        return name

    def _new_name(self, name: str, namespace: str | None) -> str:
        """Return an unused name for a tool: that of a namespace has both names in it."""
        if namespace in (None, own_space(name)):  # sent as it is: the model's own limits are the engine's task
            return name if name not in self._tools else unique_name(name, self._tools, f"\0{name}")
        is_default = namespace == _DEFAULT_NAMESPACE
        flat = name if is_default else f"{namespace.rstrip('_')}__{name.lstrip('_')}"
        return unique_name(flat, self._tools, f"{namespace}\0{name}")

    # ── calls ─────────────────────────────────────────────────────────────────

    def takes_raw(self, call: ToolCall) -> bool:
        """Whether the item of a call can hold arguments that are no JSON object.

        Those of a function are a text. The input of a custom tool is one, too, but not where an object with the input
        was meant. All other items have fields in place of the arguments.
        """
        kind = self.tool(call.name).kind
        return kind == "function" or (kind == "custom" and is_bare_input(call.raw))

    def is_whole(self, call: ToolCall) -> bool:
        """Whether a call can be executed with the arguments in its item."""
        is_read = call.arguments is not None or not call.raw
        return is_read or (self.takes_raw(call) and not break_off(call.raw))

    def call_item(self, call: ToolCall, id: str, status: str, keys: Mapping[str, Any]) -> dict[str, Any]:
        """Return the item of a call. `keys` are an endpoint's own keys of the item, for calls of functions."""
        tool = self.tool(call.name)
        is_own = tool.namespace in (None, own_space(tool.kind))
        namespace = {} if is_own else {"namespace": tool.namespace}
        if tool.kind == "apply_patch" and status != "completed":
            status = "in_progress"  # the item has no third one
        kind, prefix = _ITEMS[tool.kind]
        head = {"type": kind, "id": f"{prefix}_{id}", "status": status, "call_id": call.id}
        own = arguments_of(call) or {}
        match tool.kind:
            case "custom":
                input = custom_input(call) if call.raw or call.arguments else ""
                return {**head, "name": tool.name, **namespace, "input": input}
            case "tool_search":
                return {**head, "execution": "client", "arguments": own}
            case "local_shell":
                return {**head, "action": _local_action(own)}
            case "shell":
                return {**head, "action": _shell_action(own)}
            case "apply_patch":
                return {**head, "operation": _operation(own)}
        arguments = json_arguments(call) if status == "completed" else call.raw
        call_keys = {"call_id": call.id, "name": tool.name, **namespace, "arguments": arguments}
        return {**head, **keys, **call_keys}


def client_tools(body: Mapping[str, Any], recall: Recall) -> ClientTools:
    """Return the tools of a body. Raises `ValueError`."""
    offered, input = body.get("tools"), body.get("input")
    if offered is not None and not isinstance(offered, list):
        raise ValueError("tools is not a list")
    has_more = next(_added_tools(input), None) is not None
    return ClientTools(offered or (), input) if has_more else recall.tools(offered or (), ClientTools)


def tool_definitions(tools: Sequence[Any]) -> list[dict[str, Any]]:
    """Return tools as the request's options hold them. Raises `ValueError`."""
    return ClientTools(tools).definitions


def _added_tools(items: Any) -> Iterator[tuple[str, Any]]:
    """Yield the tools that items of the input add, with their places."""
    for position, item in enumerate(items if isinstance(items, list) else ()):
        if isinstance(item, dict) and item.get("type") in ("additional_tools", "tool_search_output"):
            tools = item.get("tools")
            place = f"input[{position}].tools"
            yield from ((f"{place}[{i}]", t) for i, t in enumerate(tools if isinstance(tools, list) else ()))


def _with_space(tool: Any, namespace: Mapping[str, Any]) -> Any:
    """Return the first tool of a namespace with the namespace's description, which has no other place."""
    text = namespace.get("description")
    if not isinstance(tool, dict) or not isinstance(text, str) or not text.strip():
        return tool
    own = tool.get("description")
    about = f"About all tools of {namespace['name']}: {text}"
    return {**tool, "description": f"{own}\n\n{about}" if isinstance(own, str) and own else about}


def _other_keys(tool: Mapping[str, Any]) -> dict[str, Any]:
    """Return the further keys of a tool. One that a search need not find first says nothing by that."""
    return {
        key: value for key, value in tool.items() if key in _OTHER_KEYS and value is not None and value is not False
    }


def built_in_arguments(item: Mapping[str, Any]) -> dict[str, Any]:
    """Return the arguments of the function for a call of a built-in tool."""
    fields = item.get("operation" if item.get("type") == "apply_patch_call" else "action")
    fields = fields if isinstance(fields, Mapping) else {}
    left_out = () if item.get("type") == "apply_patch_call" else ("type",)
    return {key: value for key, value in fields.items() if key not in left_out and value not in (None, {})}


def is_hosted_call(item: Mapping[str, Any]) -> bool:
    """Whether the endpoint itself executed the call of an item."""
    return item.get("execution") == "server" or _is_hosted(item)


def _is_hosted(tool: Mapping[str, Any]) -> bool:
    """Whether a shell, or a call of it, runs at the endpoint."""
    environment = tool.get("environment")
    return isinstance(environment, Mapping) and environment.get("type") in _HOSTED


def own_space(kind: str) -> str | None:
    """Return the namespace of a built-in tool, so that a function of the client may have its name; else None."""
    return f"\0{kind}" if kind in _BUILT_IN else None


def _shell_action(arguments: Mapping[str, Any]) -> dict[str, Any]:
    """Return the action of a shell call."""
    commands = arguments.get("commands")
    lines = [str(line) for line in commands] if isinstance(commands, list) else [str(commands)] if commands else []
    return {"commands": lines} | {
        key: arguments.get(key) if type(arguments.get(key)) is int else None
        for key in ("timeout_ms", "max_output_length")
    }


def _operation(arguments: Mapping[str, Any]) -> dict[str, Any]:
    """Return the operation of a call of the editor of files."""
    kind, path, diff = arguments.get("type"), arguments.get("path"), arguments.get("diff")
    out: dict[str, Any] = {"type": str(kind or "update_file"), "path": str(path or "")}
    return out if kind == "delete_file" else {**out, "diff": str(diff or "")}


def _local_action(arguments: Mapping[str, Any]) -> dict[str, Any]:
    """Return the action of a call of the local shell."""
    command = arguments.get("command")
    words = [*map(str, command)] if isinstance(command, list) else ["bash", "-lc", str(command)] if command else []
    env = arguments.get("env")
    action: dict[str, Any] = {"type": "exec", "command": words, "env": env if isinstance(env, dict) else {}}
    return action | {key: arguments[key] for key in ("working_directory", "timeout_ms") if arguments.get(key)}
