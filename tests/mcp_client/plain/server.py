"""An MCP server over stdio without the package `mcp`, whose import takes longer than most tests of a client.

python server.py [--stderr FILE] [--exit STATUS] [--describe FILE] [--silent] [--tools NUMBER]
"""

from __future__ import annotations

import argparse
import base64
import json
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

PIXEL = base64.b64decode(
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
)
TEXT = {"type": "object", "properties": {"text": {"type": "string"}}, "required": ["text"]}
MAYBE = {"type": "object", "properties": {"text": {"type": "string", "default": ""}}}
NUMBERS = {
    "type": "object",
    "properties": {"a": {"type": "integer"}, "b": {"type": "integer"}},
    "required": ["a", "b"],
}
NOTHING: dict[str, Any] = {"type": "object", "properties": {}}


def send(**message: Any) -> None:
    print(json.dumps({"jsonrpc": "2.0", **message}), flush=True)  # noqa: T201


def words(text: object) -> list[dict[str, Any]]:
    return [{"type": "text", "text": str(text)}]


class Waits(Exception):
    """There is no result."""


class Tools:
    """The tools of the server, by their names: description, schema of the arguments, function."""

    def __init__(self, description: str) -> None:
        self.all: dict[str, tuple[str, dict[str, Any], Callable[..., Any]]] = {
            "add": (description, NUMBERS, lambda a, b: a + b),
            "echo": ("Say it again.", TEXT, lambda text: text),
            "process": ("The number of this process.", NOTHING, os.getpid),
            "environment": ("The variables of this process.", NOTHING, lambda: json.dumps(dict(os.environ))),
            "fails": ("Fail.", TEXT, self.fail),
            "die": ("End the process in the middle of the call.", MAYBE, lambda text="": os._exit(3)),
            "wait": ("Write the number of this process into a file, and wait for ever.", TEXT, self.wait),
            "print_text": ("Print to stdout, where only the protocol may be.", TEXT, self.print_text),
            "damaged": ("Pictures that are none.", NOTHING, self.damaged),
            "picture": ("A picture with a text.", MAYBE, self.picture),
            "odd name/with.dots and-a-very-long-tail-" + "x" * 60: ("A name.", NOTHING, lambda: "odd"),
            "flood": ("Ask 5,000 times, and read no answer.", NOTHING, self.flood),
            "grow": ("Add a tool, and tell the client.", MAYBE, self.grow),
        }

    def fail(self, text: str) -> str:
        raise ValueError(f"no {text}")

    def wait(self, text: str) -> str:
        Path(text).write_text(str(os.getpid()))
        raise Waits

    def flood(self) -> str:
        for number in range(5000):
            send(id=f"flood-{number}", method="ping", params={"_meta": {"text": "x" * 1000}})
        return "all was read"

    def print_text(self, text: str) -> str:
        print(text, flush=True)  # noqa: T201
        return "printed"

    def picture(self, text: str = "") -> list[dict[str, Any]]:
        data = base64.b64encode(PIXEL).decode()
        return [*words("A pixel:"), {"type": "image", "data": data, "mimeType": "image/png"}]

    def damaged(self) -> list[dict[str, Any]]:
        return [{"type": "image", "data": data, "mimeType": "image/png"} for data in ("%PNG", "")]

    def grow(self, text: str = "") -> str:
        self.all["late"] = ("Come late.", NOTHING, lambda: "late")
        send(method="notifications/tools/list_changed")
        return "grown"

    def answer(self, method: str, params: dict[str, Any]) -> dict[str, Any]:
        """Return the result of a request. Raises `LookupError` for a method that there is not."""
        if method == "initialize":
            capabilities = {"tools": {"listChanged": True}}
            info = {"name": "tester", "version": "1"}
            return {"protocolVersion": params["protocolVersion"], "capabilities": capabilities, "serverInfo": info}
        if method == "tools/list":
            return {
                "tools": [
                    {"name": name, "description": text, "inputSchema": schema}
                    for name, (text, schema, _) in self.all.items()
                ]
            }
        if method == "tools/call":
            try:
                result = self.all[params["name"]][2](**params.get("arguments") or {})
            except (KeyError, TypeError, ValueError) as error:
                return {"content": words(error), "isError": True}
            return {"content": result if isinstance(result, list) else words(result), "isError": False}
        if method == "ping":
            return {}
        raise LookupError(method)


def serve(tools: Tools) -> None:
    for line in sys.stdin:
        message = json.loads(line)
        if "id" not in message or "method" not in message:
            continue
        try:
            send(id=message["id"], result=tools.answer(message["method"], message.get("params") or {}))
        except LookupError as error:
            send(id=message["id"], error={"code": -32601, "message": f"no method {error}"})
        except Waits:
            pass


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--stderr", type=Path)
    parser.add_argument("rest", nargs="*")
    parser.add_argument("--exit", type=int)
    parser.add_argument("--describe", type=Path)
    parser.add_argument("--silent", action="store_true")
    parser.add_argument("--api-key")
    parser.add_argument("--tools", type=int, default=0)
    options = parser.parse_args()
    if options.stderr is not None:
        sys.stderr.write(options.stderr.read_text())
        sys.stderr.flush()
    if options.exit is not None:
        sys.exit(options.exit)
    if options.silent:
        sys.stdin.read()
    else:
        tools = Tools(options.describe.read_text() if options.describe else "Add two numbers.")
        tools.all |= {f"late_tool_{number}": ("Be late.", NOTHING, lambda: "late") for number in range(options.tools)}
        serve(tools)
