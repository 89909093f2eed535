"""OpenAI Responses."""

from cnllm.wires import Wire
from cnllm.wires.responses_read import chunk, quick
from cnllm.wires.responses_write import takes, write

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
