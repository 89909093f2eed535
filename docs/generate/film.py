"""Draw the films of the manual from their recordings, as SVG that moves by CSS alone.

A recording is a file of asciinema (`docs/static/NAME.cast`, version 2), which `python -m docs.films` writes from a
real run; `asciinema play` shows it, too. The film plays three times and stays at its end. For a reader who wants no
motion it shows the end at once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import cache, partial
from itertools import groupby
from pathlib import Path

import msgspec

from cnllm.cli.output.terminal import display_width
from docs.generate import window
from docs.generate.colors import DARK, LIGHT, Colors
from docs.generate.terminal_screen import Run, Style, lines

__all__ = ["FOLDER", "NAMES", "PICTURES", "Recording", "parse", "screen"]

FOLDER = Path(__file__).parent.parent / "static"
NAMES = ("cut", "capped-batch", "launch")

_LAST = 4.0  # seconds for which the end is shown
_FRAME = 0.1  # seconds: what is shown for less is left out


class _Header(msgspec.Struct, frozen=True):
    version: int
    width: int
    height: int
    title: str


class Recording(msgspec.Struct, frozen=True):
    """The output of a terminal: `pieces` are pairs of seconds and text."""

    width: int
    height: int
    title: str
    pieces: tuple[tuple[float, str], ...]


class _Span(msgspec.Struct, frozen=True):
    """Characters that look the same, and come and go together. `end` is None for those that stay."""

    row: int
    run: Run
    start: float
    end: float | None


def parse(text: str) -> Recording:
    """Read a file of asciinema. Raises `msgspec.MsgspecError` for another file."""
    first, *rest = text.splitlines()
    header = msgspec.json.decode(first, type=_Header)
    pieces = (msgspec.json.decode(line, type=tuple[float, str, str]) for line in rest)
    return Recording(
        header.width, header.height, header.title, tuple((time, text) for time, kind, text in pieces if kind == "o")
    )


def screen(recording: Recording) -> str:
    """Return the text that stands in the window at the end."""
    rows = lines("".join(text for _, text in recording.pieces), recording.width)
    return "\n".join(_padded(runs) for runs in rows).rstrip()


def _padded(runs: list[Run]) -> str:
    text = ""
    for run in runs:
        text += " " * (run.column - display_width(text)) + run.text
    return text.rstrip()


@cache
def _recording(name: str) -> Recording:
    return parse((FOLDER / f"{name}.cast").read_text(encoding="utf-8"))


@cache
def _spans(name: str) -> tuple[_Span, ...]:
    """Return what the film shows, by its lines."""
    recording = _recording(name)
    shown: dict[tuple[int, int], tuple[str, Style, float]] = {}
    cells: list[tuple[int, int, str, Style, float, float | None]] = []
    for time, rows in _frames(recording):
        now = {(row, column): (char, style) for row, runs in enumerate(rows) for column, char, style in _cells(runs)}
        for place, (char, style, start) in list(shown.items()):
            if now.get(place) != (char, style):
                cells.append((*place, char, style, start, time))
                del shown[place]
        for place, (char, style) in now.items():
            shown.setdefault(place, (char, style, time))
    cells += [(*place, char, style, start, None) for place, (char, style, start) in shown.items()]
    return tuple(_joined(cells))


def _frames(recording: Recording) -> Iterator[tuple[float, list[list[Run]]]]:
    """Yield the window as it looks after each piece, without what is over at once."""
    output = ""
    for number, (time, text) in enumerate(recording.pieces):
        output += text
        if number + 1 == len(recording.pieces) or recording.pieces[number + 1][0] - time >= _FRAME:
            yield time, lines(output, recording.width)


def _cells(runs: list[Run]) -> Iterator[tuple[int, str, Style]]:
    for run in runs:
        column = run.column
        for char in run.text:
            if char != " " or run.style.underline:
                yield column, char, run.style
            column += display_width(char)


def _joined(cells: list[tuple[int, int, str, Style, float, float | None]]) -> Iterator[_Span]:
    """Join neighbours that look the same and have the same times; a space between two words is theirs."""

    def times(cell: tuple[int, int, str, Style, float, float | None]) -> tuple[float, float, int]:
        row, _, _, _, start, end = cell
        return start, -1.0 if end is None else end, row

    for (start, _, row), group in groupby(sorted(cells, key=lambda cell: (*times(cell), cell[1])), key=times):
        text, first, look, end = "", 0, None, None
        for _, column, char, style, _, end in group:
            if look == style and column - first - display_width(text) in (0, 1):
                text += " " * (column - first - display_width(text)) + char
                continue
            if look is not None:
                yield _Span(row, Run(first, display_width(text), text, look), start, end)
            text, first, look = char, column, style
        if look is not None:
            yield _Span(row, Run(first, display_width(text), text, look), start, end)


def _draw(name: str, colors: Colors) -> str:
    recording, spans = _recording(name), _spans(name)
    length = recording.pieces[-1][0] + _LAST
    classes = {times: f"t{number}" for number, times in enumerate(sorted({_times(span) for span in spans}))}
    rules = []
    for (start, end), kind in classes.items():
        steps = [f"0%{{visibility:hidden}}{start / length:.2%}{{visibility:visible}}"]
        steps += [f"{end / length:.2%}{{visibility:hidden}}"] if end >= 0 else []
        rules.append(f"  @keyframes {kind}{{{''.join(steps)}}}")
        rest = "visibility:hidden;" if end >= 0 else ""
        rules.append(f"  .{kind}{{{rest}animation:{kind} {length:.2f}s step-end 3}}")
    rules.append("  @media (prefers-reduced-motion: reduce) { text { animation: none !important; } }")
    texts = [window.text(span.run, span.row, (classes[_times(span)],)) for span in spans]
    rows = 1 + max(span.row for span in spans)
    return window.svg(recording.title, recording.width, rows, texts, colors, {s.run.style for s in spans}, *rules)


def _times(span: _Span) -> tuple[float, float]:
    return span.start, -1.0 if span.end is None else span.end


PICTURES: dict[str, Callable[[], str]] = {
    f"{name}-{shade}.svg": partial(_draw, name, colors)
    for name in NAMES
    for shade, colors in (("light", LIGHT), ("dark", DARK))
}
"""Name of a file in docs/static → the function that draws it."""
