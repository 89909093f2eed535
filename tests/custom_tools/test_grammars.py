"""What a check says of an input, and what it does with hostile grammars and inputs."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Iterator

import pytest

from cnllm.client.input_checks import InputChecker
from cnllm.engine.run.effects import InputCheck, InputVerdict

from .support import BAD, GOOD, GRAMMAR, PLACE


@pytest.fixture(scope="module")
def checker() -> Iterator[InputChecker]:
    made = InputChecker(1.0)
    yield made
    made.close()


def verdict(checker: InputChecker, text: str, definition: str = GRAMMAR, syntax: str = "lark") -> InputVerdict:
    [found] = checker.check([InputCheck(syntax, definition, text)])
    return found


def test_the_patches_of_a_real_grammar_are_told_apart(checker: InputChecker) -> None:
    update = "*** Begin Patch\n*** Update File: a b.py\n*** Move to: c.py\n@@ def f():\n a\n-\n+\n*** End of File\n"
    delete = "*** Delete File: x\n"
    for right in (GOOD, GOOD.rstrip("\n"), f"{update}{delete}*** End Patch"):
        assert verdict(checker, right) == InputVerdict(), right
    wrong = {BAD: PLACE, "": "line 1, column 1", GOOD + "more": "line 7, column 1", GOOD[:-15]: "line 5, column 8"}
    wrong["*** Begin Patch\n*** Add File: a\n*** End Patch"] = "line 3, column 1"
    for text, place in wrong.items():
        problem = verdict(checker, text).problem
        assert problem is not None
        assert problem.startswith(place), (text, problem)


EXPRESSION = 'start: start "+" start | start "*" start | /[0-9]+/\n'
CONFLICT = 'start: (a | b) "!"\na: "x" "y"\nb: "x" "y" "z"?\n'
EMPTY = "start: A B C\nA: /a*/\nB: /(b?c?)*/\nC: /(x|)/\n"
IGNORED = "start: WORD+\n%import common.WORD\n%import common.WS\n%ignore WS\n"


@pytest.mark.parametrize(
    ("definition", "right", "wrong"),
    [
        (EXPRESSION, ["1", "1+2*3"], ["1+", "+1", ""]),
        (CONFLICT, ["xy!", "xyz!"], ["xz!", "xy"]),
        (EMPTY, ["", "aa", "bc", "abcbx", "x"], ["ba", "xx", "axa"]),
        (IGNORED, ["a", "a  b\nc"], ["", "1"]),
        ('start: "a"~2..3\n', ["aa", "aaa"], ["a", "aaaa"]),
    ],
)
def test_grammars_of_every_kind_are_judged(
    checker: InputChecker, definition: str, right: list[str], wrong: list[str]
) -> None:
    assert {text: verdict(checker, text, definition) for text in right} == dict.fromkeys(right, InputVerdict())
    assert [text for text in wrong if verdict(checker, text, definition).problem is None] == []


EXPONENTIAL = "start: " + " ".join(f'"{letter}"?' for letter in "abcdefghijklmnopqrstuvwxyz") + "\n"
AMBIGUOUS = "start: x\nx: x x | x x x | /a/\n"
HOSTILE = {
    "rules": (EXPONENTIAL, "zz"),
    "terminals": ('start: A "!"\nA: /(a|a|aa)+(?=b)/\n', "a" * 60),
    "ambiguous": (AMBIGUOUS, "a" * 3000),
    "long grammar": ('start: "a"+\n' + "// x\n" * 20_000, "b"),
    "long input": ('start: "a"+\n', "a" * 600_000),
    "nested": (f'start: {"(" * 5000}"a"{")" * 5000}\n', "b"),
}


@pytest.mark.parametrize("case", HOSTILE)
def test_hostile_grammars_and_inputs_end_in_time_and_the_next_check_works(checker: InputChecker, case: str) -> None:
    definition, text = HOSTILE[case]
    start, cpu = time.monotonic(), time.process_time()
    found = verdict(checker, text, definition)
    assert time.monotonic() - start < 30  # some of it is the wait for a busy machine
    assert time.process_time() - cpu < 0.5  # the work is done elsewhere
    assert found.problem is None
    assert found.unknown
    assert verdict(checker, BAD).problem


def test_other_threads_go_on_while_a_check_lasts(checker: InputChecker) -> None:
    definition, text = HOSTILE["terminals"]
    working = threading.Thread(target=verdict, args=(checker, text, definition))
    working.start()
    longest, last = 0.0, time.monotonic()
    while working.is_alive():
        time.sleep(0.005)
        longest, last = max(longest, time.monotonic() - last), time.monotonic()
    working.join()
    assert longest < 0.5


def test_a_check_sees_no_key_of_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SECRET_API_KEY", "sk-0123456789")
    made = InputChecker(5.0)
    try:
        assert verdict(made, GOOD) == InputVerdict()
        [process] = made._idle
        environment = f"/proc/{process._process.pid}/environ"
        if not os.path.exists(environment):
            pytest.skip("the system does not show the environment of a process")
        with open(environment, "rb") as file:
            assert b"sk-0123456789" not in file.read()
    finally:
        made.close()


def test_a_long_expression_and_a_long_input_are_not_searched(checker: InputChecker) -> None:
    assert verdict(checker, "a" * 400_000, r"(\w+ ?){1,400}x", "regex").unknown
    assert verdict(checker, "ab", "(a|b)*", "regex") == InputVerdict()
    assert verdict(checker, "abc", "(a|b)*", "regex").problem
