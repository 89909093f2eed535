"""Keep a body without its turns, as bytes: requests with the same options differ in nothing else.

On wires whose turns stand in one list, and have no influence on the rest, encoding a request is then encoding its
turns. The body is built of the same two parts: its values are copies, which a caller may change.
"""

from __future__ import annotations

import marshal
from typing import Any

import msgspec
from msgspec import Struct

from cnllm.engine.encode.plan import Plan
from cnllm.types import Message, Note, Reasoning

__all__ = ["Frame", "make_frame"]

_encode = msgspec.json.Encoder().encode


class Frame(Struct, frozen=True):
    """A body around its turns, under the key `turns`, and the `plan` without what the messages decide.

    `before` and `after` are bytes, `values` the keys on both sides for a copy. `notes` are those on the body, which
    come after the notes on the messages. `without_reasoning` says that the frame holds only for conversations
    without reasoning: for others the endpoint wants a further setting.
    """

    turns: str
    plan: Plan
    before: bytes
    after: bytes
    values: bytes
    notes: tuple[Note, ...]
    without_reasoning: bool

    def fits(self, history: list[Message]) -> bool:
        """Whether the frame holds for a fitted conversation."""
        return not self.without_reasoning or not any(type(p) is Reasoning for m in history for p in m.parts)

    def fill(self, turns: list[dict[str, Any]]) -> tuple[dict[str, Any], bytes] | None:
        """Return the body with these turns and its bytes; None where the turns hold more than plain JSON."""
        try:
            content = b"%b%b%b" % (self.before, _encode(turns), self.after)
        except (UnicodeEncodeError, TypeError):
            return None
        first, rest = marshal.loads(self.values)
        first[self.turns] = turns
        first.update(rest)
        return first, content


def make_frame(
    body: dict[str, Any], key: str, plan: Plan, notes: list[Note], *, without_reasoning: bool
) -> Frame | None:
    """Return the frame of a body that has no turns yet; None where a setting has changed the turns."""
    if body.get(key) != [] or type(body[key]) is not list:
        return None
    names = list(body)
    place = names.index(key)
    first = {name: body[name] for name in names[:place]}
    rest = {name: body[name] for name in names[place + 1 :]}
    try:
        head, tail, values = _encode(first)[1:-1], _encode(rest)[1:-1], marshal.dumps((first, rest))
    except (ValueError, TypeError):  # a value of the caller's own type, or half of a character
        return None
    before = b"{%b%b%b:" % (head, b"," if head else b"", _encode(key))
    after = b"%b%b}" % (b"," if tail else b"", tail)
    return Frame(key, plan, before, after, values, tuple(notes), without_reasoning)
