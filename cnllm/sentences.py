"""Split text that arrives in pieces into whole sentences, Chinese and Western: a filter for text, and for events.

A sentence ends where its mark is followed by the possible start of another one, so a piece is withheld until that has
arrived. Numbers, URLs, inline code and fenced code are never split; a fenced block is a piece of its own.
"""

from __future__ import annotations

import re
from collections.abc import AsyncGenerator, Generator
from typing import Literal

from cnllm.errors import CnllmError
from cnllm.system.closing import first_of
from cnllm.types import BlockEnd, Event, Finished, Reasoning, Restarted, TextDelta, ToolCallStart, checks

__all__ = ["BySentence", "Sentences", "by_sentence", "by_sentence_async", "check_by"]

_RUN = re.compile(r"[^\W_]+|.", re.DOTALL)
_WIDE = frozenset("。！？｡")  # end a sentence before any character
_MARKS = frozenset("!?")  # end it before white space or Chinese
_DOTS = frozenset(".…")  # end it before white space, unless a small letter follows
_POINT = "．"  # ends it, unless it is a decimal point or follows the number of an item
_CLOSERS = frozenset(")]}”’»」』】》〉）］｝'")
_ENDS_URL = frozenset('，。．！？；：、｡）】》」』”“’‘<>"`')
_MAX_WORD = 16  # number of characters of a word that are compared
_ABBREVIATION = re.compile(
    r"mrs?|ms|messrs|dr|prof|st|mt|rev|sen|gov|capt|lt|sgt|vs|[js]r|e\.g|i\.e|cf|approx|resp", re.IGNORECASE
)
_NUMBER_ABBREVIATION = re.compile(  # before a number only
    r"nos?|fig|eq|sec|ch|vol|pp?|jan|feb|mar|apr|ju[nl]|aug|sept?|oct|nov|dec", re.IGNORECASE
)
_INITIALS = re.compile(r"(?:.*[^A-Za-z])?[A-Z](?:\.[A-Z])*")
_LATIN = re.compile(r"[0-9A-Za-z０-９Ａ-Ｚａ-ｚ]")
_ASCII_END = re.compile(r"[A-Za-z.]*$")

_Kind = Literal["", "wide", "mark", "point", "dot", "line"]


class Sentences:
    """Splits text that arrives in pieces: `feed` returns the complete sentences, `close` the rest.

    Joined, they equal the text to the character: white space goes with the sentence before it. The sentences do not
    depend on where the text is cut into pieces, and the time is linear in its length.
    """

    def __init__(self) -> None:
        self._out: list[str] = []
        self._fence = ("", 0)  # the mark that opened the current block, and its length
        self._line_start = True  # only white space since the line began
        self._begin()
        self._begin_line()

    def feed(self, text: str) -> list[str]:
        """Add text and return the sentences that it completes."""
        if type(text) is not str:
            checks.require_text("text", text)
            text = str.__str__(text)
        for run in _RUN.findall(text):
            self._read_run(run)
        out, self._out = self._out, []
        return out

    def close(self) -> list[str]:
        """End the text and return the rest, if any."""
        self._emit()
        out, self._out = self._out, []
        return out

    # ── state ────────────────────────────────────────────────────────────────

    def _begin(self) -> None:
        """Begin a sentence."""
        self._pieces: list[str] = []
        self._kind: _Kind = ""  # the mark that may have ended it
        self._gap = False  # white space follows the mark
        self._lines = 0  # number of line breaks in that white space
        self._quotes = self._stars = 0  # open, if odd
        self._last = ""
        self._word = ""
        self._words = 0
        self._in_url = False

    def _begin_line(self) -> None:
        """Begin a line."""
        self._tick, self._ticks = "", 0  # the current run of ` or ~
        self._opening = ("", 0)  # such a run at the start of the line, which opens a block if no other follows
        self._code = 0  # number of ticks that opened inline code
        self._closing = False  # this line of a block may be its last

    def _emit(self) -> None:
        if self._pieces:
            self._out.append("".join(self._pieces))
        self._begin()

    # ── reading ──────────────────────────────────────────────────────────────

    def _read_run(self, run: str) -> None:
        """Read a run of letters and digits, or one other character."""
        if self._fence[1]:
            self._read_block(run)
            return
        if self._kind and not self._continues(run):
            self._emit()
        if run in "`~" and (self._ticks or run == "`" or self._line_start):
            if self._ticks and self._tick != run:
                self._end_ticks()
            self._tick = run
            self._ticks += 1
            self._add(run)
            return
        if self._ticks:
            self._end_ticks()
        self._add(run)
        if run == "\n":
            self._end_line()
        elif run.isspace():
            self._in_url = False
            self._gap = bool(self._kind)
            if not self._gap:
                self._word = ""
        else:
            if run not in ">":  # a quotation may contain a block
                self._line_start = False
            if not self._code and not self._opening[1]:
                self._read_mark(run)

    def _add(self, run: str) -> None:
        self._pieces.append(run)
        if run != "*":
            self._last = run[-1]

    def _end_ticks(self) -> None:
        """End a run of ticks: it opens or closes code."""
        tick, count, self._ticks = self._tick, self._ticks, 0
        if self._code:
            if tick == "`" and count == self._code:
                self._code = 0
        elif self._line_start and count >= 3:
            self._opening = (tick, count)
        elif self._opening[1]:
            if tick == "`":  # the first line of a block has no other tick
                self._opening = ("", 0)
        elif tick == "`":
            self._code = count
        self._line_start = False
        self._word = "`"
        self._words += 1

    def _end_line(self) -> None:
        """End a line."""
        if self._opening[1]:
            self._fence = self._opening
        elif not self._kind:
            self._kind, self._lines, self._word = "line", 0, ""
        self._gap = True
        self._lines += 1
        self._in_url = False
        self._line_start = True
        self._begin_line()

    def _read_block(self, run: str) -> None:
        """Read inside a fenced block, which ends with a line of its mark alone."""
        self._pieces.append(run)
        if run == "\n":
            if self._ticks >= self._fence[1] and (self._closing or self._line_start):
                self._fence = ("", 0)
                self._kind, self._gap, self._lines = "wide", True, 1
            self._line_start = True
            self._begin_line()
        elif run == self._fence[0] and self._line_start and not self._closing:
            self._ticks += 1
        elif run.isspace():
            self._closing = self._ticks > 0
        elif run != ">" or self._ticks:
            self._ticks = 0
            self._line_start = self._closing = False

    def _read_mark(self, run: str) -> None:
        """Read a character that may end a sentence, or that decides later whether one ended."""
        if run in _WIDE:
            self._kind = "wide"
        elif not self._in_url and run in _MARKS:
            self._kind = "mark" if self._kind != "wide" else "wide"
        elif run == _POINT:
            self._kind = self._kind or "point"
        elif run in _DOTS or (self._in_url and run in _MARKS):
            if not self._kind:
                self._kind = "dot"
        elif run == '"':
            self._quotes += 1
        elif run == "*":
            self._stars += self._last != "*"
            self._last = "*"
            return
        if run in _ENDS_URL:
            self._in_url = False
        if run == "." or run.isalnum():
            if not self._word:
                self._words += 1
            self._word = (self._word + run)[-_MAX_WORD:]
        elif run == "/" and self._word == ":/":
            self._in_url = True
        elif run in ":/":
            self._word = (":" if run == ":" else ":/") if run == ":" or self._word == ":" else ""
        elif not self._kind:
            self._word = ""

    # ── the end of a sentence ────────────────────────────────────────────────

    def _continues(self, run: str) -> bool:
        """Whether the text after a mark still belongs to the sentence.

        If it does and is no mark itself, the earlier mark did not end the sentence.
        """
        if run.isspace():
            return True
        if not self._gap:
            if run in _CLOSERS or run in _WIDE or run in _MARKS or run in _DOTS or run == _POINT:
                return True
            if (run == '"' and self._quotes % 2) or (run == "*" and (self._last == "*" or self._stars % 2)):
                return True
        if self._ends_before(run[0]):
            return False
        if self._gap:
            self._word = ""
        self._kind, self._gap, self._lines = "", False, 0
        return True

    def _ends_before(self, char: str) -> bool:
        """Whether the sentence ends before this character."""
        if char == "|" and not self._lines:  # the row of a table continues
            return False
        if self._lines > 1 or self._kind == "wide":
            return True
        if self._kind == "point":
            return (self._gap or not _LATIN.match(char)) and not self._is_abbreviation(char)
        if self._kind == "mark":
            return self._gap or _is_chinese(char)
        if not self._gap or char.islower():
            return False
        return self._lines > 0 or not self._is_abbreviation(char)

    def _is_abbreviation(self, char: str) -> bool:
        """Whether the dot belongs to the word before it: an abbreviation, an initial, or the number of an item."""
        word = self._word.rstrip(".")
        if len(self._word) - len(word) > 1:  # an ellipsis
            return False
        match = _ASCII_END.search(word)
        abbreviation = match[0] if match else ""
        if _ABBREVIATION.fullmatch(abbreviation) or (char.isdigit() and _NUMBER_ABBREVIATION.fullmatch(abbreviation)):
            return True
        if word != "I" and _INITIALS.fullmatch(word):
            return True
        return self._words == 1 and (len(word) == 1 or (word.isdigit() and len(word) < 4))


def _is_chinese(char: str) -> bool:
    return "\u2e80" <= char <= "\u9fff" or "\uf900" <= char <= "\uffef" or "\U00020000" <= char <= "\U0003ffff"


def check_by(by: str) -> None:
    """Raise `ValueError` for an unknown value of `by`."""
    if not isinstance(by, str) or str.__str__(by) != "sentence":
        raise checks.wrong_value("by", by, "'sentence', or nothing,")


class BySentence:
    """Turns the `TextDelta`s of a stream into whole sentences. All other events pass unchanged.

    Withheld text is delivered before a tool call, before the end of its text block, and at the end.
    """

    def __init__(self) -> None:
        self._sentences = Sentences()

    def feed(self, event: Event) -> list[Event]:
        """Return the events to deliver for this one."""
        kind = type(event)
        if kind is TextDelta:
            return [TextDelta(sentence) for sentence in self._sentences.feed(event.text)]  # type: ignore[union-attr]
        if kind is Restarted:
            self._sentences = Sentences()
        elif kind in (ToolCallStart, Finished) or (kind is BlockEnd and type(event.part) is not Reasoning):  # type: ignore[union-attr]
            return [*self.close(), event]
        return [event]

    def close(self) -> list[Event]:
        """Return the withheld text."""
        rest: list[Event] = [TextDelta(sentence) for sentence in self._sentences.close()]
        self._sentences = Sentences()
        return rest


def by_sentence(events: Generator[Event]) -> Generator[Event]:
    """Yield a stream's events by sentence. When the stream fails, withheld text is delivered before the error."""
    checks.require_type("events", events, Generator, "the generator of a stream's events")
    sentences = BySentence()
    try:
        for event in events:
            yield from sentences.feed(event)
    except CnllmError:
        yield from sentences.close()
        raise
    finally:
        events.close()


async def by_sentence_async(events: AsyncGenerator[Event]) -> AsyncGenerator[Event]:
    """Yield an async stream's events by sentence; see `by_sentence`."""
    checks.require_type("events", events, AsyncGenerator, "the async generator of a stream's events")
    sentences = BySentence()
    try:
        event = await first_of(events)
        while event is not None:
            for part in sentences.feed(event):
                yield part
            event = await anext(events, None)
    except CnllmError:
        for part in sentences.close():
            yield part
        raise
    finally:
        await events.aclose()
