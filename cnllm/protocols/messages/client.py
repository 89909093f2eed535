"""Anthropic Messages: content blocks, one after the other."""

from cnllm.wires import Wire
from cnllm.wires.messages_read import chunk, quick
from cnllm.wires.messages_write import takes, write

__all__ = ["WIRE"]

_PARTS = frozenset(["document", "image"])
WIRE = Wire(
    write=write, chunk=chunk, turns="messages", quick=quick, apart=(None, "any", "first"), takes=takes, parts=_PARTS
)
