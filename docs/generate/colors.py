"""The colors of the manual's pictures, for a light page and for a dark one."""

from __future__ import annotations

import msgspec

__all__ = ["DARK", "LIGHT", "SANS", "Colors"]

SANS = "system-ui, -apple-system, 'Segoe UI', Helvetica, Arial, 'DejaVu Sans', sans-serif"
"""The fonts of a picture's text: those of the reader's system, as a picture loads nothing."""


class Colors(msgspec.Struct, frozen=True):
    """The colors of a page. `ansi` are the 16 of a terminal, with spaces between them."""

    page: str
    panel: str
    line: str
    text: str
    dim: str
    accent: str
    ansi: str


LIGHT = Colors(
    page="#ffffff",
    panel="#f6f8fa",
    line="#d0d7de",
    text="#1f2328",
    dim="#59636e",
    accent="#0969da",
    ansi=(
        "#24292f #cf222e #116329 #4d2d00 #0969da #8250df #1b7c83 #6e7781 "
        "#57606a #a40e26 #1a7f37 #633c01 #218bff #a475f9 #3192aa #8c959f"
    ),
)
DARK = Colors(
    page="#0d1117",
    panel="#161b22",
    line="#30363d",
    text="#e6edf3",
    dim="#9198a1",
    accent="#58a6ff",
    ansi=(
        "#484f58 #ff7b72 #3fb950 #d29922 #58a6ff #bc8cff #39c5cf #b1bac4 "
        "#6e7681 #ffa198 #56d364 #e3b341 #79c0ff #d2a8ff #56d4dd #ffffff"
    ),
)
