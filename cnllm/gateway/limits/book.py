"""The book of keys: what each key and team may do and how it was used, for all processes that share a store."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from cnllm.errors import CnllmError
from cnllm.gateway.limits.account import Grant, Operation
from cnllm.gateway.limits.key_use import KeyUse
from cnllm.gateway.limits.keys import KeyRecord, Rights

__all__ = ["AsyncKeyBook", "KeyBook", "check_book", "open_book"]


class AsyncKeyBook(Protocol):
    """The book for a gateway. All methods raise `CnllmError` where the store fails."""

    async def find(self, digest: str) -> Rights | None:
        """Return the rights of a key by its digest; None for an unknown one."""

    async def update(self, digest: str, operation: Operation) -> Grant:
        """Carry out an operation of a worker on the account of a key, or of a team by its `team_digest`."""

    async def aclose(self) -> None:
        """Close files and connections."""


class KeyBook(Protocol):
    """The book for the command line. All methods raise `CnllmError` where the store fails.

    The name of a team is its `team_digest` here, so that a key and a team may be called the same.
    """

    def add(self, digest: str, record: KeyRecord) -> None:
        """Add a key or a team, or replace the record of a key in a file. Raise `CnllmError` for a name in use."""

    def change(self, name: str, change: Callable[[KeyRecord], KeyRecord]) -> KeyRecord:
        """Change the record of a name, and return the new one. Raise `CnllmError` where there is none.

        `change` may be called several times. A revoked record has no name.
        """

    def revoke(self, name: str) -> KeyRecord:
        """Revoke the key of a name. Raise `CnllmError` where there is none."""

    def get(self, name: str) -> KeyRecord | None:
        """Return the record of a name in use; None where there is none."""

    def uses(self, *, teams: bool = False) -> list[KeyUse]:
        """Return all keys, or all teams, with their use, the oldest first."""

    def is_empty(self) -> bool:
        """Whether no key was ever added."""

    def coroutines(self) -> AsyncKeyBook:
        """Return the book for a gateway."""

    def close(self) -> None:
        """Close files and connections."""


def open_book(url: str | None) -> KeyBook | None:
    """Return the book beside the store of a URL; None for the memory of a process, which others cannot see.

    Raise `CnllmError` for a URL that names no store.
    """
    if url is None or url in ("memory", "memory:"):
        return None
    scheme, separator, rest = url.partition(":")
    if separator and scheme == "sqlite":
        from cnllm.gateway.limits.sqlite_book import SqliteBook, book_path

        return SqliteBook(book_path(rest.removeprefix("//") or None))
    if separator and scheme in ("redis", "rediss", "unix"):
        from cnllm.gateway.limits.redis_book import RedisBook

        return RedisBook(url)
    # The URL is not shown: it may hold a password.
    raise CnllmError("the store's URL names no store that cnllm knows", hint="use sqlite:, sqlite:PATH or redis://HOST")


def check_book(book: KeyBook | None) -> bool:
    """Whether a book has keys. Raise `CnllmError` for one that cannot be read. Each worker opens it again."""
    if book is None:
        return False
    try:
        return not book.is_empty()
    finally:
        book.close()
