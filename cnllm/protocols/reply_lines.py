"""Put lines of text in the place of what a client's protocol has no place for."""

from __future__ import annotations

from msgspec.structs import replace

from cnllm.protocols import ServerCodec
from cnllm.protocols.reply_notes import foreign_blocks
from cnllm.types import Citation, Media, Part, Reply, Text
from cnllm.types.media import media_kind

__all__ = ["BREAK", "blocks_line", "media_line", "moved", "with_blocks", "with_lines"]

_NO_PLACE = "this client's protocol has no place for it"
BREAK = "\n\n"


def with_lines(reply: Reply, codec: ServerCodec) -> Reply:
    """Return the reply with a line of text in place of each medium that the protocol has no place for."""
    if not [part for part in reply.message.parts if type(part) is Media and not codec.takes_media(part)]:
        return reply
    parts: list[Part] = []
    text = ""
    added: list[tuple[int, int]] = []  # the places in the answer before which text was added, and how much
    size = 0  # of the answer's own text
    is_behind_line = False
    for part in reply.message.parts:
        if type(part) is Media and not codec.takes_media(part):
            part = Text(media_line(part, has_text=bool(text)))
            added.append((size, len(part.text)))
            is_behind_line = True
        elif type(part) is Text and part.text:
            size += len(part.text)
            if is_behind_line:
                added.append((size - len(part.text), len(BREAK)))
                part = replace(part, text=BREAK + part.text)
                is_behind_line = False
        text += part.text if type(part) is Text else ""
        parts.append(part)
    citations = [moved(citation, added) for citation in reply.citations]
    message = replace(reply.message, parts=tuple(parts))
    return replace(reply, text=text, message=message, citations=citations)


def moved(citation: Citation, added: list[tuple[int, int]]) -> Citation:
    """Return a source at its place in an answer to which text was added: (place in the answer's own text, size)."""
    start, end = citation.start, citation.end
    if start is not None and end is not None:
        start, end = start + sum(n for at, n in added if at <= start), end + sum(n for at, n in added if at < end)
    return replace(citation, start=start, end=end)


def with_blocks(reply: Reply, protocol: str) -> Reply:
    """Return the reply; one of nothing but blocks that the protocol has no place for has a line of text."""
    parts = reply.message.parts
    if reply.text or reply.tool_calls or any(type(part) is Media for part in parts):
        return reply
    if not (blocks := foreign_blocks(protocol, parts)):
        return reply
    text = blocks_line(blocks)
    message = replace(reply.message, parts=(*parts, Text(text)))
    return replace(reply, text=text, message=message)


def blocks_line(blocks: list[str]) -> str:
    """Return the text of an answer of nothing but such blocks."""
    return f"[{', '.join(dict.fromkeys(blocks))}: {_NO_PLACE}]"


def media_line(media: Media, *, has_text: bool) -> str:
    """Return the text for a medium that a protocol has no place for: what is said in it, or a line that names it."""
    transcript = (media.extra or {}).get("transcript")
    line = f"[{media_kind(media)} {media.url or media.type}: {_NO_PLACE}]"
    return (BREAK if has_text else "") + (transcript if type(transcript) is str and transcript else line)
