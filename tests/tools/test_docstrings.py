"""Descriptions of parameters, in the three ways that people write them."""

from __future__ import annotations

import inspect
import json
import os
import subprocess
import sys

from cases import each

from cnllm.tools.signature import parse_docstring

GOOGLE = """
    Look a thing up.

    It takes a while: be patient.

    Args:
        city (str, optional): The city,
            or a town.
        days: How many: at most 7.
        **rest: Whatever.

    Returns:
        str: what was found
    """
NUMPY = """
    Look a thing up.

    It takes a while: be patient.

    Parameters
    ----------
    city : str, optional
        The city,
        or a town.
    days : int
        How many: at most 7.
    **rest
        Whatever.

    Returns
    -------
    str
        what was found
    """
SPHINX = """
    Look a thing up.

    It takes a while: be patient.

    :param str city: The city,
        or a town.
    :param days: How many: at most 7.
    :type days: int
    :keyword rest: Whatever.
    :returns: what was found
    """


@each("doc", [GOOGLE, NUMPY, SPHINX], ids=["google", "numpy", "sphinx"])
def test_each_style_says_the_same(doc: str) -> None:
    found = parse_docstring(inspect.cleandoc(doc))
    assert found.text == "Look a thing up.\n\nIt takes a while: be patient."
    assert found.parameters == {"city": "The city, or a town.", "days": "How many: at most 7.", "rest": "Whatever."}


@each(
    "doc, text, parameters",
    [
        ("", "", {}),
        ("One line.", "One line.", {}),
        ("Args:\n  a: only this", "", {"a": "only this"}),
        ("Note that\nParameters are fine in prose.", "Note that\nParameters are fine in prose.", {}),
        ("Say.\n\nArgs:\n  a:\n    below\n  b (list[int] | None): c", "Say.", {"a": "below", "b": "c"}),
        ("Say.\n\nParameters\n----------\nx, y : float\n    Where.\n", "Say.", {"x": "Where.", "y": "Where."}),
        ("Say.\n\nRaises:\n  ValueError: no\n\nArgs:\n  a: b", "Say.", {"a": "b"}),
        ("Say: a: b\nparam: c", "Say: a: b\nparam: c", {}),
        ("Say.\n\nArgs:\n  nothing of the kind\n  a: b", "Say.", {"a": "b"}),
    ],
)
def test_what_is_odd_is_read_as_far_as_it_goes(doc: str, text: str, parameters: dict[str, str]) -> None:
    found = parse_docstring(doc)
    assert (found.text, found.parameters) == (text, parameters)


def test_without_docstrings_the_built_in_tools_are_described_and_others_noted() -> None:
    code = """
import cnllm, json
from cnllm.cli import builtin_tools

@cnllm.tool
def bare(city: str):
    "The weather."

@cnllm.tool(description="The weather.")
def described(city: str):
    "The weather."

tools = [*builtin_tools.SAFE.values(), bare, described]
plan = cnllm.Client(simulate=True).plan("glm-4.7", "hi", tools=tools)
texts = {tool["function"]["name"]: tool["function"].get("description") for tool in plan.body["tools"]}
print(json.dumps([texts, [str(note) for note in plan.notes if note.code == "tool-description"]]))
"""
    out = {}
    for level in ("0", "2"):
        environment = {**os.environ, "PYTHONOPTIMIZE": level}
        done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, check=True)
        out[level] = json.loads(done.stdout)
    assert all(out["0"][0].values())
    assert out["0"][1] == []
    assert {name: text for name, text in out["2"][0].items() if name != "bare"} == {
        name: text for name, text in out["0"][0].items() if name != "bare"
    }
    assert not out["2"][0]["bare"]
    assert len(out["2"][1]) == 1
    assert "bare" in out["2"][1][0]
