"""The matrix page in a browser: axe-core finds nothing, the first paint is fast, the keyboard reaches everything."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from .programs import module_folder

pytestmark = pytest.mark.long

CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
FIRST_PAINT = 1_000  # milliseconds


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """What the browser saw."""
    folder = module_folder("axe-core", "puppeteer-core")
    if CHROMIUM is None or shutil.which("node") is None or folder is None:
        pytest.skip("no chromium, or no axe-core and puppeteer-core from npm")
    page = tmp_path_factory.mktemp("page") / "matrix.html"
    subprocess.run([sys.executable, "-m", "cnllm", "models", "matrix", "--html", str(page)], check=True)
    script = Path(__file__).with_name("matrix.mjs")
    command = ["node", str(script), str(folder), CHROMIUM, str(page)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stderr
    result: dict[str, Any] = json.loads(done.stdout)
    return result


def test_axe_finds_no_violation_in_any_view(found: dict[str, Any]) -> None:
    """List, model, comparison and Chinese, light and dark, wide and narrow."""
    looks = found["looks"]
    assert len(looks) == 16
    wrong = [(look["name"], look["size"], look["scheme"], look["violations"]) for look in looks if look["violations"]]
    assert wrong == []
    assert [look["errors"] for look in looks if look["errors"]] == []


def test_the_page_asks_for_nothing_but_itself(found: dict[str, Any]) -> None:
    assert {len(look["requests"]) for look in found["looks"]} == {1}


def test_the_first_paint_takes_less_than_a_second(found: dict[str, Any]) -> None:
    paints = sorted(look["paint"] for look in found["looks"])
    assert paints[len(paints) // 2] < FIRST_PAINT, paints


def test_nothing_is_wider_than_the_window_and_no_band_is_empty(found: dict[str, Any]) -> None:
    assert {look["overflow"] for look in found["looks"]} == {0}
    table = found["place"]["table"]
    assert table["left"] < 48
    assert table["right"] > 1440 - 48


def test_the_price_is_in_view_on_a_phone(found: dict[str, Any]) -> None:
    price = found["place"]["price"]
    assert 0 < price["left"] < price["right"] <= 390


def test_the_keyboard_is_enough(found: dict[str, Any]) -> None:
    keys = found["keys"]
    assert keys["first"] == "skip", "the first Tab offers to skip to the models"
    assert keys["search"] == "q"
    assert all("glm-4.7" in name.lower() for name in keys["rows"])
    assert str(len(keys["rows"])) in keys["count"], "the status says how many there are"
    assert keys["row"] == keys["rows"][0]
    assert keys["outline"] == "solid"
    assert keys["picked"] == keys["rows"][:2]
    hash, title, focus = keys["opened"]
    assert hash.startswith("#model=")
    assert hash.endswith(keys["rows"][1])
    assert title.startswith(hash.removeprefix("#model="))
    assert focus == "model-name"
    assert set(keys["links"]) == {"https:"}, "sources are links"
    assert keys["back"] == [keys["rows"][1], "#q=glm-4.7"]
    assert keys["compared"] == keys["rows"][:2]


def test_four_models_at_most_are_compared(found: dict[str, Any]) -> None:
    assert found["most"] == [4, 4]


def test_a_word_is_explained_on_hover(found: dict[str, Any]) -> None:
    hidden, text = found["tip"]
    assert not hidden
    assert text.endswith(".")


def test_a_link_opens_the_list_with_its_filters(found: dict[str, Any]) -> None:
    assert found["deep"] == {"vendors": ["Z.AI"], "reads": True, "sort": "input"}
