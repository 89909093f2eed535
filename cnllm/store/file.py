"""The database file: private, in WAL mode, upgraded to this version. Its failures become `CnllmError`."""

from __future__ import annotations

import os
import sqlite3
import time
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from pathlib import Path

from cnllm.config import paths
from cnllm.errors import CnllmError
from cnllm.system import files
from cnllm.system.sqlite import Database, is_busy, read_mark, try_again

__all__ = ["MARK", "STEPS", "DatabaseFile", "Step", "migrate", "schema_version"]

# ── the tables of conversations ──────────────────────────────────────────────

MARK = 0x636E6C6D
"""The file's `application_id` ("cnlm"), which distinguishes it from other SQLite files."""

Step = Sequence[str]

STEPS: Sequence[Step] = (
    (
        # Times are ISO 8601 in UTC; structured values are JSON.
        "CREATE TABLE conversations (id TEXT PRIMARY KEY, began TEXT NOT NULL) WITHOUT ROWID",
        """CREATE TABLE turns (
            id INTEGER PRIMARY KEY AUTOINCREMENT,
            conversation TEXT NOT NULL REFERENCES conversations ON DELETE CASCADE,
            began TEXT NOT NULL,
            state TEXT NOT NULL,       -- pending, done, partial, failed or interrupted
            process INTEGER,           -- whose turn it is while it is pending
            model TEXT NOT NULL,       -- PROVIDER/ID
            protocol TEXT,             -- where it was chosen: another wire,
            base_url TEXT,             -- or another place
            origin TEXT NOT NULL,      -- endpoint, simulated or replayed
            finish TEXT,
            raw_finish TEXT,
            reply_id TEXT,
            reply_model TEXT,          -- as the endpoint called it
            usage TEXT,
            cost TEXT,
            currency TEXT,
            seconds REAL,
            error TEXT,                -- type and message
            notes TEXT,
            incomplete TEXT            -- calls that were cut off
        )""",
        "CREATE INDEX turns_of ON turns (conversation)",
        """CREATE TABLE messages (
            id INTEGER PRIMARY KEY AUTOINCREMENT,
            turn INTEGER NOT NULL REFERENCES turns ON DELETE CASCADE,
            role TEXT NOT NULL,
            data TEXT NOT NULL,        -- Message.to_dict(), reasoning and seals included
            text TEXT NOT NULL,        -- the same once more, to be searched
            reasoning TEXT NOT NULL
        )""",
        "CREATE INDEX messages_of ON messages (turn)",
        """CREATE TABLE exchanges (
            id INTEGER PRIMARY KEY AUTOINCREMENT,
            turn INTEGER NOT NULL REFERENCES turns ON DELETE CASCADE,
            entry BLOB NOT NULL        -- a line of a cassette: request and response; zlib's
        )""",
        "CREATE INDEX exchanges_of ON exchanges (turn)",
    ),
    ("ALTER TABLE turns ADD COLUMN registry TEXT",),  # the version of the data on the endpoint
    (
        "ALTER TABLE turns ADD COLUMN client TEXT",  # the protocol of a gateway's client; its turns have no messages
        "ALTER TABLE turns ADD COLUMN tag TEXT",  # the name of the client's key
        "ALTER TABLE turns ADD COLUMN prefix TEXT",  # whether the request began as the one before it
    ),
    ("ALTER TABLE turns ADD COLUMN bill TEXT",),  # the cost with what it leaves out, where that is more than an amount
    (
        "CREATE TABLE prices (id INTEGER PRIMARY KEY, data TEXT NOT NULL UNIQUE)",  # as the registry had them; JSON
        "ALTER TABLE turns ADD COLUMN price INTEGER REFERENCES prices",  # the one in force when the request was sent
    ),
    (
        "ALTER TABLE turns ADD COLUMN key TEXT",  # the name of a client's key at a gateway; `tag` is the caller's own
        "UPDATE turns SET key = tag WHERE client IS NOT NULL",
    ),
)
"""The statements from each version to the next; the first from an empty file.

A released step is never edited; a change is a further step.
"""


def schema_version(connection: sqlite3.Connection) -> int:
    """Return the version of an open file; 0 for an empty one."""
    version: int = connection.execute("PRAGMA user_version").fetchone()[0]
    return version


def migrate(connection: sqlite3.Connection, steps: Sequence[Step] = STEPS, mark: int = MARK) -> None:
    """Apply the steps that the file lacks: all of them, or none if one fails or leaves a broken reference.

    Foreign keys are off meanwhile: otherwise a step that rebuilds a table would delete the rows that refer to it.
    """
    connection.execute("PRAGMA foreign_keys = OFF")
    connection.execute("BEGIN IMMEDIATE")
    with connection:  # which commits, or rolls back
        version = schema_version(connection)
        for number, step in enumerate(steps[version:], version + 1):
            for statement in step:
                connection.execute(statement)
            connection.execute(f"PRAGMA user_version = {number}")
        if schema_version(connection) > version and connection.execute("PRAGMA foreign_key_check").fetchone():
            raise sqlite3.IntegrityError("the new tables do not fit together")
        connection.execute(f"PRAGMA application_id = {mark}")


# ── the file ─────────────────────────────────────────────────────────────────

BUSY_SECONDS = 5.0
"""Seconds that a writer waits for other writers, unless it sets its own."""
_TRY_MILLISECONDS = 5
_CHECKPOINT_SECONDS = 0.1  # that the end of a checkpoint waits for readers and writers


class DatabaseFile(Database):
    """An open file, in WAL mode."""

    def __init__(
        self,
        path: Path,
        *,
        mark: int = MARK,
        steps: Sequence[Step] | None = None,
        threads: bool = False,
        busy_seconds: float | None = None,
        checkpoints: bool = True,
        is_read: bool = False,
    ) -> None:
        """Open or create the file of these tables: those of conversations, unless `mark` and `steps` name others.

        With `threads` any thread may use it, one at a time. A write waits `busy_seconds` for other processes. Without
        `checkpoints` no write moves the log of writes into the file: the owner calls `checkpoint`. One that `is_read`
        is opened for reading alone where nothing can be written beside it.
        """
        self._place = os.path.abspath(path)  # the program may go to another folder
        self._mark = mark
        self._steps = STEPS if steps is None else steps
        self._checkpoints = checkpoints
        self._is_read = is_read
        self._waits = True
        self.id: tuple[int, int] | None = None
        """The device and the inode of the file that was opened: a file that takes its path later has others."""
        hint = f"check the free disk space and the permissions of {path.parent}"
        super().__init__(path, BUSY_SECONDS if busy_seconds is None else busy_seconds, hint, is_bound=not threads)

    def drop_inherited(self) -> None:
        """Leave the connection to the parent, a thread of which may have been in `without_waiting`."""
        self._waits = True
        super().drop_inherited()

    @contextmanager
    def reading(self) -> Iterator[None]:
        """Let all queries see the same state of the file, whatever others write meanwhile. Nobody waits for it."""
        with self.using() as connection:
            if connection.in_transaction:  # a part of a greater one
                yield
                return
            connection.execute("BEGIN")
            with connection:
                yield

    def _require_place(self) -> None:
        """Raise `CnllmError` where the path leads to this file no more: nobody would find what is written to it."""
        if self.id != files.file_id(self._place):
            raise CnllmError(f"{self.path} was moved or deleted while it was open", hint="start this program again")

    def _begin(self, connection: sqlite3.Connection) -> None:
        """Begin a write, after those of other processes. Raise as `_require_place` does.

        SQLite's own wait tries again after up to 100 ms. Beside processes that write all the time it can be late each
        time, so this one tries again every few milliseconds.
        """
        self._require_place()
        if not self._waits:
            connection.execute("BEGIN IMMEDIATE")
            return
        connection.execute(f"PRAGMA busy_timeout = {_TRY_MILLISECONDS}")
        try:
            try_again(lambda: connection.execute("BEGIN IMMEDIATE"), self._seconds, pause=0.0)
        finally:
            connection.execute(f"PRAGMA busy_timeout = {round(self._seconds * 1000)}")

    @contextmanager
    def without_waiting(self) -> Iterator[None]:
        """Let what follows fail at once where another process or connection is in its way."""
        self.execute("PRAGMA busy_timeout = 0")
        self._waits = False
        try:
            yield
        finally:
            self._waits = True
            self.execute(f"PRAGMA busy_timeout = {round(self._seconds * 1000)}")

    def empty_log(self) -> bool:
        """Move the log of writes into the file, and empty it. Return whether it is empty: readers may need it.

        It tries again and again instead of one long wait, for which SQLite would keep writers out.
        """
        deadline = time.monotonic() + self._seconds
        with self.without_waiting():
            while self.execute("PRAGMA wal_checkpoint(TRUNCATE)")[0][0]:
                if time.monotonic() > deadline:
                    return False
                time.sleep(_TRY_MILLISECONDS / 1000)
        return True

    @property
    def log_size(self) -> int:
        """Return the bytes of the log of writes beside the file."""
        try:
            return os.stat(_side_file(self.path, "-wal")).st_size
        except FileNotFoundError:
            return 0

    def checkpoint(self) -> None:
        """Move the log of writes into the file, and empty it, where no other process is in the way.

        Any thread may do so while another one uses the file: most of it is moved while others write, and only the rest
        makes them wait.
        """
        address = f"{self.path.absolute().as_uri()}?mode=rw"  # of a file that is there
        with (
            self._guard(),
            closing(sqlite3.connect(address, timeout=_CHECKPOINT_SECONDS, uri=True)) as connection,
        ):
            for mode in ("PASSIVE", "TRUNCATE"):
                connection.execute(f"PRAGMA wal_checkpoint({mode})")

    def _connect(self) -> sqlite3.Connection:
        try:
            return super()._connect()
        except (sqlite3.OperationalError, OSError):
            folder = os.path.dirname(_side_file(self.path, ""))
            if not self._is_read or not self.path.exists() or os.access(folder, os.W_OK):
                raise
        query = "mode=ro" if self.log_size else "mode=ro&immutable=1"  # which needs no files beside it
        address = f"{self.path.absolute().as_uri()}?{query}"
        connection = sqlite3.connect(address, uri=True, isolation_level=None, check_same_thread=False)
        try:
            if self._read_version(connection) < len(self._steps):
                raise CnllmError(
                    f"{self.path} was written by an older cnllm, and its folder cannot be written",
                    hint="set CNLLM_DATA_DIR to a copy of the folder",
                )
        except BaseException:
            connection.close()
            raise
        self.id = files.file_id(self.path)
        return connection

    def _create(self) -> None:
        if self.id is None:
            files.make_private_folder(self.path.parent, narrow=self.path.parent == paths.data_dir())
            files.create_private_file(self.path, of_folder=True)
            self.id = files.file_id(self.path)

    def _prepare(self, connection: sqlite3.Connection) -> None:
        """Bring the file to this version."""
        # A commit survives a crash of the process. A power failure may lose the last commits, but no other data.
        connection.execute("PRAGMA synchronous = NORMAL")
        if not self._checkpoints:
            connection.execute("PRAGMA wal_autocheckpoint = 0")
        version = self._read_version(connection)
        _narrow(self.path)
        if version < len(self._steps) or connection.execute("PRAGMA journal_mode").fetchone()[0] != "wal":
            self._upgrade(connection)
        connection.execute("PRAGMA foreign_keys = ON")
        if not self._waits:
            connection.execute("PRAGMA busy_timeout = 0")

    def _read_version(self, connection: sqlite3.Connection) -> int:
        """Return the version of our file. From now on, bad bytes in a row are replaced, so that they hide no other."""
        connection.text_factory = lambda data: data.decode("utf-8", "replace")
        connection.execute("BEGIN")
        with connection:
            version, is_ours = read_mark(connection, self._mark)
        newest = len(self._steps)
        if version > newest:
            raise CnllmError(
                f"{self.path} was written by a newer cnllm (version {version}; this one reads up to {newest})",
                hint="upgrade cnllm, or move that file away",
            )
        if not is_ours:
            raise CnllmError(f"{self.path} is a database of another program", hint="move it to another place")
        return version

    def _upgrade(self, connection: sqlite3.Connection) -> None:
        """Switch to WAL mode and create this version's tables. Of several processes that start at once, one does it."""

        def work() -> None:
            connection.execute("PRAGMA journal_mode = WAL")
            migrate(connection, self._steps, self._mark)

        try_again(work, self._seconds)

    def _readable(self, error: sqlite3.Error | OSError) -> CnllmError:
        if isinstance(error, sqlite3.OperationalError) and is_busy(error):
            return CnllmError(f"another process has locked {self.path}", hint="try again")
        if isinstance(error, OSError | sqlite3.OperationalError | sqlite3.ProgrammingError):
            return super()._readable(error)
        return CnllmError(f"{self.path} cannot be used: {error}", hint="move it to another place to start a new one")


def _narrow(path: Path) -> None:
    """Make a file that others can read private, with SQLite's files beside it."""
    for suffix in ("", "-wal", "-shm", "-journal"):
        with suppress(FileNotFoundError):
            files.restrict_mode(_side_file(path, suffix))  # ours: it is empty or has the mark of our databases


def _side_file(path: Path, suffix: str) -> str:
    """Return a file of SQLite's own. Where `path` is a link it stands beside the database, and not beside the link."""
    return f"{os.path.realpath(path)}{suffix}"
