"""Pictures and sounds where the endpoint takes them, words where it does not."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec.structs import replace

from cnllm.engine.adjustments import Ledger
from cnllm.engine.history.repair import Turn
from cnllm.protocols import Wire
from cnllm.registry.flags import Flags
from cnllm.types import Media, Message, Opaque, Part, Text, ToolResult
from cnllm.types.media import KIND_OF_PART, MediaKind, as_media, is_file_part, media_kind

__all__ = ["drop_unreadable", "has_media", "move_result_media", "placeholder_text"]


def has_media(messages: Sequence[Message]) -> bool:
    """Is there a picture or a sound in any of them, in a result too?"""
    for message in messages:
        for part in message.parts:
            if type(part) is Media or (type(part) is ToolResult and part.media):
                return True
            if type(part) is Opaque and _is_file(part):
                return True
    return False


def placeholder_text(media: Media) -> str:
    """The words in its place."""
    return f"[{media_kind(media)} left out]"


def drop_unreadable(turns: Sequence[Turn], flags: Flags, wire: Wire, ledger: Ledger) -> list[Turn]:
    """The turns without what the model does not read; words stand in its place."""
    reader = _Reader(flags, wire, ledger)
    out: list[Turn] = []
    for index, message in turns:
        parts: list[Part] = []
        for part in message.parts:
            if type(part) is Media:
                parts.append(part if reader.takes(part, index) else Text(placeholder_text(part)))
            elif type(part) is Opaque and _is_file(part):
                parts.append(reader.unwrapped(part, index))
            elif type(part) is ToolResult and part.media:
                read = [reader.takes(m, index) for m in part.media]
                kept = tuple(m for m, takes in zip(part.media, read, strict=True) if takes)
                gone = [placeholder_text(m) for m, takes in zip(part.media, read, strict=True) if not takes]
                parts.append(
                    replace(part, media=kept, text=" ".join(filter(None, [part.text, *gone]))) if gone else part
                )
            else:
                parts.append(part)
        changed = any(new is not old for new, old in zip(parts, message.parts, strict=True))
        out.append((index, replace(message, parts=tuple(parts)) if changed else message))
    return out


class _Reader:
    """Decides for each medium of a request whether it may go out."""

    def __init__(self, flags: Flags, wire: Wire, ledger: Ledger) -> None:
        self._flags = flags
        self._wire = wire
        self._ledger = ledger
        self._files = flags.messages.files if flags.messages is not None else None

    def _refusal(self, kind: MediaKind) -> str | None:
        """Why the model is not given a medium of a kind; None where it is.

        Of pictures and sounds unknown may be yes. A file goes only where it is known to be read.
        """
        reads, files = self._flags.input, self._files
        if kind == "file" and (files == "all" or (files == "vision" and (reads is None or "image" in reads))):
            return None
        if reads is not None:
            return None if kind in reads else "the model does not read it"
        return "nobody knows whether the model reads it" if kind == "file" else None

    def takes(self, media: Media, index: int) -> bool:
        """Whether a medium goes out: the model reads its kind, and the wire has a form for it."""
        kind = media_kind(media)
        if (why := self._refusal(kind)) is not None:
            return not self._left_out(kind, index, why)
        if not self._wire.takes_medium(media, self._flags):
            way = "by URL" if media.data is None else f"of type {media.type}"
            return not self._left_out(f"{kind} {way}", index, "the endpoint takes none in this form")
        return True

    def unwrapped(self, part: Opaque, index: int) -> Part:
        """A content part of some wire as a medium; one that names a file which the endpoint keeps stays as it is."""
        media = as_media(part.data)
        if media is not None:
            return media if self.takes(media, index) else Text(placeholder_text(media))
        kind = media_kind(Media(KIND_OF_PART[part.data["type"]]))
        why = self._refusal(kind)
        if why is None and part.data["type"] not in self._wire.file_parts:
            why = "the endpoint takes none in this form"
        if why is None or not self._left_out(kind, index, why):
            return part
        return Text(f"[{kind} left out]")

    def _left_out(self, said: str, index: int, why: str) -> bool:
        return self._ledger.may_change("media-dropped", "input", f"messages[{index}] holds {said}", f"left out: {why}")


def _is_file(part: Opaque) -> bool:
    return part.seal is None and is_file_part(part.data)


def move_result_media(turns: Sequence[Turn], ledger: Ledger) -> list[Turn]:
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
