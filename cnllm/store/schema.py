"""The tables, as a list of steps. A file of an earlier version takes the steps that it lacks.

A released step is never edited; a change is a further step.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence

__all__ = ["MARK", "STEPS", "Step", "migrate", "schema_version"]

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
"""The statements from each version to the next; the first from an empty file."""


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
    try:
        version = schema_version(connection)
        for number, step in enumerate(steps[version:], version + 1):
            for statement in step:
                connection.execute(statement)
            connection.execute(f"PRAGMA user_version = {number}")
        if schema_version(connection) > version and connection.execute("PRAGMA foreign_key_check").fetchone():
            raise sqlite3.IntegrityError("the new tables do not fit together")
        connection.execute(f"PRAGMA application_id = {mark}")
        connection.execute("COMMIT")
    except BaseException:
        connection.execute("ROLLBACK")
        raise
