"""Delete conversations. The file keeps none of their bytes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from cnllm.errors import CnllmError
from cnllm.store.records import state_of
from cnllm.store.search import unindex
from cnllm.store.text import as_text

if TYPE_CHECKING:
    from cnllm.store.file import DatabaseFile

__all__ = ["delete_conversations", "ids_before"]


def ids_before(file: DatabaseFile, time: str) -> list[str]:
    """Return the conversations whose last turn began before a time (ISO 8601, UTC), the oldest first."""
    query = "SELECT conversation FROM turns GROUP BY 1 HAVING max(began) < ? ORDER BY max(id)"
    return [as_text(row[0]) for row in file.rows(query, time)]


def delete_conversations(file: DatabaseFile, ids: Sequence[str]) -> int:
    """Delete conversations with all their turns, or none if one of them is running. Return the number of turns."""
    file.rows("PRAGMA secure_delete = ON")  # otherwise their bytes would stay until they are overwritten
    count = 0
    with file.writing() as connection:
        for id_ in ids:
            query = "SELECT id, state, process FROM turns WHERE conversation = ?"
            turns = connection.execute(query, (id_,)).fetchall()
            if any(state_of(as_text(state), process) == "running" for _, state, process in turns):
                raise CnllmError(f"conversation {id_} is being answered", hint="delete it when it is over")
            for turn, *_ in turns:
                unindex(connection, turn)
            connection.execute("DELETE FROM turns WHERE conversation = ?", (id_,))
            connection.execute("DELETE FROM conversations WHERE id = ?", (id_,))
            count += len(turns)
    file.rows("PRAGMA wal_checkpoint(TRUNCATE)")  # SQLite's log still held them
    return count
