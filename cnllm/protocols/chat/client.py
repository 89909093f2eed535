"""OpenAI chat completions."""

from cnllm.protocols import Wire
from cnllm.protocols.chat.client_decode import decode_chunk, fast_decoder
from cnllm.protocols.chat.client_encode import encode_body, takes_medium

__all__ = ["WIRE"]

_PARTS = frozenset(["file"])
WIRE = Wire(
    write=encode_body,
    chunk=decode_chunk,
    turns="messages",
    quick=fast_decoder,
    ordered=False,
    takes=takes_medium,
    parts=_PARTS,
)
