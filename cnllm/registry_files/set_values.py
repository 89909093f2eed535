"""Set values of a registry file with their source: the value, its citation and the source, each in its place.

All other lines stay as they are. A file that has its form (`cnllm registry fmt`) has it afterwards.
"""

from __future__ import annotations

import datetime
import re
from collections.abc import Mapping, Sequence
from itertools import takewhile
from typing import Any

from msgspec import Struct

from cnllm.errors import RegistryError
from cnllm.registry import merge
from cnllm.registry.documents import parse
from cnllm.registry.provenance import INFERRED, precision_of, written_citations
from cnllm.registry.toml_lines import items, key_lines, read_keys, statements, value_end
from cnllm.registry_files.plain_text import edit_plain
from cnllm.registry_files.toml_format import format_toml
from cnllm.registry_files.updates.patch_file import toml_key, toml_value

__all__ = ["Reading", "line_start", "remove_value", "set_facts", "set_value"]

_GROUPED = re.compile(r"\d_\d{3}")
_LEAST_GROUPED = 10_000
_THREAD = re.compile(r"#\d+$|/(?:issues|pull|discussions)/\d+")
_FIXED = re.compile(r"@[0-9a-f]{7,40}$|/v/[^/]+/?$|^https://pypi\.org/project/[^/]+/[^/]+/?$")  # it never changes
_PACKAGE = re.compile(
    r"https://(?:www\.npmjs\.com/package/(?:@[^/]+/)?|pypi\.org/project/)(?P<name>[^/]+)(?P<rest>)(?:/.*)?"
)
_REPOSITORY = re.compile(r"(?:https://github\.com/)?[\w.-]+/(?P<name>[\w.-]+?)(?:[#:@/](?P<rest>.*))?")
_COMMON = {"www", "docs", "doc", "api", "platform", "developers", "developer", "help", "github", "com", "org", "net"}


class Reading(Struct, frozen=True):
    """The place of a value: the URL or the name of a source, its day and kind, the package's file, a sentence of it."""

    source: str
    seen: datetime.date
    how: str | None = None
    path: str | None = None
    quote: str | None = None


def set_facts(text: str, table: Sequence[str], values: Mapping[str, Any], reading: Reading, label: str) -> str:
    """Return the text of a registry file in which a table has these values by flag, and the reading backs them.

    Raises `RegistryError` where the file has a form in which they cannot be set.
    """
    return edit_plain(text, lambda plain: _with_facts(plain, table, values, reading, label))


def _with_facts(old: str, table: Sequence[str], values: Mapping[str, Any], reading: Reading, label: str) -> str:
    had_form = format_toml(old, label) == old
    out = old
    before = _table(parse(old.encode(), label), table)
    changed = [flag for flag, value in values.items() if _find(before, flag) != value]
    for flag in changed:
        out = set_value(out, [*table, *flag.split(".")], values[flag])
    data = parse(out.encode(), label)
    name, source, citation = _citation(data.get("sources", {}), reading)
    cited = _table(data, table).get("sources", {})
    for key, value in _changed_citations(_table(data, table), cited, list(values), changed, name, citation).items():
        place = [*table, "sources", key]
        if value is None:
            out = remove_value(out, place)
        elif value != cited.get(key):
            out = set_value(out, place, value)
    if source is not None:
        out = set_value(out, ["sources", name], source)
    if had_form:
        out = format_toml(out, label)
    if any(_find(_table(parse(out.encode(), label), table), flag) != value for flag, value in values.items()):
        raise RegistryError("has a form that cannot be edited automatically", file=label, hint="edit it by hand")
    return out


# ── citations ────────────────────────────────────────────────────────────────
def _citation(named: Mapping[str, Any], reading: Reading) -> tuple[str, str | None, dict[str, Any]]:
    """Return the name of a source, its text where the file does not have it yet, and what the citation says more."""
    how = reading.how or ("issue" if _THREAD.search(reading.source) else "docs")
    seen = reading.seen.isoformat()
    rest = {key: value for key, value in (("path", reading.path), ("quote", reading.quote)) if value is not None}
    name = next((key for key, one in named.items() if reading.source in (key, one["url"])), None)
    if name is None:
        return _new_name(reading.source, named), f"{how} {seen} {reading.source}", rest
    source = named[name]
    if str(source["seen"]) != seen and not _FIXED.search(source["url"]):
        rest["seen"] = seen
    if reading.how is not None and reading.how != source["how"]:
        rest["how"] = reading.how
    return name, None, rest


def _new_name(url: str, taken: Mapping[str, Any]) -> str:
    """Return a short name for a source: the package, or the site or the repository and the last word of its path."""
    place = url.partition("://")[2] or url
    if found := _PACKAGE.fullmatch(url) or _REPOSITORY.fullmatch(url):
        site, path = found["name"], found["rest"] or ""
    else:
        site, _, path = place.partition("/")
    words = [word for word in _words(site) if found or word not in _COMMON][: None if found else 1]
    last = path.rstrip("/").rpartition("/")[2].partition("@")[0].partition("?")[0]
    words += [word for word in _words(re.sub(r"\.[a-z]\w{0,4}$", "", last)) if word not in words or not found][:5]
    name = "-".join(words) or "source"
    numbers = (f"{name}{number}" for number in ("", *(f"-{n}" for n in range(2, len(taken) + 3))))
    return next(one for one in numbers if one not in taken)


def _words(text: str) -> list[str]:
    return [word for word in re.split(r"[^a-z0-9]+", text.casefold()) if word]


def _changed_citations(
    table: Mapping[str, Any],
    cited: Mapping[str, Any],
    flags: Sequence[str],
    changed: Sequence[str],
    name: str,
    citation: Mapping[str, Any],
) -> dict[str, Any]:
    """Return the citations that change, by name; None for one that backs nothing any more.

    A source no longer backs a flag whose value is now another one: of a table that it backs, it keeps the other flags.
    """
    flat = {key: value for key, value in table.items() if key not in merge.META or key == "when"}
    leaves = [".".join(keys) for keys, _ in merge.flatten(flat)]
    out: dict[str, Any] = {}
    for key, value in cited.items():
        kept = [{**one, "backs": _without(one["backs"], changed, leaves)} for one in written_citations(value)]
        if kept != list(written_citations(value)):
            out[key] = [one for one in kept if one["backs"]]
    own = out.get(name, list(written_citations(cited[name])) if name in cited else [])
    same = next((one for one in own if {k: v for k, v in one.items() if k != "backs"} == citation), None)
    rest = [one for one in own if one is not same]
    backs = [*(same or {"backs": []})["backs"]]
    out[name] = [*rest, {"backs": [*backs, *(flag for flag in flags if flag not in backs)], **citation}]
    return {key: _file_form(value) for key, value in out.items()}


def _without(backs: Sequence[str], flags: Sequence[str], leaves: Sequence[str]) -> list[str]:
    """Return the flags of a citation without some; a table around one becomes its other flags."""
    out: list[str] = []
    for back in backs:
        if not any(precision_of(flag, (back,)) for flag in flags):
            out.append(back)
        else:
            out += [leaf for leaf in leaves if precision_of(leaf, (back,)) and not precision_of(leaf, flags)]
    return out


def _file_form(citations: Sequence[Mapping[str, Any]]) -> Any:
    """Return citations under one name as a file has them; None for none."""
    tables: list[dict[str, Any]] = []
    for one in citations:
        mark = INFERRED if one.get("how") == "inferred" else ""
        rest = {key: value for key, value in one.items() if key != "backs" and (key != "how" or not mark)}
        same = next((table for table in tables if {**table, "backs": 0} == {"backs": 0, **rest}), None)
        if same is None:
            tables.append(same := {"backs": [], **rest})
        same["backs"] += [flag + mark for flag in one["backs"]]
    plain = [flag for table in tables if set(table) == {"backs"} for flag in table["backs"]]
    more = [table for table in tables if set(table) != {"backs"}]
    if len(plain) + len(more) == 1:
        return (*plain, *more)[0]
    return [*plain, *more] or None


def _table(data: Mapping[str, Any], path: Sequence[str]) -> Mapping[str, Any]:
    for key in path:
        data = data.get(key, {})
    return data


def _find(table: Any, flag: str) -> Any:
    for key in flag.split("."):
        table = table.get(key) if isinstance(table, Mapping) else None
    return table


# ── text ─────────────────────────────────────────────────────────────────────
def set_value(text: str, path: Sequence[str], value: Any) -> str:
    """Return a valid TOML text in which a key has this value. A value is replaced, or a line or member is added."""
    if text and not text.endswith("\n"):
        text += "\n"
    literal = _text(value, is_grouped=_GROUPED.search(text) is not None)
    size, full, number = _nearest(text, path)
    if not number:
        return _with_table(text, path, literal)
    begin = line_start(text, number)
    if text[begin:].lstrip(" \t")[:1] == "[":
        head, _ = read_keys(text, text.index("[", begin) + 1)
        if head == list(path[: len(head)]):
            return _with_line(text, begin, list(path[len(head) :]), literal)
        for length in range(size - 1, 0, -1):
            _, _, above = _nearest(text, path[:length])
            start = line_start(text, above)
            is_head = text[start:].lstrip(" \t")[:1] == "["
            if is_head and read_keys(text, text.index("[", start) + 1)[0] == list(path[:length]):
                return _with_line(text, start, list(path[length:]), literal, is_dotted=True)
        if len(path) > 2 and full[:2] == tuple(path[:2]):  # only tables inside of this one have a head
            table = f"[{'.'.join(map(toml_key, path[:2]))}]\n{_line(path[2:], literal)}\n"
            return text[:begin] + table + text[begin:]
        return _with_table(text, path, literal)
    keys, equals = read_keys(text, begin)
    if full != tuple(path[:size]):  # a dotted key beside this one
        end = text.find("\n", _value_end(text, equals + 1)) + 1
        own = path[len(full) - len(keys) :]
        line = f"{'.'.join(map(toml_key, own))} = {literal}\n"
        return text[:end] + line + text[end:]
    return _in_value(text, equals + 1, list(path[size:]), literal)


def remove_value(text: str, path: Sequence[str]) -> str:
    """Return a valid TOML text without a key that it has: its lines, or its member of an inline table."""
    size, full, number = _nearest(text, path)
    begin = line_start(text, number)
    _, equals = read_keys(text, begin)
    if size == len(path) and full == tuple(path):
        end = text.find("\n", _value_end(text, equals + 1)) + 1
        return text[:begin] + text[end:]
    start, rest = _start(text, equals + 1), list(path[size:])
    while text[start : start + 1] == "{":
        members = list(items(text, start))
        for index, (first, last) in enumerate(members):
            keys, equals = read_keys(text, first)
            if keys == rest:
                if index:
                    return text[: members[index - 1][1]] + text[last:]
                return text[:first] + text[members[1][0] if len(members) > 1 else last :]
            if keys == rest[: len(keys)]:
                start, rest = _start(text, equals + 1), rest[len(keys) :]
                break
        else:
            break
    raise RegistryError("has a form that cannot be edited automatically", hint="edit it by hand")


def _nearest(text: str, path: Sequence[str]) -> tuple[int, tuple[str, ...], int]:
    """Return how much of a path a line names, the longest path that this line names, and its number; 0 for none."""
    numbers = key_lines(text)
    size = next((n for n in range(len(path), 0, -1) if "\0".join(path[:n]) in numbers), 0)
    number = numbers.get("\0".join(path[:size]), 0)
    named = [tuple(key.split("\0")) for key, line in numbers.items() if line == number]
    return size, max(named, key=len, default=()), number


def line_start(text: str, number: int) -> int:
    """Return the position at which a line begins."""
    position = 0
    for _ in range(number - 1):
        position = text.index("\n", position) + 1
    return position


def _start(text: str, position: int) -> int:
    """Return the position of the value after an equals sign."""
    return position + len(text[position : position + 200]) - len(text[position : position + 200].lstrip(" \t"))


def _value_end(text: str, position: int) -> int:
    return value_end(text, _start(text, position))


def _in_value(text: str, position: int, rest: list[str], literal: str) -> str:
    """Return the text with the value after an equals sign replaced, or a member of that inline table."""
    start = _start(text, position)
    if not rest:
        return text[:start] + literal + text[value_end(text, start) :]
    if text[start : start + 1] != "{":
        raise RegistryError("has a form that cannot be edited automatically", hint="edit it by hand")
    members = list(items(text, start))
    for first, _ in members:
        keys, equals = read_keys(text, first)
        if keys == rest[: len(keys)]:
            return _in_value(text, equals + 1, rest[len(keys) :], literal)
    member = _line(rest, literal)
    if not members:
        return f"{text[: start + 1]} {member} {text[start + 1 :].lstrip(' ')}"
    last = members[-1][1]
    return f"{text[:last]}, {member}{text[last:]}"


def _with_line(text: str, begin: int, rest: list[str], literal: str, *, is_dotted: bool = False) -> str:
    """Return the text with a key after the last one of the table whose head begins there."""
    scan = statements(text, begin)
    end = next(scan).end
    for statement in takewhile(lambda one: not one.is_head, scan):
        end = statement.end
    last = text.find("\n", end) + 1
    line = _line(rest, literal)
    if is_dotted:
        line = f"{'.'.join(map(toml_key, rest))} = {literal}"
    return f"{text[:last]}{line}\n{text[last:]}"


def _with_table(text: str, path: Sequence[str], literal: str) -> str:
    """Return the text with a new table: behind the last one of the same provider, otherwise at the end."""
    size = 1 if len(path) == 2 else 2
    block = f"[{'.'.join(map(toml_key, path[:size]))}]\n{_line(path[size:], literal)}\n"
    provider = path[1].partition("/")[0]
    numbers = [
        number
        for key, number in (key_lines(text).items() if path[0] == "models" else ())
        if (names := key.split("\0"))[0] in ("models", "providers")
        and names[1:2]
        and names[1].partition("/")[0] == provider
    ]
    if not numbers:
        return f"{text}\n{block}" if text.strip() else block
    begin = line_start(text, max(numbers))
    last = next(statement for statement in statements(text) if statement.begin >= begin)
    position = text.find("\n", last.end) + 1
    return f"{text[:position]}\n{block}{text[position:]}"


def _line(path: Sequence[str], literal: str) -> str:
    """Return a key and its value as TOML; the tables between them are inline tables."""
    for key in reversed(path[1:]):
        literal = f"{{ {toml_key(key)} = {literal} }}"
    return f"{toml_key(path[0])} = {literal}"


def _text(value: Any, *, is_grouped: bool) -> str:
    """Return a value as TOML, its large whole numbers in groups where the file has such."""
    if is_grouped and type(value) is int and abs(value) >= _LEAST_GROUPED:
        return f"{value:_}"
    if isinstance(value, dict):
        members = (f"{toml_key(key)} = {_text(item, is_grouped=is_grouped)}" for key, item in value.items())
        return f"{{ {', '.join(members)} }}"
    return toml_value(value)
