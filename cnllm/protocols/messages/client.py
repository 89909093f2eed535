"""Anthropic Messages: content blocks, one after the other."""

from cnllm.protocols import Wire
from cnllm.protocols.messages.client_decode import chunk, quick
from cnllm.protocols.messages.client_encode import takes, write

__all__ = ["WIRE"]

_PARTS = frozenset(["document", "image"])
WIRE = Wire(
    write=write, chunk=chunk, turns="messages", quick=quick, apart=(None, "any", "first"), takes=takes, parts=_PARTS
)
