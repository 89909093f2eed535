"""Remove the tags that a model writes around its answer, where a server leaves them in the text."""

from __future__ import annotations

__all__ = ["AnswerTags"]

_MAX_CLOSERS = 8  # closing tags in a row: behind more of them all is text
_MAX_HELD = (
    1024  # characters of tags and white space in a row, also bounded: the text that waits is read again with each piece
)


class AnswerTags:
    """Remove an opening tag at the start of an answer, and closing tags at its end.

    `tags` are the opening tag, then the closing ones. `pending` is the text that waits: it may begin a tag, or it is a
    closing tag behind which nothing stands so far. A closing tag before more text is text itself.
    """

    __slots__ = ("_closers", "_has_begun", "_has_ended", "_opener", "pending")

    def __init__(self, tags: list[str]) -> None:
        self._opener, *self._closers = tags
        self._has_begun = False
        self._has_ended = False  # all that follows is text
        self.pending = ""

    def anew(self) -> AnswerTags:
        """Return these tags for an answer that begins again."""
        return AnswerTags([self._opener, *self._closers])

    def feed(self, text: str) -> str:
        """Return the text that is no tag around the answer."""
        if self._has_ended:
            return text
        text, self.pending = self.pending + text, ""
        if not self._has_begun:
            rest = text.lstrip()
            if len(text) <= _MAX_HELD and len(rest) < len(self._opener) and self._opener.startswith(rest):
                self.pending = text
                return ""
            self._has_begun = True
            text = rest.removeprefix(self._opener) if rest.startswith(self._opener) else text
        start = self._tail_start(text)
        self.pending = text[start:]
        return text[:start]

    def end(self) -> str:
        """End the answer, and return what waited and is no tag."""
        text, self.pending = self.pending, ""
        rest = text.rstrip()
        while closer := next((tag for tag in self._closers if rest.endswith(tag)), ""):
            text = rest = rest.removesuffix(closer).rstrip()
        return text

    def _tail_start(self, text: str) -> int:
        """Return the start of the closing tags, or of the beginning of one, that end a text; its length if none do."""
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
        return len(text) - max((_overlap(text[position:], tag) for tag in self._closers), default=0)


def _overlap(text: str, tag: str) -> int:
    """Return how many characters at the end of a text may begin a tag."""
    sizes = range(min(len(tag) - 1, len(text)), 0, -1)
    return next((size for size in sizes if text.endswith(tag[:size])), 0)


def _skip_space(text: str, position: int) -> int:
    """Return the position behind white space."""
    while position < len(text) and text[position].isspace():
        position += 1
    return position
