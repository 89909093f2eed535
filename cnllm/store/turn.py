"""One question and its answer, while it happens: written before it is sent, and when it is over."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

import msgspec

from cnllm.config import redact
from cnllm.errors import CnllmError, EndpointError, LoopStopped, StreamCut, TransportError
from cnllm.store.text import as_json, encodable_text
from cnllm.types import Message, Reply, ToolResult

if TYPE_CHECKING:
    import sqlite3

    from cnllm.store.file import DatabaseFile

__all__ = ["Turn", "add_messages", "delete_turn"]

_WHOLE = ("stop", "tool_calls")
_SENT = (EndpointError, TransportError, StreamCut, LoopStopped)


class Turn:
    """A turn that was begun. Leaving its `with` block by an exception ends it as `fail` does.

    Left without `finish` or `fail`, it counts as interrupted.
    """

    def __init__(self, file: DatabaseFile, number: int, model: str, secrets: tuple[str, ...], exchanges: bool) -> None:
        self.number = number
        self.model = model
        self._file = file
        self._secrets = secrets
        self._exchanges: list[Mapping[str, Any]] | None = [] if exchanges else None
        self._began = time.monotonic()
        self._open = True

    def exchange(self, entry: Mapping[str, Any]) -> None:
        """Keeps a request with its response; what `cnllm.cassette.Recorder` hands over, redacted already."""
        if self._exchanges is not None:
            self._exchanges.append(entry)

    def finish(self, reply: Reply, said: Sequence[Message] | None = None) -> None:
        """The answer came, or as much of it as will. `said` is all that came where tools were called on the way."""
        self._end(reply, None, said)

    def fail(
        self,
        error: BaseException,
        reply: Reply | None = None,
        said: Sequence[Message] | None = None,
        *,
        void: bool = False,
    ) -> None:
        """It went wrong; `reply` is what came before. A turn that was never sent is forgotten.

        A `void` turn is there to be read, but the conversation does not go on from it.
        """
        reply = reply or getattr(error, "reply", None)
        if isinstance(error, CnllmError) and not isinstance(error, _SENT) and reply is None and not said:
            self.forget()
        else:
            self._end(reply, error, said, void=void)

    def forget(self) -> None:
        """Takes it out again, and its conversation if nothing else is in that."""
        self._open = False
        delete_turn(self._file, self.number)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._open:
            self.fail(error or InterruptedError("the turn was left before its end"))

    # ── writing ──────────────────────────────────────────────────────────────
    def _end(
        self,
        reply: Reply | None,
        error: BaseException | None,
        said: Sequence[Message] | None = None,
        *,
        void: bool = False,
    ) -> None:
        if not self._open:
            return
        self._open = False
        came = [reply.message] if said is None and reply is not None and _came(reply) else list(said or ())
        row = {
            "state": "failed" if void else _state(reply, error, bool(came)),
            "seconds": round(time.monotonic() - self._began, 3),
            "process": None,
        }
        if error is not None:
            row["error"] = self._json({"type": type(error).__name__, "message": str(error)})
        if reply is not None:
            row |= self._of(reply)
        with self._file.writing() as connection:
            names = ", ".join(f"{name} = ?" for name in row)
            connection.execute(f"UPDATE turns SET {names} WHERE id = ?", (*row.values(), self.number))
            add_messages(connection, self.number, came, self._secrets)
            parrots = any(_holds(message, self._secrets) for message in came)
            for entry in self._exchanges or ():
                self._keep(connection, _without_pieces(entry) if parrots else entry)

    def _of(self, reply: Reply) -> dict[str, Any]:
        cost = reply.cost
        words = {"raw_finish": reply.raw_finish, "reply_id": reply.id, "reply_model": reply.model}
        return {
            "finish": reply.finish,
            **{name: said and encodable_text(redact.redact(said, self._secrets)) for name, said in words.items()},
            "usage": as_json(reply.usage),
            "cost": str(cost.amount) if cost else None,
            "currency": cost.currency if cost else None,
            "notes": self._json(reply.notes),
            "incomplete": self._json(reply.incomplete),
        }

    def _json(self, value: Any) -> str:
        return as_json(redact.redact_data(msgspec.to_builtins(value), self._secrets))

    def _keep(self, connection: sqlite3.Connection, entry: Mapping[str, Any]) -> None:
        import zlib  # a stream repeats itself in every piece: a tenth is left of it

        packed = zlib.compress(as_json(entry).encode(), 3)
        connection.execute("INSERT INTO exchanges (turn, entry) VALUES (?, ?)", (self.number, packed))


def delete_turn(file: DatabaseFile, number: int) -> None:
    """Takes a turn out of the file, and its conversation if nothing else is in that. Nothing of it is left behind."""
    from cnllm.store.search import unindex

    file.rows("PRAGMA secure_delete = ON")  # else its bytes would stay where they were until others come there
    with file.writing() as connection:
        unindex(connection, number)
        connection.execute("DELETE FROM turns WHERE id = ?", (number,))
        connection.execute("DELETE FROM conversations WHERE id NOT IN (SELECT conversation FROM turns)")


def add_messages(
    connection: sqlite3.Connection, turn: int, messages: Sequence[Message], secrets: tuple[str, ...]
) -> None:
    """Adds messages to a turn, without secrets."""
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


def _holds(message: Message, secrets: tuple[str, ...]) -> bool:
    """Does a message hold a secret? A stream then holds it in pieces, where it cannot be found."""
    return bool(secrets) and bool(redact.secret_spans(as_json(message.to_dict()), secrets))


def _without_pieces(entry: Mapping[str, Any]) -> Mapping[str, Any]:
    """An exchange without what the endpoint said."""
    response = entry.get("response")
    return entry if response is None else {**entry, "response": {**response, "chunks": [redact.MARK]}}


def _came(reply: Reply) -> bool:
    """Is there anything that a later turn can go on from?"""
    return bool(reply.text or reply.reasoning or reply.tool_calls)


def _state(reply: Reply | None, error: BaseException | None, came: bool) -> str:
    if error is not None:
        if not isinstance(error, CnllmError):
            return "interrupted"  # Ctrl-C, a closed pipe: it was ended on this side
        return "partial" if came else "failed"
    return "failed" if reply is None else "done" if reply.finish in _WHOLE else "partial"
