"""Stages that give each new text once: of deltas or snapshots, of halves of characters, of fields that repeat it."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence

from cnllm.engine.decode.collector import Collector
from cnllm.engine.decode.stage import TAGGED, Item, Restart, Stage, text_piece
from cnllm.protocols.pieces import ReasoningPiece, TextPiece
from cnllm.types import Note
from cnllm.types.delivered import Diverged, RepeatedText
from cnllm.types.lenient_json import join_halves, replace_surrogates, split_half

__all__ = ["Deltas", "Duplicates", "Surrogates"]

_SNAPSHOTS = ("cumulative", "either")  # modes in which a piece may be a snapshot
_MIN_SNAPSHOT = 24  # characters; a shorter repetition may be chance
_MIN_SNAPSHOTS = 3  # long snapshots in a row before deltas count as cumulative
_MAX_DOUBTED = 32  # snapshots; from more of them on no later piece can show that they were deltas
_MAX_REPEAT_CHECKS = 8  # comparisons of a text with all the reasoning so far


class _Channel:
    """Tells pieces of text from snapshots of all the text so far, by the declared `mode`.

    `either`: the second delta decides, and a later one that contradicts it corrects the decision. Undeclared: pieces
    are deltas as soon as one does not hold all the text before it, and snapshots once several of them are long. A later
    piece may still contradict that. In all these cases the text may have to begin again with `restart`.
    """

    __slots__ = ("_hits", "_last", "_sizes", "half", "mode", "restart")

    def __init__(self, mode: str | None) -> None:
        self.mode = mode
        self.restart: str | None = None
        self.half = ""  # half of a character at the end of the newest snapshot
        self._last = ""
        self._hits = 0
        # The sizes of the pieces so far, each the start of the next one; None once it is certain what they are.
        self._sizes: list[int] | None = [] if mode in (None, "either") else None

    def new(self, text: str) -> str:
        """Return the new part of a delta.

        Where `restart` is set afterwards, all the text so far was misread, and `restart` is the right text.
        """
        if self.mode == "incremental":
            return text
        return self._infer_mode(text) if self.mode is None else self._snapshot(text)

    def _snapshot(self, text: str) -> str:
        last, (safe, half) = self._last, split_half(text)
        repeats = self.mode == "cumulative" and last.startswith(safe)
        if self._sizes is not None:
            if not (repeats or safe.startswith(last)):
                return self._take_deltas(text)
            self._sizes.append(len(safe))
            if self.mode == "cumulative" and len(self._sizes) > _MAX_DOUBTED:
                self._sizes = None
        self.half = half  # the next snapshot has the whole character
        if repeats:
            return ""
        self._last = safe
        return safe[len(last) :] if safe.startswith(last) else safe

    def _take_deltas(self, text: str) -> str:
        """Take the pieces so far, and a text that contradicts that they were snapshots, for deltas."""
        before = "".join([self._last[:size] for size in self._sizes or ()]) + self.half
        self.mode, self.half, self._sizes = "incremental", "", None
        if before != self._last:
            self.restart = before + text
        return text

    def _infer_mode(self, text: str) -> str:
        assert self._sizes is not None
        last, self._last = self._last, text
        if not text.startswith(last):
            self.mode = "incremental"
            return text
        self._sizes.append(len(text))
        self._hits += len(last) >= _MIN_SNAPSHOT and len(text) > len(last)
        if self._hits == _MIN_SNAPSHOTS:
            self.mode, self.restart = "cumulative", text
        return text


class Deltas(Stage):
    """The stage that gives the new part of each piece, where pieces may be snapshots of all the text so far.

    `has_snapshots` says that pieces of the reasoning may be. `undecided` holds True while that is unknown of the
    reasoning, and False while it is unknown of the answer: `skip` has to know the short pieces that pass by.
    """

    __slots__ = ("_text", "_thought", "has_snapshots", "lets_text", "lets_thought", "undecided")

    reads_thought = True

    def __init__(self, mode: str | None) -> None:
        self._text, self._thought = _Channel(mode), _Channel(mode)
        self.undecided = {True, False} if mode is None else set()
        self._look()

    def _look(self) -> None:
        """Find out whether short pieces are new text, as far as is known."""
        self.has_snapshots = self._thought.mode in _SNAPSHOTS
        self.lets_text = self.lets_thought = self._text.mode not in _SNAPSHOTS and not self.has_snapshots

    def skip(self, texts: Sequence[str], *, in_reasoning: bool) -> None:
        """Take note of short texts that passed by while it is undecided what pieces are."""
        channel = self._thought if in_reasoning else self._text
        for text in texts:
            channel.new(text)
            if channel.mode is not None:
                self.undecided.discard(in_reasoning)
                return

    def feed(self, item: Item) -> list[Item]:
        """Return the new text; where all of it was misread, the right one behind a restart."""
        if type(item) is not TextPiece and type(item) is not ReasoningPiece:
            return [item]
        in_reasoning = type(item) is ReasoningPiece
        channel = self._thought if in_reasoning else self._text
        mode, new = channel.mode, channel.new(item.text)
        if mode != channel.mode:
            self.undecided.discard(in_reasoning)
            self._look()
        if channel.restart is None:
            return [] if not new else [item] if new is item.text else [_with_text(item, new)]
        snapshot, channel.restart = channel.restart, None
        note = Note("deltas-reread", "stream.deltas", "the deltas were misread", f"read again as {channel.mode}")
        return [Restart(text=not in_reasoning, thought=in_reasoning), note, _with_text(item, snapshot)]

    def end(self, *, proven: bool) -> list[Item]:
        """Return the halves of characters at the end of the newest snapshots."""
        if not (self._thought.half or self._text.half):
            return []
        pairs = ((True, self._thought), (False, self._text))
        return [text_piece(channel.half, in_reasoning=in_reasoning) for in_reasoning, channel in pairs if channel.half]


class Surrogates(Stage):
    """The stage that joins the two halves of a character that arrive in two pieces."""

    __slots__ = ("_halves", "is_idle", "lets_text", "lets_thought")

    reads_thought = True

    def __init__(self) -> None:
        self._halves = {ReasoningPiece: "", TextPiece: ""}  # the half that waits for the next piece of each kind
        self.is_idle = self.lets_text = self.lets_thought = True  # while no half waits

    def feed(self, item: Item) -> list[Item]:
        """Return text with whole characters."""
        if type(item) is TextPiece or type(item) is ReasoningPiece:
            return [item] if self.is_idle and item.text.isascii() else self._join(item)
        if type(item) is Restart:
            self._halves[TextPiece] = "" if item.text else self._halves[TextPiece]
            self._halves[ReasoningPiece] = "" if item.thought else self._halves[ReasoningPiece]
            self._look()
        return [item]

    def _join(self, item: TextPiece | ReasoningPiece) -> list[Item]:
        """Return a piece behind the half that waits; half of a character at its end waits for the next piece."""
        text, self._halves[type(item)] = join_halves(self._halves[type(item)], item.text)
        self._look()
        return [] if not text else [item] if text == item.text else [_with_text(item, text)]

    def _look(self) -> None:
        """Find out whether a half waits."""
        self.is_idle = self.lets_text = self.lets_thought = not any(self._halves.values())

    def end(self, *, proven: bool) -> list[Item]:
        """Return a replacement for each half that nothing followed."""
        if self.is_idle:
            return []
        halves = [(kind, half) for kind, half in self._halves.items() if half]
        self._halves = dict.fromkeys(self._halves, "")
        return [text_piece(replace_surrogates(half), in_reasoning=kind is ReasoningPiece) for kind, half in halves]


def _with_text(item: TextPiece | ReasoningPiece, text: str) -> TextPiece | ReasoningPiece:
    """Return a piece of the same kind with another text."""
    return ReasoningPiece(text, item.field) if isinstance(item, ReasoningPiece) else TextPiece(text)


class DuplicateField:
    """A field that repeats reasoning which another field delivers.

    `read` returns that reasoning from a position on. White space at both ends of a field is ignored. `ahead` means that
    the field has more text than the other one. Where the two differ, the text that was taken for a repetition comes
    after all, if it has fewer characters than `certain`.
    """

    __slots__ = ("_certain", "_has_text", "_read", "_repeated", "_space", "_start", "ahead")

    def __init__(self, read: Callable[[int], str], caught_up: int | None = None, certain: int = _MIN_SNAPSHOT) -> None:
        self._read = read
        self._repeated = RepeatedText(read, caught_up or 0)
        self._certain = certain
        self._start = caught_up or 0  # of what was taken for a repetition
        self._has_text = caught_up is not None
        self._space = ""  # white space at the end of the text so far
        self.ahead = False

    def restart(self) -> None:
        """Read the text again, which has changed."""
        self._repeated.reread()

    def new(self, text: str) -> str:
        """Return the part of a text that the other field does not have."""
        text, self._space = self._space + text, ""
        whole = text
        if not self._has_text:
            text = text.lstrip()
            if not text:
                self._space = whole
                return ""
            self._has_text = True
            other = self._read(0)
            self._start = self._repeated.position = len(other) - len(other.lstrip())
        try:
            rest = self._repeated.rest(text)
        except Diverged:
            start, self._start = self._start, self._repeated.position
            size = self._start - start
            return self._read(start)[:size] + whole if 0 < size < self._certain else whole
        if not rest.strip():
            self._space = rest
            return ""
        self.ahead = True
        return rest


class Duplicates(Stage):
    """The stage that lets reasoning through once, where several fields have it or one field has all of it again.

    `collected` holds the reasoning so far. `source` is the field that it comes from.
    """

    __slots__ = ("_collected", "_fields", "_head", "_repeat_checks", "source")

    reads_text, reads_thought = False, True

    def __init__(self, collector: Collector) -> None:
        self._collected = collector
        self._fields: dict[str, DuplicateField] = {}  # fields that are not the source
        self._head = ""  # the beginning of the reasoning
        self._repeat_checks = _MAX_REPEAT_CHECKS
        self.source: str | None = None

    def feed(self, item: Item) -> list[Item]:
        """Return reasoning that is new, and any other item."""
        if type(item) is not ReasoningPiece:
            return [item]
        if item.is_only:
            self.source = item.field
        new = self._new(item.text, item.field)
        return [] if not new else [item] if new == item.text else [ReasoningPiece(new, item.field)]

    def restart(self) -> None:
        """Compare with a text that has begun again."""
        self._head = ""
        for field in self._fields.values():
            field.restart()

    def new_tagged(self, text: str) -> str:
        """Return the part of reasoning between tags that no field has delivered."""
        return self._new(text, TAGGED)

    def _new(self, text: str, field: str) -> str:
        """Return the new part of some reasoning."""
        thought = self._collected.parts.thought
        if self.source is None:
            self.source = field
        if field == self.source:
            return "" if len(text) >= _MIN_SNAPSHOT and self._is_whole(text) else text
        duplicate = self._fields.get(field)
        if duplicate is None:
            certain = sys.maxsize if field == TAGGED else _MIN_SNAPSHOT  # a thought between tags is often another one
            duplicate = self._fields[field] = DuplicateField(thought.since, certain=certain)
        new = duplicate.new(text)
        if duplicate.ahead:  # from now on the other field may repeat this one
            self._fields[self.source] = DuplicateField(thought.since, thought.size)
            del self._fields[field]
            self.source = field
        return new

    def _is_whole(self, text: str) -> bool:
        """Whether a text repeats all the reasoning so far. A whole body and an ordered wire repeat nothing."""
        collector = self._collected
        parts = collector.parts
        if parts.is_ordered or collector.whole or not parts.thought or self._repeat_checks == 0:
            return False
        if len(parts.thought) == 1 and not parts.text and not collector.calls.all:
            return False  # two deltas may be equal
        if len(self._head) < _MIN_SNAPSHOT:
            self._head = "".join(collector.parts.thought).strip()[:_MIN_SNAPSHOT]
        text = text.strip()
        if not text.startswith(self._head):
            return False
        self._repeat_checks -= 1
        return text == "".join(collector.parts.thought).strip()
