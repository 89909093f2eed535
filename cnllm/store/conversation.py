"""A conversation: its messages so far, and its next turns."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

import msgspec

from cnllm.config import redact
from cnllm.errors import CnllmError
from cnllm.store.records import price_column
from cnllm.store.text import encodable_text, from_json, utc_now
from cnllm.store.turn import Turn, add_messages, delete_turn
from cnllm.types import Message

if TYPE_CHECKING:
    from cnllm.store.file import DatabaseFile

__all__ = ["Conversation", "LastOrigin", "order_messages"]


def order_messages(messages: Sequence[Message]) -> list[Message]:
    """Return the messages as they are sent. Only the last system message counts, and it goes first."""
    systems = [message for message in messages if message.role == "system"]
    return [*systems[-1:], *(message for message in messages if message.role != "system")]


class LastOrigin(msgspec.Struct, frozen=True):
    """The model of the last turn, with its protocol and base URL if the user chose them."""

    model: str
    protocol: str | None
    base_url: str | None


class Conversation:
    """One conversation. A new one is in the file as soon as its first turn is."""

    def __init__(self, file: DatabaseFile, id_: str) -> None:
        self._file = file
        self.id = id_

    def messages(self, *more: Message) -> list[Message]:
        """Return all messages in order, then `more`. Only the last system message counts, and it goes first.

        A question that was refused is left out, so that it is not refused again. One whose turn was interrupted stays.
        """
        return order_messages([*(message for _, messages in self.turns() for message in messages), *more])

    def turns(self) -> list[tuple[int, list[Message]]]:
        """Return the turns behind `messages`: the number and the messages of each."""
        rows = self._file.execute(
            "SELECT turns.id, messages.id, data FROM messages JOIN turns ON turns.id = turn WHERE conversation = ? "
            "AND state <> 'failed' ORDER BY turns.id, messages.id",
            self.id,
        )
        turns: dict[int, list[Message]] = {}
        for number, message_id, data in rows:
            try:
                message = Message.from_dict(from_json(data, dict[str, Any]))
            except (ValueError, TypeError, LookupError, AttributeError, RecursionError) as error:
                raise CnllmError(
                    f"{self._file.path}: message {message_id} in turn {number} of conversation {self.id} is unreadable",
                    hint="start a new conversation, or continue another one: list them with cnllm logs list",
                ) from error
            turns.setdefault(number, []).append(message)
        return list(turns.items())

    def forget(self, number: int) -> None:
        """Delete a turn, and the conversation if it has no other turn."""
        delete_turn(self._file, number)

    def last(self) -> LastOrigin | None:
        """Return the model of the last turn; None where there is no turn yet."""
        rows = self._file.execute(
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
        price: object = None,
        tag: str | None = None,
    ) -> Turn:
        """Write down the new messages that are about to be sent, and the model (`model` is "provider/id").

        `origin` is endpoint, simulated or replayed. None of `secrets` will be written. Without `exchanges` raw requests
        and responses are not stored. `price` is that of the model now, a table of the registry. `tag` is a name by
        which costs are summed.
        """
        secret_values, now = tuple(secrets), utc_now()
        public_url = redact.redact_url(base_url, secret_values) if base_url is not None else None
        with self._file.writing() as connection:
            connection.execute("INSERT OR IGNORE INTO conversations (id, began) VALUES (?, ?)", (self.id, now))
            turn_id = connection.execute(
                "INSERT INTO turns (conversation, began, state, process, model, protocol, base_url, origin, price, "
                "tag) VALUES (?, ?, 'pending', ?, ?, ?, ?, ?, ?, ?)",
                (
                    *(self.id, now, os.getpid(), model, protocol, public_url, origin),
                    *(price_column(connection, price), tag and encodable_text(tag)),
                ),
            ).lastrowid
            assert turn_id is not None
            add_messages(connection, turn_id, messages, secret_values)
        return Turn(self._file, turn_id, model, secret_values, exchanges=exchanges)
