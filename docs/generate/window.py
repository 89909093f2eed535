"""Draw the window of a terminal as SVG: one picture, or a film whose characters come and go."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from xml.sax.saxutils import escape, quoteattr

from docs.generate.colors import Colors
from docs.generate.terminal_screen import PLAIN, Run, Style

__all__ = ["svg", "text"]

_CHAR, _LINE, _SIZE, _PAD, _BAR = 7.83, 19, 13, 18, 32  # pixels: a column, a line, the font, the margin, the title bar
_FONT = "ui-monospace, SFMono-Regular, Menlo, Consolas, 'Liberation Mono', 'DejaVu Sans Mono', monospace"


def svg(
    title: str, columns: int, rows: int, texts: Iterable[str], colors: Colors, styles: Iterable[Style], *rules: str
) -> str:
    """Return a window with these texts, which `text` wrote. `rules` are further lines of CSS."""
    width, height = round(2 * _PAD + columns * _CHAR), _BAR + 2 * _PAD + rows * _LINE - 6
    used = {style.color for style in styles}
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" height="{height}" '
        'role="img" aria-labelledby="t">',
        f'<title id="t">{escape(title)}</title>',
        "<!-- Written by `python -m docs.generate` from a real run. -->",
        "<style>",
        f"  text {{ font: {_SIZE}px {_FONT}; fill: {colors.text}; white-space: pre; }}",
        f"  .dim {{ fill: {colors.dim}; }} .bold {{ font-weight: 600; }}",
        "  .italic { font-style: italic; } .underline { text-decoration: underline; }",
        *(f"  .c{number} {{ fill: {color}; }}" for number, color in enumerate(colors.ansi.split()) if number in used),
        *rules,
        "</style>",
        f'<rect x="0.5" y="0.5" width="{width - 1}" height="{height - 1}" rx="8" fill="{colors.page}" '
        f'stroke="{colors.line}"/>',
        f'<path d="M0.5 {_BAR}V8.5a8 8 0 0 1 8-8H{width - 8.5}a8 8 0 0 1 8 8V{_BAR}z" fill="{colors.panel}" '
        f'stroke="{colors.line}"/>',
        *(f'<circle cx="{18 + 18 * i}" cy="{_BAR / 2:g}" r="5.5" fill="{colors.line}"/>' for i in range(3)),
    ]
    return "\n".join([*parts, *texts, "</svg>"]) + "\n"


def text(run: Run, row: int, classes: Sequence[str] = ()) -> str:
    """Write one run. Its length is stated, as fonts of other machines are wider or narrower."""
    x, y, length = _PAD + run.column * _CHAR, _BAR + _PAD + _SIZE - 3 + row * _LINE, run.width * _CHAR
    names = [*([] if run.style == PLAIN else _classes(run.style)), *classes]
    kind = f" class={quoteattr(' '.join(names))}" if names else ""
    return (
        f'<text x="{x:.2f}" y="{y}" textLength="{length:.2f}" lengthAdjust="spacingAndGlyphs" xml:space="preserve"'
        f"{kind}>{escape(run.text)}</text>"
    )


def _classes(style: Style) -> list[str]:
    names = [name for name in ("bold", "dim", "italic", "underline") if getattr(style, name)]
    return [*names, *([] if style.color is None else [f"c{style.color}"])]
