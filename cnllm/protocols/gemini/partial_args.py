"""Arguments of a call that come value by value, each with its path → the JSON text they make up, as it grows.

Values come in the order in which they would stand in the text, so that nothing has to be held back. Where they do not,
the text becomes one that is no JSON: the call then has a problem, and never arguments that nobody meant.
"""

from __future__ import annotations

import json
import re
from typing import Any

__all__ = ["append_member", "append_value", "begin_arguments", "end_arguments"]

_STEP = re.compile(r"""\.([^.\[\]]+)|\[(\d{1,9})\]|\['((?:[^'\\]|\\.)*)'\]|\["((?:[^"\\]|\\.)*)"\]""")

State = dict[str, Any]
"""`open` holds the containers that are open: their steps, the steps that came in them, whether they are lists. `at` is
the path of a string that goes on, `odd` says that the text is no JSON any more."""


def begin_arguments() -> tuple[State, str]:
    """A call's arguments begin: what has to be remembered, and the first text."""
    return {"open": [(None, {}, False)], "at": None, "odd": False}, "{"


def append_value(state: State, piece: Any) -> str:
    """The text that one value adds."""
    steps = _steps(piece.get("jsonPath")) if type(piece) is dict else None
    if not steps or state["odd"]:
        return _broken(state, piece)
    goes_on = piece.get("willContinue") is True
    text = piece.get("stringValue")
    if type(text) is str:
        said, end = _escaped(text), "" if goes_on else '"'
        same = state["at"] == steps
        out = said + end if same else _placed(state, steps, '"' + said + end)
        if not state["odd"]:
            state["at"] = steps if goes_on else None
        return out
    for key in ("numberValue", "boolValue"):
        if key in piece:
            return _placed(state, steps, json.dumps(piece[key]))
    if "nullValue" in piece:
        return _placed(state, steps, "null")
    return ""  # a value that is only announced


def append_member(state: State, name: str, value: Any) -> str:
    """The text that a whole argument adds."""
    return _placed(state, [name], json.dumps(value, ensure_ascii=False))


def end_arguments(state: State) -> str:
    """The text that ends the arguments."""
    out = _unquoted(state)
    while state["open"]:
        out += "]" if state["open"].pop()[2] else "}"
    return out


def _steps(path: Any) -> list[str | int] | None:
    """`$.foo[0]['a b']` → ["foo", 0, "a b"]; None for what is no such path."""
    if type(path) is not str or not path.startswith("$"):
        return None
    steps: list[str | int] = []
    at = 1
    while at < len(path):
        step = _STEP.match(path, at)
        if step is None:
            return None
        plain, index, *quoted = step.groups()
        name = next((q for q in quoted if q is not None), None)
        if index is not None:
            steps.append(int(index))
        else:
            steps.append(plain if plain is not None else re.sub(r"\\(.)", r"\1", name or ""))
        at = step.end()
    return steps


def _placed(state: State, steps: list[str | int], value: str) -> str:
    """A value at its path: what is over is closed, what is on the way is opened."""
    if state["odd"]:
        return _broken(state, value)
    out = _unquoted(state)
    opened: list[Any] = state["open"]
    *way, last = steps
    same = 0
    while same < len(way) and same + 1 < len(opened) and opened[same + 1][0] == way[same]:
        same += 1
    while len(opened) > same + 1:
        out += "]" if opened.pop()[2] else "}"
    for step, after in zip(way[same:], steps[same + 1 :], strict=True):
        key = _key(opened[-1], step)
        if key is None:
            return out + _broken(state, value)
        listed = type(after) is int
        out += key + ("[" if listed else "{")
        opened.append((step, {}, listed))
    key = _key(opened[-1], last)
    return out + (_broken(state, value) if key is None else key + value)


def _key(container: Any, step: str | int) -> str | None:
    """What stands before a value in its container; None where it cannot come next there."""
    _, came, listed = container
    if (type(step) is int) is not listed or (step != len(came) if listed else step in came):
        return None
    came[step] = None
    comma = "," if len(came) > 1 else ""
    return comma if listed else f"{comma}{json.dumps(step, ensure_ascii=False)}:"


def _unquoted(state: State) -> str:
    """The end of a string that was left open."""
    if state["at"] is None:
        return ""
    state["at"] = None
    return '"'


def _broken(state: State, piece: Any) -> str:
    """What no JSON has between its values."""
    out = _unquoted(state) + "?" + json.dumps(piece)
    state["odd"] = True
    return out


def _escaped(text: str) -> str:
    """A text as it stands between quotes. Halves of a character are escaped: the other half may follow."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return json.dumps(text)[1:-1]
    return json.dumps(text, ensure_ascii=False)[1:-1]
