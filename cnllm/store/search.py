"""Full-text search, in any script: an index of every three characters, brought up to date when it is asked.

So writing a turn pays nothing for it. Words of one or two characters (most of Chinese) are looked for one by one
among the messages, and so is everything where SQLite is older than that index (3.34) or the file cannot be written to.
"""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING

from cnllm.errors import CnllmError
from cnllm.store.records import SearchHit
from cnllm.store.text import as_text

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Sequence

    from cnllm.store.file import DatabaseFile

__all__ = ["search", "unindex"]

_SHORTEST = 3  # characters of a word that the index can find
_AROUND = 60  # characters of an excerpt on either side
_INDEX = (
    "CREATE VIRTUAL TABLE IF NOT EXISTS words USING fts5"
    "(text, reasoning, content='messages', content_rowid='id', tokenize='trigram')",
    "CREATE TABLE IF NOT EXISTS indexed (upto INTEGER NOT NULL)",
    "INSERT INTO words (rowid, text, reasoning) SELECT id, text, reasoning FROM messages "
    "WHERE id > (SELECT ifnull(max(upto), 0) FROM indexed)",
    "INSERT INTO indexed SELECT ifnull(max(id), 0) FROM messages",
    "DELETE FROM indexed WHERE upto < (SELECT max(upto) FROM indexed)",
)
_FRESH = (
    "SELECT (SELECT ifnull(max(id), 0) FROM messages) = (SELECT ifnull(max(upto), -1) FROM indexed) "
    "AND NOT EXISTS (SELECT 1 FROM words LIMIT 0)"  # which fails where SQLite knows no such index
)


def search(file: DatabaseFile, words: Sequence[str], limit: int) -> list[SearchHit]:
    """The messages that hold all the words, be it in text or reasoning, the newest first."""
    sought = [word for word in words if word]
    if not sought:
        return []
    long = [word for word in sought if len(word) >= _SHORTEST] if _indexed(file) else []
    conditions, values = [], []
    if long:
        conditions.append("messages.id IN (SELECT rowid FROM words WHERE words MATCH ?)")
        values.append(" ".join('"' + word.replace('"', '""') + '"' for word in long))
    for word in sought:
        if word not in long:
            conditions.append("(text LIKE ? ESCAPE '\\' OR reasoning LIKE ? ESCAPE '\\')")
            values += [_pattern(word)] * 2
    rows = file.rows(
        "SELECT conversation, turns.id, turns.began, model, role, text, reasoning FROM messages "
        f"JOIN turns ON turns.id = turn WHERE {' AND '.join(conditions)} ORDER BY messages.id DESC LIMIT ?",
        *values,
        limit,
    )
    return [_found(row, sought) for row in rows]


def unindex(connection: sqlite3.Connection, turn: int) -> None:
    """Drops the index if anything of a turn is in it, which no deletion would take out of it; the next search makes it.

    It is part of a transaction.
    """
    made = connection.execute("SELECT 1 FROM sqlite_master WHERE name = 'indexed'").fetchone()
    held = "SELECT 1 FROM messages, indexed WHERE turn = ? AND messages.id <= upto"
    if made and connection.execute(held, (turn,)).fetchone():
        connection.execute("DROP TABLE words")
        connection.execute("DROP TABLE indexed")


def _indexed(file: DatabaseFile) -> bool:
    """Is there an index, up to date? It is made so, where that can be done."""
    with suppress(CnllmError):  # there is none yet
        if file.rows(_FRESH)[0][0]:
            return True
    try:
        with file.writing() as connection:
            for statement in _INDEX:
                connection.execute(statement)
    except CnllmError:
        return False
    return True


def _pattern(word: str) -> str:
    for special in "\\%_":
        word = word.replace(special, f"\\{special}")
    return f"%{word}%"


def _found(row: Sequence[object], words: Sequence[str]) -> SearchHit:
    conversation, turn, began, model, role, text, reasoning = map(as_text, row)
    in_text, in_reasoning = _place(text, words), _place(reasoning, words)
    at_text = in_text is not None or in_reasoning is None
    excerpt = _excerpt(text, in_text or (0, 0)) if at_text else _excerpt(reasoning, in_reasoning or (0, 0))
    return SearchHit(
        conversation=conversation,
        turn=int(turn),
        began=began,
        model=model,
        role=role,
        where="text" if at_text else "reasoning",
        excerpt=excerpt,
    )


def _place(text: str, words: Sequence[str]) -> tuple[int, int] | None:
    """Where the first of the words is that is there, as far as letters of either case tell."""
    folded = text.lower()
    for word in words:
        at = folded.find(word.lower())
        if at >= 0:
            return at, at + len(word)
    return None


def _excerpt(text: str, place: tuple[int, int]) -> str:
    """The place with some text around it, on one line."""
    start, end = max(0, place[0] - _AROUND), place[1] + _AROUND
    shown = " ".join(text[start:end].split())
    return f"{'…' if start else ''}{shown}{'…' if end < len(text) else ''}"
