"""The MCP servers in the user's own registry file. No other file may name a command that is started."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cnllm.config import redact
from cnllm.errors import RegistryError
from cnllm.registry import trusted_files
from cnllm.registry.files import user_file
from cnllm.registry.problem import Problem
from cnllm.registry.read import overlay_paths, read

if TYPE_CHECKING:
    from cnllm.registry.documents import Document

__all__ = ["mcp_server", "mcp_server_names", "mcp_server_problems"]

_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


def mcp_server(name: str) -> dict[str, Any] | None:
    """Return the table `[mcp.NAME]` of the file in the config folder; None where there is none.

    Raise `RegistryError` where the file has a fault, where somebody else can change it, and where only another of the
    user's files has the table.
    """
    document = _own_document()
    table = None if document is None else document.data.get("mcp", {}).get(name)
    if table is None:
        _refuse_others(name)
        return None
    assert document is not None
    faults = [fault for fault in mcp_server_problems(document) if fault.line == document.line(["mcp", name])]
    if faults:
        raise RegistryError(faults[0].message, file=document.label, line=faults[0].line)
    if not document.is_own:
        reason = trusted_files.ownership_fault(document.path, document.path.stat()) or "somebody else can change it"
        hint = f"make it yours alone: chmod go-w {document.path}"
        raise RegistryError(f"mcp.{name} is not used: {reason}", file=document.label, hint=hint)
    return dict(table)


def mcp_server_names() -> list[str]:
    """Return the names of the servers in the file in the config folder, sorted; empty where it cannot be read."""
    try:
        document = _own_document()
    except RegistryError:
        return []
    return [] if document is None else sorted(document.data.get("mcp", {}))


def mcp_server_problems(document: Document) -> Iterator[Problem]:
    """Yield the faults of the tables `[mcp.NAME]` of a file, each at the line of its table."""
    servers = document.data.get("mcp")
    for name, table in servers.items() if isinstance(servers, dict) else ():
        line = document.line(["mcp", name])
        if not trusted_files.is_user_file(document.path):
            message = f"mcp.{name}: only your own file may name a server to start: move it to {user_file()}"
            yield Problem(document.label, line, message)
        elif isinstance(table, dict):
            yield from (Problem(document.label, line, f"mcp.{name} {fault}") for fault in _faults(table))


def _faults(table: dict[str, Any]) -> Iterator[str]:
    """Yield what is wrong with a table whose values have the right types."""
    if ("command" in table) == ("url" in table):
        yield "needs a command or a url" if "url" not in table else "has a command and a url: one of them has to go"
    wrong = ("headers", "key_env") if "command" in table else ("env", "cwd")
    for key in wrong:
        if key in table:
            yield f"has {key}, which is for a {'url' if 'command' in table else 'command'}"
    for entry in table.get("env", ()):
        variable, equals, value = entry.partition("=")
        if not _VARIABLE.fullmatch(variable):
            yield "has an env that holds neither NAME nor NAME=VALUE"
        elif equals and (redact.is_secret_name(variable) or redact.looks_secret(value)):
            yield f"holds the value of {variable}; write env = ['{variable}'], and: cnllm keys set {variable}"
    for header, value in table.get("headers", {}).items():
        if redact.is_secret_name(header) and "{key}" not in value:
            yield f"holds the value of the header {header}; write '{{key}}' there, and name the variable in key_env"


def _own_document() -> Document | None:
    """Return the file in the config folder; None where there is none."""
    path = Path(user_file())
    return read(path) if path.exists() else None


def _refuse_others(name: str) -> None:
    """Raise `RegistryError` where another of the user's files has the table."""
    for path in overlay_paths():
        if trusted_files.is_user_file(path):
            continue
        document = read(path)
        if name in document.data.get("mcp", {}):
            fault = next(p for p in mcp_server_problems(document) if p.line == document.line(["mcp", name]))
            raise RegistryError(fault.message, file=document.label, line=fault.line)
