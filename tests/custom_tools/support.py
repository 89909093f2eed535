"""What the tests of custom tools share: the grammar of a patch, right and wrong patches, and replies that call."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

from client.peer import DONE, call_delta, delta, reply, stream, usage

import cnllm

Json = dict[str, Any]
GRAMMAR = r"""start: begin_patch hunk+ end_patch
begin_patch: "*** Begin Patch" LF
end_patch: "*** End Patch" LF?

hunk: add_hunk | delete_hunk | update_hunk
add_hunk: "*** Add File: " filename LF add_line+
delete_hunk: "*** Delete File: " filename LF
update_hunk: "*** Update File: " filename LF change_move? change?

filename: /(.+)/
add_line: "+" /(.*)/ LF -> line

change_move: "*** Move to: " filename LF
change: (change_context | change_line)+ eof_line?
change_context: ("@@" | "@@ " /(.+)/) LF
change_line: ("+" | "-" | " ") /(.*)/ LF
eof_line: "*** End of File" LF

%import common.LF
"""
"""The grammar that Codex sends with its tool `apply_patch`."""
GOOD = '*** Begin Patch\n*** Add File: a.py\n+x = "1"\n+\n+y = 你好\n*** End Patch\n'
BAD = "*** Begin Patch\n*** Add File: a.py\nx = 1\n*** End Patch\n"
WORSE = "no patch at all"
PLACE = "line 3, column 1"
PATCH: Json = {"type": "grammar", "syntax": "lark", "definition": GRAMMAR}
LINES: Json = {"type": "grammar", "syntax": "regex", "definition": r"begin\n(?:\+.*\n)+end\n?"}
"""A grammar that costs no process."""
GOOD_LINES = 'begin\n+x = "1"\n+\n+y = 你好\nend\n'
BAD_LINES = "begin\nx = 1\nend\n"
READ: Json = {
    "type": "function",
    "name": "read",
    "description": "Reads a file.",
    "parameters": {"type": "object", "properties": {"path": {"type": "string"}}, "required": ["path"]},
}


def flat(format: Json | None = PATCH, name: str = "apply_patch") -> Json:
    """A custom tool as Responses declares it."""
    return {"type": "custom", "name": name, "description": "Edits files.", **({"format": format} if format else {})}


def nested(format: Json | None = PATCH, name: str = "apply_patch") -> Json:
    """A custom tool as chat completions declare it."""
    tool: Json = {"name": name, "description": "Edits files."}
    if format is not None:
        tool["format"] = {"type": "grammar", "grammar": {k: v for k, v in format.items() if k != "type"}}
    return {"type": "custom", "custom": tool}


def patching(input: str, id: str = "c1", name: str = "apply_patch") -> Json:
    """A model's call of the function for a custom tool."""
    return called(name, {"input": input}, id)


def called(name: str, arguments: Json, id: str) -> Json:
    return {"id": id, "type": "function", "function": {"name": name, "arguments": json.dumps(arguments)}}


def gives(verb: str, *calls: Json, text: str = "", thought: str = "") -> bytes:
    """The response that makes calls, whole or as a stream in small pieces."""
    finish = "tool_calls" if calls else "stop"
    if verb == "call":
        more: Json = {"reasoning_content": thought} if thought else {}
        return reply(text, finish=finish, **({"tool_calls": list(calls)} if calls else {}), **more)
    events = [delta(reasoning_content=thought)] if thought else []
    events += [delta(piece) for piece in pieces(text)]
    for index, call in enumerate(calls):
        function = call["function"]
        events.append(call_delta(index, id=call["id"], name=function["name"]))
        events += [call_delta(index, arguments=piece) for piece in pieces(function["arguments"])]
    return stream(*events, delta(finish=finish), usage(), DONE)


def pieces(text: str) -> Iterable[str]:
    return (text[at : at + 5] for at in range(0, len(text), 5))


def codes(reply: cnllm.Reply) -> list[str]:
    return [note.code for note in reply.notes]


def note(reply: cnllm.Reply, code: str) -> cnllm.Note:
    """The one note with this code."""
    [found] = [note for note in reply.notes if note.code == code]
    return found
