"""Stages that remove what a server leaves around an answer: tags that a model writes there, and a stop text."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache
from itertools import pairwise

from cnllm.engine.decode.collector import Collector
from cnllm.engine.decode.stage import Item, PlainText, Restart, Stage, removal
from cnllm.engine.decode.tool_calls import CallBuilder
from cnllm.leaks.markers import Markers
from cnllm.protocols.pieces import TextPiece
from cnllm.types import Note

__all__ = ["AnswerTags", "StopTexts"]

_MAX_CLOSERS = 8  # closing tags in a row: behind more of them all is text
_MAX_HELD = 1024  # characters of tags and white space in a row: with each piece the text that waits is read again
_NEW_ANSWER = ("tag-stripped", "fallback")
"""The notes behind which an answer begins anew: reasoning without an opening tag ended, or a sentence replaces it."""


class AnswerTags(Stage):
    """The stage that removes an opening tag at the start of an answer, and closing tags at its end.

    `tags` are the opening tag, then the closing ones; behind an empty text those of a further form. A closing tag
    before more text is text itself. Tags in plain words, such as `<answer>`, may be what the caller asked for: they
    count only behind reasoning in the text (`has_thought`), or behind a tag that ended it. Where the stage before
    notices every tag, plain text without one may pass by: `lets_text`. `plain` is its last text without one.
    """

    __slots__ = (
        *("_closers", "_closing", "_first", "_has_begun", "_has_ended", "_has_thought", "_opener", "_openers"),
        *("is_idle", "lets_text", "pending", "plain"),
    )

    def __init__(self, tags: list[str], has_thought: Callable[[], bool] | None = None) -> None:
        self._openers, self._closers, self._first = _parse_tags(tuple(tags))
        self._closing = Markers.copy(self._closers) if self._closers else None
        self._has_thought = has_thought if tags[0][1:-1].isalpha() else None  # None: the tags count
        self.lets_text = False
        self.plain: PlainText | None = None
        self._begin()

    def _begin(self) -> None:
        """Begin an answer."""
        self._has_begun = False
        self._opener = ""  # with which the answer began
        self._has_ended = False  # all that follows is text
        self.pending = ""  # text that may begin a tag, or a closing tag behind which nothing stands so far
        self.is_idle = True  # while nothing is pending

    def feed(self, item: Item) -> list[Item]:
        """Return the text that is no tag around the answer."""
        if type(item) is Restart and item.text:
            self._begin()
        if type(item) is Note and item.code in _NEW_ANSWER:
            self._has_thought = None
            out = self.release()
            self._begin()
            return [*out, item]
        if type(item) is not TextPiece or (self._has_thought is not None and not self._has_thought()):
            return [item]
        has_begun = self._has_begun
        text = self._certain(item.text)
        self.is_idle = not self.pending
        notes: list[Item] = [_removal(self._opener)] if self._opener and not has_begun else []
        return [*notes, TextPiece(text)] if text else notes

    def _certain(self, text: str) -> str:
        """Return the text that is no tag."""
        if self._has_ended:
            return text
        is_plain = not self.pending and self.plain is not None and text is self.plain.text
        text, self.pending = self.pending + text, ""
        if not self._has_begun:
            rest = text.lstrip()
            openers = self._openers if rest[:1] in self._first else ()  # none for most answers
            if len(text) <= _MAX_HELD and any(len(rest) < len(tag) and tag.startswith(rest) for tag in openers):
                self.pending = text
                return ""
            self._has_begun = True
            self._opener = max((tag for tag in openers if rest.startswith(tag)), key=len, default="")
            text = rest.removeprefix(self._opener) if self._opener else text
        start = len(text) if is_plain else self._tail_start(text)
        self.pending = text[start:]
        return text[:start]

    def release(self) -> list[Item]:
        """Return what waited and is no tag: the part of the reply is over."""
        text, self.pending, self.is_idle = self.pending, "", True
        rest, notes = text.rstrip(), list[Item]()
        while closer := next((tag for tag in self._closers if rest.endswith(tag)), ""):
            text = rest = rest.removesuffix(closer).rstrip()
            notes.append(_removal(closer))
        return [TextPiece(text), *notes] if text else notes

    def end(self, *, proven: bool) -> list[Item]:
        """Return what waited and is no tag."""
        return self.release()

    def _tail_start(self, text: str) -> int:
        """Return the start of the closing tags, or of the beginning of one, that end a text; its length if none do."""
        closing = self._closing
        if closing is None or not (closing.has_start(text) and closing.may_begin(text)):  # as nearly always
            return len(text)
        position = 0
        while (start := min((at for tag in self._closers if (at := text.find(tag, position)) >= 0), default=-1)) >= 0:
            position, count = start, 0
            while closer := next((tag for tag in self._closers if text.startswith(tag, position)), ""):
                position, count = _skip_space(text, position + len(closer)), count + 1
            if count > _MAX_CLOSERS or position - start > _MAX_HELD:
                self._has_ended = True
                return len(text)
            if any(tag.startswith(text[position:]) for tag in self._closers):
                return start
        return len(text) - _overlap(text[position:], self._closers)


class StopTexts(Stage):
    """The stage that removes a stop text at the end of an answer. It holds back text that may be one.

    `collected` is what the reply holds so far, `removed` says that a stop text was removed.
    """

    __slots__ = ("_collected", "_has_calls", "_stops", "is_idle", "pending", "removed")

    lets_text = False  # all text of the answer is read

    def __init__(self, stops: tuple[str, ...], collector: Collector) -> None:
        self._collected = collector
        self._stops = sorted(stops, key=len, reverse=True)
        self.pending = ""
        self.is_idle = True  # while nothing is pending
        self._has_calls = False
        self.removed = False

    @property
    def has_stop(self) -> bool:
        """Whether the text that waits ends with a whole stop text: it is not known yet whether the answer ends here."""
        return bool(self.pending) and any(self.pending.endswith(stop) for stop in self._stops)

    def feed(self, item: Item) -> list[Item]:
        """Return the text that cannot be part of a stop text at the end."""
        if type(item) is Restart and item.text:
            self.pending, self.is_idle = "", True
        self._has_calls = self._has_calls or type(item) is CallBuilder
        if type(item) is not TextPiece:
            return [item]
        text = self.pending + item.text
        size = _overlap(text, self._stops)
        self.pending, self.is_idle = text[len(text) - size :], size == 0
        return [TextPiece(text[: len(text) - size])] if size < len(text) else []

    def flush(self) -> list[Item]:
        """Return the text that waits: the answer goes on behind it."""
        text, self.pending, self.is_idle = self.pending, "", True
        return [TextPiece(text)] if text else []

    def end(self, *, proven: bool) -> list[Item]:
        """Return the text that waits, without a stop text where the answer ends with it."""
        collector = self._collected
        text = self.pending
        stop = next((stop for stop in self._stops if text.endswith(stop)), "")
        is_end = collector.finish_kind in (None, "pending", "stop") and collector.fault is None and proven
        if not stop or not is_end or collector.calls.all or self._has_calls:
            return self.flush()
        self.pending, self.is_idle = "", True
        self.removed = True
        rest = text[: len(text) - len(stop)]
        note = Note("stop-left-in", "params.stop", stop, "taken off the end of the text")
        return [TextPiece(rest), note] if rest else [note]


@lru_cache(maxsize=64)
def _parse_tags(tags: tuple[str, ...]) -> tuple[tuple[str, ...], tuple[str, ...], frozenset[str]]:
    """Return the opening tags, the closing ones, and what a text that may begin an opening one begins with."""
    openers = tuple([tag for before, tag in pairwise(["", *tags]) if not before])
    closers = tuple([tag for before, tag in pairwise(tags) if before and tag])
    return openers, closers, frozenset(["", *(tag[:1] for tag in openers)])


def _removal(tag: str) -> Note:
    """Return the note on a tag around the answer."""
    return Note("tag-stripped", "reasoning.answer_tags", tag, removal(tag, "it stands around the answer"))


def _overlap(text: str, markers: Sequence[str]) -> int:
    """Return how many characters at the end of a text may begin one of some markers."""
    tail = text[-max(map(len, markers)) :]
    firsts = {marker[0] for marker in markers}
    for at, char in enumerate(tail):
        if char in firsts and any(marker.startswith(tail[at:]) for marker in markers):
            return len(tail) - at
    return 0


def _skip_space(text: str, position: int) -> int:
    """Return the position behind white space."""
    while position < len(text) and text[position].isspace():
        position += 1
    return position
