"""Tools of MCP servers: `tools=[cnllm.mcp("command or URL")]`. It needs the extra `mcp`.

The folder is not called `mcp`, because `cnllm.mcp` is the function.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence

from cnllm.mcp_client.server import (
    HEADER_NAME,
    HEADER_VALUE,
    VARIABLE,
    McpServer,
    environment_pairs,
    label_of,
    label_of_command,
    label_of_url,
    split_target,
)
from cnllm.mcp_client.tool_set import Definition, McpTools
from cnllm.types import checks

__all__ = ["Definition", "McpTools", "mcp"]


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

    Raise `TypeError` or `ValueError` naming the argument that cannot be used.
    """
    url, command = split_target(command_or_url)
    if name is not None:
        checks.require_text("name", name)
    if url is not None and (env or cwd is not None):
        raise ValueError("env and cwd are for a command, and this is a URL; use headers and key_env")
    if url is None and (headers or key_env is not None):
        raise ValueError("headers and key_env are for a URL, and this is a command; use env")
    if key_env is not None and (not isinstance(key_env, str) or not VARIABLE.fullmatch(key_env)):
        raise ValueError("key_env is the name of the variable that holds the key, not the key")
    fields = dict(checks.as_headers("headers", {} if headers is None else headers))
    for field, value in fields.items():
        if not (HEADER_NAME.fullmatch(field) and HEADER_VALUE.fullmatch(value)):
            raise ValueError(f"headers[{checks.short_text(field)}]: no header can have this name or this value")
    if cwd is not None:
        checks.require_path("cwd", cwd)
    names = None if tools is None else checks.as_list("tools", tools, "a list of names")
    for index, tool in enumerate(names or ()):
        checks.require_text(f"tools[{index}]", tool)
    if key_env is not None and not any("{key}" in value for value in fields.values()):
        fields["Authorization"] = "Bearer {key}"
    label = label_of_url(url) if url is not None else label_of_command(command)
    server = McpServer(
        label=label if name is None else label_of(name),
        command=command,
        url=url,
        env=environment_pairs(env),
        cwd=None if cwd is None else os.path.expanduser(os.fspath(cwd)),
        headers=tuple(fields.items()),
        key_env=key_env,
        tools=None if names is None else tuple(names),
        timeout=checks.seconds("timeout", timeout),
        start_timeout=checks.seconds("start_timeout", start_timeout),
        list_timeout=checks.seconds("list_timeout", list_timeout),
    )
    return McpTools(server)
