"""Estimate the number of tokens of a request, where no endpoint counts them."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from functools import cache
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Struct

from cnllm.engine.encode.plan import Plan
from cnllm.registry.model import Model
from cnllm.types import Media, Message, Opaque, Reasoning, Text, ToolCall, ToolResult
from cnllm.types.documents import file_text
from cnllm.types.tools import Function

__all__ = [
    "Start",
    "TokenFamily",
    "estimate_input",
    "estimate_sent",
    "estimate_text",
    "estimate_tokens",
    "text_bytes",
    "token_family",
]

Start = tuple[Message, tuple[Function, ...]]
"""The first message of a request, and its tools."""

_WIDE = re.compile("[\u2e80-\u9fff\uac00-\ud7af\uf900-\ufaff\uff00-\uffef]+")
_SLICE = 65_536  # characters
_PER_MESSAGE = 4  # tokens of the marks around a message
_PER_PICTURE = 1500  # about one picture of a megapixel, on endpoints that say what they count
_NARROW_PER_TOKEN = 4.0  # characters of a token in English text and code, as vendors' documentation says
_WIDE_PER_TOKEN = 1.5  # Chinese, Japanese and Korean characters of a token
_OTHER = "other"
"""The family of models that belong to none."""


class TokenFamily(Struct, frozen=True, forbid_unknown_fields=True):
    """The tokens that endpoints count for a family of models, against an estimate that knows no family.

    `start` tokens are added to each request, and `tools` to one with tools; the rest is `text` times the estimate.
    `errors` are the shares by which half and nine tenths of the `recordings` differ at most. `python -m
    maintenance.tokens` measures all of it.
    """

    recordings: int
    start: int = 0
    tools: int = 0
    text: float = 1.0
    errors: tuple[float, float] | None = None

    def tokens(self, estimate: int, *, has_tools: bool) -> int:
        """Return the tokens of a request by the estimate that knows no family."""
        return max(1, round(self.start + self.tools * has_tools + self.text * estimate))


@cache
def _families() -> dict[str, TokenFamily]:
    """Return the measured families."""
    data = Path(__file__).with_name("families.toml").read_bytes()
    return msgspec.toml.decode(data, type=dict[str, TokenFamily])


def token_family(model: Model) -> TokenFamily:
    """Return the family of a model, or that of all models without a measured one."""
    return _families().get(model.family or _OTHER) or _families()[_OTHER]


def estimate_input(plan: Plan, messages: Iterable[Message] | None = None) -> int:
    """Return about how many tokens an endpoint counts for a request that is built, or for some of its messages."""
    return token_family(plan.model).tokens(estimate_text(plan, messages), has_tools=bool(plan.body.get("tools")))


def estimate_sent(plan: Plan, begun: Iterable[Start] = ()) -> int | None:
    """Return about how many tokens at the start of a request were sent before; None where nothing shows it.

    A turn that this very model wrote shows it: the request that it answered had all that stands before it. An
    earlier call that has `begun` with the same tools and the same system message shows it, too.
    """
    written = [number for number, message in enumerate(plan.messages) if message.by == plan.model.name]
    if written:
        return estimate_input(plan, plan.messages[: written[-1]])
    if plan.messages and any(first == plan.messages[0] and tools == plan.tools for first, tools in begun):
        return estimate_input(plan, plan.messages[:1])
    return None


def estimate_text(plan: Plan, messages: Iterable[Message] | None = None) -> int:
    """Return the estimate of a request that knows no family; of some of its messages where they are given."""
    return estimate_tokens(plan.messages if messages is None else messages, plan.body.get("tools"), plan.schema)


def text_bytes(plan: Plan) -> int:
    """Return the bytes of the text of a request. No text has more tokens."""
    total = sum(_part_size(part, _bytes, 0) for message in plan.messages for part in message.parts)
    return total + sum(len(msgspec.json.encode(value)) for value in (plan.body.get("tools"), plan.schema) if value)


def _part_size(part: Any, size: Callable[[str], int], picture: int) -> int:
    """Return the size of the texts of a part; that of a medium without text is that of a picture."""
    match part:
        case Text() | Reasoning():
            return size(part.text)
        case ToolCall():
            return size(part.name) + size(part.raw)
        case ToolResult():
            return size(part.text) + sum(_part_size(one, size, picture) for one in (*part.media, *part.blocks))
        case Media():
            text = file_text(part)
            return picture if text is None else size(text)
        case Opaque():
            return size(msgspec.json.encode(part.data).decode())
    return 0


def _bytes(text: str) -> int:
    return len(text) if text.isascii() else len(text.encode("utf-8", "surrogatepass"))


def estimate_tokens(messages: Iterable[Message], *values: Any) -> int:
    """Return about how many tokens messages have, with the system message, and with further values as JSON: tools."""
    total = sum(_text_tokens(msgspec.json.encode(value).decode()) for value in values if value)
    for message in messages:
        total += _PER_MESSAGE + sum(_part_size(part, _text_tokens, _PER_PICTURE) for part in message.parts)
    return max(1, total)


def _text_tokens(text: str) -> int:
    """Return about how many tokens a text has."""
    wide = 0
    if not text.isascii():
        for start in range(0, len(text), _SLICE):  # a long text must not stop other threads
            wide += sum(map(len, _WIDE.findall(text, start, start + _SLICE)))
    return round((len(text) - wide) / _NARROW_PER_TOKEN + wide / _WIDE_PER_TOKEN)
