"""Thinking that arrives inside the answer, between tags: told apart as it streams.

Only what could still become a tag is held back, never more than a tag's length. No regular expressions, no second look
at what has passed: the time is linear in the text.
"""

from __future__ import annotations

__all__ = ["TagSplitter"]


class TagSplitter:
    """`feed` text in any pieces → pieces of (is_reasoning, text). `raw` is what a tagged block was, tags included.

    `at` is "start" (the opening tag may stand only before everything else), "start-open" (the prompt template has
    written it: the text begins inside), or "anywhere".
    """

    __slots__ = ("_at", "_close", "_held", "_open", "_raw", "_state", "unclosed")

    def __init__(self, tags: list[str], at: str = "start") -> None:
        self._open, self._close = tags
        self._at = at
        # before: white space at most; inside a block; after: just behind one; text: in the answer; plain: for good
        self._state = "inside" if at == "start-open" else "before"
        self._held = ""
        self._raw: list[str] = []
        self.unclosed = at == "start-open"

    @property
    def plain(self) -> bool:
        """Nothing can be split any more: text may go past."""
        return self._state == "plain" and not self._held

    @property
    def raw(self) -> str:
        """The tagged blocks as they were written, with the white space around them."""
        return "".join(self._raw)

    def feed(self, text: str) -> list[tuple[bool, str]]:
        """The pieces that are now certain."""
        out: list[tuple[bool, str]] = []
        text = self._held + text
        self._held = ""
        while text:
            text = self._step(text, out)
        return out

    def close(self) -> list[tuple[bool, str]]:
        """The end: what was held back is what it looks like."""
        held, self._held = self._held, ""
        if not held:
            return []
        if self._state == "inside":
            self._raw.append(held)
            return [(True, held)]
        if self._state == "after":
            self._raw.append(held)
            return []
        return [(False, held)]

    def _step(self, text: str, out: list[tuple[bool, str]]) -> str:
        """Take something off the front of `text`; return what is left to look at."""
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
                self._raw.append(text[: len(text) - len(rest)])
                if rest:
                    self._state = "text" if self._at == "anywhere" else "plain"
                return rest
            case _:
                return self._text(text, out)

    def _before(self, text: str, out: list[tuple[bool, str]]) -> str:
        rest = text.lstrip()
        near = len(text) - len(rest) <= len(self._open)  # white space without end is not waited for
        if near and rest.startswith(self._open):
            self._raw.append(text[: len(text) - len(rest)] + self._open)
            self._state, self.unclosed = "inside", True
            return rest[len(self._open) :]
        if near and self._open.startswith(rest):
            self._held = text
            return ""
        self._state = "text" if self._at == "anywhere" else "plain"
        return text

    def _inside(self, text: str, out: list[tuple[bool, str]]) -> str:
        if self._at == "start-open" and not self._raw:
            rest = text.lstrip()
            near = len(text) - len(rest) <= len(self._open)
            if near and rest.startswith(self._open):  # the template left the opening tag to the model after all
                self._raw.append(text[: len(text) - len(rest)] + self._open)
                return rest[len(self._open) :]
            if near and self._open.startswith(rest):
                self._held = text
                return ""
        end = text.find(self._close)
        if end < 0:
            keep = _overlap(text, self._close)
            said = text[: len(text) - keep]
            self._held = text[len(text) - keep :]
            if said:
                self._raw.append(said)
                out.append((True, said))
            return ""
        if end:
            out.append((True, text[:end]))
        self._raw.append(text[: end + len(self._close)])
        self._state, self.unclosed = "after", False
        return text[end + len(self._close) :]

    def _text(self, text: str, out: list[tuple[bool, str]]) -> str:
        start = text.find(self._open)
        if start < 0:
            keep = _overlap(text, self._open)
            if len(text) > keep:
                out.append((False, text[: len(text) - keep]))
            self._held = text[len(text) - keep :]
            return ""
        if start:
            out.append((False, text[:start]))
        self._raw.append(self._open)
        self._state, self.unclosed = "inside", True
        return text[start + len(self._open) :]


def _overlap(text: str, tag: str) -> int:
    """How many characters at the end of `text` could be the beginning of `tag`."""
    for length in range(min(len(tag) - 1, len(text)), 0, -1):
        if tag.startswith(text[-length:]):
            return length
    return 0
