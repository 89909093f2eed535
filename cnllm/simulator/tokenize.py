"""Split text into pieces about the size of tokens."""

from __future__ import annotations

import re

__all__ = ["is_cjk", "shorten", "split_pieces"]

_CJK = "\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uac00-\ud7af\uf900-\ufaff"
_HAS_CJK = re.compile(f"[{_CJK}]")
_PIECE = re.compile(rf"[{_CJK}]{{1,2}}| ?[^\s{_CJK}]{{1,12}}|\s")


def is_cjk(text: str) -> bool:
    """Whether the text holds a Chinese, Japanese or Korean character."""
    return _HAS_CJK.search(text) is not None


def split_pieces(text: str) -> list[str]:
    """Split text into words, or one or two Chinese characters, as models stream it. No character is lost."""
    return _PIECE.findall(text)


def shorten(text: str, length: int) -> str:
    """Return the text on one line, with an ellipsis if it is cut."""
    line = " ".join(text.split())
    return line if len(line) <= length else line[:length] + "…"
