"""OpenAI chat completions."""

from cnllm.protocols import Wire
from cnllm.protocols.chat.client_decode import chunk, quick
from cnllm.protocols.chat.client_encode import takes, write

__all__ = ["WIRE"]

_PARTS = frozenset(["file"])
WIRE = Wire(write=write, chunk=chunk, turns="messages", quick=quick, ordered=False, takes=takes, parts=_PARTS)
