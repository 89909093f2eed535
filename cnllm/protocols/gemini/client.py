"""Gemini generateContent."""

from cnllm.protocols import Wire
from cnllm.protocols.gemini.client_decode import chunk, quick
from cnllm.protocols.gemini.client_encode import write

__all__ = ["WIRE"]

WIRE = Wire(
    write=write, chunk=chunk, turns="contents", quick=quick, arrays=True, lists=("stop",), apart=(None, "any", "first")
)
