"""Estimate the number of tokens of a request, where no endpoint counts them."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any

import msgspec

from cnllm.types import Media, Message, Opaque, Reasoning, Text, ToolCall, ToolResult
from cnllm.types.documents import file_text

__all__ = ["estimate_tokens"]

_WIDE = re.compile("[\u2e80-\u9fff\uac00-\ud7af\uf900-\ufaff\uff00-\uffef]+")
_SLICE = 65_536  # characters
_PER_MESSAGE = 4  # tokens of the marks around a message
_PER_PICTURE = 1500  # about one picture of a megapixel, on endpoints that say what they count
_NARROW_PER_TOKEN = 4.0  # characters of a token in English text and code, as vendors' documentation says
_WIDE_PER_TOKEN = 1.5  # Chinese, Japanese and Korean characters of a token


def estimate_tokens(messages: Iterable[Message], options: Mapping[str, Any]) -> int:
    """Return about how many tokens a request has: its messages, with the system message, and its tools."""
    total = 0
    for message in messages:
        total += _PER_MESSAGE
        for part in message.parts:
            total += _part_tokens(part)
    tools = options.get("tools")
    if tools:
        total += _text_tokens(msgspec.json.encode(tools).decode())
    return max(1, total)


def _part_tokens(part: Any) -> int:
    """Return about how many tokens a part has."""
    match part:
        case Text() | Reasoning():
            return _text_tokens(part.text)
        case ToolCall():
            return _text_tokens(part.name) + _text_tokens(part.raw)
        case ToolResult():
            return _text_tokens(part.text) + sum(map(_part_tokens, (*part.media, *part.blocks)))
        case Media():
            text = file_text(part)
            return _PER_PICTURE if text is None else _text_tokens(text)
        case Opaque():
            return _text_tokens(msgspec.json.encode(part.data).decode())
    return 0


def _text_tokens(text: str) -> int:
    """Return about how many tokens a text has."""
    wide = 0
    if not text.isascii():
        for start in range(0, len(text), _SLICE):  # a long text must not stop other threads
            wide += sum(map(len, _WIDE.findall(text, start, start + _SLICE)))
    return round((len(text) - wide) / _NARROW_PER_TOKEN + wide / _WIDE_PER_TOKEN)
