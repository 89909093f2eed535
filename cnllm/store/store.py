"""The store: finds, begins, lists and reads conversations."""

from __future__ import annotations

import os
import zlib
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from cnllm import checks, paths
from cnllm.errors import CnllmError
from cnllm.store.conversation import Conversation
from cnllm.store.file import File
from cnllm.store.text import from_json

if TYPE_CHECKING:
    from cnllm.store.records import Found, Recorded, RecordedTurn, Summary

__all__ = ["Store", "place"]

_TURN = (
    "id, began, model, origin, state, process, protocol, base_url, finish, raw_finish, reply_id, reply_model, "
    "usage, cost, currency, seconds, error, notes, incomplete"
)


def place() -> Path:
    """Where the file is unless another is named, whether or not it exists."""
    return paths.data_dir() / "conversations.db"


class Store:
    """An open file of conversations."""

    def __init__(self, file: File) -> None:
        self._file = file

    @classmethod
    def open(cls, path: str | os.PathLike[str] | None = None) -> Store:
        """Opens the file, which is made if there is none and brought to this version if it is older.

        Raises `CnllmError` for a file of a newer version, and for one that cannot be used.
        """
        if path is not None:
            checks.demand_path("path", path)
        return cls(File(Path(path) if path is not None else place()))

    @property
    def path(self) -> Path:
        """The file."""
        return self._file.path

    def close(self) -> None:
        """Closes the file."""
        self._file.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def conversation(self, which: str | None = None) -> Conversation:
        """A conversation: by its id or what no other id begins with, the `"last"` that had a turn, or a new one."""
        if which is not None:
            _demand_text("which", which)
            which = str.__str__(which)
        return Conversation(self._file, os.urandom(5).hex() if which is None else self._ident(which))

    def _ident(self, which: str) -> str:
        if which == "last":
            rows = self._file.rows("SELECT conversation FROM turns ORDER BY id DESC LIMIT 1")
            if not rows:
                raise CnllmError("there is no conversation yet", hint="begin one: cnllm call --model M TEXT")
            return str(rows[0][0])
        query = "SELECT id FROM conversations WHERE substr(id, 1, ?) = ? ORDER BY id LIMIT 6"
        found = [row[0] for row in self._file.rows(query, len(which), which)] if which else []
        if which in found:
            return which
        if not found:
            raise CnllmError(f"no conversation's id begins with {which!r}", hint="cnllm logs list shows them")
        if len(found) > 1:
            raise CnllmError(f"{which!r} may be {' or '.join(found[:5])}", hint="give more of the id")
        return str(found[0])

    # ── reading ──────────────────────────────────────────────────────────────
    def ids(self, begun: str = "") -> list[str]:
        """The ids that begin so, in the order of their first turns."""
        _demand_text("begun", begun)
        query = "SELECT conversation FROM turns WHERE substr(conversation, 1, ?) = ? GROUP BY 1 ORDER BY min(id)"
        return [row[0] for row in self._file.rows(query, len(begun), begun)]

    def summaries(self, limit: int = -1) -> list[Summary]:
        """The conversations, the last one first."""
        limit = _limit(limit)
        query = "SELECT conversation FROM turns GROUP BY 1 ORDER BY max(id) DESC LIMIT ?"
        return [self._summary(row[0]) for row in self._file.rows(query, limit)]

    def _summary(self, ident: str) -> Summary:
        from cnllm.store.records import Summary, state_of

        turns = self._file.rows(
            "SELECT began, model, origin, state, process, cost, currency FROM turns WHERE conversation = ? ORDER BY id",
            ident,
        )
        first = self._file.rows(
            "SELECT substr(text, 1, 500) FROM messages JOIN turns ON turns.id = turn "
            "WHERE conversation = ? AND role = 'user' ORDER BY messages.id LIMIT 1",
            ident,
        )
        return Summary(
            id=ident,
            began=turns[0][0],
            last=turns[-1][0],
            turns=len(turns),
            models=list(dict.fromkeys(turn[1] for turn in turns)),
            origins=list(dict.fromkeys(turn[2] for turn in turns)),
            state=state_of(*turns[-1][3:5]),
            prompt=first[0][0] if first else "",
            cost=_sums([turn[5:7] for turn in turns]),
        )

    def records(self, ids: Sequence[str] | None = None, *, exchanges: bool = False) -> Iterator[Recorded]:
        """Whole conversations, those or all, one after another."""
        from cnllm.store.records import Recorded

        for ident in self.ids() if ids is None else checks.as_list("ids", ids, "a list of ids"):
            _demand_text("ids: one of them", ident)
            turns = self._file.rows(f"SELECT {_TURN} FROM turns WHERE conversation = ? ORDER BY id", ident)
            if turns:
                yield Recorded(
                    id=ident, began=turns[0][1], turns=[self._turn(*turn, exchanges=exchanges) for turn in turns]
                )

    def _turn(
        self, number: int, began: str, model: str, origin: Any, state: str, process: int | None, *more: Any, **how: bool
    ) -> RecordedTurn:
        from cnllm.store.records import Failure, RecordedTurn, state_of
        from cnllm.types import Note, ToolCall, Usage

        protocol, base_url, finish, raw, reply_id, reply_model, usage, cost, currency, seconds, error, *rest = more
        said = self._file.rows("SELECT data FROM messages WHERE turn = ? ORDER BY id", number)
        sent = self._file.rows("SELECT entry FROM exchanges WHERE turn = ? ORDER BY id", number)
        return RecordedTurn(
            number=number,
            began=began,
            model=model,
            origin=origin,
            state=state_of(state, process),
            messages=[from_json(data) for (data,) in said],
            protocol=protocol,
            base_url=base_url,
            finish=finish,
            raw_finish=raw,
            reply_id=reply_id,
            reply_model=reply_model,
            usage=from_json(usage, Usage) if usage else None,
            cost=next(iter(_sums([(cost, currency)])), None),
            seconds=seconds,
            error=from_json(error, Failure) if error else None,
            notes=from_json(rest[0], list[Note]) if rest[0] else [],
            incomplete=from_json(rest[1], list[ToolCall]) if rest[1] else [],
            exchanges=[from_json(zlib.decompress(entry)) for (entry,) in sent] if how["exchanges"] else [],
        )

    def prompts(self, limit: int) -> list[str]:
        """What was asked last, whatever the conversation; the last one at the end."""
        limit = _limit(limit)
        rows = self._file.rows("SELECT text FROM messages WHERE role = 'user' ORDER BY id DESC LIMIT ?", limit)
        return [row[0] for row in reversed(rows) if row[0]]

    def search(self, words: Sequence[str], limit: int = -1) -> list[Found]:
        """The messages in which all these words occur, in text or reasoning, the newest first."""
        from cnllm.store.search import search

        words = checks.as_list("words", words, "a list of words")
        for word in words:
            _demand_text("words: one of them", word)
        return search(self._file, words, _limit(limit))


def _demand_text(name: str, value: Any) -> None:
    """Raise `TypeError` or `ValueError` for what no column of text can hold."""
    checks.demand_text(name, value)
    try:
        value.encode()
    except UnicodeEncodeError:
        raise checks.wrong_value(name, value, "text without half of a character") from None


def _limit(value: Any) -> int:
    """A number of rows, negative for all."""
    checks.number("limit", value, -(2**63))
    return min(int(value), 2**63 - 1)


def _sums(costs: Sequence[tuple[str | None, str | None]]) -> list[Any]:
    """What amounts of money come to, each currency by itself."""
    from decimal import Decimal

    from cnllm.types import Cost

    sums: dict[str, Decimal] = {}
    for amount, currency in costs:
        if amount is not None and currency is not None:
            sums[currency] = sums.get(currency, Decimal(0)) + Decimal(amount)
    return [Cost(amount, currency) for currency, amount in sums.items()]
