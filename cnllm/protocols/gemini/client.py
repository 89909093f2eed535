"""Gemini generateContent."""

from cnllm.wires import Wire
from cnllm.wires.gemini_read import chunk, quick
from cnllm.wires.gemini_write import write

__all__ = ["WIRE"]

WIRE = Wire(
    write=write, chunk=chunk, turns="contents", quick=quick, arrays=True, lists=("stop",), apart=(None, "any", "first")
)
