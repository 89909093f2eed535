"""The endpoint and the turns that a chat keeps."""

from __future__ import annotations

import msgspec

from cnllm.cli.output import errors
from cnllm.types import Message

__all__ = ["ChatEndpoint", "CompletedTurn", "FailedTurn"]


class ChatEndpoint(msgspec.Struct, frozen=True):
    """The protocol, address and key of the model, where the user gives them."""

    protocol: str | None = None
    base_url: str | None = None
    key: str | None = None


class CompletedTurn(msgspec.Struct, frozen=True):
    """A successful turn: its number in the store, its messages, and the exit status that `call` would return."""

    number: int | None
    messages: list[Message]
    status: int = errors.WHOLE


class FailedTurn(msgspec.Struct, frozen=True):
    """A turn without an answer."""

    number: int | None
    question: Message
    status: int = errors.FAILED
