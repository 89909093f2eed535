"""Open the MCP servers of `--mcp`, and decide which calls of their tools run: an approval holds for one definition."""

from __future__ import annotations

import inspect
import json
from collections.abc import Callable, Sequence
from typing import Literal

import msgspec

from cnllm.cli.output import errors, stdio
from cnllm.cli.output.terminal import one_line
from cnllm.config import paths
from cnllm.errors import CnllmError
from cnllm.mcp_client import Definition, McpTools, mcp
from cnllm.registry.mcp_servers import mcp_server
from cnllm.system import files
from cnllm.tools import Tool
from cnllm.tools.values import set_labels
from cnllm.types import ToolCall

__all__ = ["Approvals", "McpServers"]

_MAX_DESCRIPTION = 1000  # characters, in front of a question
_HINT = "it is a command in quotes, a URL, or the NAME of a table [mcp.NAME] in your providers.toml"


class McpServers:
    """The servers of a command. They start with `open`, and end with `close`.

    `ask` asks the user about a call; None where there is no terminal.
    """

    def __init__(
        self,
        values: Sequence[str],
        variables: Sequence[str],
        approval: Literal["ask", "all", "none"],
        ask: Callable[[ToolCall], Literal["yes", "no", "always"]] | None,
    ) -> None:
        self._servers = [_server(value, variables) for value in dict.fromkeys(values)]
        self._approval = approval
        self._ask = ask
        self._approvals = Approvals()
        self._definitions: dict[str, Definition] = {}
        self._shown: set[str] = set()
        self._open: list[McpTools] = []

    def open(self) -> None:
        """Start the servers, and print which of their tools are not offered. Raise `McpError` for one that fails."""
        if self._approval == "ask":
            self._approvals.read()
        for server in self._servers:
            server.retain()
            self._open.append(server)
            for name, reason in server.skipped:
                stdio.print_line(f"note: the tool {name} of {server.label} is not offered: {reason}")

    def close(self) -> None:
        """End the servers."""
        while self._open:
            self._open.pop().release()

    def tools(self) -> list[Tool]:
        """Return the tools, as the servers describe them now."""
        labelled = zip(self._servers, set_labels(self._servers), strict=True)
        pairs = [(server, definition) for server, label in labelled for definition in server.definitions(label)]
        self._definitions = {definition.offered_name: definition for _, definition in pairs}
        return [server.tool(definition) for server, definition in pairs]

    def has(self, name: str) -> bool:
        """Whether a tool of the last list has this name."""
        return name in self._definitions

    def rule(self, name: str) -> str:
        """Return what happens before a call of a tool."""
        if self._approval == "all":
            return "runs without asking"
        if self._approval == "none":
            return "does not run: --approve none"
        if self._approvals.has(self._definitions[name]):
            return "approved, runs without asking"
        return "asks before each call" if self._ask is not None else "does not run: nobody approved it"

    def approve(self, call: ToolCall) -> bool | str:
        """Return True if this call may run, else the reason, in words for the model.

        An approval for always holds for the definition that the user saw: a changed one is asked about again.
        """
        if self._approval == "all":
            return True
        definition = self._definitions[call.name]
        if self._approval == "ask" and self._approvals.has(definition):
            return True
        if self._approval == "none" or self._ask is None:
            return f"the user did not approve this tool of the MCP server {definition.label} (--approve all)"
        self._describe(definition)
        answer = self._ask(call)
        if answer == "always":
            self._approvals.add(definition)
        return "the user said no" if answer == "no" else True

    def _describe(self, definition: Definition) -> None:
        """Print what a tool says of itself, once."""
        if definition.digest in self._shown:
            return
        self._shown.add(definition.digest)
        text = one_line(definition.description or "no description", _MAX_DESCRIPTION)
        if self._approvals.has_other(definition):
            stdio.print_line(f"{definition.offered_name} has changed since you approved it")
        server = " ".join(definition.server.split())
        stdio.print_line(f"{definition.offered_name} is a tool of the MCP server {server}. It says: {text}")


def _server(value: str, variables: Sequence[str]) -> McpTools:
    """Return the tools of a server: a table of the user's, a URL, or a command."""
    name = value.strip()
    table = mcp_server(name) if name.replace("-", "").replace("_", "").replace(".", "").isalnum() else None
    with errors.correcting(f"--mcp {value}: ", _HINT):
        if table is None:
            tools = mcp(name, env=() if "://" in name.partition(" ")[0] else variables)
        else:
            known = inspect.signature(mcp).parameters
            options = {key: value for key, value in table.items() if key in known}
            tools = mcp(table["url"] if "url" in table else table["command"], name=name, **options)
    errors.hide_secrets(*tools.secrets())
    return tools


class Approvals:
    """The tools that the user approved, by the digest of their definition, in a file of the config folder.

    They are read anew each time, because another program may change them.
    """

    def __init__(self) -> None:
        self._path = paths.config_dir() / "mcp-approvals.json"

    def has(self, definition: Definition) -> bool:
        """Whether a tool is approved with this very definition. Raise `CnllmError` where the file cannot be used."""
        return definition.digest in self.read()

    def has_other(self, definition: Definition) -> bool:
        """Whether the tool is approved with another definition only."""
        stored = self.read()
        entry = {"server": definition.server, "tool": definition.name}
        return definition.digest not in stored and entry in stored.values()

    def add(self, definition: Definition) -> None:
        """Approve a tool with this definition; an approval of another one ends."""
        entry = {"server": definition.server, "tool": definition.name}

        def change(_: bytes | None) -> bytes:
            stored = {digest: other for digest, other in self.read().items() if other != entry}
            return json.dumps({**stored, definition.digest: entry}, indent=1, sort_keys=True).encode()

        files.change_file(self._path, change)

    def read(self) -> dict[str, dict[str, str]]:
        """Return server and tool of each digest. Raise `CnllmError` where the file cannot be used."""
        try:
            content = files.read_safe_file(self._path)
            return {} if content is None else msgspec.json.decode(content, type=dict[str, dict[str, str]])
        except (OSError, ValueError) as error:
            raise CnllmError(f"{self._path} cannot be used: {error}", hint="delete it and approve again") from error
