"""Conversations on disk: one SQLite file with all questions and answers, and no secret.

    from cnllm.store import Store

    with Store.open() as store:
        conversation = store.conversation("last")  # or an id, or None for a new one
        new = cnllm.Message("user", [cnllm.Text("And at sunset?")])
        with conversation.turn([new], model="deepseek/deepseek-flash") as turn:
            turn.finish(client.call(turn.model, conversation.messages()))

A turn is written before it is sent and again when it has ended, each time in one transaction: after a crash between the
two, the question is in the file, and the turn counts as interrupted. Any number of processes may write at once; a
`Store` belongs to the thread that opened it. Every failure of the file is a `CnllmError`.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from cnllm.store.conversation import Conversation
    from cnllm.store.store import Store
    from cnllm.store.turn import Turn

__all__ = ["Conversation", "Store", "Turn"]


def __getattr__(name: str) -> Any:
    """Load SQLite when a store is asked for: the other modules of this package need none."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{name.lower()}"), name)
