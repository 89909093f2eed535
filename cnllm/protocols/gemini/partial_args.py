"""Build the JSON text of a call's arguments from values that come one by one, each with its path.

Values come in the order of the text, so that nothing has to be held back. If they do not, the text becomes invalid
JSON: the call then has a problem, and never arguments that the model did not mean.
"""

from __future__ import annotations

import json
import re
from typing import Any

__all__ = ["append_member", "append_value", "begin_arguments", "end_arguments"]

_STEP = re.compile(r"""\.([^.\[\]]+)|\[(\d{1,9})\]|\['((?:[^'\\]|\\.)*)'\]|\["((?:[^"\\]|\\.)*)"\]""")

State = dict[str, Any]
"""`open` holds the open containers: their step, the steps inside them so far, whether they are lists. `at` is the path
of a string that continues."""


def begin_arguments() -> tuple[State, str]:
    """Return the state of new arguments, and the first text."""
    return {"open": [(None, {}, False)], "at": None}, "{"


def append_value(state: State, piece: Any) -> str:
    """Return the text that one value adds."""
    steps = _steps(piece.get("jsonPath")) if type(piece) is dict else None
    if not steps:
        return _break_json(state, piece)
    continues = piece.get("willContinue") is True
    text = piece.get("stringValue")
    if type(text) is str:
        escaped, end = _escape(text), "" if continues else '"'
        continues_string = state["at"] == steps
        out = escaped + end if continues_string else _place_value(state, steps, '"' + escaped + end)
        state["at"] = steps if continues else None
        return out
    if "nullValue" in piece:
        return _place_value(state, steps, "null")
    values = [value for key, value in piece.items() if key.endswith("Value") and value is not None]
    return _place_value(state, steps, json.dumps(values[0])) if values else ""  # none has content yet


def append_member(state: State, name: str, value: Any) -> str:
    """Return the text that a whole argument adds."""
    return _place_value(state, [name], json.dumps(value, ensure_ascii=False))


def end_arguments(state: State) -> str:
    """Return the text that ends the arguments."""
    out = _close_string(state)
    while state["open"]:
        out += "]" if state["open"].pop()[2] else "}"
    return out


def _steps(path: Any) -> list[str | int] | None:
    """Return the steps of a path: `$.foo[0]['a b']` → ["foo", 0, "a b"]; None if it is no such path."""
    if type(path) is not str or not path.startswith("$"):
        return None
    steps: list[str | int] = []
    position = 1
    while position < len(path):
        step = _STEP.match(path, position)
        if step is None:
            return None
        plain_name, index, *quoted_names = step.groups()
        name = next((q for q in quoted_names if q is not None), None)
        if index is not None:
            steps.append(int(index))
        else:
            steps.append(plain_name if plain_name is not None else re.sub(r"\\(.)", r"\1", name or ""))
        position = step.end()
    return steps


def _place_value(state: State, steps: list[str | int], value: str) -> str:
    """Return the text of a value at its path. It closes finished containers and opens new ones."""
    out = _close_string(state)
    containers: list[Any] = state["open"]
    *parents, last = steps
    shared = 0
    while shared < len(parents) and shared + 1 < len(containers) and containers[shared + 1][0] == parents[shared]:
        shared += 1
    while len(containers) > shared + 1:
        out += "]" if containers.pop()[2] else "}"
    for step, next_step in zip(parents[shared:], steps[shared + 1 :], strict=True):
        key = _key(containers[-1], step)
        if key is None:
            return out + _break_json(state, value)
        is_list = type(next_step) is int
        out += key + ("[" if is_list else "{")
        containers.append((step, {}, is_list))
    key = _key(containers[-1], last)
    return out + (_break_json(state, value) if key is None else key + value)


def _key(container: Any, step: str | int) -> str | None:
    """Return the text before a value in its container; None if the value cannot come next."""
    _, members, is_list = container
    if (type(step) is int) is not is_list or (step != len(members) if is_list else step in members):
        return None
    members[step] = None
    comma = "," if len(members) > 1 else ""
    return comma if is_list else f"{comma}{json.dumps(step, ensure_ascii=False)}:"


def _close_string(state: State) -> str:
    """Return the quote that ends an open string."""
    if state["at"] is None:
        return ""
    state["at"] = None
    return '"'


def _break_json(state: State, piece: Any) -> str:
    """Return a text that makes the JSON invalid, whatever follows: a mark outside of all strings."""
    return _close_string(state) + "?" + json.dumps(piece)


def _escape(text: str) -> str:
    """Return a text as it stands between quotes. Half of a character is escaped: the other half may follow."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return json.dumps(text)[1:-1]
    return json.dumps(text, ensure_ascii=False)[1:-1]
