"""What the tests of structured output share: a schema, a model class, and an endpoint that gives an answer."""

from collections.abc import Iterable
from pathlib import Path
from typing import Any

from client.peer import DONE, Peer, call_delta, delta, reply, stream, usage
from client.support import home
from note_rules import check_notes
from pydantic import BaseModel

import cnllm
from cnllm import Model

Json = dict[str, Any]
SCHEMA: Json = {
    "type": "object",
    "properties": {"name": {"type": "string"}, "age": {"type": "integer", "minimum": 0}},
    "required": ["name", "age"],
}
GOOD = '{"name": "Ada", "age": 36}'
BAD = '{"name": "Ada", "age": "old"}'
WORDS = "$.age: 'old' is not of type 'integer'"
ADA = {"name": "Ada", "age": 36}
LIST: Json = {"type": "array", "items": {"type": "string"}}


class Person(BaseModel):
    """What a caller may give instead of a schema."""

    name: str
    age: int


def endpoint(folder: Path, peer: Peer, method: str, more: str = "") -> Model:
    """`home/m`, which knows this method alone."""
    return home(folder, peer, f'schema.methods = ["{method}"]\n{more}')


def gives(verb: str, method: str, text: str, *, name: str = "answer", finish: str = "stop", before: str = "") -> bytes:
    """The response that gives an answer, by the method's own means: text, or the arguments of a call."""
    if method != "tool":
        if verb == "call":
            return reply(before + text, finish=finish)
        return stream(*[delta(piece) for piece in halves(before + text)], delta(finish=finish), usage(), DONE)
    if verb == "call":
        call = {"id": "c1", "type": "function", "function": {"name": name, "arguments": text}}
        return reply(before, finish=finish, tool_calls=[call])
    said = [delta(before)] if before else []
    begun = call_delta(id="c1", name=name)
    pieces = [call_delta(arguments=piece) for piece in halves(text)]
    return stream(*said, begun, *pieces, delta(finish=finish), usage(), DONE)


def halves(text: str) -> Iterable[str]:
    return text[: len(text) // 2], text[len(text) // 2 :]


def codes(reply: cnllm.Reply) -> list[str]:
    check_notes(reply.notes)
    return [note.code for note in reply.notes]


def note(reply: cnllm.Reply | cnllm.Plan, code: str) -> cnllm.Note:
    """The one note with this code."""
    [found] = [note for note in reply.notes if note.code == code]
    return found
