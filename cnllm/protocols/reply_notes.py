"""Name in notes what of a reply the client's protocol has no place for, and put lines of text in its place.

Data that goes back with reasoning and with calls is not named: it is for its endpoint alone, and a gateway keeps it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from msgspec.structs import replace

from cnllm.protocols import ServerCodec, server_codec
from cnllm.types import Citation, Media, Note, Opaque, Part, Reply, Text, checks
from cnllm.types.checks import short_text
from cnllm.types.documents import block_kind
from cnllm.types.media import media_kind
from cnllm.types.parts import seal_data

__all__ = [
    "BREAK",
    "blocks_line",
    "foreign_blocks",
    "media_line",
    "moved",
    "reply_notes",
    "with_blocks",
    "with_lines",
]

BREAK = "\n\n"
"""The text between a line in place of a medium and the text behind it."""
_NO_PLACE = "this client's protocol has no place for it"

_TRANSLATED = frozenset(
    ["type", "id", "status", "at", "more", "logprobs", "url", "uri", "title", "start_index", "end_index"]
)
"""Keys of texts and of sources whose data every protocol has in its own form, or which are about an item."""
_CACHE_WRITE = "cache_write"
_MOST_NAMES = 30  # of one note


def reply_notes(protocol: str, reply: Reply) -> list[Note]:
    """Return notes on what `encode_reply` and `StreamWriter` leave out of a reply, or write in another form."""
    checks.require_text("protocol", protocol)
    checks.require_type("reply", reply, Reply, "a cnllm.Reply")
    protocol = str.__str__(protocol)
    codec = server_codec(protocol)
    parts = reply.message.parts
    notes: list[Note] = []
    for part in parts:
        if type(part) is Media and not codec.takes_media(part):
            notes.append(Note("media-as-text", "messages", f"{media_kind(part)} in the answer", "text in its place"))
    did = f"left out: {protocol} has no place for it"
    if Opaque in map(type, parts) and (blocks := foreign_blocks(protocol, parts)):
        notes.append(Note("block-foreign", "messages", _listing(blocks), did))
    if keys := [
        *_part_keys(reply, protocol, codec),
        *_extra_keys(reply.extra, codec),
        *_cache_counts(reply, codec),
        *codec.unplaced_keys(reply),
    ]:
        notes.append(Note("key-foreign", "messages", _listing(keys), did))
    return notes


def foreign_blocks(protocol: str, parts: Sequence[Part]) -> list[str]:
    """Return the kinds of the blocks that the protocol has no place for."""
    takes_own = server_codec(protocol).takes_blocks
    return [
        _kind(part.data)
        for part in parts
        if type(part) is Opaque and not (takes_own and not _is_foreign(part, protocol))
    ]


def _listing(names: list[str]) -> str:
    """Return names of the answer, each once, as far as they are not too many."""
    names = list(dict.fromkeys(names))
    more = [f"{len(names) - _MOST_NAMES} more"] if len(names) > _MOST_NAMES else []
    return ", ".join([*map(short_text, names[:_MOST_NAMES]), *more]) + " in the answer"


def _kind(data: Any) -> str:
    """Return the kind of a block; of a message it is that of its part."""
    content = data.get("content") if type(data) is dict and data.get("type") == "message" else None
    return block_kind(content[0] if type(content) is list and content else data)


def _is_foreign(sealed: Part | Citation, protocol: str) -> bool:
    """Whether a part or a source has data of another protocol."""
    return sealed.seal is not None and sealed.seal.protocol != protocol


def _part_keys(reply: Reply, protocol: str, codec: ServerCodec) -> Iterator[str]:
    """Yield the names of the keys beside texts, media and sources that the protocol does not have."""
    for part in reply.message.parts:
        if type(part) is Media:
            yield from ((key for key, value in (part.extra or {}).items() if value and key not in codec.media_keys))
        if type(part) in (Text, Media) and _is_foreign(part, protocol):
            known = [citation.seal.data for citation in reply.citations if citation.seal is not None]
            for key, value in seal_data(part.seal).items():
                inner = value if key in ("item", "part") and type(value) is dict else {key: value}
                for name, own in inner.items():
                    if name in ("annotations", "citations") and type(own) is list:
                        own = [source for source in own if source not in known]
                    if name not in _TRANSLATED and _says(own):
                        yield name
    for citation in reply.citations:
        if _is_foreign(citation, protocol) and citation.seal is not None:
            yield from (f"citations.{name}" for name in _source_keys(citation.seal.data, citation))


def _source_keys(data: Any, citation: Citation) -> Iterator[str]:
    """Yield the names of the data of a source that neither its address nor its title says."""
    for key, value in data.items() if type(data) is dict else ():
        if type(value) is dict:
            yield from _source_keys(value, citation)
        elif key not in _TRANSLATED and _says(value) and value not in (citation.url, citation.title):
            yield str(key)


def _extra_keys(extra: Mapping[str, Any], codec: ServerCodec) -> Iterator[str]:
    """Yield the names of the data about a reply that the protocol does not have."""
    for key, value in extra.items():
        if key == "usage" and type(value) is dict:
            yield from _count_keys(value, codec)
        elif key not in codec.reply_keys:
            yield key


def _count_keys(usage: Mapping[str, Any], codec: ServerCodec) -> Iterator[str]:
    """Yield the names of the counts that the protocol does not have."""
    for name, count in usage.items():
        if _says(count) and not codec.takes_count(name):
            inner = [key for key in count if _says(count[key])] if type(count) is dict else []
            yield from [f"usage.{name}.{key}" for key in inner] or [f"usage.{name}"]


def _cache_counts(reply: Reply, codec: ServerCodec) -> Iterator[str]:
    """Yield the name of the tokens that were written to a cache, the one known count that a protocol may not have."""
    if reply.usage.cache_write and not codec.takes_count(_CACHE_WRITE):
        yield f"usage.{_CACHE_WRITE}"


def _says(value: Any) -> bool:
    """Whether a value says anything: it is no zero, and not empty at every place in it."""
    if type(value) is dict:
        return any(map(_says, value.values()))
    return any(map(_says, value)) if type(value) is list else bool(value)


# ── lines in the place of parts ───────────────────────────────────────────────


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
    if reply.text or reply.tool_calls or Media in map(type, parts) or not (blocks := foreign_blocks(protocol, parts)):
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
