"""`models list`: filters that know yes, no and unknown."""

from __future__ import annotations

import subprocess
import sys

import pytest

from .support import Machine

pytestmark = pytest.mark.usefixtures("small_builtin")
MODELS = """limits = { context = 65_536, output = 4096 }
price = { currency = "CNY", input = 2, output = 8.5 }
input = ["text", "image"]
reasoning = { mode = "toggle", default = "off" }
tools.supported = true
[models."home/blind"]
limits.context = 4096
input = ["text"]
price = { currency = "USD", input = 0, output = 0 }
reasoning.mode = "always"
tools.supported = false
[models."home/untold"]
[aliases]
mine = "home/m"
"""


@pytest.fixture(autouse=True)
def overlay(machine: Machine) -> None:
    machine.overlay("http://127.0.0.1:9/v1", MODELS)


def names(machine: Machine, *args: str) -> list[str]:
    done = machine.run("models", "list", "home/", "--json", *args)
    assert done.status == 0, done.err
    return [row["id"] for row in done.json()]


@pytest.mark.parametrize(
    ("args", "found", "maybe"),
    [
        ([], ["blind", "m", "untold"], ["blind", "m", "untold"]),
        (["--can", "images"], ["m"], ["m", "untold"]),
        (["--can", "images,tools"], ["m"], ["m", "untold"]),
        (["--can", "images", "--can", " TOOLS "], ["m"], ["m", "untold"]),
        (["--can", "reasoning"], ["blind", "m"], ["blind", "m", "untold"]),
        (["--can", "reasoning-off"], ["m"], ["m", "untold"]),
        (["--can", "schema"], [], ["blind", "m", "untold"]),
        (["--max-price", "8.5"], ["blind", "m"], ["blind", "m", "untold"]),
        (["--max-price", "8.4"], ["blind"], ["blind", "untold"]),
        (["--max-price", "0"], ["blind"], ["blind", "untold"]),
        (["--currency", "cny"], ["m"], ["m", "untold"]),
        (["--currency", "USD", "--max-price", "1"], ["blind"], ["blind", "untold"]),
        (["--context", "65536"], ["m"], ["m", "untold"]),
        (["--context", "65537"], [], ["untold"]),
        (["--provider", "home"], ["blind", "m", "untold"], ["blind", "m", "untold"]),
        (["--provider", "deepseek"], [], []),
        (["--provider", "deepseek", "--provider", "HOME", "--can", "images"], ["m"], ["m", "untold"]),
    ],
)
def test_a_filter_takes_yes_and_with_maybe_unknown_too(
    machine: Machine, args: list[str], found: list[str], maybe: list[str]
) -> None:
    assert names(machine, *args) == found
    assert names(machine, *args, "--maybe") == maybe


def test_unknown_stays_apart_from_no_in_json(machine: Machine) -> None:
    rows = {row["id"]: row["capabilities"] for row in machine.run("models", "list", "home/", "--json").json()}
    assert [rows[id]["images"] for id in ("m", "blind", "untold")] == [True, False, None]
    assert machine.run("models", "show", "home/m", "--json").json()["capabilities"] == rows["m"]


def test_what_is_asked_for_is_a_column_and_what_is_unknown_is_counted(machine: Machine) -> None:
    done = machine.run("models", "list", "home/", "--can", "images", "--maybe")
    head, *lines = done.out.splitlines()
    assert head.split()[-1] == "IMAGES"
    assert [line.split()[-1] for line in lines] == ["yes", "?"]
    assert done.err == "2 of 3 models\n"
    done = machine.run("models", "list", "home/", "--can", "images")
    assert done.err == "1 of 3 models; 1 more are unknown: --maybe\n"
    assert machine.run("models", "list", "home/", "--context", "99999999").out == ""


@pytest.mark.parametrize(
    ("args", "words"),
    [
        (["--can", "imagse"], ["there is no capability imagse", "did you mean images?"]),
        (["--can", "fly"], ["there is no capability fly", "--can takes tools, "]),
        (["--provider", "hme"], ["there is no provider hme", "did you mean home?"]),
        (["--max-price", "low"], ["--max-price"]),
        (["--max-price", "-1"], ["--max-price"]),
        (["--context", "1.5"], ["--context"]),
    ],
)
def test_a_word_that_means_nothing_is_refused(machine: Machine, args: list[str], words: list[str]) -> None:
    machine.run("models", "list", *args).fails(2, *words)


def test_the_help_says_what_each_capability_means(machine: Machine) -> None:
    done = machine.run("models", "list", "--help")
    assert "Capabilities:" in done.out
    assert "can answer without reasoning" in done.out


def test_capabilities_are_completed(machine: Machine) -> None:
    env = {
        "_CNLLM_COMPLETE": "bash_complete",
        "COMP_WORDS": "cnllm models list --can tools,im",
        "COMP_CWORD": "4",
    }
    assert machine.run(env=env).out.split() == ["plain,tools,images"]
    env |= {"COMP_WORDS": "cnllm models list --provider hom"}
    assert machine.run(env=env).out.split() == ["plain,home"]


@pytest.mark.share(3)
@pytest.mark.parametrize(
    "args", [["models", "list"], ["models", "list", "--json"], ["models", "list", "--can", "tools"]]
)
def test_a_listing_imports_neither_transport_nor_engine(machine: Machine, args: list[str]) -> None:
    code = (
        f"import sys; from cnllm.cli import main; status = main({args!r}); heavy = ('httpx', 'pydantic', 'jsonschema', "
        "'cnllm.engine', 'cnllm.client', 'cnllm.protocols', 'cnllm.transports', 'cnllm.registry_files.check'); "
        "print([m for m in sys.modules if m.startswith(heavy)], file=sys.stderr); sys.exit(status)"
    )
    machine.overlay("http://127.0.0.1:9/v1")
    for _ in range(2):  # a file that was changed is checked once
        done = subprocess.run(
            [sys.executable, "-c", code], env=machine.env, capture_output=True, text=True, check=False
        )
    assert args[-1] == "tools" or "home/m" in done.stdout
    assert (done.returncode, done.stderr.splitlines()[-1]) == (0, "[]")
