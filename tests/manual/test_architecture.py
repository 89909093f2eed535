"""The drawing of the architecture is the package as it is.

`tests/manual/test_reference.py` checks that it is current.
"""

from __future__ import annotations

import re
from importlib import import_module
from operator import attrgetter
from pathlib import Path

import pytest

from docs.generate import architecture
from docs.generate.architecture_plan import FLOORS, STEPS, Floor
from docs.generate.rooms import room, room_imports

PAGE = Path(__file__).parents[2] / "docs/develop/architecture.md"
BOXES = [box for floor in FLOORS for box in floor.boxes]


def test_every_room_of_the_package_is_in_one_box() -> None:
    drawn = [name for box in BOXES for name in box.all_rooms()]
    assert sorted(drawn) == sorted(room_imports()), "docs/generate/architecture_plan.py names other rooms"


def test_every_import_goes_to_a_lower_floor() -> None:
    depth = {box.name: number for number, floor in enumerate(FLOORS) for box in floor.boxes}
    wrong = [(box, other) for box, others in architecture.box_imports().items() for other in others]
    assert [(box, other) for box, other in wrong if depth[box] >= depth[other]] == []


def test_inside_a_box_a_room_imports_only_those_on_its_right() -> None:
    for box in BOXES:
        rooms = box.all_rooms()
        for number, name in enumerate(rooms):
            assert not room_imports()[name] & set(rooms[:number]), name


def test_the_arrows_and_the_paths_of_them_are_the_imports() -> None:
    below: dict[str, set[str]] = {box.name: set() for box in BOXES}
    for box in reversed(BOXES):
        for start, end in architecture.arrows():
            if start == box.name:
                below[start] |= {end} | below[end]
    imports = architecture.box_imports()
    for name, others in imports.items():
        assert others <= below[name]
    for start, end in architecture.arrows():
        assert end in imports[start]


def test_the_steps_of_a_call_exist_in_the_rooms_that_the_drawing_names() -> None:
    for step in STEPS[1:]:
        module, _, name = step.function.partition(":")
        assert callable(attrgetter(name)(import_module(module)))
        assert room(module.removeprefix("cnllm.").replace(".", "/")) == step.room


def test_each_place_under_where_to_look_exists() -> None:
    section = PAGE.read_text(encoding="utf-8").partition("## Where to look")[2].partition("\n## ")[0]
    places = re.findall(r"^\| [^|]+ \| `(cnllm/[\w/]+)\.py`[^|]* \| `([\w.]+)` \|$", section, re.MULTILINE)
    assert len(places) == section.count("\n| ") - 1, "each line names a file and what stands there"
    for module, name in places:
        assert callable(attrgetter(name)(import_module(module.replace("/", ".")))), (module, name)


def test_the_boxes_of_a_floor_stand_side_by_side() -> None:
    for floor in FLOORS:
        edges = [edge for box in floor.boxes for edge in (box.left, box.left + box.width)]
        assert edges == sorted(edges), floor.name
        assert edges[-1] <= 12, floor.name


def test_a_room_without_a_box_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    lowest = FLOORS[-1]
    monkeypatch.setattr(architecture, "FLOORS", (*FLOORS[:-1], Floor(lowest.name, lowest.boxes[1:])))
    with pytest.raises(ValueError, match=f"{lowest.boxes[0].name}: no box has this room"):
        architecture.box_imports()
