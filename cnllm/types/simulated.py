"""Know the answers that the simulator makes up: by a header, wherever they come from."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from cnllm.types import Note

__all__ = ["HEADER", "NOTE", "is_news"]

HEADER = "x-cnllm-simulated"
"""The header of each response of the simulator."""
NOTE = Note("simulated", "simulate", "the endpoint", "a simulator: the answer is made up, and nothing was paid for it")
"""The note on an answer that is made up."""


def is_news(headers: Mapping[str, str] | None, notes: Sequence[Note]) -> bool:
    """Whether a response comes from the simulator, or was recorded from it, and the notes on its request do not say so.

    Names of headers are in lower case.
    """
    is_simulated = isinstance(headers, Mapping) and HEADER in headers
    return is_simulated and all(note.code != NOTE.code for note in notes)
