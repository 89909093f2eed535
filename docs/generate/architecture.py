"""Draw the architecture: the way of one call, and the floors of the package with the imports between them.

The arrows come from the imports as they are. One that a path of other arrows covers is left out.
"""

from __future__ import annotations

from collections.abc import Iterator
from xml.sax.saxutils import escape

from docs.generate.architecture_plan import FLOORS, STEPS, Box
from docs.generate.colors import DARK, LIGHT, SANS, Colors
from docs.generate.rooms import room_imports

__all__ = ["arrows", "box_imports", "dark", "light"]

_WIDTH, _MARGIN, _FLOOR, _STEP = 1000, 20, 104, 34  # pixels: the page, its margin, a floor's name, between two floors
_BOX, _TALL, _STRIP = 46, 72, 128  # the height of a box, of one that lists rooms, of the way of a call
_TITLE = "How cnllm is built: the way of one call, and the floors of the package. Arrows are imports; all point down."


def light() -> str:
    """Return the drawing for a light page."""
    return _svg(LIGHT)


def dark() -> str:
    """Return the drawing for a dark page."""
    return _svg(DARK)


def box_imports() -> dict[str, set[str]]:
    """Return the other boxes that each box imports. Raises `ValueError` for a room that no box has."""
    owner = {room: box.name for floor in FLOORS for box in floor.boxes for room in box.all_rooms()}
    found: dict[str, set[str]] = {box.name: set() for floor in FLOORS for box in floor.boxes}
    if missing := sorted(room_imports().keys() - owner.keys()):
        raise ValueError(f"{', '.join(missing)}: no box has this room; add one to docs/generate/architecture_plan.py")
    for room, others in room_imports().items():
        found[owner[room]] |= {owner[other] for other in others} - {owner[room]}
    return found


def arrows() -> list[tuple[str, str]]:
    """Return the imports between boxes, except for those that a path of other imports covers."""
    imports = box_imports()

    def reach(name: str) -> set[str]:
        return imports[name].union(*(reach(other) for other in imports[name])) if imports[name] else set()

    return [
        (name, other)
        for name, others in imports.items()
        for other in sorted(others)
        if not any(other in reach(between) for between in others - {other})
    ]


def _svg(colors: Colors) -> str:
    places = dict(_places())
    height = round(max(y + tall for _, y, _, tall in places.values())) + _MARGIN
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {height}" role="img" aria-labelledby="t">',
        f'<title id="t">{_TITLE}</title>',
        "<!-- Written by `python -m docs.generate`. docs/generate/architecture_plan.py describes it. -->",
        "<style>",
        f"  text {{ font: 12px {SANS}; fill: {colors.text}; }}",
        f"  .name {{ font-size: 13px; font-weight: 600; }} .quiet {{ fill: {colors.dim}; font-size: 11px; }}",
        f"  .box {{ fill: {colors.panel}; stroke: {colors.line}; }} .value {{ fill: {colors.page}; }}",
        f"  .room {{ fill: {colors.page}; stroke: {colors.line}; }}",
        f"  .arrow {{ fill: none; stroke: {colors.accent}; stroke-width: 1.3; marker-end: url(#h); }}",
        f"  .head {{ fill: {colors.accent}; }} .floor {{ stroke: {colors.line}; stroke-dasharray: 2 5; }}",
        "</style>",
        '<defs><marker id="h" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7" markerHeight="7" orient="auto">'
        '<path class="head" d="M0 0.8 8 4 0 7.2z"/></marker></defs>',
        f'<rect x="0.5" y="0.5" width="{_WIDTH - 1}" height="{height - 1}" rx="8" fill="{colors.page}" '
        f'stroke="{colors.line}"/>',
        *_way(),
    ]
    for floor in FLOORS:
        _, y, _, tall = places[floor.boxes[0].name]
        if floor is not FLOORS[-1]:
            parts.append(f'<path class="floor" d="M{_MARGIN} {y + tall + _STEP / 2:g}H{_WIDTH - _MARGIN}"/>')
        parts.append(_text(_MARGIN, y + tall / 2 + 4, floor.name, "quiet"))
    parts += _arrow_lines(places)
    for floor in FLOORS:
        for box in floor.boxes:
            parts += _box(box, *places[box.name])
    return "\n".join([*parts, "</svg>"]) + "\n"


def _places() -> Iterator[tuple[str, tuple[float, float, float, float]]]:
    """Yield the left, top, width and height of each box."""
    twelfth = (_WIDTH - 2 * _MARGIN - _FLOOR) / 12
    y = float(_STRIP)
    for floor in FLOORS:
        tall = _TALL if any(box.rooms for box in floor.boxes) else _BOX
        for box in floor.boxes:
            yield box.name, (_MARGIN + _FLOOR + box.left * twelfth, y, box.width * twelfth, tall)
        y += tall + _STEP


def _way() -> Iterator[str]:
    """Draw the way of one call: values, and below the arrows what makes the next one."""
    wide, gap = 84, (_WIDTH - 2 * _MARGIN - 84 * len(STEPS)) / (len(STEPS) - 1)
    for number, step in enumerate(STEPS):
        x = _MARGIN + number * (wide + gap)
        if step.room:
            function = step.function.rpartition(":")[2]
            yield f'<path class="arrow" d="M{x - gap + 2:.1f} 46H{x - 2:.1f}"/>'
            yield _text(x - gap / 2, 84, function, "", "middle")
            yield _text(x - gap / 2, 100, step.room, "quiet", "middle")
            yield f'<path class="floor" d="M{x - gap / 2:.1f} 50V70"/>'
        yield f'<rect class="box" x="{x:.1f}" y="30" width="{wide}" height="32" rx="16"/>'
        yield _text(x + wide / 2, 50, step.makes, "name" if len(step.makes) < 12 else "", "middle")


def _arrow_lines(places: dict[str, tuple[float, float, float, float]]) -> Iterator[str]:
    """Draw the arrows. Each leaves and enters at a place of its own, in the order in which the others stand."""
    drawn = arrows()

    def center(name: str) -> float:
        return places[name][0] + places[name][2] / 2

    def port(name: str, other: str, others: list[str]) -> float:
        left, _, width, _ = places[name]
        inside = min(max(center(other), left + 10), left + width - 10)
        spread = left + width * (sorted(others, key=center).index(other) + 1) / (len(others) + 1)
        return inside if len(others) == 1 else (inside + spread) / 2

    used: list[tuple[float, float]] = []
    for above, below in drawn:
        start = port(above, below, [end for begin, end in drawn if begin == above])
        end = port(below, above, [begin for begin, end in drawn if end == below])
        yield _line(start, end, above, below, places, used)


def _line(
    start: float,
    end: float,
    above: str,
    below: str,
    places: dict[str, tuple[float, float, float, float]],
    used: list[tuple[float, float]],
) -> str:
    """Draw one arrow: straight down past each floor between its two, where no box and no other arrow stands."""
    top, bottom = places[above][1] + places[above][3], places[below][1]
    x, y = start, top
    path = f"M{x:.1f} {y:g}"
    for floor in FLOORS:
        _, floor_top, _, tall = places[floor.boxes[0].name]
        if not top < floor_top < bottom:
            continue
        spans = [(places[box.name][0] - 9, sum(places[box.name][::2]) + 9) for box in floor.boxes]
        spans += [(taken - 9, taken + 9) for taken, where in used if where == floor_top]
        free = [place for place in (x, end, *(edge for span in spans for edge in span)) if place >= _MARGIN + _FLOOR]
        free = [place for place in free if not any(left < place < right for left, right in spans)]
        to = min(free, key=lambda place: abs(place - x) + abs(place - end))
        used.append((to, floor_top))
        path += _curve(x, y, to, floor_top) + f"V{floor_top + tall:g}"
        x, y = to, floor_top + tall
    return f'<path class="arrow" d="{path}{_curve(x, y, end, bottom - 1)}"/>'


def _curve(x: float, y: float, end: float, bottom: float) -> str:
    bend = (bottom - y) * 0.75
    return f"C{x:.1f} {y + bend:.1f} {end:.1f} {bottom - bend:.1f} {end:.1f} {bottom:g}"


def _box(box: Box, x: float, y: float, width: float, tall: float) -> Iterator[str]:
    yield f'<rect class="box" x="{x:.1f}" y="{y:g}" width="{width:.1f}" height="{tall}" rx="6"/>'
    rooms = [room for room in box.rooms if room not in (box.name, "__main__")]
    if not rooms:
        yield _text(x + width / 2, y + tall / 2 - 3, box.name, "name", "middle")
        yield _text(x + width / 2, y + tall / 2 + 13, box.purpose, "quiet", "middle")
        return
    purpose = f'<tspan class="quiet" dx="10">{escape(box.purpose)}</tspan>'
    yield f'<text x="{x + 12:.1f}" y="{y + 20:g}"><tspan class="name">{escape(box.name)}</tspan>{purpose}</text>'
    names = [room.rpartition("/")[2] for room in rooms]
    gap = 8
    letter = (width - 24 - gap * (len(names) - 1)) / sum(len(name) + 3 for name in names)
    left = x + 12
    for name in names:
        wide = letter * (len(name) + 3)
        yield f'<rect class="room" x="{left:.1f}" y="{y + 32:g}" width="{wide:.1f}" height="28" rx="4"/>'
        yield _text(left + wide / 2, y + 50, name, "", "middle")
        left += wide + gap


def _text(x: float, y: float, text: str, kind: str, anchor: str = "") -> str:
    classes = f' class="{kind}"' if kind else ""
    where = f' text-anchor="{anchor}"' if anchor else ""
    return f'<text x="{x:.1f}" y="{y:g}"{classes}{where}>{escape(text)}</text>'
