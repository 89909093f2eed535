"""Split reasoning between tags at the head of an answer from the answer while it streams.

Only text that may still become a tag is held back, never more than a tag's length. The time is linear in the text.
Tags further on in the answer are found by `cnllm.leaks.filter`, which knows what is code there.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import lru_cache

from cnllm.engine.decode.stage import TAGGED, Ending, Item, Restart, removal
from cnllm.leaks.markers import Markers
from cnllm.protocols.pieces import ReasoningPiece, TextPiece
from cnllm.types import Note

__all__ = ["TagSplitter", "ThinkTags"]

_MAX_STRAY_CLOSERS = 8  # closing tags without an opening one, at the beginning of a text, that are removed


class ThinkTags:
    """The stage that makes reasoning of what stands between tags at the head of the answer.

    `new_tagged` returns the part of such reasoning that no field has delivered.
    """

    __slots__ = ("_new_tagged", "_splitter", "is_idle", "lets_text")

    reads_text, reads_thought = True, False
    lets_thought = True

    def __init__(self, tags: list[str], at: str, new_tagged: Callable[[str], str]) -> None:
        self._splitter = TagSplitter(tags, at)
        self._new_tagged = new_tagged
        self.is_idle = True  # while no beginning of a tag waits
        self.lets_text = False  # once the text is behind the tags

    @property
    def has_block(self) -> bool:
        """Whether reasoning stood between tags."""
        return self._splitter.has_block

    @property
    def raw(self) -> str:
        """Return the tagged blocks as they were written."""
        return self._splitter.raw

    def feed(self, item: Item) -> list[Item]:
        """Return the text, and the reasoning between tags in it."""
        splitter = self._splitter
        if type(item) is Restart and item.text:  # reasoning came out of the text that begins again
            self._splitter, self.is_idle, self.lets_text = splitter.anew(), True, False
            return [Restart(text=True, thought=item.thought or splitter.has_block)]
        if self.lets_text or type(item) is not TextPiece:
            return [item]
        out = self._items(splitter.feed(item.text))
        if stray := splitter.take_stray_closers():
            out.insert(0, Note("tag-stripped", "reasoning.tags", stray, removal(stray, "it closes nothing")))
        return out

    def release(self) -> list[Item]:
        """Return the text that looked like the beginning of a tag: no tag goes on in another part."""
        return [] if self.lets_text else self._items(self._splitter.release())

    def end(self, ending: Ending) -> list[Item]:
        """Return the text that looked like the beginning of a tag."""
        return self._items(self._splitter.close())

    def _items(self, pieces: Iterable[tuple[bool, str]]) -> list[Item]:
        """Return the pieces of the splitter."""
        self.is_idle = not self._splitter.pending
        self.lets_text = self._splitter.has_ended
        out: list[Item] = []
        for in_reasoning, text in pieces:
            if not in_reasoning:
                out.append(TextPiece(text))
            elif new := self._new_tagged(text):
                out.append(ReasoningPiece(new, TAGGED))
        return out


class TagSplitter:
    """A splitter of one answer: `feed` takes text in pieces of any size and returns pieces of (is_reasoning, text).

    `tags` are an opening and a closing tag, then pairs of other spellings. With `at` = "start-open" the prompt template
    has written the opening tag, and an empty opening tag means that there is none: the text begins inside a block. A
    closing tag at the start, or again after a block, is removed: see `take_stray_closers`. `raw` is the text of the
    tagged blocks with their tags, `pending` the text that is held back.
    """

    def __init__(self, tags: list[str], at: str = "start") -> None:
        self._tags = _parse_tags(tuple(tags))
        self._close = self._tags.closers  # the closing tags of the open block
        self._at = at = "start-open" if "" in tags[::2] else at
        # before: only white space so far; inside: in a block; after: right after a block; plain: in the answer, and
        # tags are no longer recognised here
        self._state = "inside" if at == "start-open" else "before"
        self.pending = ""
        self._raw: list[str] = []
        self._stray = ""
        self._spare = _MAX_STRAY_CLOSERS
        self.unclosed = at == "start-open"

    def anew(self) -> TagSplitter:
        """Return a splitter for an answer that begins again."""
        return TagSplitter(self._tags.all, self._at)

    @property
    def has_ended(self) -> bool:
        """Whether tag splitting has ended."""
        return self._state == "plain" and not self.pending

    @property
    def has_block(self) -> bool:
        """Whether a tagged block has begun."""
        return bool(self._raw)

    @property
    def raw(self) -> str:
        """Return the tagged blocks as they were written, with the white space around them."""
        return "".join(self._raw)

    def take_stray_closers(self) -> str:
        """Return the closing tags that were removed since the last call."""
        stray, self._stray = self._stray, ""
        return stray

    def feed(self, text: str) -> list[tuple[bool, str]]:
        """Feed text and return the pieces that can no longer be part of a tag."""
        out: list[tuple[bool, str]] = []
        text = self.pending + text
        self.pending = ""
        while text:
            text = self._step(text, out)
        return out

    def close(self) -> list[tuple[bool, str]]:
        """End the text and return what was held back."""
        pending, self.pending = self.pending, ""
        if not pending:
            return []
        if self._state == "inside":
            self._raw.append(pending)
            return [(True, pending)]
        return [(False, pending)]

    def release(self) -> list[tuple[bool, str]]:
        """Return the text that is held back, because its part of the reply is over."""
        if self._state in ("before", "after") and self.pending.strip():
            self._state = "plain"
        return self.close()

    def _step(self, text: str, out: list[tuple[bool, str]]) -> str:
        """Process the beginning of `text`; return the rest."""
        match self._state:
            case "before":
                return self._before(text)
            case "inside":
                return self._inside(text, out)
            case "after":
                return self._after(text)
            case _:
                out.append((False, text))
                return ""

    def _before(self, text: str) -> str:
        rest = text.lstrip()
        if rest and rest[0] not in self._tags.first:  # true of most answers
            self._state = "plain"
            return text
        if len(text) - len(rest) <= self._tags.longest:  # do not wait through endless white space
            if (tag := self._opened(rest)) is not None:
                self._raw.append(text[: len(text) - len(rest)] + tag)
                self._state, self.unclosed = "inside", True
                return rest[len(tag) :]
            if (tag := self._closed(rest)) is not None:
                self._state = "after"
                return rest[len(tag) :]
            if self._may_open(rest) or self._may_close(rest):
                self.pending = text
                return ""
        self._state = "plain"
        return text

    def _after(self, text: str) -> str:
        rest = text.lstrip()
        if self._raw:
            self._raw.append(text[: len(text) - len(rest)])
        elif (tag := self._opened(rest)) is not None:
            self._raw.append(tag)
            self._state, self.unclosed = "inside", True
            return rest[len(tag) :]
        if (tag := self._closed(rest)) is not None:
            return rest[len(tag) :]
        if rest and (self._may_close(rest) or (not self._raw and self._may_open(rest))):
            self.pending = rest
            return ""
        if rest:
            self._state = "plain"
        return rest

    def _inside(self, text: str, out: list[tuple[bool, str]]) -> str:
        if self._at == "start-open" and not self._raw:
            rest = text.lstrip()
            if len(text) - len(rest) <= self._tags.longest:
                if (tag := self._opened(rest)) is not None:  # the model wrote the tag, not the template
                    self._raw.append(text[: len(text) - len(rest)] + tag)
                    return rest[len(tag) :]
                if self._may_open(rest):
                    self.pending = text
                    return ""
        match = self._close.find(text)
        if match is None:
            certain = len(text) - self._close.pending_length(text)
            self.pending = text[certain:]
            if certain:
                self._raw.append(text[:certain])
                out.append((True, text[:certain]))
            return ""
        start, end, _ = match
        if start:
            out.append((True, text[:start]))
        self._raw.append(text[:end])
        self._state, self.unclosed = "after", False
        return text[end:]

    def _opened(self, text: str) -> str | None:
        """Return the opening tag at the start of a text, and remember its closing tag, which alone ends the block."""
        openers = self._tags.openers
        if openers is None or (match := openers.match(text)) is None:
            return None
        self._close = Markers.copy(self._tags.pairs[openers.markers[match[2]]])
        return text[: match[1]]

    def _closed(self, text: str) -> str | None:
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
        self.all = list(tags)
        self.first = frozenset(tag[0] for tag in tags if tag)
        self.longest = max(map(len, self.pairs))


_parse_tags = lru_cache(maxsize=64)(_TagSearch)
