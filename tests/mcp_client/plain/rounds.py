"""An MCP server of 2026-07-28 over stdio, whose call needs several rounds.

The argument `rounds` says how often the client has to come back, and `ask` that the server wants to ask the user.
"""

from __future__ import annotations

import json
import sys
from typing import Any

TOOL = {"name": "slow", "inputSchema": {"type": "object", "properties": {"rounds": {"type": "integer"}}}}
CACHE = {"ttlMs": 0, "cacheScope": "private"}
QUESTION = {"type": "object", "properties": {"name": {"type": "string"}}}


def result(method: str, params: dict[str, Any]) -> dict[str, Any]:
    if method == "server/discover":
        server = {"name": "rounds", "version": "1"}
        return {"supportedVersions": ["2026-07-28"], "capabilities": {"tools": {}}, "serverInfo": server, **CACHE}
    if method == "tools/list":
        return {"tools": [TOOL], **CACHE}
    arguments, state = params["arguments"], params.get("requestState", "0")
    if arguments.get("ask"):
        question = {"mode": "form", "message": "Who are you?", "requestedSchema": QUESTION}
        request = {"method": "elicitation/create", "params": question}
        return {"resultType": "input_required", "inputRequests": {"q": request}}
    if int(state) < arguments["rounds"]:
        return {"resultType": "input_required", "requestState": str(int(state) + 1)}
    return {"content": [{"type": "text", "text": f"done in round {state}"}]}


for text in sys.stdin:
    message = json.loads(text)
    if "id" in message and "method" in message:
        answer = {"resultType": "complete", **result(message["method"], message["params"])}
        sys.stdout.write(json.dumps({"jsonrpc": "2.0", "id": message["id"], "result": answer}) + "\n")
        sys.stdout.flush()
