"""What no recording exercises is known: each value of the registry that could be wrong without a test that fails.

`unexercised.txt` is that list. A new flag stands in it unless a recording exercises it, so a diff of it shows what an
edit of providers.toml adds that nothing confirms. `pytest --update -n 0` writes it anew.
"""

from __future__ import annotations

import functools
import os
import re
from pathlib import Path

import pytest
from cases import each

from cnllm import Registry
from cnllm.registry.documents import Document
from cnllm.registry.read import builtin_path, read

from .corpus import ABSENT, PROVIDERS, WIRE
from .exercised import MORE, SHARED, Exercise, altered, block

REPORT = Path(__file__).with_name("unexercised.txt")
HEAD = "# Written by `pytest --update`: the values of the registry that no recording exercises. Not for editing."
UNRECORDED = "without recordings"
RECORDED = sorted({name for names in (*PROVIDERS.values(), *MORE.values()) for name in names})

pytestmark = [pytest.mark.long, pytest.mark.skipif(not WIRE.is_dir(), reason=ABSENT)]


@functools.cache
def builtin() -> Document:
    return read(builtin_path(), builtin=True)


@functools.cache
def exercise() -> Exercise:
    return Exercise(builtin())


def blocks() -> dict[str, str]:
    """The parts of the report by what they are about."""
    parts = REPORT.read_text(encoding="utf-8").rstrip("\n").split("\n\n")[1:] if REPORT.exists() else []
    return {part.partition(":")[0]: part for part in parts}


def counted(found: dict[str, str]) -> str:
    """The sum of the parts."""
    heads = [re.match(r".+: (\d+) of (\d+)", found[name]) for name in (*SHARED, *RECORDED)]
    done, every = (sum(int(head[place]) for head in heads if head) for place in (1, 2))
    bare = [int(count) for count in re.findall(r"\S+ (\d+)", found[UNRECORDED])]
    return (
        f"{done} of the {every} values that hold where something was recorded are exercised. "
        f"{len(bare)} endpoints with {sum(bare)} values have no recordings."
    )


def keep(section: str, text: str) -> None:
    """Put one part of the report in its place."""
    assert "PYTEST_XDIST_WORKER" not in os.environ, "one after the other: pytest --update -n 0"
    found = blocks() | {section: text}
    order = [name for name in (*SHARED, *RECORDED, UNRECORDED) if name in found]
    head = [HEAD, counted(found)] if len(order) == len((*SHARED, *RECORDED, UNRECORDED)) else [HEAD]
    REPORT.write_text("\n\n".join(["\n".join(head), *(found[name] for name in order)]) + "\n", encoding="utf-8")


def unrecorded() -> str:
    """How many values each endpoint has of which nothing was recorded."""
    counts = [f"{name} {len(found)}" for name, found in exercise().values.items() if name not in (*SHARED, *RECORDED)]
    return f"{UNRECORDED}: {', '.join(counts)}"


@pytest.mark.parametrize("section", [*SHARED, *RECORDED])
def test_what_no_recording_exercises_is_known(section: str, update: bool) -> None:
    now = block(exercise(), section)
    if update:
        keep(section, now)
    assert blocks().get(section) == now, "see what changed, then: pytest --update -n 0"


def test_which_endpoints_have_no_recordings_is_known(update: bool) -> None:
    now = unrecorded()
    if update:
        keep(UNRECORDED, now)
    assert blocks().get(UNRECORDED) == now, "see what changed, then: pytest --update -n 0"
    assert REPORT.read_text(encoding="utf-8").splitlines()[:2] == [HEAD, counted(blocks())]
    assert set(blocks()) == {*SHARED, *RECORDED, UNRECORDED}


def test_the_report_is_of_the_endpoints_that_there_are() -> None:
    assert set(RECORDED) < set(Registry([builtin()]).providers)
    assert str(WIRE) not in REPORT.read_text(encoding="utf-8")
    assert max(map(len, REPORT.read_text(encoding="utf-8").splitlines())) < 2_000


GROQ = ("providers", "groq")


def test_a_new_flag_that_no_recording_exercises_is_in_the_report() -> None:
    unheard = altered(builtin(), (*GROQ, "params", "mood"), False)
    before, after = block(exercise(), "groq").splitlines(), block(Exercise(unheard), "groq").splitlines()
    [told] = set(after) - set(before) - {after[0]}
    assert "mood" in told
    assert after[0] != before[0]


@each(
    "keys, new",
    [
        ("params.temperature", "warmth"),
        ("finish.tool_calls", "stop"),
        ("tools.result_name", True),
        ("errors", [{"kind": "quota", "code": ["invalid_api_key"]}]),
        ("when.stream.body.drop", ["stream_options"]),
        ("reasoning.fields", ["reasoning_content", "reasoning"]),
        ("unset", ["usage.input"]),
    ],
)
def test_a_new_flag_that_changes_what_was_recorded_is_not(keys: str, new: object) -> None:
    heard = Exercise(altered(builtin(), (*GROQ, *keys.split(".")), new))
    of_it = [value for value in heard.values["groq"] if value.table == GROQ and value.flag == keys]
    assert of_it
    assert any(map(heard.exercised, of_it))
