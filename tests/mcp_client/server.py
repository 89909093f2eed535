"""An MCP server for tests, made with the package `mcp`: over stdio as a program, or as an application for HTTP."""

from __future__ import annotations

import base64
import json
import os
import warnings
from pathlib import Path
from typing import Any

import anyio
from mcp.server.mcpserver import Context, Image, MCPServer
from mcp_types import SamplingMessage, TextContent, Tool, ToolAnnotations  # noqa: F401
from pydantic import Field  # noqa: F401

PIXEL = base64.b64decode(
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
)


def make() -> MCPServer:
    """Make the server."""
    server = MCPServer("tester")

    @server.tool()
    def add(a: int, b: int) -> int:
        """Add two numbers."""
        return a + b

    @server.tool()
    def echo(text: str) -> str:
        """Say it again."""
        return text

    @server.tool()
    def process() -> int:
        """The number of this process."""
        return os.getpid()

    @server.tool()
    def environment() -> str:
        """The variables of this process."""
        return json.dumps(dict(os.environ))

    @server.tool()
    def fails(text: str) -> str:
        """Fail."""
        raise ValueError(f"no {text}")

    @server.tool()
    def die(text: str = "") -> str:
        """End the process in the middle of the call."""
        os._exit(3)

    @server.tool()
    async def wait(text: str) -> str:
        """Write the number of this process into a file, and wait for ever."""
        Path(text).write_text(str(os.getpid()))
        await anyio.sleep_forever()
        return ""

    @server.tool()
    def print_text(text: str) -> str:
        """Print to stdout, where only the protocol may be."""
        print(text, flush=True)  # noqa: T201
        return "printed"

    @server.tool(structured_output=False)
    def picture(text: str = "") -> list[Any]:
        """A picture with a text."""
        return ["A pixel:", Image(data=PIXEL, format="png")]

    @server.tool()
    async def sample(context: Context[Any, Any], text: str = "") -> str:
        """Ask the client's model, and for its folders."""
        capabilities = context.client_capabilities
        assert capabilities is not None
        out = [f"sampling={capabilities.sampling} roots={capabilities.roots} elicitation={capabilities.elicitation}"]
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            for ask in (
                lambda: context.session.create_message(
                    messages=[SamplingMessage(role="user", content=TextContent(text="hi"))], max_tokens=9
                ),
                lambda: context.session.list_roots(),
            ):
                try:
                    out.append(f"got {await ask()}")  # type: ignore[no-untyped-call]
                except Exception as error:  # noqa: BLE001 the test reads it
                    out.append(f"refused {type(error).__name__}")
        return "\n".join(out)

    @server.tool(name="odd name/with.dots and-a-very-long-tail-" + "x" * 60)
    def odd() -> str:
        """A name that no endpoint takes."""
        return "odd"

    @server.tool()
    async def grow(context: Context[Any, Any], text: str = "") -> str:
        """Add a tool, and tell the client."""

        def late() -> str:
            """Come late."""
            return "late"

        server.add_tool(late)
        await context.session.send_tool_list_changed()
        return "grown"

    return server


if __name__ == "__main__":
    make().run("stdio")
