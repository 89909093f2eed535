"""Keep the texts and the parts of a reply, and build the parts: in their order, where the wire has one."""

from __future__ import annotations

from collections.abc import Iterable
from math import inf
from typing import Any, Literal

from msgspec import Struct
from msgspec.structs import replace

from cnllm.engine.decode.tool_calls import CallBuilder
from cnllm.registry.flags import Flags
from cnllm.registry.model import Model
from cnllm.types import (
    BlockEnd,
    Event,
    Media,
    Opaque,
    Part,
    Reasoning,
    ReasoningDelta,
    Seal,
    Text,
    TextDelta,
    ToolCall,
)
from cnllm.types.lenient_json import replace_surrogates as _replace_surrogates

__all__ = ["Fragments", "PartKind", "Parts"]

PartKind = Literal["text", "thought", "opaque", "media", "call"]

Fragments = Literal["none", "pieces", "snapshots"]
"""Whether items of reasoning came whole, in pieces, or in snapshots of all that came so far."""

_PACK_SIZE = 1024  # short strings that may gather before they are joined
_MIN_SNAPSHOT = 24  # characters; a shorter repetition may be chance
_TEXT_KEYS = ("text", "summary")  # keys of an item of reasoning that arrive in fragments


class GrowingText(list[str]):
    """A text that grows piece by piece: the list of its pieces, none of which is empty.

    To add a piece takes constant time, to read the end takes time in its length.
    """

    __slots__ = ("_counted", "_size", "most")

    def __init__(self) -> None:
        super().__init__()
        self._size = 0  # characters of the counted pieces
        self._counted = 0
        self.most = _PACK_SIZE  # pieces, before the new ones are joined

    @property
    def size(self) -> int:
        """Count the characters. Each piece is counted once."""
        if self._counted < len(self):
            self._size += sum(map(len, self[self._counted :]))
            self._counted = len(self)
        return self._size

    def since(self, start: int) -> str:
        """Return the text from a position on."""
        size, found = self.size, []
        for piece in reversed(self):
            if size <= start:
                break
            size -= len(piece)
            found.append(piece)
        text = found[0] if len(found) == 1 else "".join(reversed(found))
        return text[start - size :] if size < start else text

    def begin_again(self) -> None:
        """Begin again without text."""
        self.clear()
        self._size = self._counted = 0
        self.most = _PACK_SIZE

    def pack(self) -> None:
        """Join the new pieces, because they are more than `most`: many short strings need much memory."""
        size, start = self.size, self.most - _PACK_SIZE
        self[start:] = ["".join(self[start:])]
        self._size, self._counted, self.most = size, len(self), len(self) + _PACK_SIZE


class Block(Struct, eq=False):
    """One part that is being read, on a wire that orders its parts.

    `start` is the position of its text in all the text of its kind, `end` the one behind it, once another part of its
    kind has begun. `seal` is the endpoint's signature, `part` the part as built, `is_current` whether it still holds.
    """

    kind: PartKind
    start: int
    data: Any
    end: int | None = None
    seal: Any = None
    part: Part | None = None
    is_current: bool = False


class Parts:
    """The texts and the parts of one reply. `kind` is that of the part that is being read, on a wire that orders them.

    `annotations` are what the endpoint sent about the answer, `details` structured items of its reasoning.
    """

    def __init__(self, model: Model, flags: Flags, *, ordered: bool) -> None:
        self._model = model
        self._flags = flags
        self.is_ordered = ordered
        self.text = GrowingText()
        self.thought = GrowingText()
        self.annotations: dict[str, Any] = {}
        self.details: list[Any] = []
        # On a wire without an order of parts:
        self._opaque: list[Any] = []
        self._media: dict[tuple[Any, ...], Media] = {}  # by all that they hold
        # On a wire with one:
        self.kind: PartKind | None = None
        self._blocks: list[Block] = []
        self._last: dict[str, Block] = {}  # of each kind
        self._by_number: dict[int, Block] = {}  # by the decoder's number of the part
        self._unreported = 0  # the first block that events may still report
        self._reported = 0  # parts that events have reported, with the calls between them
        self._ends: list[int] = []  # the places of those that are no calls
        self.is_reported_late = False  # events report no part before the end of the reply

    def put(self, text: str, *, in_reasoning: bool) -> Event:
        """Add text of the reasoning or of the answer; return its event."""
        texts = self.thought if in_reasoning else self.text
        texts.append(text)
        if len(texts) > texts.most:
            texts.pack()
        return ReasoningDelta(text) if in_reasoning else TextDelta(text)

    def put_run(self, pieces: list[str], *, in_reasoning: bool) -> Iterable[Event]:
        """Add a run of pieces that continue the last part; return their events."""
        texts = self.thought if in_reasoning else self.text
        texts += pieces
        if len(texts) > texts.most:
            texts.pack()
        return map(ReasoningDelta if in_reasoning else TextDelta, pieces)

    def begin(self, kind: PartKind, data: Any = None) -> None:
        """Begin a part, on a wire that orders its parts; its text is what is added next."""
        texts = self._texts(kind)
        block = Block(kind, 0 if texts is None else texts.size, data)
        if (previous := self._last.get(kind)) is not None:
            previous.end = block.start
        self._last[kind] = block
        self._blocks.append(block)
        self.kind = kind

    def number(self, part: int | None) -> None:
        """Remember the decoder's number of the part that began last."""
        if part is not None and self._blocks:
            self._by_number[part] = self._blocks[-1]

    def add_opaque(self, data: Any) -> None:
        """Add a part that only the endpoint understands, on a wire without an order of parts."""
        self._opaque.append(data)

    def add_media(self, media: Media, seal: Any) -> None:
        """Add a medium, on a wire without an order of parts."""
        media = replace(media, seal=None if seal is None else self.seal_of(seal))
        # Some hosts repeat the whole message.
        self._media[media.type, media.data, media.url, repr((media.seal, media.extra))] = media

    def _texts(self, kind: PartKind) -> GrowingText | None:
        """Return the text of which parts of this kind are pieces."""
        return self.text if kind == "text" else self.thought if kind == "thought" else None

    def block(self, number: int | None) -> Block | None:
        """Return the last part, or the one with this number, for a change; None where there is none.

        The part is built again afterwards.
        """
        block = self._by_number.get(number) if number is not None else self._blocks[-1] if self._blocks else None
        if block is not None:
            block.is_current = False
        return block

    def text_size(self, number: int, kind: PartKind = "text") -> float:
        """Return the number of characters of a numbered part; infinity where it is of another kind."""
        block = self._by_number.get(number)
        texts = self._texts(kind)
        if block is None or block.kind != kind or texts is None:
            return inf
        return (texts.size if block.end is None else block.end) - block.start

    def text_of(self, number: int) -> str:
        """Return the text of a numbered part that has one."""
        block = self._by_number[number]
        texts = self._texts(block.kind)
        assert texts is not None
        return texts.since(block.start)[: None if block.end is None else block.end - block.start]

    def is_last(self, number: int) -> bool:
        """Whether a numbered part is the one that began last."""
        return self._by_number[number] is self._blocks[-1]

    def seal_of(self, data: Any = None) -> Seal:
        """Return the seal for data that goes back to this endpoint."""
        return Seal(self._model.protocol, self._model.provider, self._model.id, data)

    def end(self) -> list[Event]:
        """End the last part; return events for the parts that are finished and were not reported yet.

        None behind a call that is not complete: it may be no part in the end.
        """
        self.kind = None
        if self.is_reported_late:
            return []
        start = stop = self._unreported
        calls: dict[int, ToolCall] = {}
        while stop < len(self._blocks):
            block = self._blocks[stop]
            if block.kind == "call":
                if not _is_complete(block.data):
                    break
                calls[id(block.data)] = _CALL
            stop += 1
        parts = self._build(start, calls, stop=stop)
        out = [BlockEnd(index, part) for index, part in enumerate(parts, self._reported) if part is not _CALL]
        self._unreported = stop
        self._reported += len(parts)
        self._ends += [end.index for end in out]
        return [*out]

    def last_ends(self, parts: tuple[Part, ...]) -> list[Event]:
        """Return events for the parts of the whole reply that were not reported yet. Calls have their own.

        Behind parts that stand elsewhere now, because a call before them is no part, they count it as these did.
        """
        others = [(index, part) for index, part in enumerate(parts) if type(part) is not ToolCall]
        count = len(self._ends)
        moved = self._ends[-1] - others[count - 1][0] if 0 < count <= len(others) else 0
        return [BlockEnd(index + moved, part) for index, part in others[count:]]

    def build(
        self, calls: dict[int, ToolCall], tagged: str, fragments: Fragments, *, keeps_seal: bool
    ) -> tuple[Part, ...]:
        """Return all parts, in order.

        `calls` are the whole calls by the identity of their builders, `tagged` is reasoning with its tags, as written.
        `fragments` tells in what form structured items of reasoning came. Without `keeps_seal` a call was taken out of
        the reasoning, so that the endpoint's own copy no longer fits.
        """
        if self.is_ordered:
            parts = self._build(0, calls, keeps_seal=keeps_seal)
        else:
            parts = []
            thought, text = "".join(self.thought), "".join(self.text)
            if thought or self.details:
                seal = self._reasoning_seal(tagged, fragments) if keeps_seal else None
                parts.append(Reasoning(thought, seal))
            if text:
                parts.append(Text(text))
            parts += [*self._media.values(), *(Opaque(data, self.seal_of()) for data in self._opaque), *calls.values()]
        if self.annotations:
            last = next((i for i in range(len(parts) - 1, -1, -1) if type(parts[i]) is Text), None)
            if last is not None:
                parts[last] = replace(parts[last], extra=self.annotations)
        return tuple(parts)

    def _build(
        self, start: int, calls: dict[int, ToolCall], *, keeps_seal: bool = True, stop: int | None = None
    ) -> list[Part]:
        """Return the parts of the blocks from `start` on, up to `stop`. Only new and changed ones are built."""
        parts: list[Part] = []
        texts: dict[str, tuple[int, str]] = {}  # of each kind: a position, and the text from there on
        for block in self._blocks[start:stop]:
            if not block.is_current:
                text = ""
                if (growing := self._texts(block.kind)) is not None:
                    if block.kind not in texts:
                        texts[block.kind] = block.start, growing.since(block.start)
                    offset, rest = texts[block.kind]
                    text = rest[block.start - offset : None if block.end is None else block.end - offset]
                block.part = self._part(block, text, calls, keeps_seal=keeps_seal)
                block.is_current = block.kind != "call"
            if block.part is not None:
                parts.append(block.part)
        return parts

    def _part(self, block: Block, text: str, calls: dict[int, ToolCall], *, keeps_seal: bool) -> Part | None:
        """Make the part of a block; None where the block is empty or its call is not whole."""
        if block.kind == "call":
            return calls.get(id(block.data))
        if block.kind == "opaque":
            return Opaque(block.data, self.seal_of())
        data = _replace_surrogates(block.seal()) if callable(block.seal) else block.seal
        seal = None if data is None else self.seal_of(data)
        if block.kind == "media":
            media: Media = replace(block.data, seal=seal)
            return media
        if not text and seal is None:
            return None
        return Text(text, seal) if block.kind == "text" else Reasoning(text, seal if keeps_seal else None)

    def _reasoning_seal(self, tagged: str, fragments: Fragments) -> Seal | None:
        """Return the seal of the reasoning, on a wire without an order of parts: structured items, or tagged text."""
        part = self._flags.reasoning.part
        data: Any = self.details
        if data and fragments != "none":
            data = _join_fragments(data, part, snapshots=fragments == "snapshots")
        data = _replace_surrogates(data) or tagged or None  # the halves of a character may be in two fragments
        return None if data is None else self.seal_of(data)

    @property
    def has_content(self) -> bool:
        """Whether anything but calls has come, apart from parts that have begun."""
        return bool(self.text or self.thought or self._opaque or self._media or self.details)

    @property
    def has_begun(self) -> bool:
        """Whether any part has begun, on a wire that orders them."""
        return bool(self._blocks)

    def restart(self, *, in_reasoning: bool) -> str:
        """Forget the texts, because all of them arrive again. The order of the parts stays.

        Return the text of the other kind, which was right.
        """
        for block in self._blocks:
            block.start = 0
            block.is_current = False
            block.end = None if block is self._last.get(block.kind) else 0
        self._unreported = self._reported = 0
        self._ends = []
        other = self.text if in_reasoning else self.thought
        other_text = "".join(other)
        self.text.begin_again()
        self.thought.begin_again()
        return other_text

    def gather_text(self) -> None:
        """Count all text of the answer to the last part with text."""
        for block in self._blocks:
            if block.kind == "text":
                block.start, block.is_current = 0, False
                block.end = None if block is self._last["text"] else 0

    def seal(self, data: Any, part: int | None) -> None:
        """Attach the endpoint's signature to a part."""
        if not self.is_ordered or (block := self.block(part)) is None:
            return
        if block.kind == "opaque":
            block.data = _replace_surrogates(data)
        elif block.kind != "call":
            block.seal = data if callable(data) else _replace_surrogates(data)
        elif callable(data):
            block.data.late = data
        elif type(data := _replace_surrogates(data)) is dict:
            block.data.extra.update(data)


_CALL = ToolCall("", "")
"""Stands for a call that is not built yet."""


def _is_complete(call: CallBuilder) -> bool:
    """Whether a call is a part of the reply, as far as is known: unless the reply breaks off."""
    is_whole = call.is_complete() if call.is_whole is None else call.is_whole
    return is_whole and call.via == "wire" and call.name_size > 0


def _join_fragments(details: list[Any], part: str | None = None, *, snapshots: bool) -> list[Any]:
    """Join fragments of one item again: neighbours with the same type and index, as their endpoints require.

    `part` is the type of the parts of content that hold reasoning.
    """
    if part is not None and any(type(item) is dict and item.get("type") == part for item in details):
        return _join_parts(details, part, snapshots=snapshots)
    out: list[Any] = []
    texts: dict[str, _Fragments] = {}  # texts of the last item, where it has fragments
    for item in details:
        last: Any = out[-1] if out else None
        if not _continues_item(item, last):
            _write_texts(out, texts)
            texts = {}
            out.append(item)
            continue
        if not texts:
            out[-1] = last = dict(last)
            texts = {key: _Fragments(last[key]) for key in _TEXT_KEYS if type(last.get(key)) is str}
        _add_fragment(item, last, texts, snapshots=snapshots)
    _write_texts(out, texts)
    return out


def _continues_item(item: Any, last: Any) -> bool:
    """Whether an item is the next fragment of the last one: the same type, index and id, and a text in both."""
    return (
        type(item) is dict
        and type(last) is dict
        and item.get("type") == last.get("type")
        and item.get("index") == last.get("index")
        and (item.get("id") is None or last.get("id") in (None, item.get("id")))
        and any(type(item.get(key)) is str and type(last.get(key)) is str for key in _TEXT_KEYS)
    )


def _add_fragment(item: dict[str, Any], last: dict[str, Any], texts: dict[str, _Fragments], *, snapshots: bool) -> None:
    """Add a fragment to the last item: its texts to `texts`; its other values replace earlier ones."""
    for key, value in item.items():
        if type(value) is str and key in texts:
            texts[key].add(value, snapshots=snapshots)
        elif value is not None:
            last[key] = value
            if key in _TEXT_KEYS:
                texts.pop(key, None)
                if type(value) is str:
                    texts[key] = _Fragments(value)


def _write_texts(out: list[Any], texts: dict[str, _Fragments]) -> None:
    """Write the joined texts into the last item."""
    for key, fragments in texts.items():
        out[-1][key] = "".join(fragments.pieces)


def _join_parts(details: list[Any], part: str, *, snapshots: bool) -> list[Any]:
    """Join the parts of content with reasoning that follow each other; other items stay as they are."""
    out: list[Any] = []
    texts: list[Any] = []  # of the last part: fragments of a text, texts of parts, and others as they are
    for item in [*details, None]:
        last = out[-1] if texts else None
        continues = type(item) is dict and item.get("type") == part and type(item.get(part)) in (str, list)
        if last is not None and not (continues and type(item[part]) is type(last[part])):
            whole = [_inner_part(inner) for inner in texts]
            last[part] = whole[0] if type(last[part]) is str else whole
            texts = []
        if not continues:
            out += [] if item is None else [item]
            continue
        inner = [item[part]] if type(item[part]) is str else item[part]
        if not texts:
            out.append(dict(item))
            texts = [_inner_fragments(one) for one in inner]
            continue
        out[-1].update({key: value for key, value in item.items() if key != part and value is not None})
        for index, one in enumerate(map(_inner_fragments, inner)):
            before = texts[-1]
            if index == 0 and type(one) is tuple and type(before) is tuple and one[0] == before[0]:
                before[1].add("".join(one[1].pieces), snapshots=snapshots)
            else:
                texts.append(one)
    return out


def _inner_fragments(inner: Any) -> Any:
    """Return a text, or a part of text, as (its other keys, its fragments); anything else as it is."""
    if type(inner) is str:
        return None, _Fragments(inner)
    if type(inner) is dict and type(inner.get("text")) is str:
        return {**inner, "text": None}, _Fragments(inner["text"])
    return inner


def _inner_part(inner: Any) -> Any:
    """Return what `_inner_fragments` was given, with all of its fragments."""
    if type(inner) is not tuple:
        return inner
    text = "".join(inner[1].pieces)
    return text if inner[0] is None else {**inner[0], "text": text}


class _Fragments:
    """The fragments of one text, joined once."""

    __slots__ = ("pieces", "size")

    def __init__(self, text: str) -> None:
        self.pieces = [text]
        self.size = len(text)

    def add(self, text: str, *, snapshots: bool) -> None:
        """Add a fragment.

        With `snapshots`, a fragment that begins with all the text so far replaces it. A long one that equals all the
        text so far is ignored.
        """
        if len(text) == self.size >= _MIN_SNAPSHOT:
            self.pieces = ["".join(self.pieces)]
            if text == self.pieces[0]:
                return
        if snapshots and len(text) >= self.size:
            self.pieces = ["".join(self.pieces)]
            if text.startswith(self.pieces[0]):
                self.pieces, self.size = [text], len(text)
                return
        self.pieces.append(text)
        self.size += len(text)
