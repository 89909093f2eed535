"""Split reasoning between tags from an answer while it streams.

Only text that may still become a tag is held back, never more than a tag's length. The time is linear in the text:
there are no regular expressions and no second pass.
"""

from __future__ import annotations

from functools import lru_cache
from itertools import groupby
from operator import itemgetter

__all__ = ["TagSplitter"]

_MAX_STRAY_CLOSERS = 8  # closing tags without an opening one, at the beginning of a text, that are removed
_WINDOW = 8192  # characters of one search


class TagSplitter:
    """A splitter of one answer: `feed` takes text in pieces of any size and returns pieces of (is_reasoning, text).

    `tags` are an opening and a closing tag, then pairs of other spellings. `at` is "start" (the opening tag may stand
    only before all other text), "start-open" (the prompt template has written it: the text begins inside a block), or
    "anywhere". An empty opening tag means "start-open": there is none, and the text up to its closing tag is reasoning.
    A closing tag at the start, or again after a block, is removed: see `take_stray_closers`. `raw` is the
    text of the tagged blocks with their tags.
    """

    __slots__ = (
        "_at",
        "_close",
        "_first",
        "_longest",
        "_pairs",
        "_pending",
        "_raw",
        "_spare",
        "_state",
        "_stray",
        "_strays",
        "unclosed",
    )

    def __init__(self, tags: list[str], at: str = "start") -> None:
        self._pairs, self._strays, self._first, self._longest = _parse_tags(tuple(tags))
        self._close = self._strays  # the closing tags of the open block
        self._at = at = "start-open" if "" in tags[::2] else at
        # before: only white space so far; inside: in a block; after: right after a block; text: in the answer;
        # plain: in the answer, and tags are no longer recognised
        self._state = "inside" if at == "start-open" else "before"
        self._pending = ""
        self._raw: list[str] = []
        self._stray = ""
        self._spare = _MAX_STRAY_CLOSERS
        self.unclosed = at == "start-open"

    @property
    def has_ended(self) -> bool:
        """Whether tag splitting has ended."""
        return self._state == "plain" and not self._pending

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
        if self._at != "anywhere" or len(text) <= _WINDOW:
            return self._feed(text)
        out: list[tuple[bool, str]] = []
        for start in range(0, len(text), _WINDOW):  # each tag copies the rest of the text, so it must be short
            out += self._feed(text[start : start + _WINDOW])
        return _merge_neighbours(out)

    def _feed(self, text: str) -> list[tuple[bool, str]]:
        out: list[tuple[bool, str]] = []
        text = self._pending + text
        self._pending = ""
        while text:
            text = self._step(text, out)
        return out

    def close(self) -> list[tuple[bool, str]]:
        """End the text and return what was held back."""
        pending, self._pending = self._pending, ""
        if not pending:
            return []
        if self._state == "inside":
            self._raw.append(pending)
            return [(True, pending)]
        return [(False, pending)]

    def release(self) -> list[tuple[bool, str]]:
        """Return the text that is held back, because its part of the reply is over."""
        if self._state in ("before", "after") and self._pending.strip():
            self._state = "text" if self._at == "anywhere" else "plain"
        return self.close()

    def _step(self, text: str, out: list[tuple[bool, str]]) -> str:
        """Process the beginning of `text`; return the rest."""
        match self._state:
            case "plain":
                out.append((False, text))
                return ""
            case "before":
                return self._before(text, out)
            case "inside":
                return self._inside(text, out)
            case "after":
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
                    self._pending = rest
                    return ""
                if rest:
                    self._state = "text" if self._at == "anywhere" else "plain"
                return rest
            case _:
                return self._text(text, out)

    def _before(self, text: str, out: list[tuple[bool, str]]) -> str:
        rest = text.lstrip()
        if rest and rest[0] not in self._first:  # true of most answers
            self._state = "text" if self._at == "anywhere" else "plain"
            return text
        is_near = len(text) - len(rest) <= self._longest  # do not wait through endless white space
        if is_near and (tag := self._opened(rest)) is not None:
            self._raw.append(text[: len(text) - len(rest)] + tag)
            self._state, self.unclosed = "inside", True
            return rest[len(tag) :]
        if is_near and (tag := self._closed(rest)) is not None:
            self._state = "after"
            return rest[len(tag) :]
        if is_near and (self._may_open(rest) or self._may_close(rest)):
            self._pending = text
            return ""
        self._state = "text" if self._at == "anywhere" else "plain"
        return text

    def _inside(self, text: str, out: list[tuple[bool, str]]) -> str:
        if self._at == "start-open" and not self._raw:
            rest = text.lstrip()
            is_near = len(text) - len(rest) <= self._longest
            if is_near and (tag := self._opened(rest)) is not None:  # the model wrote the tag, not the template
                self._raw.append(text[: len(text) - len(rest)] + tag)
                return rest[len(tag) :]
            if is_near and self._may_open(rest):
                self._pending = text
                return ""
        end, tag = _find_first(text, self._close)
        if end < 0:
            overlap = max(_overlap(text, close) for close in self._close)
            certain = text[: len(text) - overlap]
            self._pending = text[len(text) - overlap :]
            if certain:
                self._raw.append(certain)
                out.append((True, certain))
            return ""
        if end:
            out.append((True, text[:end]))
        self._raw.append(text[: end + len(tag)])
        self._state, self.unclosed = "after", False
        return text[end + len(tag) :]

    def _text(self, text: str, out: list[tuple[bool, str]]) -> str:
        start, tag = _find_first(text, tuple(self._pairs))
        if start < 0:
            overlap = max(_overlap(text, opening) for opening in self._pairs)
            if len(text) > overlap:
                out.append((False, text[: len(text) - overlap]))
            self._pending = text[len(text) - overlap :]
            return ""
        if start:
            out.append((False, text[:start]))
        self._raw.append(tag)
        self._close = (self._pairs[tag],)
        self._state, self.unclosed = "inside", True
        return text[start + len(tag) :]

    def _opened(self, text: str) -> str | None:
        """Return the opening tag at the start of a text, and remember its closing tag, which alone ends the block."""
        for opening, closing in self._pairs.items():
            if text.startswith(opening):
                self._close = (closing,)
                return opening
        return None

    def _closed(self, text: str) -> str | None:
        """Return the closing tag at the start of a text outside a block. The caller removes it."""
        for closing in self._strays:
            if text.startswith(closing):
                self._stray += closing
                self._spare -= 1
                if not self._spare:  # further ones stay in the text
                    self._strays = ()
                return closing
        return None

    def _may_close(self, text: str) -> bool:
        return any(closing.startswith(text) for closing in self._strays)

    def _may_open(self, text: str) -> bool:
        return any(opening.startswith(text) for opening in self._pairs)


@lru_cache(maxsize=64)
def _parse_tags(tags: tuple[str, ...]) -> tuple[dict[str, str], tuple[str, ...], frozenset[str], int]:
    """Return the pairs of tags, the closing tags, the first characters of all, and the longest opening tag's length."""
    pairs = {opening: closing for opening, closing in zip(tags[::2], tags[1::2], strict=True) if opening}
    return pairs, tags[1::2], frozenset(tag[0] for tag in tags if tag), max(map(len, pairs), default=0)


def _merge_neighbours(pieces: list[tuple[bool, str]]) -> list[tuple[bool, str]]:
    """Join consecutive pieces of the same kind."""
    return [(inside, "".join([text for _, text in run])) for inside, run in groupby(pieces, itemgetter(0))]


def _find_first(text: str, tags: tuple[str, ...]) -> tuple[int, str]:
    """Return the index of the first tag in a text, and the tag; -1 where there is none."""
    matches = [(index, tag) for tag in tags if (index := text.find(tag)) >= 0]
    return min(matches, default=(-1, ""))


def _overlap(text: str, tag: str) -> int:
    """Count the characters at the end of `text` that may begin `tag`."""
    for length in range(min(len(tag) - 1, len(text)), 0, -1):
        if tag.startswith(text[-length:]):
            return length
    return 0
