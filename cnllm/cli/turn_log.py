"""What `call` and `chat` take from the store and leave in it. Keeping an answer must not cost the answer.

So a store that cannot be used is told of in a line and the call goes on, unless it was to continue a conversation.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from cnllm.cli.output import errors
from cnllm.config import log_mode
from cnllm.errors import CnllmError

if TYPE_CHECKING:
    from cnllm import store
    from cnllm.registry.model import Model
    from cnllm.types import Message, Reply

__all__ = ["LoggedTurn", "TurnLog"]


class TurnLog:
    """The store, as a call or a chat sees it: not even opened where nothing is read and nothing is to be written."""

    def __init__(self, which: str | None, *, writes: bool) -> None:
        self._which = which
        self._mode = _mode() if writes else "off"
        self._store: store.Store | None = None
        self._conversation: store.Conversation | None = None
        self._entries: list[dict[str, Any]] = []
        if which is not None:
            self._conversation = self._open().conversation(which)
            if writes and self._mode == "off":
                errors.print_error(
                    "logs are off: this turn will not be part of the conversation", "cnllm logs on keeps it"
                )

    def turns(self) -> list[tuple[int, list[Message]]]:
        """The turns so far: the number of each, and what was said in it."""
        return self._conversation.turns() if self._conversation is not None else []

    def forget(self, number: int) -> None:
        """Takes a turn out of the store again, unless that is to be left as it is."""
        if self._conversation is not None and self._mode != "off":
            self._conversation.forget(number)

    def prompts(self, limit: int) -> list[str]:
        """What was asked last in any conversation; nothing where nothing is kept, or the store cannot be read."""
        if self._mode == "off" and self._store is None:
            return []
        try:
            return self._open().prompts(limit)
        except CnllmError:  # told of when a turn is to be kept
            return []

    def messages(self, new: Sequence[Message]) -> list[Message]:
        """What was said before, and what is new."""
        return self._conversation.messages(*new) if self._conversation is not None else list(new)

    def last_choice(self, *, protocol: str | None, base_url: str | None) -> dict[str, str | None]:
        """The model that was asked last, where it was asked; what is given now wins."""
        last = self._conversation.last() if self._conversation is not None else None
        if last is None:
            raise errors.UsageError("this conversation has no model yet", "name one: --model M")
        place = base_url or last.base_url
        if place and base_url is None and "redacted" in place:
            raise errors.UsageError(
                f"{last.model} was asked at {place}, which is not kept whole", "give --base-url again"
            )
        return {"model": last.model, "protocol": protocol or last.protocol, "base_url": place}

    @property
    def exchange(self) -> Callable[[dict[str, Any]], None] | None:
        """Takes a request with its response; None where these are not kept."""
        return self._entries.append if self._mode == "on" else None

    def turn(
        self, new: Sequence[Message], model: Model, origin: str, protocol: str | None, base_url: str | None
    ) -> LoggedTurn:
        """Writes down what is about to be sent."""
        self._entries.clear()  # of a turn that was left, something may have come late
        if self._mode == "off":
            return LoggedTurn(None, self._entries)
        try:
            if self._conversation is None:
                self._conversation = self._open().conversation()
            begun = self._conversation.turn(
                new,
                model=model.name,
                protocol=protocol,
                base_url=base_url,
                origin=origin,
                secrets=errors.hide_secrets(),
                exchanges=self._mode == "on",
            )
        except CnllmError as error:
            if self._which is not None:
                raise
            _told(error)
            return LoggedTurn(None, self._entries)
        return LoggedTurn(begun, self._entries)

    def close(self) -> None:
        """Closes the store, if it was opened."""
        if self._store is not None:
            self._store.close()

    def _open(self) -> store.Store:
        try:
            from cnllm.store import Store  # SQLite costs milliseconds that a call without it saves
        except ImportError as error:  # it is the one part of the standard library that builds leave out
            raise CnllmError(f"this Python has no SQLite ({error})", hint="cnllm logs off keeps no calls") from error
        if self._store is None:
            self._store = Store.open()
        return self._store


class LoggedTurn:
    """The turn in the store, if there is one. Leaving the `with` block by an exception ends it."""

    def __init__(self, turn: store.Turn | None, entries: list[dict[str, Any]]) -> None:
        self._turn = turn
        self._number = turn.number if turn is not None else None
        self._entries = entries

    @property
    def number(self) -> int | None:
        """Its number in the store, if it is there."""
        return self._number

    def finish(self, reply: Reply, said: Sequence[Message] | None = None) -> None:
        """The answer came; `said` is all that came where tools were called on the way."""
        self._end(lambda turn: turn.finish(reply, said))

    def fail(
        self,
        error: BaseException,
        reply: Reply | None = None,
        said: Sequence[Message] | None = None,
        *,
        void: bool = False,
    ) -> None:
        """It went wrong, after `reply` or what the error holds; from a `void` turn the conversation does not go on."""
        self._end(lambda turn: turn.fail(error, reply, said, void=void))

    def _end(self, how: Callable[[store.Turn], None]) -> None:
        turn, self._turn = self._turn, None
        if turn is None:
            return
        for entry in self._entries:
            turn.exchange(entry)
        try:
            how(turn)
        except CnllmError as error:
            _told(error)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is not None:
            self.fail(error)


def _mode() -> log_mode.Mode:
    """What is in force; nothing is kept where that cannot be read, for it may say so."""
    try:
        return log_mode.mode()
    except CnllmError as error:
        if os.environ.get("CNLLM_LOG"):
            raise
        _told(error)
        return "off"


def _told(error: CnllmError) -> None:
    errors.print_error(f"this call is not kept: {error.message}", error.hint or "cnllm logs off keeps none")
