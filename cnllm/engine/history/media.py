"""Keep the media that the endpoint accepts, and replace others by text."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec.structs import replace

from cnllm.engine.adjustments import Ledger
from cnllm.engine.history.repair import Turn
from cnllm.protocols import Wire
from cnllm.protocols import wire as find_wire
from cnllm.registry.flags import Flags
from cnllm.types import Media, Message, Opaque, Part, Text, ToolResult
from cnllm.types.media import KIND_OF_PART, MediaKind, as_media, is_file_part, media_kind

__all__ = ["drop_unreadable", "has_media", "media_problem", "move_result_media", "placeholder_text"]


def has_media(messages: Sequence[Message]) -> bool:
    """Whether a message holds an image, a sound or a file, also in a result."""
    for message in messages:
        for part in message.parts:
            if type(part) is Media or (type(part) is ToolResult and part.media):
                return True
            if type(part) is Opaque and _is_file(part):
                return True
    return False


def placeholder_text(media: Media) -> str:
    """Return the text that replaces a medium."""
    return f"[{media_kind(media)} left out]"


def drop_unreadable(turns: Sequence[Turn], flags: Flags, wire: Wire, ledger: Ledger) -> list[Turn]:
    """Return the turns with text in place of media that the model cannot read."""
    media_filter = _MediaFilter(flags, wire, ledger)
    out: list[Turn] = []
    for index, message in turns:
        parts: list[Part] = []
        for part in message.parts:
            if type(part) is Media:
                parts.append(part if media_filter.takes(part, index) else Text(placeholder_text(part)))
            elif type(part) is Opaque and _is_file(part):
                parts.append(media_filter.unwrap(part, index))
            elif type(part) is ToolResult and part.media:
                accepts = [media_filter.takes(m, index) for m in part.media]
                readable = tuple(m for m, takes in zip(part.media, accepts, strict=True) if takes)
                placeholders = [placeholder_text(m) for m, takes in zip(part.media, accepts, strict=True) if not takes]
                parts.append(
                    replace(part, media=readable, text=" ".join(filter(None, [part.text, *placeholders])))
                    if placeholders
                    else part
                )
            else:
                parts.append(part)
        is_changed = any(new is not old for new, old in zip(parts, message.parts, strict=True))
        out.append((index, replace(message, parts=tuple(parts)) if is_changed else message))
    return out


def media_problem(media: Media, flags: Flags, protocol: str) -> str | None:
    """Return why a model does not get a medium; None where it does."""
    reason = _refusal(media_kind(media), flags)
    if reason is None and not find_wire(protocol).takes_medium(media, flags):
        reason = "the endpoint does not accept this form"
    return reason


def _refusal(kind: MediaKind, flags: Flags) -> str | None:
    """Return why the model does not get a medium of a kind; None where it does.

    Images and sounds are sent where it is unknown whether the model reads them. A file is sent only where it is known.
    """
    reads, files = flags.input, flags.messages.files if flags.messages is not None else None
    if kind == "file" and (files == "all" or (files == "vision" and (reads is None or "image" in reads))):
        return None
    if reads is not None:
        return None if kind in reads else "the model does not read it"
    return "it is unknown whether the model reads it" if kind == "file" else None


class _MediaFilter:
    """Decides for each medium of a request whether it is sent."""

    def __init__(self, flags: Flags, wire: Wire, ledger: Ledger) -> None:
        self._flags = flags
        self._wire = wire
        self._ledger = ledger

    def takes(self, media: Media, index: int) -> bool:
        """Whether a medium is sent: the model reads its kind, and the wire has a form for it."""
        kind = media_kind(media)
        if (reason := _refusal(kind, self._flags)) is not None:
            return not self._may_drop(kind, index, reason)
        if not self._wire.takes_medium(media, self._flags):
            form = "by URL" if media.data is None else f"of type {media.type}"
            return not self._may_drop(f"{kind} {form}", index, "the endpoint does not accept this form")
        return True

    def unwrap(self, part: Opaque, index: int) -> Part:
        """Return a content part of some wire as a medium.

        A part that names a file stored at the endpoint stays as it is.
        """
        media = as_media(part.data)
        if media is not None:
            return media if self.takes(media, index) else Text(placeholder_text(media))
        kind = media_kind(Media(KIND_OF_PART[part.data["type"]]))
        reason = _refusal(kind, self._flags)
        if reason is None and part.data["type"] not in self._wire.file_parts:
            reason = "the endpoint does not accept this form"
        if reason is None or not self._may_drop(kind, index, reason):
            return part
        return Text(f"[{kind} left out]")

    def _may_drop(self, kind: str, index: int, reason: str) -> bool:
        """Whether a medium may be left out; a note says why."""
        return self._ledger.may_change(
            "media-dropped", "input", f"messages[{index}] holds {kind}", f"left out: {reason}"
        )


def _is_file(part: Opaque) -> bool:
    """Whether a part is a file in the form of some wire."""
    return part.seal is None and is_file_part(part.data)


def move_result_media(turns: Sequence[Turn], ledger: Ledger) -> list[Turn]:
    """Return the turns with media of results in a user's turn after the results.

    That is the only place where every endpoint accepts them.
    """
    out: list[Turn] = []
    parts_to_move: list[Part] = []
    position = 0

    def flush() -> None:
        if parts_to_move:
            out.append((position, Message("user", tuple(parts_to_move))))
            parts_to_move.clear()

    for index, message in turns:
        if message.role != "tool":
            flush()
        elif any(type(p) is ToolResult and p.media for p in message.parts):
            parts: list[Part] = []
            for part in message.parts:
                if type(part) is ToolResult and part.media:
                    subject = f"messages[{index}]: the result of {part.name or part.id} holds pictures"
                    ledger.note("media-moved", "messages", subject, "put into a user message after the results")
                    parts_to_move += [Text(f"From the result of {part.name or part.id}:"), *part.media]
                    part = replace(part, media=(), text=part.text or "(see the next message)")
                parts.append(part)
            message = replace(message, parts=tuple(parts))
            position = index
        out.append((index, message))
    flush()
    return out
