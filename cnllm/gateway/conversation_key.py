"""The key of a conversation: one digest for what every client sends again of the same messages."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

import msgspec

from cnllm.types import Media, Message, Opaque, Part, Text, ToolCall, ToolResult
from cnllm.types.wire_parts import summary_of

if TYPE_CHECKING:
    from cnllm.types.message_memory import MessageMemory

__all__ = ["DIGEST_BYTES", "Chain", "conversation_key", "digest_of"]

_CHAIN, _CHAIN_SIZE = "chain", 1000  # bytes, beside those of the list of messages
DIGEST_BYTES = 16


class Chain:
    """The digest of a conversation, message after message, in a form in which every client sends it again.

    Reasoning and ids do not count: clients drop or change them. What stands between two turns of the assistant counts
    as one: first the results, each once and only those of calls, then the rest. Clients that resume a conversation
    may send the parts of such a turn twice. A summary of all before it begins the conversation: clients leave that out.
    """

    def __init__(self) -> None:
        self._begin()

    def _begin(self) -> None:
        """Begin with no message."""
        self._hash = hashlib.blake2b(digest_size=24)
        self._open_calls: set[str] = set()
        self._results: list[object] = []
        self._others: list[object] = []

    def add(self, message: Message) -> None:
        """Add a message."""
        if message.role == "assistant":
            parts, summary = _from_summary(message.parts)
            if summary is not None:
                self._begin()
                self._hash.update(summary.encode("utf-8", "surrogatepass"))
            if self._results or self._others:
                self._hash.update(msgspec.json.encode(["tool", self._results, self._others]))
                self._results, self._others = [], []
            self._hash.update(msgspec.json.encode(["assistant", *_visible(parts)]))
            self._open_calls.update([part.id for part in parts if type(part) is ToolCall])
            return
        rest: list[Part] = []
        for part in message.parts:
            if type(part) is not ToolResult:
                rest.append(part)
            elif part.id in self._open_calls:
                self._open_calls.discard(part.id)
                self._results.append(part.text)
        turn = [message.role, *_visible(rest)]
        if len(turn) > 1 and not (turn in self._others and self._results):
            self._others.append(turn)

    def key(self) -> bytes:
        """Return the digest so far."""
        return self._hash.digest()

    def copy(self) -> Chain:
        """Return the digest so far, to which other messages may be added."""
        other = Chain()
        other._hash = self._hash.copy()
        other._open_calls, other._results, other._others = set(self._open_calls), [*self._results], [*self._others]
        return other


def _from_summary(parts: Sequence[Part]) -> tuple[Sequence[Part], str | None]:
    """Return the parts behind the last summary of all before it, and its text; all parts, and None, without one."""
    for index in range(len(parts) - 1, -1, -1):
        part = parts[index]
        if type(part) is Opaque and (text := summary_of(part.data)) is not None:
            return parts[index + 1 :], text
    return parts, None


def _visible(parts: Iterable[Part]) -> list[object]:
    """Return what every client sends back of a message, without its results."""
    visible: list[object] = []
    text = ""
    for part in parts:
        if type(part) is Text:
            text += part.text
        elif type(part) is ToolCall:
            visible.append([part.name, part.arguments if part.arguments is not None else part.raw])
        elif type(part) is Media:
            visible.append([part.type, part.url or digest_of(part.data or "")])
    if text:
        visible.append(text)
    return visible


def conversation_key(messages: Sequence[Message], answer: Message, memory: MessageMemory | None = None) -> bytes:
    """Return the key of a conversation with an answer. `memory` may have the digest of the messages as far as some."""
    start, memo = (0, None) if memory is None else memory.find_start(_CHAIN, messages)
    chain = Chain() if memo is None else memo.copy()
    for message in messages[start:]:
        chain.add(message)
    if memory is not None and start < len(messages):
        memory.keep_start(_CHAIN, messages, chain.copy(), _CHAIN_SIZE)
    chain.add(answer)
    return chain.key()


def digest_of(text: str) -> bytes:
    """Return the digest of a text."""
    return hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=DIGEST_BYTES).digest()
