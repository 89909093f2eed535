"""Register the client side of OpenAI chat completions."""

from cnllm.protocols import Wire
from cnllm.protocols.chat.client_decode import decode_chunk, fast_decoder
from cnllm.protocols.chat.client_encode import encode_body, takes_medium

__all__ = ["WIRE"]

_FILE_PARTS = frozenset(["file"])
WIRE = Wire(
    encode_body=encode_body,
    decode_chunk=decode_chunk,
    turns="messages",
    fast_decoder=fast_decoder,
    ordered=False,
    takes_medium=takes_medium,
    file_parts=_FILE_PARTS,
)
