"""Decode the most common events of a stream of OpenAI Responses."""

from __future__ import annotations

from typing import Any, Literal

import msgspec

from cnllm.protocols import FastDecoder
from cnllm.registry.flags import Flags

__all__ = ["fast_decoder"]

_FIELDS = {
    "response.output_text.delta": None,
    "response.reasoning_summary_text.delta": "summary",
    "response.reasoning_text.delta": "content",
}
"""The most common events, and the field of their reasoning."""


class Delta(msgspec.Struct, gc=False):
    """One of the most common events."""

    type: Literal[
        "response.output_text.delta", "response.reasoning_summary_text.delta", "response.reasoning_text.delta"
    ]
    delta: str
    output_index: int | None = None
    content_index: int | None = None
    logprobs: tuple[()] | None = None


_decode_delta = msgspec.json.Decoder(Delta).decode


def fast_decoder(flags: Flags) -> FastDecoder:
    """Return the fast decoder: it reads deltas that continue the last part.

    A delta of another part is left to the full decoder.
    """
    last: tuple[Any, ...] | None = None
    is_first = True

    def read(text: bytes) -> tuple[str, str | None] | None:
        """Decode one event."""
        nonlocal last, is_first
        try:
            event = _decode_delta(text)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            last, is_first = None, False
            return None
        part = (event.type, event.output_index, event.content_index)
        if part != last and not is_first:
            last = part
            return None
        last, is_first = part, False
        return (event.delta, _FIELDS[event.type]) if event.delta else None

    return read
