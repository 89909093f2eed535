"""OpenAI Responses."""

from cnllm.protocols import Wire
from cnllm.protocols.responses.client_decode import decode_chunk, fast_decoder
from cnllm.protocols.responses.client_encode import encode_body, takes_medium

__all__ = ["WIRE"]

_PARTS = frozenset(["file", "input_file"])
WIRE = Wire(
    write=encode_body,
    chunk=decode_chunk,
    turns="input",
    quick=fast_decoder,
    apart=("first",),
    takes=takes_medium,
    parts=_PARTS,
    tells_length=False,
)
