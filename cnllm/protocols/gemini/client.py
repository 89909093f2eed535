"""Gemini generateContent."""

from cnllm.protocols import Wire
from cnllm.protocols.gemini.client_decode import decode_chunk, fast_decoder
from cnllm.protocols.gemini.client_encode import encode_body

__all__ = ["WIRE"]

WIRE = Wire(
    write=encode_body,
    chunk=decode_chunk,
    turns="contents",
    quick=fast_decoder,
    arrays=True,
    lists=("stop",),
    apart=(None, "any", "first"),
)
