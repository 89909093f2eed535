"""OpenAI chat completions."""

from cnllm.wires import Wire
from cnllm.wires.chat_read import chunk, quick
from cnllm.wires.chat_write import write

__all__ = ["WIRE"]

WIRE = Wire(write=write, chunk=chunk, turns="messages", quick=quick, ordered=False)
