"""One question and its answer, written before the request is sent and again at the end."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Self

import msgspec

from cnllm.config import redact
from cnllm.errors import CnllmError, EndpointError, LoopStopped, StreamCut, TransportError
from cnllm.store.records import WHOLE_FINISHES, TurnError, cost_columns
from cnllm.store.text import as_json, encodable_text
from cnllm.types import Message, Reply, ToolResult

if TYPE_CHECKING:
    import sqlite3

    from cnllm.store.file import DatabaseFile

__all__ = ["Turn", "add_messages", "delete_turn"]

_SENT_ERRORS = (EndpointError, TransportError, StreamCut, LoopStopped)


class Turn:
    """A turn that has begun. An exception in its `with` block ends it as `fail` does.

    Without `finish` or `fail` it counts as interrupted.
    """

    def __init__(
        self, file: DatabaseFile, number: int, model: str, secrets: tuple[str, ...], *, exchanges: bool
    ) -> None:
        self.number = number
        self.model = model
        self._file = file
        self._secrets = secrets
        self._exchanges: list[Mapping[str, Any]] | None = [] if exchanges else None
        self._start = time.monotonic()
        self._open = True

    def exchange(self, entry: Mapping[str, Any]) -> None:
        """Add a redacted request with its response, as `cnllm.cassette.Recorder` passes it."""
        if self._exchanges is not None:
            self._exchanges.append(entry)

    def finish(self, reply: Reply, messages: Sequence[Message] | None = None) -> None:
        """End the turn with its answer, whole or partial. `messages` are all new messages of a tool loop."""
        self._end(reply, None, messages)

    def fail(
        self,
        error: BaseException,
        reply: Reply | None = None,
        messages: Sequence[Message] | None = None,
        *,
        void: bool = False,
    ) -> None:
        """End the turn with an error; `reply` is the partial answer. A turn that was never sent is deleted.

        A `void` turn can be read, but the conversation does not continue from it.
        """
        reply = reply or getattr(error, "reply", None)
        if isinstance(error, CnllmError) and not isinstance(error, _SENT_ERRORS) and reply is None and not messages:
            self.forget()
        else:
            self._end(reply, error, messages, void=void)

    def forget(self) -> None:
        """Delete the turn, and its conversation if it has no other turn."""
        self._open = False
        delete_turn(self._file, self.number)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, _kind: object, error: BaseException | None, _trace: object) -> None:
        if self._open:
            self.fail(error or InterruptedError("the turn was closed before its end"))

    # ── writing ──────────────────────────────────────────────────────────────
    def _end(
        self,
        reply: Reply | None,
        error: BaseException | None,
        messages: Sequence[Message] | None = None,
        *,
        void: bool = False,
    ) -> None:
        if not self._open:
            return
        self._open = False
        new_messages = (
            [reply.message] if messages is None and reply is not None and _has_content(reply) else list(messages or ())
        )
        row = {
            "state": "failed" if void else _state(reply, error, partial=bool(new_messages)),
            "seconds": round(time.monotonic() - self._start, 3),
            "process": None,
        }
        if error is not None:
            row["error"] = self._json(_failure(error))
        if reply is not None:
            row |= self._reply_columns(reply)
        elif isinstance(error, CnllmError):
            row |= cost_columns(error.cost)
        with self._file.writing() as connection:
            names = ", ".join(f"{name} = ?" for name in row)
            count = connection.execute(f"UPDATE turns SET {names} WHERE id = ?", (*row.values(), self.number)).rowcount
            if not count:
                raise CnllmError("its turn was deleted before it ended", hint="the next one is logged again")
            add_messages(connection, self.number, new_messages, self._secrets)
            echoed = any(_holds_secret(message, self._secrets) for message in new_messages)
            for entry in self._exchanges or ():
                self._insert_exchange(connection, _without_chunks(entry) if echoed else entry)

    def _reply_columns(self, reply: Reply) -> dict[str, Any]:
        names = {"raw_finish": reply.raw_finish, "reply_id": reply.id, "reply_model": reply.model}
        return {
            "finish": reply.finish,
            **{name: text and encodable_text(redact.redact(text, self._secrets)) for name, text in names.items()},
            "usage": as_json(reply.usage),
            **cost_columns(reply.cost),
            "notes": self._json(reply.notes),
            "incomplete": self._json(reply.incomplete),
            "registry": reply.registry or None,
        }

    def _json(self, value: Any) -> str:
        return as_json(redact.redact_data(msgspec.to_builtins(value), self._secrets))

    def _insert_exchange(self, connection: sqlite3.Connection, entry: Mapping[str, Any]) -> None:
        import zlib  # the chunks of a stream repeat each other: compression leaves a tenth

        compressed = zlib.compress(as_json(entry).encode(), 3)
        connection.execute("INSERT INTO exchanges (turn, entry) VALUES (?, ?)", (self.number, compressed))


def delete_turn(file: DatabaseFile, number: int) -> None:
    """Delete a turn, and its conversation if it has no other turn. The file keeps none of its bytes."""
    from cnllm.store.search import unindex

    file.execute("PRAGMA secure_delete = ON")  # otherwise its bytes would stay in the file until they are overwritten
    with file.writing() as connection:
        unindex(connection, number)
        connection.execute("DELETE FROM turns WHERE id = ?", (number,))
        connection.execute("DELETE FROM conversations WHERE id NOT IN (SELECT conversation FROM turns)")


def add_messages(
    connection: sqlite3.Connection, turn: int, messages: Sequence[Message], secrets: tuple[str, ...]
) -> None:
    """Add messages to a turn, without secrets."""
    for message in messages:
        results = [part.text for part in message.parts if type(part) is ToolResult]
        texts = ["\n".join(filter(None, [message.text, *results])), message.reasoning]
        connection.execute(
            "INSERT INTO messages (turn, role, data, text, reasoning) VALUES (?, ?, ?, ?, ?)",
            (
                turn,
                message.role,
                as_json(redact.redact_data(message.to_dict(), secrets)),
                *(encodable_text(redact.redact(text, secrets)) for text in texts),
            ),
        )


def _failure(error: BaseException) -> TurnError:
    """Return the record of an error."""
    charged = error.meaning.charged if isinstance(error, CnllmError) else None
    return TurnError(type(error).__name__, str(error), charged)


def _holds_secret(message: Message, secrets: tuple[str, ...]) -> bool:
    """Whether a message holds a secret. A stream then holds it in pieces, where a search cannot find it."""
    return bool(secrets) and bool(redact.secret_spans(as_json(message.to_dict()), secrets))


def _without_chunks(entry: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return an exchange without the response's chunks."""
    response = entry.get("response")
    return entry if response is None else {**entry, "response": {**response, "chunks": [redact.MARK]}}


def _has_content(reply: Reply) -> bool:
    """Whether a later turn can continue from this reply."""
    return bool(reply.text or reply.reasoning or reply.tool_calls)


def _state(reply: Reply | None, error: BaseException | None, *, partial: bool) -> str:
    if error is not None:
        if not isinstance(error, CnllmError):
            return "interrupted"  # Ctrl-C or a closed pipe ended it on this side
        return "partial" if partial else "failed"
    return "failed" if reply is None else "done" if reply.finish in WHOLE_FINISHES else "partial"
