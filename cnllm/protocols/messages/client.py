"""Anthropic Messages: content blocks, one after the other."""

from cnllm.protocols import Wire
from cnllm.protocols.messages.client_decode import decode_chunk, fast_decoder
from cnllm.protocols.messages.client_encode import encode_body, takes_medium

__all__ = ["WIRE"]

_PARTS = frozenset(["document", "image"])
WIRE = Wire(
    write=encode_body,
    chunk=decode_chunk,
    turns="messages",
    quick=fast_decoder,
    apart=(None, "any", "first"),
    takes=takes_medium,
    parts=_PARTS,
)
