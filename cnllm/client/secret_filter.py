"""Filters that remove secrets from text and from call arguments that arrive in pieces."""

from __future__ import annotations

import re
from functools import lru_cache

from cnllm.config.redact import MARK, redact
from cnllm.config.spellings import SecretFinder, secret_finder

__all__ = ["CUT_SIZE", "MIN_SECRET", "ArgumentFilter", "TextFilter", "secret_search"]

MIN_SECRET = 8
"""Secrets with fewer characters are not removed from an endpoint's output."""
_PREFIX_SIZE = 3  # this many characters of a secret are withheld until the next ones arrive; fewer go out at once
CUT_SIZE = 8  # this many characters at the end of a text count as the beginning of a secret that was cut off
_CONTEXT_SIZE = 64  # this many characters before a piece of arguments are searched together with it


@lru_cache(maxsize=16)
def secret_search(secrets: tuple[str, ...]) -> tuple[SecretFinder | None, tuple[str, ...], tuple[str, ...]]:
    """Return the finder, the secrets to search for in plain text, and the first characters of these."""
    searchable = tuple(dict.fromkeys(secret for secret in secrets if len(secret) >= MIN_SECRET))
    if not searchable:
        return None, (), ()
    # A secret that contains another one is found by that other one, in a stream as early as in the whole text.
    plain = tuple(
        secret for secret in searchable if not any(other in secret for other in searchable if other != secret)
    )
    return secret_finder(searchable), plain, tuple(dict.fromkeys(secret[:_PREFIX_SIZE] for secret in plain))


class TextFilter:
    """Filters a text that arrives in pieces. A piece that went out cannot be taken back."""

    __slots__ = ("_context", "_length", "_pending", "_prefix_sizes", "_prefixes", "_secrets")

    def __init__(self, secrets: tuple[str, ...], prefixes: tuple[str, ...]) -> None:
        self._secrets = secrets
        self._prefixes = prefixes
        self._context = ""  # the last two characters that went out
        self._pending = ""  # text that is withheld
        self._length = 0  # length of the text that went out or is withheld
        self._prefix_sizes: dict[int, int] = {}  # begin of a secret → how many of its characters went out

    def passes(self, text: str) -> bool:
        """Whether a piece can go out unchanged. If so, it counts as gone out."""
        if self._pending:
            return False
        window = self._context + text
        for prefix in self._prefixes:
            if prefix in window:
                return False
        self._context = window[1 - _PREFIX_SIZE :]
        self._length += len(text)
        return True

    def feed(self, text: str) -> str:
        """Return the text that can go out after a piece."""
        context_size = len(self._context)
        window = self._context + self._pending + text
        start = self._length - len(self._pending) - context_size  # of the window in the text
        self._length += len(text)
        out, position = [], 0
        for begin, end in _plain_spans(window, self._secrets):
            if begin < context_size:
                self._prefix_sizes[start + begin] = context_size - begin
            out += [window[max(position, context_size) : max(begin, context_size)], MARK]
            position = end
        tail = self._prefix_index(window, position)
        out.append(window[max(position, context_size) : max(tail, context_size)])
        length = max(tail, context_size)
        self._pending = window[length:]
        self._context = window[max(position, length + 1 - _PREFIX_SIZE) : length]
        return "".join(out)

    def _prefix_index(self, window: str, start: int) -> int:
        """Return the index of the longest beginning of a secret at the end of the window."""
        best = len(window)
        for secret in self._secrets:
            first = max(start, len(window) - len(secret) + 1)
            while 0 <= (first := window.find(secret[:_PREFIX_SIZE], first)) < best:
                if secret.startswith(window[first:]):
                    best = first
                    break
                first += 1
        return best

    def rest(self) -> str:
        """Return the withheld text, once nothing more arrives."""
        tail, self._pending = self._pending, ""
        if not tail:
            return ""
        window = self._context + tail
        begin = self._prefix_index(window, 0)
        if len(window) - begin < CUT_SIZE:
            return tail
        context_size = len(self._context)
        if begin < context_size:
            self._prefix_sizes[self._length - len(window) + begin] = context_size - begin
        self._context = ""
        return window[context_size:begin] + MARK

    def clean(self, text: str) -> str:
        """Clean the same text in one piece."""
        return self.clean_pieces([text], text)[0]

    def clean_pieces(self, texts: list[str], whole: str, base: int = 0) -> list[str]:
        """Clean consecutive texts, `whole` together, that begin at `base`. A mark stands where a secret began."""
        spans = _plain_spans(whole, self._secrets)
        end = spans[-1][1] if spans else 0
        tail = self._prefix_index(whole, end)
        if len(whole) - tail >= CUT_SIZE:
            spans.append((tail, len(whole)))
        if not spans:
            return texts
        out: list[str] = []
        begin = 0
        for text in texts:
            stop, position, piece = begin + len(text), begin, ""
            for first, last in spans:
                first += self._prefix_sizes.get(base + first, 0)
                if last <= begin or first >= stop:
                    continue
                piece += whole[position : max(first, position)] + (MARK if first >= begin else "")
                position = min(last, stop)
            out.append(piece + whole[position:stop])
            begin = stop
        return out


class ArgumentFilter:
    """Filters the arguments of a call that arrive in pieces.

    Once a spelling of a secret may begin in them, the rest waits for the end of the arguments.
    """

    def __init__(self, finder: SecretFinder) -> None:
        self._finder = finder
        self._pieces: list[str] = []
        self._context = ""
        self.size = 0
        self.withheld = False

    def passes(self, text: str) -> bool:
        """Whether a piece can go out at once."""
        self._pieces.append(text)
        if not self.withheld:
            window = self._context + text
            if not self._finder.may_begin(window):
                self._context = window[-_CONTEXT_SIZE:]
                self.size += len(text)
                return True
            self.withheld = True
        return False

    def rest(self) -> str:
        """Return the withheld arguments, cleaned."""
        text = redact("".join(self._pieces), self._finder.secrets, cut=True, begin=self.size) if self.withheld else ""
        self.withheld = False
        return text


def _plain_spans(text: str, secrets: tuple[str, ...]) -> list[tuple[int, int]]:
    if not any(secret in text for secret in secrets):
        return []
    return [match.span() for match in re.finditer("|".join(map(re.escape, secrets)), text)]
