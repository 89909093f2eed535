"""Split a picture that follows the system into one for a light page and one for a dark page.

A page of the manual has a switch of its own, which a picture cannot see.
"""

from __future__ import annotations

import re

__all__ = ["dark_only", "light_only"]

_DARK = re.compile(r"\n  @media \(prefers-color-scheme: dark\) \{\n(.*?)\n  \}\n", re.DOTALL)


def light_only(picture: str) -> str:
    """Return the picture with its light colors alone."""
    return _DARK.sub("\n", picture)


def dark_only(picture: str) -> str:
    """Return the picture with its dark colors alone. Raises `ValueError` where it has none."""
    if not (rules := _DARK.search(picture)):
        raise ValueError("the picture has no colors for a dark page")
    return picture[: rules.start()] + "\n" + rules[1] + "\n" + picture[rules.end() :]
