"""Tools of MCP servers: `tools=[cnllm.mcp("command or URL")]`. It needs the extra `mcp`.

The folder is not called `mcp`, because `cnllm.mcp` is the function.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence

from cnllm.mcp_client.definition import Definition
from cnllm.mcp_client.server import Server
from cnllm.mcp_client.tool_set import McpTools

__all__ = ["Definition", "McpTools", "Server", "mcp"]


def mcp(
    command_or_url: str | Sequence[str],
    *,
    name: str | None = None,
    env: Mapping[str, str | None] | Sequence[str] = (),
    cwd: str | os.PathLike[str] | None = None,
    headers: Mapping[str, str] | None = None,
    key_env: str | None = None,
    tools: Sequence[str] | None = None,
    timeout: float | None = 60,
    start_timeout: float | None = 60,
    list_timeout: float | None = 30,
) -> McpTools:
    """Return the tools of an MCP server, for `tools=[…]`: of a command that starts it, or at a URL (streamable HTTP).

    Nothing starts before the first use. The tools are called `NAME__TOOL`; `name` is derived from the command or the
    URL where it is not given. A command gets PATH, HOME and the like, and the variables of `env`: a list of names, or
    values by name. `headers` go to a URL; with `key_env`, the key in that variable goes as `Authorization: Bearer`, or
    where `{key}` stands. `tools` offers only these. Times are in seconds, for each call, the start, and the list.
    """
    return McpTools(
        Server.of(
            command_or_url,
            name=name,
            env=env,
            cwd=cwd,
            headers=headers,
            key_env=key_env,
            tools=tools,
            timeout=timeout,
            start_timeout=start_timeout,
            list_timeout=list_timeout,
        )
    )
