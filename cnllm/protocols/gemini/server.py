"""Gemini generateContent, as a server speaks it: what each direction is, in one place.

The model and whether to stream are in the URL's path. Reading takes the spellings of both JSON mappings of the
protocol's own messages: `generationConfig` and `generation_config`.
"""

from cnllm.protocols import ServerCodec
from cnllm.protocols.gemini.server_decode import read_request
from cnllm.protocols.gemini.server_encode import StreamEncoder, write_error, write_reply

__all__ = ["SPOKEN"]

SPOKEN = ServerCodec(
    read_request=read_request, write_reply=write_reply, write_error=write_error, stream=StreamEncoder, result_names=True
)
