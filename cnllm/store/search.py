"""Full-text search in any script, with an index of character triples that each search updates.

So writing a turn costs nothing extra. Words of one or two characters (most of Chinese) are searched without the index,
and so is every word where SQLite is older than that index (3.34) or the file is read-only.
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

_MIN_INDEXED = 3  # characters of a word that the index can find
_EXCERPT_MARGIN = 60  # characters of an excerpt on either side
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
    "AND NOT EXISTS (SELECT 1 FROM words LIMIT 0)"  # this fails where SQLite lacks the index
)


def search(file: DatabaseFile, words: Sequence[str], limit: int) -> list[SearchHit]:
    """Return the messages that contain all the words, in text or reasoning, the newest first."""
    terms = [word for word in words if word]
    if not terms:
        return []
    _update_index(file)
    with file.reading():  # another process may drop the index, or add messages to the file
        indexed_terms = [word for word in terms if len(word) >= _MIN_INDEXED] if _is_fresh(file) else []
        conditions, values = [], []
        if indexed_terms:
            conditions.append("messages.id IN (SELECT rowid FROM words WHERE words MATCH ?)")
            values.append(" ".join('"' + word.replace('"', '""') + '"' for word in indexed_terms))
        for word in terms:
            if word not in indexed_terms:
                conditions.append("(text LIKE ? ESCAPE '\\' OR reasoning LIKE ? ESCAPE '\\')")
                values += [_like_pattern(word)] * 2
        rows = file.execute(
            "SELECT conversation, turns.id, turns.began, model, role, text, reasoning FROM messages "
            f"JOIN turns ON turns.id = turn WHERE {' AND '.join(conditions)} ORDER BY messages.id DESC LIMIT ?",
            *values,
            limit,
        )
    return [_search_hit(row, terms) for row in rows]


def unindex(connection: sqlite3.Connection, turn: int) -> None:
    """Drop the index if it contains a message of this turn, because a deletion would not remove it there.

    The next search builds the index again. The caller's transaction includes this.
    """
    exists = connection.execute("SELECT 1 FROM sqlite_master WHERE name = 'indexed'").fetchone()
    query = "SELECT 1 FROM messages, indexed WHERE turn = ? AND messages.id <= upto"
    if exists and connection.execute(query, (turn,)).fetchone():
        connection.execute("DROP TABLE words")
        connection.execute("DROP TABLE indexed")


def _is_fresh(file: DatabaseFile) -> bool:
    """Whether the index is there and holds all messages."""
    try:
        return bool(file.execute(_FRESH)[0][0])
    except CnllmError:
        return False


def _update_index(file: DatabaseFile) -> None:
    """Update the index where that is possible."""
    if _is_fresh(file):
        return
    with suppress(CnllmError), file.writing() as connection:
        for statement in _INDEX:
            connection.execute(statement)


def _like_pattern(word: str) -> str:
    for special in "\\%_":
        word = word.replace(special, f"\\{special}")
    return f"%{word}%"


def _search_hit(row: Sequence[object], words: Sequence[str]) -> SearchHit:
    conversation, turn, began, model, role, text, reasoning = map(as_text, row)
    in_text, in_reasoning = _first_match(text, words), _first_match(reasoning, words)
    text_matches = in_text is not None or in_reasoning is None
    excerpt = _excerpt(text, in_text or (0, 0)) if text_matches else _excerpt(reasoning, in_reasoning or (0, 0))
    return SearchHit(
        conversation=conversation,
        turn=int(turn),
        began=began,
        model=model,
        role=role,
        where="text" if text_matches else "reasoning",
        excerpt=excerpt,
    )


def _first_match(text: str, words: Sequence[str]) -> tuple[int, int] | None:
    """Return the span of the first word that occurs, ignoring case."""
    lower_text = text.lower()
    for word in words:
        start = lower_text.find(word.lower())
        if start >= 0:
            return start, start + len(word)
    return None


def _excerpt(text: str, span: tuple[int, int]) -> str:
    """Return the place with some text around it, on one line."""
    start, end = max(0, span[0] - _EXCERPT_MARGIN), span[1] + _EXCERPT_MARGIN
    excerpt = " ".join(text[start:end].split())
    return f"{'…' if start else ''}{excerpt}{'…' if end < len(text) else ''}"
