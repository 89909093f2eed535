"""Register the client side of Gemini generateContent."""

from cnllm.protocols import Wire
from cnllm.protocols.gemini.client_decode import GeminiDecoder, fast_decoder
from cnllm.protocols.gemini.client_encode import TOOL_KEYS, encode_body, takes_medium
from cnllm.types.media import NAME_KEYS

__all__ = ["WIRE"]

WIRE = Wire(
    encode_body=encode_body,
    decoder=GeminiDecoder,
    turns="contents",
    fast_decoder=fast_decoder,
    json_arrays=True,
    one_text=True,
    proof="word-and-end",
    list_params=("stop",),
    separate_system=(None, "any", "first"),
    count_paths=("generationConfig.candidateCount",),
    reference_keys=frozenset(["cachedContent"]),
    takes_medium=takes_medium,
    media_roles=frozenset(["user", "assistant"]),
    takes_name=lambda media, in_result: in_result,
    tool_keys=TOOL_KEYS,
    part_keys=frozenset(NAME_KEYS),
)
