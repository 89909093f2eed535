"""The store: find, create, list and read conversations."""

from __future__ import annotations

import os
import zlib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, get_args

from cnllm.config import paths
from cnllm.errors import CnllmError
from cnllm.store.conversation import Conversation
from cnllm.store.file import DatabaseFile
from cnllm.store.records import (
    ConversationSummary,
    Origin,
    PrefixRecord,
    RecordedConversation,
    RecordedTurn,
    TurnError,
    state_of,
    stored_cost,
)
from cnllm.store.text import as_text, from_json
from cnllm.system.closing import Closing
from cnllm.types import Note, ToolCall, Usage, checks

if TYPE_CHECKING:
    from cnllm.store.costs import CostReport, Grouping
    from cnllm.store.records import SearchHit
    from cnllm.types import Cost

__all__ = ["Store", "store_path"]

_TEXTS = ("protocol", "base_url", "finish", "raw_finish", "reply_id", "reply_model", "registry", "client", "tag", "key")
_COLUMNS = (
    *("id", "began", "model", "origin", "state", "process", "usage", "cost", "currency", "seconds", "error", "notes"),
    *("incomplete", "prefix", "bill", *_TEXTS),
)


def store_path() -> Path:
    """Return the default path of the file, whether or not it exists."""
    return paths.data_dir() / "conversations.db"


class Store(Closing):
    """An open file of conversations."""

    def __init__(self, file: DatabaseFile) -> None:
        self.file = file
        """The database."""
        self.damaged: list[str] = []
        """Values that could not be read so far, each with its place. All other values were read."""
        self.holds_deleted = False
        """Whether the files still hold bytes of what was deleted last: another process was reading them."""

    @classmethod
    def open(cls, path: str | os.PathLike[str] | None = None) -> Store:
        """Open the file. Create it if there is none, and upgrade an older version.

        In a folder that cannot be written it is opened for reading alone.
        Raise `CnllmError` for a file of a newer version, and for one that cannot be used.
        """
        if path is not None:
            checks.require_path("path", path)
            if not Path(path).name:
                raise checks.wrong_value("path", str(path), "the path of a file")
        return cls(DatabaseFile(Path(path) if path is not None else store_path(), is_read=True))

    @property
    def path(self) -> Path:
        """Return the path of the file."""
        return self.file.path

    def close(self) -> None:
        """Close the file."""
        self.file.close()

    def conversation(self, which: str | None = None, *, with_calls: bool = False) -> Conversation:
        """Return a conversation: by its id or an unambiguous prefix of it, the `"last"` one, or a new one.

        Calls of a gateway's clients, of the library and of batches cannot go on here: their words are not stored.
        `with_calls` finds them, too.
        """
        if which is not None:
            _require_text("which", which)
            which = str.__str__(which)
        return Conversation(
            self.file, os.urandom(5).hex() if which is None else self._find_id(which, with_calls=with_calls)
        )

    def _find_id(self, prefix: str, *, with_calls: bool) -> str:
        id_ = self._matching_id(prefix, with_calls=with_calls)
        if not with_calls:
            rows = self.file.execute("SELECT 1 FROM turns WHERE conversation = ? AND client IS NOT NULL LIMIT 1", id_)
            if rows:
                raise CnllmError(
                    f"conversation {id_} holds what calls cost, and its words are not stored",
                    hint="cnllm logs list shows others; without its id a new one begins",
                )
        return id_

    def _matching_id(self, prefix: str, *, with_calls: bool) -> str:
        if prefix == "last":
            query = "SELECT conversation FROM turns WHERE ? OR client IS NULL ORDER BY id DESC LIMIT 1"
            rows = self.file.execute(query, with_calls)
            if not rows:
                raise CnllmError("there is no conversation yet", hint="start one: cnllm call --model M TEXT")
            return str(rows[0][0])
        query = "SELECT id FROM conversations WHERE substr(id, 1, ?) = ? ORDER BY id LIMIT 6"
        matches = [row[0] for row in self.file.execute(query, len(prefix), prefix)] if prefix else []
        if prefix in matches:
            return prefix
        if not matches:
            raise CnllmError(f"no conversation's id begins with {prefix!r}", hint="list them with cnllm logs list")
        if len(matches) > 1:
            raise CnllmError(f"{prefix!r} may be {' or '.join(matches[:5])}", hint="use more characters of the id")
        return str(matches[0])

    # ── reading ──────────────────────────────────────────────────────────────
    def ids(self, prefix: str = "") -> list[str]:
        """Return the ids with this prefix, in the order of their first turns."""
        _require_text("prefix", prefix)
        query = "SELECT conversation FROM turns WHERE substr(conversation, 1, ?) = ? GROUP BY 1 ORDER BY min(id)"
        return [as_text(row[0]) for row in self.file.execute(query, len(prefix), prefix)]

    def summaries(self, limit: int = -1) -> list[ConversationSummary]:
        """Return summaries of the conversations, the newest first."""
        limit = _row_limit(limit)
        query = "SELECT conversation FROM turns GROUP BY 1 ORDER BY max(id) DESC LIMIT ?"
        found = [self._summary(row[0]) for row in self.file.execute(query, limit)]
        return [summary for summary in found if summary is not None]  # another process may delete some meanwhile

    def count(self) -> int:
        """Return the number of conversations with a turn."""
        return int(self.file.execute("SELECT count(DISTINCT conversation) FROM turns")[0][0])

    def summary(self, id_: str) -> ConversationSummary:
        """Return the summary of a conversation. Raises `CnllmError` where it has no turn."""
        _require_text("id_", id_)
        summary = self._summary(id_)
        if summary is None:
            raise CnllmError(f"there is no conversation {id_!r}", hint="list them with cnllm logs list")
        return summary

    def _summary(self, id_: str) -> ConversationSummary | None:
        from cnllm.store.costs import sum_costs

        with self.file.reading():
            turns = self.file.execute(
                "SELECT began, model, origin, state, process, cost, currency, bill FROM turns WHERE conversation = ? "
                "ORDER BY id",
                id_,
            )
            first = self.file.execute(
                "SELECT substr(text, 1, 500) FROM messages JOIN turns ON turns.id = turn "
                "WHERE conversation = ? AND role = 'user' ORDER BY messages.id LIMIT 1",
                id_,
            )
            costs = sum_costs(self.file, "conversation", conversation=id_)
        if not turns:
            return None
        for turn in turns:
            self._cost(turn[5], turn[6], turn[7], id_)  # names a damaged one
        return ConversationSummary(
            id=id_,
            began=as_text(turns[0][0]),
            last=as_text(turns[-1][0]),
            turns=len(turns),
            models=list(dict.fromkeys(as_text(turn[1]) for turn in turns)),
            origins=list(dict.fromkeys(self._origin(turn[2], id_) for turn in turns)),
            state=state_of(turns[-1][3], turns[-1][4], as_text(turns[-1][0])),
            prompt=as_text(first[0][0]) if first else "",
            cost=costs.total.cost,
        )

    # ── values that may be damaged ───────────────────────────────────────────
    def _origin(self, value: Any, place: str) -> Origin:
        if value in get_args(Origin):
            return value  # type: ignore[no-any-return]
        self._damage(place, "the origin")
        return "endpoint"

    def _cost(self, amount: Any, currency: Any, bill: Any, place: str) -> Cost | None:
        try:
            return stored_cost(amount, currency, bill)
        except ValueError:
            self._damage(place, "the cost")
            return None

    def _json(self, data: Any, kind: Any, default: Any, place: str, label: str) -> Any:
        """Decode JSON of the file into a value of a kind. Return `default` where it is absent or damaged."""
        if data is None or data == "":
            return default
        try:
            return from_json(data, kind)
        except (ValueError, TypeError, RecursionError):
            self._damage(place, label)
            return default

    def _damage(self, place: str, label: str) -> None:
        if (line := f"{place}: {label} cannot be read") not in self.damaged:
            self.damaged.append(line)

    def _messages(self, rows: Sequence[Any], place: str) -> list[dict[str, Any]]:
        messages = [self._json(data, dict[str, Any], {}, place, f"message {number}") for number, data in rows]
        if any(data is None or data == "" for _, data in rows):
            self._damage(place, "a message")
        return [message for message in messages if message]

    def _exchange(self, entry: Any, place: str) -> dict[str, Any] | None:
        try:
            text = zlib.decompress(entry)
        except (zlib.error, TypeError):
            self._damage(place, "an exchange")
            return None
        return self._json(text, dict[str, Any], None, place, "an exchange")  # type: ignore[no-any-return]

    def records(self, ids: Sequence[str] | None = None, *, exchanges: bool = False) -> Iterator[RecordedConversation]:
        """Yield whole conversations: those with these ids, or all."""
        for id_ in self.ids() if ids is None else checks.as_list("ids", ids, "a list of ids"):
            _require_text("ids: one of them", id_)
            query = f"SELECT {', '.join(_COLUMNS)} FROM turns WHERE conversation = ? ORDER BY id"
            with self.file.reading():
                turns = [self._turn(turn, exchanges=exchanges) for turn in self.file.execute(query, id_)]
            if turns:
                yield RecordedConversation(id=id_, began=turns[0].began, turns=turns)

    def _turn(self, columns: Sequence[Any], *, exchanges: bool) -> RecordedTurn:
        row = dict(zip(_COLUMNS, columns, strict=True))
        number, seconds, place = row["id"], row["seconds"], f"turn {row['id']}"
        messages = self.file.execute("SELECT id, data FROM messages WHERE turn = ? ORDER BY id", number)
        stored = (
            self.file.execute("SELECT entry FROM exchanges WHERE turn = ? ORDER BY id", number) if exchanges else ()
        )
        entries = [self._exchange(entry, place) for (entry,) in stored]
        return RecordedTurn(
            number=number,
            began=as_text(row["began"]),
            model=as_text(row["model"]),
            origin=self._origin(row["origin"], place),
            state=state_of(row["state"], row["process"], as_text(row["began"])),
            messages=self._messages(messages, place),
            usage=self._json(row["usage"], Usage, None, place, "the usage"),
            cost=self._cost(row["cost"], row["currency"], row["bill"], place),
            seconds=seconds if isinstance(seconds, int | float) else None,
            error=self._json(row["error"], TurnError, None, place, "the error"),
            notes=self._json(row["notes"], list[Note], [], place, "the notes"),
            incomplete=self._json(row["incomplete"], list[ToolCall], [], place, "the incomplete calls"),
            prefix=self._json(row["prefix"], PrefixRecord, None, place, "the prefix"),
            exchanges=[entry for entry in entries if entry is not None],
            **{name: None if row[name] is None else as_text(row[name]) for name in _TEXTS},
        )

    def prompts(self, limit: int) -> list[str]:
        """Return the last questions of all conversations, the newest one at the end."""
        limit = _row_limit(limit)
        rows = self.file.execute("SELECT text FROM messages WHERE role = 'user' ORDER BY id DESC LIMIT ?", limit)
        return [as_text(row[0]) for row in reversed(rows) if row[0]]

    def costs(self, by: Grouping = "model", *, since: str | None = None, conversation: str | None = None) -> CostReport:
        """Sum the tokens and costs of turns in groups; `since` is a time (ISO 8601, UTC)."""
        if conversation is not None:
            _require_text("conversation", conversation)
        from cnllm.store.costs import sum_costs

        return sum_costs(self.file, by, since, conversation)

    def ids_before(self, time: str) -> list[str]:
        """Return the conversations whose last turn began before a time (ISO 8601, UTC), the oldest first."""
        query = "SELECT conversation FROM turns GROUP BY 1 HAVING max(began) < ? ORDER BY max(id)"
        return [as_text(row[0]) for row in self.file.execute(query, time)]

    def delete(self, ids: Sequence[str]) -> int:
        """Delete conversations with all their turns, or none if one of them is running. Return the number of turns.

        The file keeps none of their bytes, unless another process is reading it: see `holds_deleted`.
        """
        from cnllm.store.search import unindex

        ids = checks.as_list("ids", ids, "a list of ids")
        for id_ in ids:
            _require_text("ids: one of them", id_)
        self.file.execute("PRAGMA secure_delete = ON")  # otherwise their bytes would stay until they are overwritten
        count = 0
        with self.file.writing() as connection:
            for id_ in ids:
                query = "SELECT id, state, process, began FROM turns WHERE conversation = ?"
                turns = connection.execute(query, (id_,)).fetchall()
                states = {state_of(as_text(state), process, as_text(began)) for _, state, process, began in turns}
                if "running" in states:
                    raise CnllmError(f"conversation {id_} is being answered", hint="delete it when it is over")
                for turn, *_ in turns:
                    unindex(connection, turn)
                connection.execute("DELETE FROM turns WHERE conversation = ?", (id_,))
                connection.execute("DELETE FROM conversations WHERE id = ?", (id_,))
                count += len(turns)
        self.holds_deleted = not self.file.empty_log()  # SQLite's log still held them
        return count

    def search(self, words: Sequence[str], limit: int = -1) -> list[SearchHit]:
        """Return the messages that contain all these words, in text or reasoning, the newest first."""
        from cnllm.store.search import search

        words = checks.as_list("words", words, "a list of words")
        for word in words:
            _require_text("words: one of them", word)
        return search(self.file, words, _row_limit(limit))


def _require_text(name: str, value: Any) -> None:
    """Raise `TypeError` or `CnllmError` for a value that no text column can hold."""
    checks.require_text(name, value)
    try:
        value.encode()
    except UnicodeEncodeError:
        raise CnllmError(f"{value!r} is not UTF-8", hint="set LANG to a UTF-8 locale") from None


def _row_limit(value: Any) -> int:
    """Return a number of rows, negative for all."""
    checks.number("limit", value, -(2**63))
    return min(int(value), 2**63 - 1)
