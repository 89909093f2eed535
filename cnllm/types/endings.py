"""Read from a reply how it ended."""

from __future__ import annotations

from cnllm.types import Reply

__all__ = ["is_paused"]


def is_paused(reply: Reply) -> bool:
    """Whether the endpoint says that its turn goes on: it gets the turn back, and nothing else.

    The notes may be those of several steps.
    """
    pauses = {note.said for note in reply.notes if note.code == "finish-pending"}
    return reply.finish == "stop" and reply.raw_finish is not None and reply.raw_finish in pauses
