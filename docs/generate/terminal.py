"""Draw a terminal with commands of cnllm and what they print: a real run with the simulator, as SVG.

`docs/static/terminal-light.svg` and `terminal-dark.svg` differ in their colors alone.
"""

from __future__ import annotations

import os
import re
import shlex
import sys
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from xml.sax.saxutils import escape, quoteattr

from docs.generate.colors import DARK, LIGHT, Colors
from docs.generate.terminal_screen import PLAIN, Run, Style, lines

__all__ = ["COMMANDS", "dark", "light", "same"]

COMMANDS = (
    'cnllm -m glm-4.7 --simulate --temperature 1.5 --tool calc "17 * 23"',
    "cnllm models show glm-4.7 --explain | grep temperature.max",
)
"""What the picture shows, line after line."""

WIDTH = 95
"""The columns of the window."""

_CHAR, _LINE, _SIZE, _PAD, _BAR = 7.83, 19, 13, 18, 32  # pixels: a column, a line, the font, the margin, the title bar
_FONT = "ui-monospace, SFMono-Regular, Menlo, Consolas, 'Liberation Mono', 'DejaVu Sans Mono', monospace"
_TITLE = "cnllm asks a simulated model that calls a tool, and names the line of the registry behind a change"


def light() -> str:
    """Return the picture for a light page."""
    return _svg(_screen(), LIGHT)


def dark() -> str:
    """Return the picture for a dark page."""
    return _svg(_screen(), DARK)


def same(one: str, other: str) -> bool:
    """Whether two pictures differ in nothing but the seconds that a call took."""
    return _without_seconds(one) == _without_seconds(other)


def _without_seconds(picture: str) -> str:
    return re.sub(r"\d+\.\d s to the first token", "", picture)


@cache
def _screen() -> tuple[tuple[Run, ...], ...]:
    """Run the commands and return the lines of the window."""
    shown: list[tuple[Run, ...]] = []
    for number, command in enumerate(COMMANDS):
        prompt = lines(f"$ \x1b[1m{command}", WIDTH)
        shown += [(), *map(tuple, prompt)] if number else map(tuple, prompt)
        shown += map(tuple, lines(_output(command).rstrip(), WIDTH))
    return tuple(shown)


def _output(command: str) -> str:
    """Return what a command writes to a terminal, with no files and keys of this user. Raises where it fails."""
    import pexpect

    with TemporaryDirectory() as folder:
        program = Path(folder, "cnllm")
        program.write_text(f'#!/bin/sh\nexec {shlex.quote(sys.executable)} -m cnllm "$@"\n')
        program.chmod(0o755)
        env = {
            "HOME": folder,
            "LANG": "C.UTF-8",
            "PATH": os.pathsep.join((folder, os.defpath)),
            "PYTHONPATH": str(Path(__file__).parents[2]),
            "TERM": "xterm-256color",
            **{f"CNLLM_{name}_DIR": str(Path(folder, name.lower())) for name in ("CONFIG", "CACHE", "DATA")},
        }
        child = pexpect.spawn("/bin/sh", ["-c", command], env=env, dimensions=(50, WIDTH), encoding="utf-8", timeout=60)
        output = str(child.read())
        child.close()
        if child.exitstatus:
            raise RuntimeError(f"{command}: exit status {child.exitstatus}: {output}")
        return output


def _svg(screen: tuple[tuple[Run, ...], ...], colors: Colors) -> str:
    width, height = round(2 * _PAD + WIDTH * _CHAR), _BAR + 2 * _PAD + len(screen) * _LINE - 6
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" height="{height}" '
        'role="img" aria-labelledby="t">',
        f'<title id="t">{_TITLE}</title>',
        "<!-- Written by `python -m docs.generate` from a real run. -->",
        "<style>",
        f"  text {{ font: {_SIZE}px {_FONT}; fill: {colors.text}; white-space: pre; }}",
        f"  .dim {{ fill: {colors.dim}; }} .bold {{ font-weight: 600; }}",
        "  .italic { font-style: italic; } .underline { text-decoration: underline; }",
        *(
            f"  .c{number} {{ fill: {color}; }}"
            for number, color in enumerate(colors.ansi.split())
            if _used(screen, number)
        ),
        "</style>",
        f'<rect x="0.5" y="0.5" width="{width - 1}" height="{height - 1}" rx="8" fill="{colors.page}" '
        f'stroke="{colors.line}"/>',
        f'<path d="M0.5 {_BAR}V8.5a8 8 0 0 1 8-8H{width - 8.5}a8 8 0 0 1 8 8V{_BAR}z" fill="{colors.panel}" '
        f'stroke="{colors.line}"/>',
        *(f'<circle cx="{18 + 18 * i}" cy="{_BAR / 2:g}" r="5.5" fill="{colors.line}"/>' for i in range(3)),
    ]
    for row, runs in enumerate(screen):
        y = _BAR + _PAD + _SIZE - 3 + row * _LINE
        parts += [_text(run, y) for run in runs if run.text.strip()]
    return "\n".join([*parts, "</svg>"]) + "\n"


def _used(screen: tuple[tuple[Run, ...], ...], color: int) -> bool:
    return any(run.style.color == color for runs in screen for run in runs)


def _text(run: Run, y: int) -> str:
    """Write one run. Its length is stated, as fonts of other machines are wider or narrower."""
    x, length = _PAD + run.column * _CHAR, run.width * _CHAR
    kind = "" if run.style == PLAIN else f" class={quoteattr(_classes(run.style))}"
    return (
        f'<text x="{x:.2f}" y="{y}" textLength="{length:.2f}" lengthAdjust="spacingAndGlyphs" xml:space="preserve"'
        f"{kind}>{escape(run.text)}</text>"
    )


def _classes(style: Style) -> str:
    names = [name for name in ("bold", "dim", "italic", "underline") if getattr(style, name)]
    return " ".join([*names, *([] if style.color is None else [f"c{style.color}"])])
