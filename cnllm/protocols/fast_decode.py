"""Decoders for the chunk that makes up nearly all of a stream: compiled once, for just the fields that matter."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import Any, Literal

import msgspec

__all__ = ["chat_chunk_decoder", "optional_struct"]

_FIELDS = 2  # of thinking: no endpoint is known to use more of them for text


@lru_cache(maxsize=64)
def chat_chunk_decoder(
    thoughts: tuple[str, ...],
    rare_delta: tuple[str, ...],
    rare_choice: tuple[str, ...],
    rare_top: tuple[str, ...],
) -> Callable[[bytes], tuple[str, str | None] | None]:
    """A decoder for the chunk that makes up nearly all of a chat stream: one choice, one piece of text or thinking.

    It gives (text, field it came in; None for the answer), or None for a chunk that anything else is in, which the full
    reader takes then. The rare names are those that a full reading would heed: they may be there only as null, which
    the decoder itself checks while it skips everything undeclared.
    """
    thoughts = tuple(dict.fromkeys(thoughts))
    fields = (*thoughts[:_FIELDS], *[f"(none {i})" for i in range(_FIELDS - len(thoughts))])
    first, second = fields
    delta = optional_struct(
        [("content", str | None), *[(f"f{i}", str | None) for i in range(_FIELDS)]],
        {f"f{i}": name for i, name in enumerate(fields)},
        (*rare_delta, *thoughts[_FIELDS:]),
    )
    choice = optional_struct([("delta", delta | None), ("index", Literal[0] | None)], {}, rare_choice)
    chunk = optional_struct([("choices", list[choice])], {}, rare_top)  # type: ignore[valid-type]
    decode = msgspec.json.Decoder(chunk).decode

    def read(text: bytes) -> tuple[str, str | None] | None:
        try:
            [choice] = decode(text).choices
        except (msgspec.DecodeError, ValueError, RecursionError):  # the second: none or several, or no UTF-8
            return None
        said = choice.delta
        if said is None:
            return None
        if said.content:
            return None if said.f0 or said.f1 else (said.content, None)
        if said.f0:
            return None if said.f1 else (said.f0, first)
        return (said.f1, second) if said.f1 else None

    return read


def optional_struct(fields: list[tuple[str, Any]], rename: dict[str, str], rare: tuple[str, ...]) -> Any:
    """A Struct with these optional fields, and with rare ones that may only be null."""
    declared = {*rename.values(), *(name for name, _ in fields if name not in rename)}
    names = {f"r{i}": name for i, name in enumerate(dict.fromkeys(rare)) if name not in declared}
    return msgspec.defstruct(
        "Quick",
        [*[(n, t, [] if n == "choices" else None) for n, t in fields], *[(n, None, None) for n in names]],
        rename={**rename, **names},
        gc=False,
    )
