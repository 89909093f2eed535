"""Load the tools of `--tool` and `--mcp`, and decide which calls run.

The built-in tools are harmless. A tool that the user imports may do anything, so it runs only if the user allows it
beforehand (`--approve all`) or when asked.
"""

from __future__ import annotations

import importlib
import importlib.util
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any, Literal

from cnllm.cli.builtin_tools import SAFE
from cnllm.cli.output.errors import UsageError
from cnllm.cli.output.suggestion import suggest
from cnllm.tools import as_tools
from cnllm.tools import web_search as search_tool

if TYPE_CHECKING:
    from cnllm.cli.mcp_servers import McpServers
    from cnllm.tools import Tool
    from cnllm.types import ToolCall

__all__ = ["Answer", "Approval", "CommandTools", "command_tools", "mcp_servers"]

Approval = Literal["ask", "all", "none"]
Answer = Literal["yes", "no", "always"]

NEEDS_APPROVAL = "this tool may do anything, and the user did not give leave to run it (--approve all)"
_HINT = f"it looks like MODULE:FUNCTION or FILE.py:FUNCTION, or is one of {', '.join(SAFE)}"


class CommandTools:
    """The tools of a command. It calls `ask` before each call if `approval` is "ask". `close` ends the MCP servers.

    `web_search`: the endpoint may search the web, too.
    """

    def __init__(
        self,
        names: Sequence[str],
        approval: Approval,
        ask: Callable[[ToolCall], Answer] | None = None,
        servers: McpServers | None = None,
        *,
        web_search: bool = False,
    ) -> None:
        self._functions: list[Tool] = []
        self._search: list[Tool] = [search_tool()] if web_search else []
        self._servers = servers
        self._safe = {name for name in names if name in SAFE}
        self._approval = approval
        self._ask = ask
        self._always: set[str] = set()
        for name in dict.fromkeys(names):
            try:
                new_tool = SAFE[name] if name in SAFE else as_tools([_import_function(name)])[0]
            except UsageError:
                raise
            except Exception as error:  # an annotation may be anything
                raise UsageError(
                    f"--tool {name}: {error}", "name a function with type annotations, or a cnllm.tool"
                ) from error
            if any(new_tool.name == other.name for other in self._functions):
                raise UsageError(
                    f"--tool {name}: there is another tool called {new_tool.name}", "leave one of them out"
                )
            self._functions.append(new_tool)

    @property
    def tools(self) -> list[Tool]:
        """Return the tools; those of MCP servers as their servers describe them now."""
        return [*self._functions, *(self._servers.tools() if self._servers is not None else ()), *self._search]

    def open(self) -> None:
        """Start the MCP servers. Raise `McpError` for one that does not start."""
        if self._servers is not None:
            self._servers.open()

    def close(self) -> None:
        """End the MCP servers."""
        if self._servers is not None:
            self._servers.close()

    def lines(self) -> list[str]:
        """Return one line for each tool."""
        return list(map(self._line, self.tools))

    def _line(self, entry: Tool) -> str:
        summary = (entry.description or "").strip().partition("\n")[0]
        rule = "" if entry.name in self._safe else f"  ({self._rule(entry.name)})"
        return f"{entry.name}{f': {summary}' if summary else ''}{rule}"

    def _rule(self, name: str) -> str:
        if self._servers is not None and self._servers.has(name):
            return self._servers.rule(name)
        if self._approval == "all" or name in self._always:
            return "runs without asking"
        return "asks before each call" if self._approval == "ask" else "does not run: --approve none"

    def approve(self, call: ToolCall) -> bool | str:
        """Return True if this call may run, else the reason, in words for the model."""
        if self._servers is not None and self._servers.has(call.name):
            return self._servers.approve(call)
        if self._approval == "all" or call.name in self._safe or call.name in self._always:
            return True
        if self._approval == "none" or self._ask is None:
            return NEEDS_APPROVAL
        answer = self._ask(call)
        if answer == "always":
            self._always.add(call.name)
        return "the user said no" if answer == "no" else True


def mcp_servers(params: Mapping[str, Any], ask: Callable[[ToolCall], Answer] | None) -> McpServers | None:
    """Return the MCP servers of `--mcp`, which start with the toolbox; None where there are none."""
    if not params["mcp"]:
        if params["mcp_env"]:
            raise UsageError("--mcp-env names a variable for no server", "add --mcp 'COMMAND'")
        return None
    from cnllm.cli.mcp_servers import McpServers

    return McpServers(params["mcp"], params["mcp_env"], params["approve"], ask)


def command_tools(
    params: Mapping[str, Any], ask: Callable[[ToolCall], Answer] | None, *, web_search: bool = False
) -> CommandTools | None:
    """Return the tools that run on this machine, of `--tool` and `--mcp`; None where none are named."""
    if not params["tool"] and not params["mcp"] and not params["mcp_env"]:
        return None
    servers = mcp_servers(params, ask)
    return CommandTools(params["tool"], params["approve"], ask, servers, web_search=web_search)


def _import_function(spec: str) -> Any:
    """Import the function that MODULE:FUNCTION or FILE.py:FUNCTION names."""
    source, colon, name = spec.rpartition(":")
    if spec.endswith(".py"):
        raise UsageError(f"--tool {spec}: this names no function", f"name one of the file: --tool {spec}:FUNCTION")
    if not colon or not source or not name:
        raise UsageError(f"--tool {spec}: there is no such tool", suggest(spec, SAFE, _HINT))
    try:
        module = _import_file(Path(source)) if source.endswith(".py") else _import_module(source)
    except UsageError:
        raise
    except (Exception, SystemExit) as error:  # it is the user's code, and may fail in any way
        hint = "the error is in the code of the tool" if Path(source).is_file() else _HINT
        raise UsageError(f"--tool {spec}: {type(error).__name__}: {error}", hint) from error
    function = getattr(module, name, None)
    if function is None:
        functions = [key for key, value in vars(module).items() if callable(value) and key[0] != "_"]
        hint = suggest(name, functions, f"it has {', '.join(functions[:5])}" if functions else "it has no function")
        raise UsageError(f"--tool {spec}: there is no {name} in {source}", hint)
    return function


def _import_module(name: str) -> ModuleType:
    _add_path(os.getcwd())
    return importlib.import_module(name)


def _add_path(folder: str) -> None:
    if folder not in sys.path:
        sys.path.append(folder)  # at the end, so that no file of the folder hides a module that the program needs


def _import_file(path: Path) -> ModuleType:
    if not path.is_file():
        raise UsageError(f"--tool {path}: there is no such file", f"check the path; this folder is {os.getcwd()}")
    _add_path(str(path.resolve().parent))
    spec = importlib.util.spec_from_file_location(f"cnllm_tool_{path.stem}", path)
    assert spec is not None
    assert spec.loader is not None
    loaded = sys.modules.get(spec.name)
    if loaded is not None and getattr(loaded, "__file__", None) == str(path):  # two functions of one file
        return loaded
    module = importlib.util.module_from_spec(spec)
    sys.modules[module.__name__] = module  # Python resolves annotations there
    spec.loader.exec_module(module)
    return module
