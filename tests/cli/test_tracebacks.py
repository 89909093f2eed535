"""A traceback in Python ends with the hint that the command line prints for the same fault."""

from __future__ import annotations

import copy
import pickle
import subprocess
import sys

import pytest

from cnllm.errors import CnllmError, UnknownModel

from .support import Machine, Server, http

FAULTS = [
    ("no model has this name", "glm-47", ()),
    ("no provider has this name", "nobody/m", ()),
    ("no key", "glm-4.7", ()),
    ("a refused key", "home/m", (401, b'{"error": {"message": "invalid api key"}}')),
    ("an empty account", "home/m", (402, b'{"error": {"message": "Insufficient Balance"}}')),
    ("a bad request", "home/m", (400, b'{"error": {"message": "bad temperature"}}')),
]


def python(machine: Machine, code: str) -> str:
    """Run a program, and return what it wrote to stderr."""
    done = subprocess.run(
        [sys.executable, "-c", code], env=machine.env, capture_output=True, timeout=60, check=False, text=True
    )
    assert done.returncode == 1, done
    return done.stderr


@pytest.mark.share(2)
@pytest.mark.parametrize(("model", "response"), [row[1:] for row in FAULTS], ids=[row[0] for row in FAULTS])
def test_python_says_what_the_command_line_says(
    machine: Machine, model: str, response: tuple[int, bytes] | tuple[()]
) -> None:
    if response:
        with Server((http(*response),)) as peer:
            machine.overlay(peer.url)
            done, trace = both(machine, model)
    else:
        done, trace = both(machine, model)
    message, *lines = done.splitlines()
    hints = [line for line in lines if "answered with status" not in line]  # where a traceback has the error's class
    assert trace[-1 - len(hints)].partition(": ")[2] == message.removeprefix("cnllm: ")
    for hint in hints:
        assert hint.strip() in trace[-1], (hint, trace)


def both(machine: Machine, model: str) -> tuple[str, list[str]]:
    """Return what the program says, and the lines of the traceback of the same call."""
    done = machine.run("call", "-m", model, "hi", "--no-log")
    assert done.status in (1, 2)
    return done.err, python(machine, f"import cnllm; cnllm.call({model!r}, 'hi')").splitlines()


def test_the_note_follows_the_hint() -> None:
    error = CnllmError("it failed", hint="do this")
    error.add_note("a note of the caller")
    error.hint = "do that"
    assert error.__notes__ == ["a note of the caller", "do that"]
    error.hint = None
    assert error.__notes__ == ["a note of the caller"]


def test_a_copy_has_its_own_notes() -> None:
    error = UnknownModel("no such model", close=["glm-4.7"], hint="did you mean glm-4.7?")
    for other in (pickle.loads(pickle.dumps(error)), copy.copy(error)):
        assert (other.hint, other.__notes__) == (error.hint, error.__notes__)
        other.hint = "something else"
        assert error.__notes__ == ["did you mean glm-4.7?"]
