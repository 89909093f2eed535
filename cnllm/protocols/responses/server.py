"""Register the server side of OpenAI Responses."""

from __future__ import annotations

from cnllm.protocols import ServerCodec
from cnllm.protocols.responses.server_decode import read_request
from cnllm.protocols.responses.server_encode import StreamEncoder, write_error, write_reply

__all__ = ["CODEC"]

CODEC = ServerCodec(read_request=read_request, write_reply=write_reply, write_error=write_error, stream=StreamEncoder)
