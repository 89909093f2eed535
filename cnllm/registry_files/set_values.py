"""Set values of a registry file with their source: the value, its citation and the source, each in its place.

All other lines stay as they are. A file that has its form (`cnllm registry fmt`) has it afterwards.
"""

from __future__ import annotations

import datetime
import re
from collections.abc import Mapping, Sequence
from itertools import takewhile
from typing import Any, NamedTuple

from msgspec import Struct

from cnllm.errors import RegistryError
from cnllm.jsonpath import get
from cnllm.registry import merge
from cnllm.registry.documents import parse
from cnllm.registry.provenance import INFERRED, precision_of, written_citations
from cnllm.registry.toml_lines import Statement, items, read_keys, statements, value_end
from cnllm.registry_files.plain_text import edit_plain
from cnllm.registry_files.toml_format import format_toml
from cnllm.registry_files.updates.patch_file import toml_key, toml_value

__all__ = ["Reading", "remove_value", "set_facts", "set_value"]

_GROUPED = re.compile(r"\d_\d{3}")
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
    changed = [flag for flag, value in values.items() if get(before, flag) != value]
    for flag in changed:
        out = set_value(out, [*table, *flag.split(".")], values[flag])
    data = parse(out.encode(), label)
    name, source, citation = _citation(data.get("sources", {}), reading)
    cited = _table(data, table).get("sources", {})
    for key, value in _changed_citations(_table(data, table), [*values], changed, name, citation).items():
        place = [*table, "sources", key]
        if value is None:
            out = remove_value(out, place)
        elif value != cited.get(key):
            out = set_value(out, place, value)
    if source is not None:
        out = set_value(out, ["sources", name], source)
    if had_form:
        out = format_toml(out, label)
    if any(get(_table(parse(out.encode(), label), table), flag) != value for flag, value in values.items()):
        raise RegistryError("has a form that cannot be edited automatically", file=label, hint="edit it by hand")
    return out


# ── citations ────────────────────────────────────────────────────────────────
def _citation(sources: Mapping[str, Any], reading: Reading) -> tuple[str, str | None, dict[str, Any]]:
    """Return the name of a source, its text where the file does not have it yet, and what the citation says more."""
    how = reading.how or ("issue" if _THREAD.search(reading.source) else "docs")
    seen = reading.seen.isoformat()
    rest = {key: value for key, value in (("path", reading.path), ("quote", reading.quote)) if value is not None}
    name = next((key for key, one in sources.items() if reading.source in (key, one["url"])), None)
    if name is None:
        return _new_name(reading.source, sources), f"{how} {seen} {reading.source}", rest
    source = sources[name]
    if str(source["seen"]) != seen and not _FIXED.search(source["url"]):
        rest["seen"] = seen
    if reading.how is not None and reading.how != source["how"]:
        rest["how"] = reading.how
    return name, None, rest


def _new_name(url: str, names: Mapping[str, Any]) -> str:
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
    numbers = (f"{name}{number}" for number in ("", *(f"-{n}" for n in range(2, len(names) + 3))))
    return next(one for one in numbers if one not in names)


def _words(text: str) -> list[str]:
    return [word for word in re.split(r"[^a-z0-9]+", text.casefold()) if word]


def _changed_citations(
    table: Mapping[str, Any], flags: Sequence[str], changed: Sequence[str], name: str, citation: Mapping[str, Any]
) -> dict[str, Any]:
    """Return the citations that change, by name; None for one that backs nothing any more.

    A source no longer backs a flag whose value is now another one: of a table that it backs, it keeps the other flags.
    """
    flat = {key: value for key, value in table.items() if key not in merge.META or key == "when"}
    leaves = [".".join(keys) for keys, _ in merge.flatten(flat)]
    cited: Mapping[str, Any] = table.get("sources", {})
    out: dict[str, Any] = {}
    for key, value in cited.items():
        others = [{**one, "backs": _without(one["backs"], changed, leaves)} for one in written_citations(value)]
        if others != list(written_citations(value)):
            out[key] = [one for one in others if one["backs"]]
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


# ── text ─────────────────────────────────────────────────────────────────────
class _KeyPlace(NamedTuple):
    """A statement near a path: its whole path, the table that it stands in, and how much of the path it shares."""

    statement: Statement
    keys: list[str]
    table: list[str]
    shared: int


def _places(text: str, path: list[str]) -> list[_KeyPlace]:
    """Return the statements that name a part of a path, the nearest first; of those that share as much, the first."""
    places: list[_KeyPlace] = []
    table: list[str] = []
    for one in statements(text):
        if one.is_head:
            table = [*one.keys, "[]"] if one.is_array else one.keys  # no path leads into an array
        keys = table if one.is_head else [*table, *one.keys]
        shared = sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(keys, path, strict=False)))
        if shared and (one.is_head or shared > len(table)):
            places.append(_KeyPlace(one, keys, table, shared))
    return sorted(places, key=lambda place: (-place.shared, place.statement.is_head and place.shared < len(place.keys)))


def set_value(text: str, path: Sequence[str], value: Any) -> str:
    """Return a valid TOML text in which a key has this value. A value is replaced, or a line or member is added."""
    path = list(path)
    if text and not text.endswith("\n"):
        text += "\n"
    literal = toml_value(value, is_grouped=_GROUPED.search(text) is not None)
    places = _places(text, path)
    if not places:
        return _with_table(text, path, literal)
    one, keys, table, shared = places[0]
    if not one.is_head and shared == len(keys):
        return _in_value(text, one.after_keys + 1, path[shared:], literal)
    if not one.is_head:  # a dotted key beside this one
        return _insert(text, _next_line(text, one.end), f"{_dotted(path[len(table) :])} = {literal}\n")
    heads = (place for place in places if place.statement.is_head and place.shared == len(place.keys))
    if (head := next(heads, None)) is not None:
        rest = path[head.shared :]
        line = _line(rest, literal) if head is places[0] else f"{_dotted(rest)} = {literal}"
        return _insert(text, _table_end(text, head.statement), f"{line}\n")
    if len(path) > 2 and shared > 1:  # only tables inside of this one have a head
        return _insert(text, _line_start(text, one), f"[{_dotted(path[:2])}]\n{_line(path[2:], literal)}\n")
    return _with_table(text, path, literal)


def remove_value(text: str, path: Sequence[str]) -> str:
    """Return a valid TOML text without a key that it has: its lines, or its member of an inline table."""
    one, keys, _, shared = _places(text, list(path))[0]
    if not one.is_head and keys == path:
        return text[: _line_start(text, one)] + text[_next_line(text, one.end) :]
    start, rest = _start(text, one.after_keys + 1), list(path[shared:])
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


def _insert(text: str, position: int, lines: str) -> str:
    return text[:position] + lines + text[position:]


def _line_start(text: str, statement: Statement) -> int:
    """Return the position at which the line of a statement begins."""
    return text.rfind("\n", 0, statement.begin) + 1


def _next_line(text: str, position: int) -> int:
    """Return the position of the next line."""
    return text.find("\n", position) + 1


def _dotted(path: Sequence[str]) -> str:
    """Return a path as a dotted key of TOML."""
    return ".".join(map(toml_key, path))


def _start(text: str, position: int) -> int:
    """Return the position of the value after an equals sign."""
    return position + len(text[position : position + 200]) - len(text[position : position + 200].lstrip(" \t"))


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


def _table_end(text: str, head: Statement) -> int:
    """Return the position of the line after the last key of a table."""
    scan = statements(text, head.begin)
    end = next(scan).end
    for statement in takewhile(lambda one: not one.is_head, scan):
        end = statement.end
    return _next_line(text, end)


def _with_table(text: str, path: Sequence[str], literal: str) -> str:
    """Return the text with a new table: behind the last one of the same provider, otherwise at the end."""
    size = 1 if len(path) == 2 else 2
    block = f"[{_dotted(path[:size])}]\n{_line(path[size:], literal)}\n"
    provider = path[1].partition("/")[0]
    heads = [
        one
        for one in (statements(text) if path[0] == "models" else ())
        if one.is_head and one.keys[0] in ("models", "providers") and one.keys[1:2]
        if one.keys[1].partition("/")[0] == provider
    ]
    if not heads:
        return f"{text}\n{block}" if text.strip() else block
    return _insert(text, _table_end(text, heads[-1]), f"\n{block}")


def _line(path: Sequence[str], literal: str) -> str:
    """Return a key and its value as TOML; the tables between them are inline tables."""
    for key in reversed(path[1:]):
        literal = f"{{ {toml_key(key)} = {literal} }}"
    return f"{toml_key(path[0])} = {literal}"
