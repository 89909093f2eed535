"""The stage that makes reasoning of what stands between tags, such as `<think>`, at the head of an answer.

Only text that may still become a tag is held back. The time is linear in the text. Tags further on in the answer are
found by `cnllm.leaks.filter`, which knows what is code there.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache

from cnllm.engine.decode.stage import TAGGED, Item, Restart, Stage, removal
from cnllm.leaks.markers import Markers
from cnllm.protocols.pieces import ReasoningPiece, TextPiece
from cnllm.types import Note

__all__ = ["ThinkTags"]

_MAX_STRAY_CLOSERS = 8  # closing tags without an opening one, at the beginning of a text, that are removed


class ThinkTags(Stage):
    """The stage that makes reasoning of what stands between tags at the head of the answer.

    `tags` are an opening and a closing tag, then pairs of other spellings. With `at` = "start-open" the prompt template
    has written the opening tag, and an empty opening tag means that there is none: the text begins inside a block. A
    closing tag at the start, or again after a block, is removed, with a note. `new_tagged` returns the part of such
    reasoning that no field has delivered.
    """

    __slots__ = (
        *("_close", "_is_open", "_new_tagged", "_spare", "_state", "_stray", "_tags"),
        *("is_idle", "lets_text", "pending", "raw"),
    )

    def __init__(self, tags: list[str], at: str, new_tagged: Callable[[str], str]) -> None:
        self._tags = _parse_tags(tuple(tags))
        self._is_open = at == "start-open" or "" in tags[::2]
        self._new_tagged = new_tagged
        self._begin()

    def _begin(self) -> None:
        """Begin an answer."""
        self._close = self._tags.closers  # the closing tags of the open block
        # before: only white space so far; inside: in a block; after: right after a block; plain: in the answer, and
        # tags are no longer recognised here
        self._state = "inside" if self._is_open else "before"
        self.pending = ""  # text that may begin a tag
        self.raw: list[str] = []  # the tagged blocks as they were written, with the white space around them
        self._stray = ""  # closing tags that were removed
        self._spare = _MAX_STRAY_CLOSERS
        self._look()

    def _look(self) -> None:
        """Find out whether the beginning of a tag waits, and whether the text is behind the tags."""
        self.is_idle = not self.pending
        self.lets_text = self._state == "plain" and self.is_idle

    def feed(self, item: Item) -> list[Item]:
        """Return the text, and the reasoning between tags in it."""
        if type(item) is Restart and item.text:  # reasoning came out of the text that begins again
            has_block = bool(self.raw)
            self._begin()
            return [Restart(text=True, thought=item.thought or has_block)]
        if self.lets_text or type(item) is not TextPiece:
            return [item]
        out: list[Item] = []
        text, self.pending = self.pending + item.text, ""
        while text:
            text = self._step(text, out)
        self._look()
        if stray := self._stray:
            self._stray = ""
            out.insert(0, Note("tag-stripped", "reasoning.tags", stray, removal(stray, "it closes nothing")))
        return out

    def release(self) -> list[Item]:
        """Return the text that looked like the beginning of a tag: no tag goes on in another part."""
        if self._state in ("before", "after") and self.pending.strip():
            self._state = "plain"
        return self._flush()

    def end(self, *, proven: bool) -> list[Item]:
        """Return the text that looked like the beginning of a tag."""
        return self._flush()

    def _flush(self) -> list[Item]:
        """Return the text that is held back."""
        pending, self.pending = self.pending, ""
        self._look()
        out: list[Item] = []
        if pending and self._state == "inside":
            self.raw.append(pending)
            self._think(pending, out)
        elif pending:
            out.append(TextPiece(pending))
        return out

    def _think(self, text: str, out: list[Item]) -> None:
        """Add what is new of some reasoning."""
        if new := self._new_tagged(text):
            out.append(ReasoningPiece(new, TAGGED))

    def _step(self, text: str, out: list[Item]) -> str:
        """Process the beginning of `text`; return the rest."""
        match self._state:
            case "before":
                return self._before(text)
            case "inside":
                return self._inside(text, out)
            case "after":
                return self._after(text)
            case _:
                out.append(TextPiece(text))
                return ""

    def _before(self, text: str) -> str:
        rest = text.lstrip()
        if rest and rest[0] not in self._tags.first:  # true of most answers
            self._state = "plain"
            return text
        if len(text) - len(rest) <= self._tags.longest:  # do not wait through endless white space
            if (tag := self._opening_tag(rest)) is not None:
                self.raw.append(text[: len(text) - len(rest)] + tag)
                self._state = "inside"
                return rest[len(tag) :]
            if (tag := self._closing_tag(rest)) is not None:
                self._state = "after"
                return rest[len(tag) :]
            if self._may_open(rest) or self._may_close(rest):
                self.pending = text
                return ""
        self._state = "plain"
        return text

    def _after(self, text: str) -> str:
        rest = text.lstrip()
        if self.raw:
            self.raw.append(text[: len(text) - len(rest)])
        elif (tag := self._opening_tag(rest)) is not None:
            self.raw.append(tag)
            self._state = "inside"
            return rest[len(tag) :]
        if (tag := self._closing_tag(rest)) is not None:
            return rest[len(tag) :]
        if rest and (self._may_close(rest) or (not self.raw and self._may_open(rest))):
            self.pending = rest
            return ""
        if rest:
            self._state = "plain"
        return rest

    def _inside(self, text: str, out: list[Item]) -> str:
        if self._is_open and not self.raw:
            rest = text.lstrip()
            if len(text) - len(rest) <= self._tags.longest:
                if (tag := self._opening_tag(rest)) is not None:  # the model wrote the tag, not the template
                    self.raw.append(text[: len(text) - len(rest)] + tag)
                    return rest[len(tag) :]
                if self._may_open(rest):
                    self.pending = text
                    return ""
        match = self._close.find(text)
        if match is None:
            certain = len(text) - self._close.pending_length(text)
            self.pending = text[certain:]
            if certain:
                self.raw.append(text[:certain])
                self._think(text[:certain], out)
            return ""
        start, end, _ = match
        if start:
            self._think(text[:start], out)
        self.raw.append(text[:end])
        self._state = "after"
        return text[end:]

    def _opening_tag(self, text: str) -> str | None:
        """Return the opening tag at the start of a text, and remember its closing tag, which alone ends the block."""
        openers = self._tags.openers
        if openers is None or (match := openers.match(text)) is None:
            return None
        self._close = Markers.copy(self._tags.pairs[openers.markers[match[2]]])
        return text[: match[1]]

    def _closing_tag(self, text: str) -> str | None:
        """Return the closing tag at the start of a text outside a block. The caller removes it."""
        if not self._spare or (match := self._tags.closers.match(text)) is None:  # further ones stay in the text
            return None
        closing = text[: match[1]]
        self._stray += closing
        self._spare -= 1
        return closing

    def _may_close(self, text: str) -> bool:
        return bool(self._spare) and self._tags.closers.pending_length(text) == len(text)

    def _may_open(self, text: str) -> bool:
        openers = self._tags.openers
        return openers is not None and openers.pending_length(text) == len(text)


class _TagSearch:
    """The tags of a model: the search for opening ones and for closing ones, and the closing ones of each opening one.

    `first` are the characters that begin a tag, `longest` is the length of the longest opening tag.
    """

    def __init__(self, tags: tuple[str, ...]) -> None:
        self.pairs: dict[str, tuple[str, ...]] = {}
        for opening, closing in zip(tags[::2], tags[1::2], strict=True):
            self.pairs[opening] = (*self.pairs.get(opening, ()), closing)
        openers = tuple(filter(None, self.pairs))
        self.openers = Markers.copy(openers) if openers else None
        self.closers = Markers.copy(tuple(dict.fromkeys(tags[1::2])))
        self.first = frozenset(tag[0] for tag in tags if tag)
        self.longest = max(map(len, self.pairs))


_parse_tags = lru_cache(maxsize=64)(_TagSearch)
