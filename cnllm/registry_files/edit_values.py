"""Set and remove single values of a registry file: an alias, and the preferred providers.

All other text stays as it is, comments too. The result is parsed and compared with the intended data. Where it differs,
the file has a form that only its owner can edit, and nothing is written.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Any

import tomli_w

from cnllm.errors import RegistryError
from cnllm.registry.documents import parse
from cnllm.registry.toml_lines import key_lines

__all__ = ["remove_alias", "set_alias", "set_preference"]

_STRING = r'"(?:\\.|[^"\\])*"|\'[^\']*\''
_VALUE = re.compile(rf"^((?:\s|[^=\"'#]|{_STRING})*?=\s*)({_STRING})(.*)$", re.DOTALL)
_HEADER = re.compile(r"\s*\[")
_DIRECTIVE = re.compile(r"#[:!]")
_ITEM = re.compile(rf"#[^\n]*|({_STRING})|\]")


def set_alias(text: str, alias: str, target: str, label: str) -> str:
    """Return the text with this alias, and without another spelling of it. Raise `RegistryError` where impossible."""
    data = parse(text.encode(), label)
    aliases: dict[str, str] = data.get("aliases", {})
    spelling = _spelling(aliases, alias)
    expected = {**data, "aliases": {**aliases, spelling or alias: target}}
    by_hand = f"set it by hand, under [aliases]: {_line(alias, target)}"
    return _edit(text, expected, label, by_hand, lambda lines: _put_alias(lines, spelling, alias, target))


def remove_alias(text: str, alias: str, label: str) -> str:
    """Return the text without this alias, in whatever case it is written. Raise `RegistryError` where impossible."""
    data = parse(text.encode(), label)
    spelling = _spelling(data.get("aliases", {}), alias)
    if spelling is None:  # another process was faster
        return text
    expected = {**data, "aliases": {key: value for key, value in data["aliases"].items() if key != spelling}}

    def remove(lines: list[str]) -> None:
        del lines[_number(lines, ["aliases", spelling])]

    return _edit(text, expected, label, f"remove {spelling} by hand", remove)


def set_preference(text: str, providers: Sequence[str], label: str) -> str:
    """Return the text with these preferred providers, best first. Raise `RegistryError` where that is impossible."""
    data = parse(text.encode(), label)
    expected = {**data, "prefer": list(providers)}
    line = _line("prefer", list(providers))

    def change(lines: list[str]) -> None:
        if "prefer" in data:
            _reorder(lines, data["prefer"], providers)
        else:
            position = _top_position(lines)
            lines[position:position] = [line] if position == len(lines) else [line, ""]

    return _edit(text, expected, label, f"write it by hand, before the first table: {line}", change)


# ── text ─────────────────────────────────────────────────────────────────────
def _edit(text: str, expected: dict[str, Any], label: str, by_hand: str, change: Callable[[list[str]], None]) -> str:
    """Change the lines of a text, and check that the result holds the expected data and nothing else."""
    newline = "\r\n" if "\r\n" in text else "\n"
    lines = text.replace("\r\n", "\n").split("\n")
    if lines[-1] == "":
        lines.pop()
    try:
        change(lines)
        result = newline.join([*"\n".join(lines).split("\n"), ""])
        valid = _without_empty(parse(result.encode(), label)) == _without_empty(expected)
    except (RegistryError, _UnknownFormError):
        valid = False
    if not valid:
        raise RegistryError("has a form that cannot be edited automatically", file=label, hint=by_hand)
    return result


class _UnknownFormError(Exception):
    """The text has a form that this module does not edit."""


def _without_empty(data: dict[str, Any]) -> dict[str, Any]:
    """Return the data; an empty table of aliases is the same as none."""
    return {key: value for key, value in data.items() if key != "aliases" or value}


def _line(key: str, value: Any) -> str:
    """Return one line of TOML."""
    if isinstance(value, list):
        items = ", ".join(_line("x", item).partition(" = ")[2] for item in value)
        return f"{key} = [{items}]"
    return tomli_w.dumps({key: value}).rstrip("\n")


def _number(lines: list[str], path: list[str]) -> int:
    """Return the index of the line that sets a key."""
    number = key_lines("\n".join(lines)).get("\0".join(path))
    if number is None:
        raise _UnknownFormError
    return number - 1


def _spelling(names: dict[str, Any], name: str) -> str | None:
    """Return a name as it is written, whatever its case; None where it is absent."""
    return next((n for n in names if n.casefold() == name.casefold()), None)


def _put_alias(lines: list[str], spelling: str | None, alias: str, target: str) -> None:
    value = _line("x", target).partition(" = ")[2]
    if spelling is not None:
        number = _number(lines, ["aliases", spelling])
        match = _VALUE.match(lines[number])
        if match is None:
            raise _UnknownFormError
        lines[number] = f"{match[1]}{value}{match[3]}"
        return
    numbers = key_lines("\n".join(lines))
    inside = [number for path, number in numbers.items() if path.split("\0")[0] == "aliases"]
    if inside:
        last = max(inside)
        head = "aliases." if _is_dotted(lines[last - 1]) else ""
        lines.insert(last, head + _line(alias, target))
    else:
        lines += [*([""] if lines else []), "[aliases]", _line(alias, target)]


def _is_dotted(line: str) -> bool:
    """Whether a line sets an alias outside of its table, as in `aliases.name = …`."""
    return re.match(r"\s*[\"']?aliases[\"']?\s*\.", line) is not None


def _top_position(lines: list[str]) -> int:
    """Return the index before the first table and the comment that belongs to it. Directives stay at the top."""
    first = next((index for index, line in enumerate(lines) if _HEADER.match(line)), len(lines))
    while first > 0 and lines[first - 1].lstrip().startswith("#") and not _DIRECTIVE.match(lines[first - 1]):
        first -= 1
    return first


def _reorder(lines: list[str], old: list[str], new: Sequence[str]) -> None:
    """Change the list of preferred providers: take names out, and put new ones at its front. Keep its comments."""
    number = _number(lines, ["prefer"])
    count = next(n for n in range(len(new) + 1) if _is_subsequence(new[n:], old))
    front, tail = new[:count], new[count:]
    text = "\n".join(lines[number:])
    start = text.index("[") + 1
    spans = []
    for match in _ITEM.finditer(text, start):
        if match[0] == "]":
            break
        if match[1]:
            spans.append(match.span())
    if len(spans) != len(old):
        raise _UnknownFormError
    gone = [span for span, name in zip(spans, old, strict=True) if name not in tail]
    for begin, end in reversed(gone):
        after = re.compile(r"[ \t]*,?[ \t]*").match(text, end)
        assert after is not None
        text = text[:begin] + text[after.end() :]
    items = "".join(_line("x", name).partition(" = ")[2] + ", " for name in front)
    if not tail:
        items = items.removesuffix(", ")
    lines[number:] = (text[:start] + items + text[start:]).split("\n")
    lines[number] = re.sub(r",[ \t]+\]", "]", lines[number], count=1)


def _is_subsequence(part: Sequence[str], whole: Sequence[str]) -> bool:
    """Whether a list holds these items in this order."""
    rest = iter(whole)
    return all(item in rest for item in part)
