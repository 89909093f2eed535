"""Build decoders for the most common chunk of a stream: compiled once, for only the fields that matter."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import Any, Literal

import msgspec

__all__ = ["chat_chunk_decoder"]

_BEGINNINGS = ("", "{")  # of arguments; a piece of white space alone is as rare as one that begins an object
_FIELDS = 2  # of reasoning: no known endpoint uses more of them for text


class _Arguments(msgspec.Struct, gc=False):
    """A piece of a call's arguments, without a name."""

    arguments: str
    name: Literal[""] | None = None


class _CallPiece(msgspec.Struct, gc=False, forbid_unknown_fields=True):
    """A piece of a call that has begun: it has no id and no other data."""

    index: int
    function: _Arguments
    id: Literal[""] | None = None
    type: Any = None


@lru_cache(maxsize=64)
def chat_chunk_decoder(
    reasoning_fields: tuple[str, ...],
    rare_delta: tuple[str, ...],
    rare_choice: tuple[str, ...],
    rare_top: tuple[str, ...],
) -> Callable[[bytes], tuple[str, str | int | None] | None]:
    """Return a decoder for the most common chunks of a chat stream: one choice, with one piece of one kind.

    The decoder returns the piece and its kind: the field of the reasoning, None for the answer, or the index of the
    call whose arguments go on. It returns None for a chunk with anything else in it, or with a piece that may begin
    another call; the full decoder reads that then. The rare names are those that a full decoding would use: they may
    only be null, which the decoder itself checks while it skips all other undeclared fields.
    """
    reasoning_fields = tuple(dict.fromkeys(reasoning_fields))
    fields = (*reasoning_fields[:_FIELDS], *[f"(none {i})" for i in range(_FIELDS - len(reasoning_fields))])
    first, second = fields
    delta = _optional_struct(
        [
            ("content", str | None),
            ("calls", list[_CallPiece] | None),
            *[(f"f{i}", str | None) for i in range(_FIELDS)],
        ],
        {"calls": "tool_calls", **{f"f{i}": name for i, name in enumerate(fields)}},
        (*rare_delta, *reasoning_fields[_FIELDS:]),
    )
    choice = _optional_struct([("delta", delta | None), ("index", Literal[0] | None)], {}, rare_choice)
    chunk = _optional_struct([("choices", list[choice])], {}, rare_top)  # type: ignore[valid-type]
    decode = msgspec.json.Decoder(chunk).decode

    def read(text: bytes) -> tuple[str, str | int | None] | None:
        """Decode one chunk."""
        try:
            [choice] = decode(text).choices
        except (msgspec.DecodeError, ValueError, RecursionError):  # ValueError: no choice, several, or no UTF-8
            return None
        delta_data = choice.delta
        if delta_data is None:
            return None
        if delta_data.calls:
            [call, *others] = delta_data.calls
            piece = call.function.arguments
            if others or delta_data.content or delta_data.f0 or delta_data.f1 or piece.lstrip()[:1] in _BEGINNINGS:
                return None
            return piece, call.index
        if delta_data.content:
            return None if delta_data.f0 or delta_data.f1 else (delta_data.content, None)
        if delta_data.f0:
            return None if delta_data.f1 else (delta_data.f0, first)
        return (delta_data.f1, second) if delta_data.f1 else None

    return read


def _optional_struct(fields: list[tuple[str, Any]], rename: dict[str, str], rare: tuple[str, ...]) -> Any:
    """Return a Struct with these optional fields, and with rare ones that may only be null."""
    declared = {*rename.values(), *(name for name, _ in fields if name not in rename)}
    names = {f"r{i}": name for i, name in enumerate(dict.fromkeys(rare)) if name not in declared}
    return msgspec.defstruct(
        "FastChunk",
        [*[(n, t, [] if n == "choices" else None) for n, t in fields], *[(n, None, None) for n in names]],
        rename={**rename, **names},
        gc=False,
    )
