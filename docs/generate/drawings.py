"""Draw the pictures of the explanations: boxes, arrows and captions, as SVG for a light page and for a dark one."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from xml.sax.saxutils import escape

from cnllm.engine import build_request
from docs.generate.builtin import registry
from docs.generate.colors import DARK, LIGHT, SANS, Colors

__all__ = ["PICTURES"]

_MONO = "ui-monospace, SFMono-Regular, Menlo, Consolas, 'Liberation Mono', 'DejaVu Sans Mono', monospace"
_WIDTH, _LINE = 820, 16  # pixels: the picture, a line of text


class Drawing:
    """The parts of one picture. Places are in pixels from its top left corner."""

    def __init__(self, title: str, height: int) -> None:
        self._title = title
        self._height = height
        self._parts: list[str] = []

    def box(self, x: float, y: float, width: float, height: float, text: str = "", kind: str = "box") -> None:
        """Add a box with text in its middle: the first line bold, the others quiet."""
        self._parts.append(f'<rect class="{kind}" x="{x:g}" y="{y:g}" width="{width:g}" height="{height:g}" rx="6"/>')
        lines = text.split("\n") if text else []
        top = y + height / 2 - (len(lines) - 1) * _LINE / 2 + 4
        for number, line in enumerate(lines):
            self.text(x + width / 2, top + number * _LINE, line, "quiet" if number else "name", "middle")

    def text(self, x: float, y: float, text: str, kind: str = "", anchor: str = "start") -> None:
        """Add lines of text, the first one on the line `y`."""
        classes = f' class="{kind}"' if kind else ""
        for number, line in enumerate(text.split("\n")):
            place = f'x="{x:g}" y="{y + number * _LINE:g}" text-anchor="{anchor}"'
            self._parts.append(f'<text {place}{classes} xml:space="preserve">{escape(line)}</text>')

    def arrow(self, *points: tuple[float, float], kind: str = "arrow") -> None:
        """Add a line through the points, with a head at its end."""
        path = " ".join(f"{'L' if number else 'M'}{x:g} {y:g}" for number, (x, y) in enumerate(points))
        self._parts.append(f'<path class="{kind}" d="{path}"/>')

    def svg(self, colors: Colors) -> str:
        """Return the picture in these colors."""
        return "\n".join(
            [
                f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {self._height}" role="img" '
                'aria-labelledby="t">',
                f'<title id="t">{escape(self._title)}</title>',
                "<!-- Written by `python -m docs.generate`. docs/generate/drawings.py describes it. -->",
                "<style>",
                f"  text {{ font: 12px {SANS}; fill: {colors.text}; }} .name {{ font-size: 13px; font-weight: 600; }}",
                f"  .quiet {{ fill: {colors.dim}; font-size: 11.5px; }} .code {{ font: 12px {_MONO}; }}",
                f"  .mark {{ fill: {colors.accent}; font-weight: 600; }}",
                f"  .box {{ fill: {colors.panel}; stroke: {colors.line}; }}",
                f"  .value {{ fill: {colors.page}; stroke: {colors.accent}; }}",
                f"  .gone {{ fill: none; stroke: {colors.line}; stroke-dasharray: 4 4; }}",
                f"  .arrow {{ fill: none; stroke: {colors.accent}; stroke-width: 1.4; marker-end: url(#h); }}",
                f"  .aside {{ fill: none; stroke: {colors.dim}; stroke-dasharray: 3 4; marker-end: url(#g); }}",
                "</style>",
                f"<defs>{_head('h', colors.accent)}{_head('g', colors.dim)}</defs>",
                f'<rect x="0.5" y="0.5" width="{_WIDTH - 1}" height="{self._height - 1}" rx="8" '
                f'fill="{colors.page}" stroke="{colors.line}"/>',
                *self._parts,
                "</svg>\n",
            ]
        )


def _head(name: str, color: str) -> str:
    return (
        f'<marker id="{name}" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7" markerHeight="7" orient="auto">'
        f'<path fill="{color}" d="M0 0.8 8 4 0 7.2z"/></marker>'
    )


def _request() -> Drawing:
    """Draw the steps that build a request."""
    drawing = Drawing("From a name, messages and options to a plan; each step may leave a note", 270)
    steps = [
        ("resolve", "the name\nbecomes a Model"),
        ("decide", "what the options\nmean here"),
        ("fit", "the history,\nas it is taken"),
        ("encode", "the body\nof this wire"),
        ("address", "URL, headers,\na place for the key"),
    ]
    drawing.text(20, 28, "your call", "mark")
    drawing.text(20, 46, 'call("glm-4.7", history, reasoning="high", temperature=1.5)', "code")
    wide, gap = 132, 26
    for number, (name, purpose) in enumerate(steps):
        x = 30 + number * (wide + gap)
        drawing.box(x, 76, wide, 76, f"{name}\n{purpose}")
        if number:
            drawing.arrow((x - gap + 2, 114), (x - 3, 114))
            drawing.arrow((x + wide / 2, 153), (x + wide / 2, 184), kind="aside")
    drawing.arrow((96, 54), (96, 73))
    drawing.box(30 + wide + gap, 188, 4 * wide + 3 * gap, 30, "notes: each change, with the line of the registry")
    drawing.box(30, 188, wide, 30, "providers.toml")
    drawing.arrow((96, 187), (96, 155), kind="aside")
    drawing.text(30, 246, "Plan", "mark")
    drawing.text(
        66, 246, "method, url, headers, body, content (the bytes to send), notes. Nothing was sent; no key is known."
    )
    return drawing


def _stream() -> Drawing:
    """Draw the steps that read a stream."""
    drawing = Drawing("From bytes to events and a reply, and how a stream is known to be whole", 310)
    steps = [
        ("bytes", "in pieces\nof any size", "value"),
        ("framing", "server-sent\nevents, JSON", "box"),
        ("wire", "chunks of one\nof four protocols", "box"),
        ("filters", "think tags, calls\nwritten as text", "box"),
        ("builder", "blocks, calls,\nusage", "box"),
    ]
    wide, gap = 132, 26
    for number, (name, purpose, kind) in enumerate(steps):
        x = 30 + number * (wide + gap)
        drawing.box(x, 28, wide, 76, f"{name}\n{purpose}", kind)
        if number:
            drawing.arrow((x - gap + 2, 66), (x - 3, 66))
    last = 30 + 4 * (wide + gap) + wide / 2
    drawing.arrow((last, 105), (last, 137))
    drawing.box(last - wide / 2, 140, wide, 40, "events", "value")
    drawing.text(
        last - wide / 2 - 12,
        158,
        "TextDelta, ReasoningDelta, ToolCallEnd, …\nyou get them while bytes arrive",
        "quiet",
        "end",
    )
    drawing.arrow((last, 181), (last, 213))
    drawing.box(last - wide / 2, 216, wide, 64, "did it end?\na finish, or the\nend marker")
    drawing.arrow((last - wide / 2 - 2, 236), (430, 236))
    drawing.arrow((last - wide / 2 - 2, 262), (430, 262), kind="aside")
    drawing.text(420, 240, "yes: Reply, whole, its calls may be executed", "", "end")
    drawing.text(420, 266, "no: StreamCut, and error.reply has what came", "", "end")
    drawing.text(450, 230, "proof", "quiet")
    drawing.text(450, 278, "no proof", "quiet")
    return drawing


def _note() -> Drawing:
    """Draw the parts of a note."""
    drawing = Drawing(
        "The parts of a note: the flag, what was asked for, what was done, and the line that says so", 232
    )
    drawing.box(20, 24, 780, 40, kind="box")
    note = build_request(registry().resolve("kimi-k2.6"), "Hi", temperature=0.3).notes[0]
    parts = [
        (note.flag, "flag", "the fact of the registry\nthat this is about"),
        (note.said, "said", "what you asked for,\nor what arrived"),
        (note.did, "did", "what cnllm did"),
        (note.where, "where", "the file and line\nthat says so"),
    ]
    signs = (": ", " → ", " (", ")")
    x = 34.0
    for (text, name, meaning), sign in zip(parts, signs, strict=True):
        width = 7.23 * len(text)
        drawing.text(x, 48, text, "code")
        drawing.text(x + width, 48, sign, "code")
        drawing.arrow((x + width / 2, 96), (x + width / 2, 60), kind="aside")
        drawing.text(x + width / 2, 112, name, "mark", "middle")
        drawing.text(x + width / 2, 130, meaning, "quiet", "middle")
        x += width + 7.23 * len(sign)
    drawing.box(34, 166, 752, 46, kind="gone")
    drawing.text(48, 185, "Where it stands", "name")
    drawing.text(
        48,
        203,
        "in reply.notes, on stderr, in the log, in --json, and behind the gateway's header x-cnllm-notes",
        "quiet",
    )
    drawing.text(772, 185, f"code: {note.code}, stable, for programs", "quiet", "end")
    return drawing


def _replay() -> Drawing:
    """Draw the way of reasoning back to the endpoint."""
    drawing = Drawing("The next request: to the model that wrote the reasoning, and to another one", 288)
    columns = [
        (30, "what is in your history", [("user", "box"), ("reasoning", "value"), ("call", "box"), ("result", "box")]),
        (
            300,
            "sent to the same endpoint",
            [("user", "box"), ("reasoning", "value"), ("call", "box"), ("result", "box")],
        ),
        (570, "sent to another model", [("user", "box"), ("", "gone"), ("call", "box"), ("result", "box")]),
    ]
    said = {
        "user": "user\nHow warm is it?",
        "reasoning": "reasoning\n“I look it up.”",
        "call": "call\nweather(Bern)",
        "result": "result\n21 degrees",
        "": "left out, with a note",
    }
    for x, head, rows in columns:
        drawing.text(x + 110, 30, head, "mark", "middle")
        for number, (name, kind) in enumerate(rows):
            drawing.box(x, 46 + number * 58, 220, 48, said[name], kind)
    drawing.arrow((252, 128), (297, 128))
    return drawing


def _picture(make: Callable[[], Drawing], colors: Colors) -> str:
    return make().svg(colors)


PICTURES: dict[str, Callable[[], str]] = {
    f"{name}-{shade}.svg": partial(_picture, make, colors)
    for name, make in {"request": _request, "stream": _stream, "note": _note, "replay": _replay}.items()
    for shade, colors in (("light", LIGHT), ("dark", DARK))
}
"""Name of a file in docs/static → the function that draws it."""
