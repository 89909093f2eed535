"""Register the server side of Anthropic Messages."""

from __future__ import annotations

from cnllm.protocols import ServerCodec
from cnllm.protocols.messages.server_decode import read_request
from cnllm.protocols.messages.server_encode import StreamEncoder, write_error, write_reply

__all__ = ["CODEC"]

CODEC = ServerCodec(
    read_request=read_request,
    write_reply=write_reply,
    write_error=write_error,
    stream=StreamEncoder,
    bearer=True,
    paths=("/v1/messages",),
    seal_example=lambda token, text: {"signature": token},
)
