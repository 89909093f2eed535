"""State between requests: what clients cannot carry, by the id of a call or by the conversation so far.

    from cnllm.gateway.store import AsyncStore, open_store

    store = open_store("sqlite:")                      # the default file; None is the memory of this process
    store.keep_turn(identity, turn, ["call_1"], prefix)
    turns = store.find_turns(identity, call_ids=["call_1"])
    store = AsyncStore(store)                          # the same methods, awaited

Everything is scoped by the identity of the client's key, of which only a hash is stored. Each store is bounded in
count, in bytes and in time. A store that fails (a full disk, a server that is away) raises nothing: the request goes on
without state, `failure` says why, and the log has a line. `check_store` raises at the start of a gateway.
"""

from __future__ import annotations

from secrets import token_hex

from cnllm.errors import CnllmError
from cnllm.gateway.store.async_store import AsyncStore
from cnllm.gateway.store.items import (
    Ambiguous,
    StateStore,
    StoreBounds,
    StoreFailure,
    TurnRecord,
    Turns,
    decode_turn,
    encode_turn,
)

__all__ = [
    "Ambiguous",
    "AsyncStore",
    "StateStore",
    "StoreBounds",
    "StoreFailure",
    "TurnRecord",
    "Turns",
    "check_store",
    "decode_turn",
    "encode_turn",
    "open_store",
]

_FORMS = "use memory:, sqlite:, sqlite:PATH, redis://HOST:PORT/DB or rediss://…"
_CHECK = "check"  # an identity that no client has: theirs are hashes
_CHECK_HINT = "the store must be there when the gateway starts: check its server, its disk, or name another store"


def open_store(url: str | None = None, bounds: StoreBounds | None = None) -> StateStore:
    """Return the store of a URL.

    None and `memory:` are the memory of this process. `sqlite:PATH` is a file that all processes of one machine may
    use, and `sqlite:` the default one (`gateway.db` in the data folder). `redis://…` (also `rediss://`, `unix://`) is a
    server that several machines may use. Raise `CnllmError` for another URL, and for a file that cannot be used.
    """
    if url is None or url in ("memory", "memory:"):
        from cnllm.gateway.store.memory import MemoryStore

        return MemoryStore(bounds)
    scheme, separator, rest = url.partition(":")
    if separator and scheme == "sqlite":
        from cnllm.gateway.store.sqlite import SqliteStore

        return SqliteStore(rest.removeprefix("//") or None, bounds)
    if separator and scheme in ("redis", "rediss", "unix"):
        from cnllm.gateway.store.redis import RedisStore

        return RedisStore(url, bounds)
    # The URL is not shown: it may hold a password.
    raise CnllmError("the store's URL names no store that cnllm knows", hint=_FORMS)


def check_store(url: str) -> None:
    """Write, read and delete an item. Raise `CnllmError` for a store that cannot be used now."""
    store = open_store(url)
    try:
        id = token_hex(8)
        is_kept = store.keep_response(_CHECK, id, b"") and store.response(_CHECK, id) == b""
        if not is_kept or store.delete_response(_CHECK, id) is not True:
            raise CnllmError(store.failure or "the store keeps nothing", hint=_CHECK_HINT)
    finally:
        store.close()
