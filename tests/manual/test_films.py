"""The films of the manual show what the commands print. test_reference.py checks that the pictures are current."""

from __future__ import annotations

import os
import re
import shlex
from pathlib import Path
from xml.etree import ElementTree

import program
import pytest
from home_folders import config_dir

from cnllm import Registry
from cnllm.simulator.server import running
from docs import films
from docs.generate import film

TEXT = "{http://www.w3.org/2000/svg}text"
CASTS = {name: (film.FOLDER / f"{name}.cast").read_text(encoding="utf-8") for name in film.NAMES}


@pytest.mark.long
@pytest.mark.parametrize("name", film.NAMES)
def test_a_film_shows_what_its_commands_print_today(name: str) -> None:
    if needed := films.missing(name):
        pytest.skip(f"{needed} is not installed")
    assert films.same(CASTS[name], films.record(name)), f"python -m docs.films {name} && python -m docs.generate"


@pytest.mark.usefixtures("small_builtin")
def test_the_cut_streams_are_told_in_these_words() -> None:
    scene = films.FILMS["cut"]
    shown = film.screen(film.parse(CASTS["cut"]))
    with running(Registry.load(), pace=0) as server:
        own = config_dir(Path(os.environ["HOME"])) / "providers.toml"
        own.parent.mkdir(parents=True)
        own.write_text(films.settings(scene, server.url), encoding="utf-8")
        assert program.completed(["registry", "trust", str(own)]).returncode == 0
        for command, status in zip(scene.commands[1:], (3, 3, 0), strict=True):
            args = shlex.split(command.partition(";")[0])[1:]
            done = program.completed(args, {"ZAI_API_KEY": "any-text-does"})
            assert done.returncode == status
            for line in (done.stdout + done.stderr).splitlines():
                assert line[:80] in shown.replace("\n", "") or "tokens" in line


@pytest.mark.parametrize("name", film.NAMES)
def test_the_picture_ends_as_the_recording_does(name: str) -> None:
    recording = film.parse(CASTS[name])
    picture = film.PICTURES[f"{name}-light.svg"]()
    gone = {found[1] for found in re.finditer(r"\.(t\d+)\{visibility:hidden;", picture)}
    texts = [
        text for text in ElementTree.fromstring(picture).iter(TEXT) if (text.get("class") or "").split()[-1] not in gone
    ]
    places = sorted((float(text.attrib["y"]), float(text.attrib["x"]), text.text or "") for text in texts)
    left = "".join(text for _, _, text in places)
    assert re.sub(r"\s", "", left) == re.sub(r"\s", "", film.screen(recording))
    assert "prefers-reduced-motion" in picture
    assert picture == film.PICTURES[f"{name}-light.svg"]()
    assert recording.pieces[-1][0] < 30, "a film convinces in thirty seconds"
    assert [time for time, _ in recording.pieces] == sorted(time for time, _ in recording.pieces)


def test_seconds_and_ports_are_no_difference_and_words_are_one() -> None:
    cast = CASTS["capped-batch"]
    assert films.same(cast, re.sub(r"\d rows/s|(?<=p50 0\.)\d", lambda found: f"7{found[0]}", cast))
    assert not films.same(cast, cast.replace("0 failed", "1 failed"))
