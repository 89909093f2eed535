"""Text that comes in pieces → whole sentences, Chinese and Western; as a filter of text, and of a stream's events.

A sentence ends where its mark is followed by what can begin another one, so a piece is held until that has been seen.
Numbers, URLs, inline code and fenced code are never split; a fenced block is a piece of its own.
"""

from __future__ import annotations

import re
from collections.abc import AsyncGenerator, Generator
from typing import Literal

from cnllm.errors import CnllmError
from cnllm.types import BlockEnd, Event, Finished, Reasoning, Restarted, TextDelta, ToolCallStart, checks

__all__ = ["BySentence", "Sentences", "by_sentence", "by_sentence_async", "check_by"]

_RUNS = re.compile(r"[^\W_]+|.", re.DOTALL)
_WIDE = frozenset("。！？｡")  # end a sentence whatever follows
_MARKS = frozenset("!?")  # end it before white space or Chinese
_DOTS = frozenset(".…")  # end it before white space, where no small letter goes on
_POINT = "．"  # ends it where it is no decimal point and numbers no item
_CLOSERS = frozenset(")]}”’»」』】》〉）］｝'")
_ENDS_URL = frozenset('，。．！？；：、｡）】》」』”“’‘<>"`')
_LONG = 16  # characters of a word that are looked at
_SHORTENED = re.compile(
    r"mrs?|ms|messrs|dr|prof|st|mt|rev|sen|gov|capt|lt|sgt|vs|[js]r|e\.g|i\.e|cf|approx|resp", re.IGNORECASE
)
_NUMBERED = re.compile(  # before a number only
    r"nos?|fig|eq|sec|ch|vol|pp?|jan|feb|mar|apr|ju[nl]|aug|sept?|oct|nov|dec", re.IGNORECASE
)
_INITIALS = re.compile(r"(?:.*[^A-Za-z])?[A-Z](?:\.[A-Z])*")
_LATIN = re.compile(r"[0-9A-Za-z０-９Ａ-Ｚａ-ｚ]")
_ASCII_END = re.compile(r"[A-Za-z.]*$")

_Kind = Literal["", "wide", "mark", "point", "dot", "line"]


class Sentences:
    """Splits text as it comes: `feed` returns the sentences that are complete, `close` what is left.

    Put together they are the text, to the character: white space goes with the sentence before it. Where the text is
    cut into pieces makes no difference to the sentences, and the time is linear in its length.
    """

    def __init__(self) -> None:
        self._out: list[str] = []
        self._fence = ("", 0)  # the mark that opened the block we are in, and how long it was
        self._line_start = True  # nothing but white space since the line began
        self._begin()
        self._begin_line()

    def feed(self, text: str) -> list[str]:
        """More text: the sentences that it completes."""
        if type(text) is not str:
            checks.require_text("text", text)
            text = str.__str__(text)
        for run in _RUNS.findall(text):
            self._run(run)
        out, self._out = self._out, []
        return out

    def close(self) -> list[str]:
        """The text is over: what has been held, if anything."""
        self._emit()
        out, self._out = self._out, []
        return out

    # ── state ────────────────────────────────────────────────────────────────

    def _begin(self) -> None:
        """A sentence begins."""
        self._said: list[str] = []
        self._kind: _Kind = ""  # the mark that may have ended it
        self._gap = False  # white space has come after the mark
        self._lines = 0  # line breaks among it
        self._quotes = self._stars = 0  # opened, if odd
        self._last = ""
        self._word = ""
        self._words = 0
        self._url = False

    def _begin_line(self) -> None:
        """A line begins."""
        self._tick, self._ticks = "", 0  # a run of ` or ~ that is going on
        self._opening = ("", 0)  # such a run at the start of the line, which opens a block if no other follows
        self._code = 0  # how many opened inline code
        self._closing = False  # this line of a block may be its last

    def _emit(self) -> None:
        if self._said:
            self._out.append("".join(self._said))
        self._begin()

    # ── reading ──────────────────────────────────────────────────────────────

    def _run(self, run: str) -> None:
        """A run of letters and digits, or one other character."""
        if self._fence[1]:
            self._in_block(run)
            return
        if self._kind and not self._goes_on(run):
            self._emit()
        if run in "`~" and (self._ticks or run == "`" or self._line_start):
            if self._ticks and self._tick != run:
                self._ticked()
            self._tick = run
            self._ticks += 1
            self._add(run)
            return
        if self._ticks:
            self._ticked()
        self._add(run)
        if run == "\n":
            self._break()
        elif run.isspace():
            self._url = False
            self._gap = bool(self._kind)
            if not self._gap:
                self._word = ""
        else:
            if run not in ">":  # a quotation may hold a block
                self._line_start = False
            if not self._code and not self._opening[1]:
                self._visible(run)

    def _add(self, run: str) -> None:
        self._said.append(run)
        if run != "*":
            self._last = run[-1]

    def _ticked(self) -> None:
        """A run of ticks is over: it opens or closes code."""
        tick, count, self._ticks = self._tick, self._ticks, 0
        if self._code:
            if tick == "`" and count == self._code:
                self._code = 0
        elif self._line_start and count >= 3:
            self._opening = (tick, count)
        elif self._opening[1]:
            if tick == "`":  # no block has a tick in its first line
                self._opening = ("", 0)
        elif tick == "`":
            self._code = count
        self._line_start = False
        self._word = "`"
        self._words += 1

    def _break(self) -> None:
        """A line ends."""
        if self._opening[1]:
            self._fence = self._opening
        elif not self._kind:
            self._kind, self._lines, self._word = "line", 0, ""
        self._gap = True
        self._lines += 1
        self._url = False
        self._line_start = True
        self._begin_line()

    def _in_block(self, run: str) -> None:
        """Inside a fenced block, which ends with a line that holds its mark alone."""
        self._said.append(run)
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

    def _visible(self, run: str) -> None:
        """What may end a sentence, or tells later whether it did."""
        if run in _WIDE:
            self._kind = "wide"
        elif not self._url and run in _MARKS:
            self._kind = "mark" if self._kind != "wide" else "wide"
        elif run == _POINT:
            self._kind = self._kind or "point"
        elif run in _DOTS or (self._url and run in _MARKS):
            if not self._kind:
                self._kind = "dot"
        elif run == '"':
            self._quotes += 1
        elif run == "*":
            self._stars += self._last != "*"
            self._last = "*"
            return
        if run in _ENDS_URL:
            self._url = False
        if run == "." or run.isalnum():
            if not self._word:
                self._words += 1
            self._word = (self._word + run)[-_LONG:]
        elif run == "/" and self._word == ":/":
            self._url = True
        elif run in ":/":
            self._word = (":" if run == ":" else ":/") if run == ":" or self._word == ":" else ""
        elif not self._kind:
            self._word = ""

    # ── does it end here? ────────────────────────────────────────────────────

    def _goes_on(self, run: str) -> bool:
        """After a mark: does this still belong to the sentence? If it does and is no mark, the mark ended nothing."""
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
        if char == "|" and not self._lines:  # the row of a table goes on
            return False
        if self._lines > 1 or self._kind == "wide":
            return True
        if self._kind == "point":
            return (self._gap or not _LATIN.match(char)) and not self._shortened(char)
        if self._kind == "mark":
            return self._gap or _chinese(char)
        if not self._gap or char.islower():
            return False
        return self._lines > 0 or not self._shortened(char)

    def _shortened(self, char: str) -> bool:
        """Does the dot belong to the word before it: an abbreviation, an initial, the number of an item?"""
        word = self._word.rstrip(".")
        if len(self._word) - len(word) > 1:  # an ellipsis
            return False
        found = _ASCII_END.search(word)
        bare = found[0] if found else ""
        if _SHORTENED.fullmatch(bare) or (char.isdigit() and _NUMBERED.fullmatch(bare)):
            return True
        if word != "I" and _INITIALS.fullmatch(word):
            return True
        return self._words == 1 and (len(word) == 1 or (word.isdigit() and len(word) < 4))


def _chinese(char: str) -> bool:
    return "\u2e80" <= char <= "\u9fff" or "\uf900" <= char <= "\uffef" or "\U00020000" <= char <= "\U0003ffff"


def check_by(by: str) -> None:
    """Raises `ValueError` for a way of delivering text that there is not."""
    if not isinstance(by, str) or str.__str__(by) != "sentence":
        raise checks.wrong_value("by", by, "'sentence', or nothing,")


class BySentence:
    """A stream's events, with `TextDelta`s that hold whole sentences. Everything else passes as it comes.

    What is held is delivered before a tool call, before the text is said to be complete, and at the end.
    """

    def __init__(self) -> None:
        self._sentences = Sentences()

    def feed(self, event: Event) -> list[Event]:
        """The events that this one comes to."""
        kind = type(event)
        if kind is TextDelta:
            return [TextDelta(said) for said in self._sentences.feed(event.text)]  # type: ignore[union-attr]
        if kind is Restarted:
            self._sentences = Sentences()
        elif kind in (ToolCallStart, Finished) or (kind is BlockEnd and type(event.part) is not Reasoning):  # type: ignore[union-attr]
            return [*self.close(), event]
        return [event]

    def close(self) -> list[Event]:
        """What has been held."""
        held: list[Event] = [TextDelta(said) for said in self._sentences.close()]
        self._sentences = Sentences()
        return held


def by_sentence(events: Generator[Event]) -> Generator[Event]:
    """A stream's events by sentence. What is held when the stream fails is delivered before its error."""
    checks.require_type("events", events, Generator, "the generator of a stream's events")
    whole = BySentence()
    try:
        for event in events:
            yield from whole.feed(event)
    except CnllmError:
        yield from whole.close()
        raise
    finally:
        events.close()


async def by_sentence_async(events: AsyncGenerator[Event]) -> AsyncGenerator[Event]:
    """`by_sentence` for an async stream."""
    checks.require_type("events", events, AsyncGenerator, "the async generator of a stream's events")
    whole = BySentence()
    try:
        async for event in events:
            for said in whole.feed(event):
                yield said
    except CnllmError:
        for said in whole.close():
            yield said
        raise
    finally:
        await events.aclose()
