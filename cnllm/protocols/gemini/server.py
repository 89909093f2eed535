"""Register the server side of Gemini generateContent.

The model and whether to stream are in the URL's path. Decoding accepts both spellings of the protocol's JSON
mapping: `generationConfig` and `generation_config`.
"""

from cnllm.protocols import ServerCodec
from cnllm.protocols.gemini.server_decode import read_request, read_search
from cnllm.protocols.gemini.server_encode import StreamEncoder, write_error, write_reply
from cnllm.protocols.reply_fields import token_reader, token_writer
from cnllm.protocols.server_interface import BatchForm
from cnllm.types import Reasoning, Text, ToolCall

__all__ = ["CODEC"]

_PROTOCOL = "gemini"
_CARRIERS = (Reasoning, Text, ToolCall)

CODEC = ServerCodec(
    takes_media=lambda media: True,
    read_request=read_request,
    read_search=read_search,
    write_reply=write_reply,
    write_error=write_error,
    stream=StreamEncoder,
    result_names=True,
    whole_calls=True,
    read_token=token_reader(_PROTOCOL, _CARRIERS, "thoughtSignature", is_bytes=True),
    write_token=token_writer(_PROTOCOL, _CARRIERS, "thoughtSignature", is_bytes=True),
    paths=tuple(
        f"/{version}/models/{{model}}:{method}"
        for version in ("v1beta", "v1")
        for method in ("generateContent", "streamGenerateContent")
    ),
    json_mode=("generationConfig.responseMimeType", "application/json"),
    seal_example=lambda token, text: {"thoughtSignature": token},
    late_seals=True,
    batch=BatchForm(prefix="batches/", iso_times=True),
)
