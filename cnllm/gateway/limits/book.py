"""The book of keys: what each key may do and how it was used, for all processes that share a store."""

from __future__ import annotations

from typing import Protocol

from msgspec import Struct

from cnllm.errors import CnllmError
from cnllm.gateway.limits.account import Grant, Operation
from cnllm.gateway.limits.keys import KeyRecord

__all__ = ["AsyncKeyBook", "KeyBook", "KeyUse", "name_taken", "no_such_key", "open_book"]


class KeyUse(Struct, frozen=True):
    """A key and its use so far. `spent` and `open` are units of money by currency; `last` is seconds since 1970.

    `open` is money that running calls hold. `unpriced` replies have a cost that is not known.
    """

    record: KeyRecord
    spent: dict[str, int] = {}
    open: dict[str, int] = {}
    calls: int = 0
    tokens: int = 0
    unpriced: int = 0
    last: float | None = None


class AsyncKeyBook(Protocol):
    """The book for a gateway. All methods raise `CnllmError` where the store fails."""

    async def find(self, digest: str) -> KeyRecord | None:
        """Return the record of a key by its digest; None for an unknown one."""

    async def update(self, digest: str, operation: Operation) -> Grant:
        """Carry out an operation of a worker."""

    async def aclose(self) -> None:
        """Close files and connections."""


class KeyBook(Protocol):
    """The book for the command line. All methods raise `CnllmError` where the store fails."""

    def add(self, digest: str, record: KeyRecord) -> None:
        """Add a key. Raise `CnllmError` where a key of that name is in use."""

    def revoke(self, name: str) -> KeyRecord:
        """Revoke the key of a name. Raise `CnllmError` where there is none."""

    def uses(self) -> list[KeyUse]:
        """Return all keys with their use, the oldest first."""

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


def name_taken(name: str) -> CnllmError:
    """Return the error of a name that a key in use has."""
    return CnllmError(f"a key in use is called {name}", hint="choose another name, or revoke that key first")


def no_such_key(name: str) -> CnllmError:
    """Return the error of a name without a key in use."""
    return CnllmError(f"no key in use is called {name}", hint="cnllm serve keys list shows the names")
