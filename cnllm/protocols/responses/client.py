"""OpenAI Responses."""

from cnllm.protocols import Wire
from cnllm.protocols.responses.client_decode import chunk, quick
from cnllm.protocols.responses.client_encode import takes, write

__all__ = ["WIRE"]

_PARTS = frozenset(["file", "input_file"])
WIRE = Wire(
    write=write,
    chunk=chunk,
    turns="input",
    quick=quick,
    apart=("first",),
    takes=takes,
    parts=_PARTS,
    tells_length=False,
)
