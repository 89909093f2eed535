"""OpenAI chat completions."""

from cnllm.wires import Wire
from cnllm.wires.chat_read import chunk, quick
from cnllm.wires.chat_write import takes, write

__all__ = ["WIRE"]

_PARTS = frozenset(["file"])
WIRE = Wire(write=write, chunk=chunk, turns="messages", quick=quick, ordered=False, takes=takes, parts=_PARTS)
