"""Register the client side of OpenAI Responses."""

from cnllm.protocols import Wire
from cnllm.protocols.responses.client_decode import ResponsesDecoder, fast_decoder
from cnllm.protocols.responses.client_encode import TOOL_KEYS, encode_body, takes_medium
from cnllm.types.media import NAME_KEYS, media_kind

__all__ = ["WIRE"]

WIRE = Wire(
    encode_body=encode_body,
    decoder=ResponsesDecoder,
    turns="input",
    fast_decoder=fast_decoder,
    separate_system=("first",),
    takes_medium=takes_medium,
    takes_name=lambda media, in_result: media_kind(media) == "file" and media.data is not None,
    file_parts=frozenset(["file", "input_file", "input_image"]),
    reports_length=False,
    reasoning_leads=True,
    named_format=True,
    tool_keys=TOOL_KEYS,
    part_keys=frozenset(["detail", *NAME_KEYS]),
    reference_keys=frozenset(["conversation", "previous_response_id", "prompt"]),
    model_keys=frozenset(["models"]),
    most_calls="max_tool_calls",
    free_actions=frozenset(["open_page", "find_in_page"]),
    text_arguments=True,
)
