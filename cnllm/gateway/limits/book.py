"""The book of keys: what each key and team may do and how it was used, for all processes that share a store."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Protocol, TypeVar, runtime_checkable

from cnllm.errors import CnllmError
from cnllm.gateway.limits.account import Grant, Operation
from cnllm.gateway.limits.key_use import KeyUse
from cnllm.gateway.limits.keys import KeyRecord, Rights
from cnllm.system.processes import generation

__all__ = ["AsyncKeyBook", "KeyBook", "check_book", "open_book"]

T = TypeVar("T")

_log = logging.getLogger("cnllm.gateway")
_WARN_SECONDS = 60.0  # between two lines about a store that fails
_MOST_THREADS = 16  # in which operations wait for a server


@runtime_checkable
class KeyBook(Protocol):
    """The book, for any number of threads. All methods raise `CnllmError` where the store fails.

    The name of a team is its `team_digest` here, so that a key and a team may be called the same.
    """

    def add(self, digest: str, record: KeyRecord) -> None:
        """Add a key or a team, or replace the record of a key in a file. Raise `CnllmError` for a name in use.

        A key that is revoked stays so, whatever a file says.
        """

    def add_all(self, records: Mapping[str, KeyRecord]) -> None:
        """Add some by their digests, as `add` does: all of them, or none where it raises `CnllmError`."""

    def change(self, name: str, change: Callable[[KeyRecord], KeyRecord]) -> KeyRecord:
        """Change the record of a name, and return the new one. Raise `CnllmError` where there is none.

        `change` may be called several times. A revoked record has no name.
        """

    def revoke(self, name: str) -> KeyRecord:
        """Revoke the key of a name. Raise `CnllmError` where there is none."""

    def remove(self, name: str) -> None:
        """Remove a team and what it used. Raise `CnllmError` where there is none."""

    def get(self, name: str) -> KeyRecord | None:
        """Return the record of a name in use; None where there is none."""

    def uses(self, *, teams: bool = False) -> list[KeyUse]:
        """Return all keys, or all teams, with their use, the oldest first."""

    def find(self, digest: str) -> Rights | None:
        """Return the rights of a key by its digest; None for an unknown one."""

    def update(self, digest: str, operation: Operation) -> Grant:
        """Carry out an operation of a worker on the account of a key, or of a team by its `team_digest`."""

    def close(self) -> None:
        """Close files and connections. A later call opens them again."""


class AsyncKeyBook:
    """The book for the coroutines of a gateway, in threads of this process."""

    def __init__(self, book: KeyBook) -> None:
        self._book = book
        self._threads: ThreadPoolExecutor | None = None
        self._generation = generation()
        self._warned = -_WARN_SECONDS

    async def find(self, digest: str, *, is_known: bool = False) -> Rights | None:
        """Return the rights of a key by its digest; None for an unknown one.

        Raises `CnllmError` also where the store has lost a key that `is_known`, or the team of a key.
        """

        def find() -> Rights | None:
            rights = self._book.find(digest)
            if rights is None and is_known:
                raise CnllmError(_lost(digest))
            if rights is not None and rights.team is None and rights.key.team is not None and not rights.key.revoked:
                raise CnllmError(f"the store has no team {rights.key.team}")
            return rights

        return await self._run(find)

    async def update(self, digest: str, operation: Operation) -> Grant:
        """Carry out an operation of a worker; see `KeyBook.update`."""
        grant = await self._run(self._book.update, digest, operation)
        if grant.state == "unknown":
            self._warn(_lost(digest))
        return grant

    async def aclose(self) -> None:
        """Close files and connections."""
        await self._run(self._book.close)
        if self._threads is not None:
            self._threads.shutdown(wait=False)
            self._threads = None

    async def _run(self, function: Callable[..., T], *arguments: Any) -> T:
        if self._threads is None or self._generation != generation():  # a forked child has none of its parent's
            self._generation = generation()
            self._threads = ThreadPoolExecutor(_MOST_THREADS, thread_name_prefix="cnllm-keys")
        try:
            return await asyncio.get_running_loop().run_in_executor(self._threads, function, *arguments)
        except CnllmError as error:
            self._warn(error.message)
            raise

    def _warn(self, reason: str) -> None:
        """Write why requests are refused, unless a line about it is new."""
        if (now := time.monotonic()) - self._warned >= _WARN_SECONDS:
            self._warned = now
            _log.warning("requests of keys with limits are refused: %s", reason)


def _lost(digest: str) -> str:
    """Return the sentence about a key, or a team by its `team_digest`, that has been in a store and is not."""
    return f"the store has lost a key: {digest[:12]}…" if ":" not in digest else f"the store has lost {digest}"


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
    """Whether a book has a key that is in use. Raise `CnllmError` for one that cannot be read.

    A key of a keys file does not count: it is valid only where the gateway has this file. Each worker opens the book
    again.
    """
    if book is None:
        return False
    try:
        return any(
            use.record.revoked is None and not use.record.is_in_file and not use.record.is_expired(use.wall)
            for use in book.uses()
        )
    finally:
        book.close()
