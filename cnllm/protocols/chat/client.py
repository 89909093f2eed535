"""Register the client side of OpenAI chat completions."""

from cnllm.protocols import Wire
from cnllm.protocols.chat.client_decode import ChatDecoder, is_chunk
from cnllm.protocols.chat.client_encode import encode_body, encode_turns, takes_medium
from cnllm.protocols.chat.client_fast import fast_decoder, usual_reader
from cnllm.types.media import media_kind

__all__ = ["WIRE"]

WIRE = Wire(
    encode_body=encode_body,
    decoder=ChatDecoder,
    turns="messages",
    encode_turns=encode_turns,
    fast_decoder=fast_decoder,
    usual_reader=usual_reader,
    ordered=False,
    is_chunk=is_chunk,
    proof="word",
    takes_medium=takes_medium,
    takes_name=lambda media, in_result: media_kind(media) == "file",
    file_parts=frozenset(["file"]),
    count_paths=("n", "best_of"),
    names=True,
    named_format=True,
    model_keys=frozenset(["models"]),
    most_calls="max_tool_calls",
    hour_mark=b'"1h"',
    text_arguments=True,
)
