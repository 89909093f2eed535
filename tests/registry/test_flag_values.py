"""Every value of every flag has two users in the built-in file, or a written reason; every flag says why it exists."""

from __future__ import annotations

import re
import tomllib
import types
import typing
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
from builtin import written
from msgspec import Struct

import cnllm
from cnllm.registry import flags
from cnllm.registry.flags.describe import FlagText, flag_texts
from cnllm.registry_files.schema import json_schema

ROOT = Path(__file__).parent.parent.parent
REASONS: dict[str, dict[str, str]] = tomllib.loads((Path(__file__).parent / "flag_reasons.toml").read_text())
ANY = "*"
SECTIONS = {"protocols": 2, "families": 1, "providers": 1, "models": 1}
"""A wire's table counts twice: each wire has many endpoints."""


def bare(kind: Any) -> Any:
    while typing.get_origin(kind) is typing.Annotated:
        kind = typing.get_args(kind)[0]
    return kind


def parts(kind: Any) -> Iterator[Any]:
    """The types that a value may have, those of a list's items and of a table's values too."""
    kind = bare(kind)
    origin = typing.get_origin(kind)
    if origin in (typing.Union, types.UnionType):
        for one in typing.get_args(kind):
            yield from parts(one)
    elif origin in (list, dict):
        yield from parts(typing.get_args(kind)[-1])
    else:
        yield kind


def words(kind: Any) -> list[str]:
    return [str(w) for part in parts(kind) if typing.get_origin(part) is typing.Literal for w in typing.get_args(part)]


def is_switch(kind: Any) -> bool:
    return set(parts(kind)) <= {bool, type(None)}


def table_of(kind: Any) -> type[Struct] | None:
    return next((part for part in parts(kind) if isinstance(part, type) and issubclass(part, Struct)), None)


def declared(table: type[Struct], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """(flag, type) of every flag, those of inner tables too."""
    for field in msgspec.structs.fields(table):
        name = prefix + field.encode_name
        yield name, field.type
        inner = table_of(field.type)
        if inner is not None and inner is not table:
            yield from declared(inner, f"{name}.")


def uses() -> Counter[tuple[str, str]]:
    """How many tables of the file set a flag to a value, a table once however often it does so."""
    found: Counter[tuple[str, str]] = Counter()

    def walk(table: type[Struct], data: dict[str, Any], prefix: str, seen: set[tuple[str, str]]) -> None:
        fields = {field.encode_name: field for field in msgspec.structs.fields(table)}
        for key, value in data.items():
            if not prefix and key in ("when", "on", "families"):
                for inner in value.values():
                    walk(flags.Table, inner, "", seen)
            elif key in fields and key != "sources":
                kind, name = fields[key].type, prefix + key
                for one in value if isinstance(value, list) else value.values() if isinstance(value, dict) else [value]:
                    if isinstance(one, str | bool):
                        seen.add((name, str(one).lower() if isinstance(one, bool) else one))
                inner_table = table_of(kind)
                of_names = any(typing.get_origin(bare(p)) is dict for p in typing.get_args(bare(kind)) or ())
                items = value if isinstance(value, list) else value.values() if of_names else [value]
                for item in items if inner_table is not None and isinstance(value, dict | list) else ():
                    if inner_table is not None and isinstance(item, dict):
                        walk(inner_table, item, f"{name}.", seen)

    for section, weight in SECTIONS.items():
        for data in written()[section].values():
            seen: set[tuple[str, str]] = set()
            walk(flags.Table, data, "", seen)
            found.update(dict.fromkeys(seen, weight))
    seen = set()
    walk(flags.Table, written()["defaults"], "", seen)
    found.update(dict.fromkeys(seen, 2))
    return found


def test_each_value_has_two_users_or_a_reason() -> None:
    used = uses()
    assert used["reasoning.mode", "toggle"] > 50
    missing, needless = [], []
    assert set(REASONS) <= {name for name, _ in declared(flags.Flags)}
    for name, kind in declared(flags.Flags):
        reasons = REASONS.get(name, {})
        if is_switch(kind):  # a nearer layer takes one back by the other
            values = {"true / false": used[name, "true"] + used[name, "false"]}
            reasons = {"true / false": next(iter(reasons.values()))} if reasons else {}
        else:
            values = {word: used[name, word] for word in words(kind)}
        for value, count in values.items():
            reason = reasons.get(value) or reasons.get(ANY)
            if count < 2 and not reason:
                missing.append((name, value, count))
            if count >= 2 and reasons.get(value):
                needless.append((name, value, count))
        assert set(reasons) <= {*values, ANY}, name
    assert missing == []
    assert needless == [], "these have users by now: their reasons may go"


def test_a_reason_that_names_a_test_names_one_that_is_there() -> None:
    named = 0
    for name, reasons in REASONS.items():
        for value, reason in reasons.items():
            if reason.startswith("for overlays"):
                path = re.search(r"tests/[\w/.]+", reason)
                assert path, (name, value)
                text = (ROOT / path[0]).read_text()
                assert value == ANY or value in text, (name, value, path[0])
                named += 1
    assert named > 8


def test_every_flag_says_what_it_does_and_why_it_exists() -> None:
    seen = 0
    for name, said in texts(flags.Flags):
        if name.startswith("call."):
            continue  # an option of a call: the caller's, no habit of an endpoint
        seen += 1
        assert said is not None, name
        for part in said:
            assert part.endswith("."), (name, part)
            assert part[0] in '"`' or not part[0].islower(), (name, part)
            assert "?" not in part, name
    assert seen > 100


def texts(table: type[Struct], prefix: str = "") -> Iterator[tuple[str, FlagText | None]]:
    """(flag, text) of every flag, those of inner tables too."""
    for field in msgspec.structs.fields(table):
        name = prefix + field.encode_name
        yield name, flag_texts(table).get(field.encode_name)
        inner = table_of(field.type)
        if inner is not None and inner is not table:
            yield from texts(inner, f"{name}.")


def test_the_schema_has_the_text_of_a_flag() -> None:
    parts = json_schema()["$defs"]
    said = flag_texts(flags.Flags)["protocol"]
    assert parts["Flags"]["properties"]["protocol"]["description"] == f"{said.does} {said.why}"
    for name, field in parts["ReplyPaths"]["properties"].items():
        assert field["description"].startswith(flag_texts(flags.ReplyPaths)[name].does)


def test_what_only_the_simulator_goes_by_stands_under_simulator() -> None:
    package = Path(cnllm.__file__).parent
    names = [field.name for field in msgspec.structs.fields(flags.Simulator)]
    for path in package.rglob("*.py"):
        text = path.read_text()
        homes = {package / "simulator", package / "registry", package / "probe"}  # a probe sets them
        if homes.isdisjoint(path.parents):
            assert not [n for n in names if f".{n}" in text or f'"{n}"' in text], path
            assert "flags.simulator" not in text, path


def test_what_holds_on_every_wire_is_said_by_the_flags_themselves() -> None:
    from cnllm.registry.merge import on_every_wire

    said = {"title": "x", "path": "/p", "reasoning": {"mode": "never", "fields": ["a"]}, "tools": {"strict": True}}
    assert on_every_wire(said) == {"title": "x", "reasoning": {"mode": "never"}}
