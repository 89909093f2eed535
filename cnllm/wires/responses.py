"""OpenAI Responses."""

from cnllm.wires import Wire
from cnllm.wires.responses_read import chunk, quick
from cnllm.wires.responses_write import write

__all__ = ["WIRE"]

WIRE = Wire(write=write, chunk=chunk, turns="input", quick=quick, apart=("first",))
