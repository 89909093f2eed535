"""Pictures and sounds where the endpoint takes them, words where it does not."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from msgspec.structs import replace

from cnllm.engine.ledger import Ledger
from cnllm.engine.repair import Turn
from cnllm.types import Media, Message, Part, Text, ToolResult

__all__ = ["left_out", "moved", "readable", "shown"]


def shown(messages: Sequence[Message]) -> bool:
    """Is there a picture or a sound in any of them, in a result too?"""
    for message in messages:
        for part in message.parts:
            if type(part) is Media or (type(part) is ToolResult and part.media):
                return True
    return False


def left_out(media: Media) -> str:
    """The words in its place."""
    return f"[{_kind(media)} left out]"


def readable(turns: Sequence[Turn], reads: Collection[str], ledger: Ledger) -> list[Turn]:
    """The turns without what the model does not read; words stand in its place."""
    out: list[Turn] = []
    for index, message in turns:
        parts: list[Part] = []
        for part in message.parts:
            if type(part) is Media and not _read(part, reads, index, ledger):
                parts.append(Text(left_out(part)))
            elif type(part) is ToolResult and part.media:
                read = [_read(m, reads, index, ledger) for m in part.media]
                kept = tuple(m for m, takes in zip(part.media, read, strict=True) if takes)
                gone = [left_out(m) for m, takes in zip(part.media, read, strict=True) if not takes]
                parts.append(
                    replace(part, media=kept, text=" ".join(filter(None, [part.text, *gone]))) if gone else part
                )
            else:
                parts.append(part)
        changed = any(new is not old for new, old in zip(parts, message.parts, strict=True))
        out.append((index, replace(message, parts=tuple(parts)) if changed else message))
    return out


def _read(media: Media, reads: Collection[str], index: int, ledger: Ledger) -> bool:
    kind = _kind(media)
    said = f"messages[{index}] holds {kind}"
    return kind in reads or not ledger.may_change(
        "media-dropped", "input", said, "left out: the model does not read it"
    )


def _kind(media: Media) -> str:
    """image, audio or video, as the wire writes it."""
    if media.type.startswith("audio/") and media.data is not None:
        return "audio"
    return "video" if media.type.startswith("video") else "image"


def moved(turns: Sequence[Turn], ledger: Ledger) -> list[Turn]:
    """Pictures in results as a turn of the user's after the results: the only place where every endpoint takes them."""
    out: list[Turn] = []
    held: list[Part] = []
    since = 0

    def put_down() -> None:
        if held:
            out.append((since, Message("user", tuple(held))))
            held.clear()

    for index, message in turns:
        if message.role != "tool":
            put_down()
        elif any(type(p) is ToolResult and p.media for p in message.parts):
            parts: list[Part] = []
            for part in message.parts:
                if type(part) is ToolResult and part.media:
                    said = f"messages[{index}]: the result of {part.name or part.id} holds pictures"
                    ledger.note("media-moved", "messages", said, "put into a user message after the results")
                    held += [Text(f"From the result of {part.name or part.id}:"), *part.media]
                    part = replace(part, media=(), text=part.text or "(see the next message)")
                parts.append(part)
            message = replace(message, parts=tuple(parts))
            since = index
        out.append((index, message))
    put_down()
    return out
