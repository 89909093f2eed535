"""A conversation: what was said so far, and the turns that go on from there."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

import msgspec

from cnllm.config import redact
from cnllm.errors import CnllmError
from cnllm.store.text import from_json, utc_now
from cnllm.store.turn import Turn, add_messages, delete_turn
from cnllm.types import Message

if TYPE_CHECKING:
    from cnllm.store.file import DatabaseFile

__all__ = ["Conversation", "LastOrigin", "order_messages"]


def order_messages(said: Sequence[Message]) -> list[Message]:
    """The messages as they are sent: the last system message of all holds, at the front."""
    systems = [message for message in said if message.role == "system"]
    return [*systems[-1:], *(message for message in said if message.role != "system")]


class LastOrigin(msgspec.Struct, frozen=True):
    """Who answered last, and where it was asked if that was chosen."""

    model: str
    protocol: str | None
    base_url: str | None


class Conversation:
    """One conversation. A new one is in the file once its first turn is."""

    def __init__(self, file: DatabaseFile, ident: str) -> None:
        self._file = file
        self.id = ident

    def messages(self, *more: Message) -> list[Message]:
        """What was said, in order, then `more`; the last system message of all holds, at the front.

        A question that was refused is left out, lest it be refused again; one whose turn was interrupted is there.
        """
        return order_messages([*(message for _, said in self.turns() for message in said), *more])

    def turns(self) -> list[tuple[int, list[Message]]]:
        """The turns that `messages` are from: the number of each, and what was said in it."""
        rows = self._file.rows(
            "SELECT turns.id, messages.id, data FROM messages JOIN turns ON turns.id = turn WHERE conversation = ? "
            "AND state <> 'failed' ORDER BY turns.id, messages.id",
            self.id,
        )
        found: dict[int, list[Message]] = {}
        for number, message, data in rows:
            try:
                said = Message.from_dict(from_json(data, dict[str, Any]))
            except (ValueError, TypeError, LookupError, AttributeError, RecursionError) as error:
                raise CnllmError(
                    f"{self._file.path}: message {message} in turn {number} of conversation {self.id} cannot be read",
                    hint="begin another conversation, or go on from another one: cnllm logs list shows them",
                ) from error
            found.setdefault(number, []).append(said)
        return list(found.items())

    def forget(self, number: int) -> None:
        """Takes a turn out again, and the conversation if nothing else is in it."""
        delete_turn(self._file, number)

    def last(self) -> LastOrigin | None:
        """Who was asked last; None where nothing was asked yet."""
        rows = self._file.rows(
            "SELECT model, protocol, base_url FROM turns WHERE conversation = ? ORDER BY id DESC LIMIT 1", self.id
        )
        return LastOrigin(*rows[0]) if rows else None

    def turn(
        self,
        messages: Sequence[Message],
        *,
        model: str,
        protocol: str | None = None,
        base_url: str | None = None,
        origin: str = "endpoint",
        secrets: Iterable[str] = (),
        exchanges: bool = True,
    ) -> Turn:
        """Writes down what is about to be asked, new messages alone, and of whom (`model` is "provider/id").

        `origin` is endpoint, simulated or replayed; none of `secrets` will be written; without `exchanges` requests
        and responses are not kept as they were on the wire.
        """
        hidden, began = tuple(secrets), utc_now()
        place = redact.redact_url(base_url, hidden) if base_url is not None else None
        with self._file.writing() as connection:
            connection.execute("INSERT OR IGNORE INTO conversations (id, began) VALUES (?, ?)", (self.id, began))
            made = connection.execute(
                "INSERT INTO turns (conversation, began, state, process, model, protocol, base_url, origin) "
                "VALUES (?, ?, 'pending', ?, ?, ?, ?, ?)",
                (self.id, began, os.getpid(), model, protocol, place, origin),
            ).lastrowid
            assert made is not None
            add_messages(connection, made, messages, hidden)
        return Turn(self._file, made, model, hidden, exchanges)
