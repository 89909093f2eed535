"""Keep the media that the endpoint accepts, write text files as text, and replace the rest by a line of text."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from msgspec.structs import replace

from cnllm.engine.adjustments import Ledger
from cnllm.engine.history.repair import Turn
from cnllm.errors import ADJUST, CnllmError
from cnllm.protocols import wire as find_wire
from cnllm.registry.flags import Flags
from cnllm.registry.model import Model
from cnllm.types import Media, Message, Opaque, Part, Reasoning, Text, ToolResult
from cnllm.types.client_data import EMPTY
from cnllm.types.convert import result_parts, with_content
from cnllm.types.documents import TOOL_CHANGES, block_kind, block_parts, file_text, name_line, pdf_text, unreadable_line
from cnllm.types.media import (
    KIND_OF_PART,
    MediaKind,
    as_media,
    file_name,
    is_file_part,
    is_pdf,
    media_kind,
    media_noun,
    read_data_url,
    url_name,
)
from cnllm.types.parts import CACHE_MARK, SYSTEM_ROLES, seal_data

__all__ = ["drop_unreadable", "has_media", "media_problem", "move_media", "note_lost_mark", "placeholder_text"]

_SEE_NEXT = "(see the next message)"  # the text of a message whose media are moved


def has_media(messages: Sequence[Message]) -> bool:
    """Whether a message holds an image, a sound, a file or another block, also in a result."""
    for message in messages:
        for part in message.parts:
            if type(part) is Media or (type(part) is ToolResult and (part.media or part.blocks)):
                return True
            if type(part) is Opaque and (message.role != "assistant" or _is_file(part)):
                return True
    return False


def placeholder_text(media: Media) -> str:
    """Return the line that replaces a medium."""
    return unreadable_line(media_noun(media), file_name(media) or url_name(media))


def _in_place(media: Media, text: str) -> Text:
    """Return the text that is sent in place of a medium, with its mark of the prompt cache."""
    mark = (media.extra or {}).get(CACHE_MARK)
    return Text(text, None, None if mark is None else {CACHE_MARK: mark})


def drop_unreadable(
    turns: Sequence[Turn], model: Model, flags: Flags, ledger: Ledger, *, reads_pdfs: bool = False
) -> list[Turn]:
    """Return the turns with text in place of media and blocks that the model cannot read.

    Text files are sent as text, and with `reads_pdfs` PDFs as well. A line stands for what has no text. In the newest
    message of the user that is an error, unless the caller allows it.
    """
    reader = _MediaForms(model, flags, ledger, _newest_index(turns), reads_pdfs=reads_pdfs)
    out: list[Turn] = []
    for index, message in turns:
        by_model = message.role == "assistant"
        parts: list[Part] = []
        for part in message.parts:
            if type(part) is Media or (type(part) is Opaque and (not by_model or _is_file(part))):
                forms = reader.read(part, index, in_system=message.role in SYSTEM_ROLES)
                parts += forms if by_model else _name_media(forms, model)
            elif type(part) is ToolResult and (part.media or part.blocks):
                parts.append(reader.read_result(part, index))
            else:
                parts.append(part)
        is_same = len(parts) == len(message.parts) and all(
            new is old for new, old in zip(parts, message.parts, strict=True)
        )
        out.append((index, message if is_same else replace(message, parts=_separate_texts(parts, message.parts))))
    return out


def _name_media(parts: Sequence[Part], model: Model, *, in_result: bool = False) -> list[Part]:
    """Return parts with a line before each medium that has a name for which the wire has no field.

    One that came over the same wire goes back with its fields.
    """
    takes_name = find_wire(model.protocol).takes_name
    out: list[Part] = []
    for part in parts:
        if type(part) is Media and (name := file_name(part)) is not None:
            is_own = part.seal is not None and part.seal.protocol == model.protocol
            if not is_own and not takes_name(part, in_result):
                out.append(Text(name_line(media_noun(part), name)))
        out.append(part)
    return out


def note_lost_mark(keys: Mapping[str, Any], ledger: Ledger) -> None:
    """Note that a part loses its mark of the prompt cache, if one is among its keys."""
    if keys.get(CACHE_MARK) is not None:
        ledger.count("cache-mark", "messages.fields", CACHE_MARK, "left out")


def _separate_texts(parts: Sequence[Part], before: Sequence[Part]) -> tuple[Part, ...]:
    """Return the parts with an empty line around each new text: some endpoints get the texts of a message as one."""
    known = set(map(id, before))
    out: list[Part] = []
    for part in parts:
        last = out[-1] if out else None
        if type(part) is Text and type(last) is Text and not (id(part) in known and id(last) in known):
            gap = "" if last.text.endswith("\n") or part.text.startswith("\n") else "\n\n"
            if id(part) in known:
                out[-1] = replace(last, text=last.text + gap)
            else:
                part = replace(part, text=gap + part.text)
        out.append(part)
    return tuple(out)


def _newest_index(turns: Sequence[Turn]) -> int | None:
    """Return the index of the message that the user wrote last; None where the turn is a program's.

    A message right behind results of tools holds what a program adds to them.
    """
    position = len(turns) - 1
    while position >= 0 and turns[position][1].role in ("system", "developer", "assistant"):
        if turns[position][1].tool_calls:
            return None
        position -= 1
    if position < 0 or turns[position][1].role != "user":
        return None
    return None if position and turns[position - 1][1].role == "tool" else turns[position][0]


def media_problem(media: Media, flags: Flags, protocol: str) -> str | None:
    """Return why a model does not get a medium; None where it does, if need be as text."""
    reason = _media_refusal(media, flags, protocol)
    return None if reason is None or file_text(media) is not None else reason


def _pdf_text(media: Media) -> str | None:
    """Return the text of a PDF. Raises `CnllmError` where the reader is not installed."""
    try:
        return pdf_text(media)
    except ImportError as error:
        raise CnllmError("the text of a PDF needs pypdf, which is not installed", hint="pip install pypdf") from error


def _media_refusal(media: Media, flags: Flags, protocol: str) -> str | None:
    """Return why a medium is not sent as it is; None where it is."""
    reason = _refusal(media_kind(media), flags)
    if reason is None and not find_wire(protocol).takes_medium(media, flags):
        reason = "the endpoint does not accept this form"
    unreachable = flags.messages.unreachable_urls
    if reason is None and unreachable and (media.url or "").lower().startswith(tuple(unreachable)):
        reason = "the endpoint cannot fetch a file that is stored elsewhere"
    return reason


def _refusal(kind: MediaKind, flags: Flags) -> str | None:
    """Return why the model does not get a medium of a kind; None where it does.

    Images and sounds are sent where it is unknown whether the model reads them. A file is sent only where it is known.
    """
    reads, files = flags.input, flags.messages.files
    if kind == "file" and (files == "all" or (files == "vision" and (reads is None or "image" in reads))):
        return None
    if reads is not None:
        return None if kind in reads else "the model does not read it"
    return "it is unknown whether the model reads it" if kind == "file" else None


_HELD_KEYS = frozenset(
    (
        *("type", "title", "source", "content", "context", "filename", "name", "format", "displayName", "text"),
        *("image_url", "file_data", "file_url", "file_id", "input_audio", "tabs", "state_changes", "tool_name", "tool"),
        CACHE_MARK,
    )
)
"""Keys of files and blocks that their text holds, or that have notes of their own."""


def _sealed_content(result: ToolResult) -> list[Any]:
    """Return the blocks of a result as they came, where they are sealed."""
    data = seal_data(result.seal)
    content = data.get("content", data.get("output"))
    return [block for block in content if type(block) is dict] if type(content) is list else []


def _note_lost_blocks(result: ToolResult, media: Sequence[Media], model: Model, ledger: Ledger) -> None:
    """Note the keys of the sealed blocks of a result that is written anew, except those that these media have."""
    written = find_wire(model.protocol).part_keys
    sent = [item for medium in media for item in (medium.extra or {}).items() if written is None or item[0] in written]
    for block in _sealed_content(result):
        _note_lost_keys({key: value for key, value in block.items() if (key, value) not in sent}, ledger)


def _note_lost_keys(keys: Mapping[str, Any], ledger: Ledger) -> None:
    """Note the keys of a file or a block that is sent in another form, which does not hold them."""
    for key, value in keys.items():
        if key not in _HELD_KEYS and value not in EMPTY:
            ledger.note("key-foreign", "messages", f"{key} of a file", "left out: it is sent in another form")


class _MediaForms:
    """Decides for each medium and each block of a request in which form it is sent.

    `newest` is the index of the message in which nothing may be left out.
    """

    def __init__(self, model: Model, flags: Flags, ledger: Ledger, newest: int | None, *, reads_pdfs: bool) -> None:
        self._model = model
        self._flags = flags
        self._wire = find_wire(model.protocol)
        self._ledger = ledger
        self._newest = newest
        self._reads_pdfs = reads_pdfs
        self._own_blocks = flags.messages.blocks or []
        self._takes_marks = CACHE_MARK in (flags.messages.fields or ())
        self._result_media = bool(flags.tools.result_media)

    def read(self, part: Media | Opaque, index: int, *, in_system: bool = False) -> list[Part]:
        """Return a medium or a block as the parts that are sent; `in_system`: a message of the system holds it."""
        if type(part) is Media:
            return self._medium(read_data_url(part), index)
        assert type(part) is Opaque
        is_file = is_file_part(part.data) and (part.seal is None or not part.seal.provider)
        if is_file and (media := as_media(part.data)) is not None:
            return self._medium(self._with_mark(media, part.data), index)
        inner = block_parts(part.data)
        if inner is None:
            return [self._stored_file(part, index) if is_file else part]
        if self._is_own(part) and (not in_system or self._stays_in_system(part)):
            return [part]
        self._note_text(index, str(part.data["type"]))
        _note_lost_keys(part.data, self._ledger)
        note_lost_mark(part.data, self._ledger)
        return [part for piece in inner for part in (self._medium(piece, index) if type(piece) is Media else [piece])]

    def read_result(self, result: ToolResult, index: int) -> ToolResult:
        """Return a result with the media and blocks that are sent as they are; the rest is in its text."""
        content: list[Part] = []
        has_lines = has_names = False
        is_own = result.seal is not None and result.seal.protocol == self._model.protocol
        for part in result_parts(result):
            new = [part] if isinstance(part, Text) else self._read_inside(part, index)
            has_lines = has_lines or (type(part) is not Text and Text in map(type, new))
            parts = _name_media(new, self._model, in_result=True) if self._result_media and not is_own else new
            has_names = has_names or len(parts) > len(new)
            content += parts
        new_result = with_content(result, content)
        if not (has_lines or has_names) and (new_result.media, new_result.blocks) == (result.media, result.blocks):
            return result
        if has_lines:  # it is written anew
            _note_lost_blocks(result, new_result.media, self._model, self._ledger)
            for block in _sealed_content(result):
                note_lost_mark(block, self._ledger)
        return new_result

    def _read_inside(self, part: Media | Opaque, index: int) -> list[Part]:
        """Return a part of a result as the parts that are sent."""
        parts = self.read(part, index)
        if type(part) is not Opaque or parts != [part] or (self._result_media and not self._is_foreign(part)):
            return parts
        kind = block_kind(part.data)
        self._ledger.note("block-foreign", "messages", f"messages[{index}] holds {kind} in a result", "a line instead")
        return [Text(unreadable_line(kind))]

    def _is_foreign(self, part: Opaque) -> bool:
        """Whether a block belongs to another wire or another endpoint."""
        seal = part.seal
        if seal is None:
            return False
        origin = (self._model.provider, self._model.id)
        return seal.protocol != self._model.protocol or (bool(seal.provider) and (seal.provider, seal.model) != origin)

    def _is_own(self, part: Opaque) -> bool:
        """Whether the endpoint takes a block as it is."""
        if self._is_foreign(part):
            return False
        kind = part.data["type"]
        return kind in self._own_blocks or (kind in self._wire.file_parts and _refusal("file", self._flags) is None)

    def _stays_in_system(self, part: Opaque) -> bool:
        """Whether a message of the system may hold a block: changes of the tools, where the message keeps its place."""
        return part.data["type"] in TOOL_CHANGES and self._flags.messages.system == "any"

    def _medium(self, media: Media, index: int) -> list[Part]:
        """Return a medium as it is sent: itself, its text, or a line."""
        reason = _media_refusal(media, self._flags, self._model.protocol)
        context = (media.extra or {}).get("context")
        if reason is None and (self._has_documents or not context):
            return [media]
        head = [Text(f"<context>\n{context}\n</context>")] if context else []
        kind = media_noun(media)
        if (text := file_text(media)) is not None:
            self._note_text(index, kind)
            extra = media.extra or {}
            sealed = seal_data(media.seal)
            _note_lost_keys({**extra, **sealed.get("part", sealed)}, self._ledger)
            return [_in_place(media, text)]
        if reason is None:
            return [*head, media]
        if self._reads_pdfs and media.data is not None and is_pdf(media):
            if text := _pdf_text(media):
                did = "its text was sent, without its pictures and its layout"
                self._ledger.note("file-as-text", "input", f"messages[{index}] holds {kind}", did)
                return [*head, _in_place(media, text)]
            name = file_name(media) or "the file"
            reason = f"{name} holds no text" if text == "" else f"{name} is broken or locked: its text cannot be read"
        if not reason.startswith("the endpoint"):
            subject = kind
        else:
            subject = f"{kind} by URL" if media.data is None else f"{kind} of type {media.type}"
        if not self._may_drop(subject, index, reason, media):
            return [media]
        return [*head, _in_place(media, placeholder_text(media))]

    def _with_mark(self, media: Media, data: Mapping[str, Any]) -> Media:
        """Return the medium of a part with its mark of the prompt cache, where the endpoint takes such a mark."""
        if (mark := data.get(CACHE_MARK)) is None:
            return media
        extra = {key: value for key, value in (media.extra or {}).items() if key != CACHE_MARK}
        if self._has_documents or self._takes_marks:
            extra[CACHE_MARK] = mark
        else:
            note_lost_mark(data, self._ledger)
        return replace(media, extra=extra or None)

    @property
    def _has_documents(self) -> bool:
        """Whether the wire has documents, with a context and marks of a cache."""
        return "document" in self._wire.file_parts

    def _stored_file(self, part: Opaque, index: int) -> Part:
        """Return a part that names a file stored at an endpoint: as it is on that wire, else a line."""
        kind = media_kind(Media(KIND_OF_PART[part.data["type"]]))
        reason = _refusal(kind, self._flags)
        if reason is None and (part.data["type"] not in self._wire.file_parts or self._is_foreign(part)):
            reason = "the endpoint does not accept this form"
        if reason is None or not self._may_drop(kind, index, reason, part):
            return part
        note_lost_mark(part.data, self._ledger)
        return Text(unreadable_line(kind))

    def _note_text(self, index: int, kind: str) -> None:
        """Note that text is sent in the place of a file or a block."""
        self._ledger.note("file-as-text", "input", f"messages[{index}] holds {kind}", "its text was sent")

    def _may_drop(self, kind: str, index: int, reason: str, part: Part) -> bool:
        """Whether a line may stand for a medium; a note says why. Raises `CannotSend` where nothing may be left out."""
        ledger, subject = self._ledger, f"messages[{index}] holds {kind}"
        if ledger.policy == "send":
            return False
        if ledger.policy == "error" or (ledger.policy is None and index == self._newest):
            ledger.refuse("media-dropped", "input", subject, reason, part=part, hint=_HINT)
        ledger.note("media-dropped", "input", subject, f"left out: {reason}; a line stands in its place")
        return True


_HINT = f"ask a model that reads it, or allow to leave it out: {ADJUST}"


def _is_file(part: Part) -> bool:
    """Whether a part is a file stored at an endpoint, in the form of some wire."""
    return type(part) is Opaque and part.seal is None and is_file_part(part.data)


def move_media(turns: Sequence[Turn], model: Model, ledger: Ledger, *, in_results: bool) -> list[Turn]:
    """Return the turns with media that their message may not hold in a user's turn behind it and its results.

    `in_results`: results of tools may hold media. Media of an answer stay where this model made them.
    """
    allowed = find_wire(model.protocol).media_roles
    out: list[Turn] = []
    parts_to_move: list[Part] = []
    position = 0

    def flush() -> None:
        if parts_to_move:
            out.append((position, Message("user", tuple(parts_to_move))))
            parts_to_move.clear()

    for index, message in turns:
        role = message.role
        if role != "tool":
            flush()
        new: Message | None = message
        if role == "tool" and not in_results:
            new = _without_result_media(message, index, model, parts_to_move, ledger)
        elif role not in allowed and role != "tool" and message.by is None:
            new = _without_media(message, index, model, parts_to_move, ledger)
        if new is not message:
            position = index
        if new is not None:
            out.append((index, new))
    flush()
    return out


def _without_result_media(message: Message, index: int, model: Model, moved: list[Part], ledger: Ledger) -> Message:
    """Return a message of results without their media, which are added to `moved`."""
    if not any(type(p) is ToolResult and p.media for p in message.parts):
        return message
    parts: list[Part] = []
    for part in message.parts:
        if type(part) is ToolResult and part.media:
            subject = f"messages[{index}]: the result of {part.name or part.id} holds pictures"
            ledger.note("media-moved", "messages", subject, "put into a user message after the results")
            _note_lost_blocks(part, part.media, model, ledger)
            head = Text(f"From the result of {part.name or part.id}:")
            moved += _separate_texts([head, *_name_media(part.media, model)], ())
            part = replace(part, media=(), text=part.text or _SEE_NEXT)
        parts.append(part)
    return replace(message, parts=tuple(parts))


def _without_media(message: Message, index: int, model: Model, moved: list[Part], ledger: Ledger) -> Message | None:
    """Return a message without its media and files, which are added to `moved`; None for one that has nothing else."""
    is_answer = message.role == "assistant"
    media = [p for p in message.parts if (type(p) is Media and (p.seal is None or not is_answer)) or _is_file(p)]
    if not media:
        return message
    nouns = dict.fromkeys(media_noun(p) if type(p) is Media else "file" for p in media)
    subject = f"messages[{index}] by {message.role} holds {', '.join(nouns)}"
    ledger.note("media-moved", "messages", subject, "put into a user message after it")
    head = Text("From your answer:" if is_answer else "From the system message:")
    moved += _separate_texts([head, *_name_media(media, model)], ())
    ids = set(map(id, media))
    parts = [part for part in message.parts if id(part) not in ids]
    if not any(type(part) is not Reasoning and (type(part) is not Text or part.text.strip()) for part in parts):
        if not is_answer:
            return None
        parts.append(Text(_SEE_NEXT))
    return replace(message, parts=tuple(parts))
