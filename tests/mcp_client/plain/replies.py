"""An MCP server over stdio that replies to a call with the line of its argument `line`.

ID in it stands for the call's, and FILL for as many letters as the argument `fill` says.
"""

from __future__ import annotations

import json
import sys
from typing import Any

TOOL = {"name": "reply", "inputSchema": {"type": "object", "properties": {"line": {"type": "string"}}}}


def send(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


def result(message: dict[str, Any]) -> dict[str, Any]:
    if message["method"] == "tools/list":
        return {"tools": [TOOL]}
    version = message["params"]["protocolVersion"]
    return {"protocolVersion": version, "capabilities": {"tools": {}}, "serverInfo": {"name": "x", "version": "1"}}


for text in sys.stdin:
    message = json.loads(text)
    if "id" not in message or "method" not in message:
        continue
    if message["method"] == "tools/call":
        arguments = message["params"]["arguments"]
        send(arguments["line"].replace("ID", str(message["id"])).replace("FILL", "a" * arguments.get("fill", 0)))
    elif message["method"] in ("initialize", "tools/list"):
        send(json.dumps({"jsonrpc": "2.0", "id": message["id"], "result": result(message)}))
    else:
        send(json.dumps({"jsonrpc": "2.0", "id": message["id"], "error": {"code": -32601, "message": "no method"}}))
