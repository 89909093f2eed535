"""Check the tables of a registry file against the types of the flags."""

from __future__ import annotations

import math
import re
import types
import typing
from collections.abc import Iterator
from functools import lru_cache
from typing import Any, Literal

import msgspec
from msgspec import Struct

from cnllm.config.http_address import address_fault
from cnllm.config.redact import looks_secret
from cnllm.errors import RegistryError
from cnllm.jsonpath import path_fault
from cnllm.registry.data_rules import DataFile, data_faults
from cnllm.registry.flags import (
    CallFlags,
    Flags,
    Leak,
    Param,
    ReasoningFlags,
    RegistryFile,
    Simulator,
    Source,
    SourceFacts,
    Table,
    about,
    inner_table,
)
from cnllm.registry.merge import canonical_condition, unset_path
from cnllm.registry.model import ATOMS
from cnllm.registry.problem import (
    TYPE_WORDS,
    Problem,
    ValueProblem,
    corrected_key,
    corrected_line,
    corrected_value,
    did_you_mean,
    dotted_path,
    expected_type,
    suggested_word,
    write_hint,
)

if typing.TYPE_CHECKING:
    from cnllm.registry.documents import Document

__all__ = ["SCHEMA", "bare_type", "flag_type", "require_valid", "type_problems", "unnamed_model", "value_faults"]

_KEYWORDS: dict[str, list[tuple[str, ...]]] = {
    "sections": [("begin", "separator", "end")],
    "arg-pairs": [("key", "value"), ("before a key", "before its value", "behind it")],
    "channels": [("open", "close", "separator")],
    "braces": [("quote",)],
    "named-json": [("arguments", "id")],
}
"""The keywords that a rule must name, for grammars without keywords of their own, in each form that they may have."""

_VALUE_WORDS = {**TYPE_WORDS, list: "a list", int: "a number"}
_LIMITS = {">=": "of at least", "<=": "of at most", ">": "above", "<": "below"}
_STATE_WORDS = {
    **dict.fromkeys(("refused", "false", "refuse", "unsupported"), "false"),
    **dict.fromkeys(("works", "true"), "true"),
    **dict.fromkeys(("ignore", "ignores"), "'ignored'"),
    "unknown": "to leave it out",
}
"""Wrong words for the state of a parameter → the right way to write it."""

_MODE_OPTIONS = {"reasoning", "stream", "tools", "tool_choice", "schema", "on_unsupported"}
"""The options of `call` that decide the mode, so that they cannot depend on it."""


def require_valid(document: Document) -> None:
    """Raise `RegistryError` for the first fault of a file; its message has the number of further ones."""
    faults = type_problems(document)
    if faults:
        more = f" (and {len(faults) - 1} more)" if len(faults) > 1 else ""
        raise RegistryError(
            faults[0].message + more,
            file=faults[0].file,
            line=faults[0].line,
            hint=write_hint(faults[0].corrected) if faults[0].corrected else "`cnllm registry check` lists every fault",
        )


def type_problems(document: Document) -> list[Problem]:
    """Return the faults of a file against the types of the flags, in the order of lines."""
    source = document.source.split("\n")
    problems = []
    for fault in (*_file_faults(document), *value_faults(document.data)):
        line = document.line(fault.path)
        corrected = corrected_line(source, line, fault.path[-1], fault.meant) if fault.path else ""
        if "has no flag" in fault.message:
            corrected = corrected_key(source, line, fault.path[-1], suggested_word(fault.message))
        problems.append(Problem(document.label, line, fault.message, corrected=corrected or fault.corrected))
    return sorted(problems, key=lambda problem: problem.line or 0)


def _file_faults(document: Document) -> Iterator[ValueProblem]:
    """Yield the faults of a whole file by the rules for its kind."""
    if not document.is_data:
        yield from _check_table(document.data, RegistryFile, [])
        return
    yield from _check_table(document.data, DataFile, [])
    yield from data_faults(document.data)


def _check_table(data: Any, cls: type[Struct], path: list[str]) -> Iterator[ValueProblem]:
    """Yield (path, fault) for everything in `data` that `cls` does not allow."""
    name = dotted_path(path) or "the file"
    if type(data) is not dict:
        yield ValueProblem(path, f"{name} must be a table, not {_type_name(data)}")
        return
    fields = _fields(cls)
    for key, value in data.items():
        key_path = [*path, key]
        if key not in fields:
            yield ValueProblem(
                key_path,
                f"{name} has no flag '{key}'{_find_right_place(key_path, cls) or _suggest_flag(key_path, cls)}",
            )
        elif cls is RegistryFile and key == "models" and type(value) is dict:
            for model, table in value.items():
                if all(model.partition("/")):
                    yield from _check_value(table, Table, [*key_path, model])
                else:
                    yield unnamed_model(model, table)
        elif cls is RegistryFile and key == "sources" and type(value) is dict:
            for source, table in value.items():
                if type(table) is str:
                    form = '"HOW DAY URL PATH", such as "docs 2026-11-20 https://example.org/docs"'
                    yield ValueProblem([*key_path, source], f"sources.{source} must be a table or {form}")
                else:
                    yield from _check_value(table, Source, [*key_path, source])
        elif cls is Table and key in ("on", "when", "families"):
            yield from _check_layers(key, value, key_path)
        elif cls is Table and key == "unset" and type(value) is list:
            for flag in value:
                yield from _check_value(flag, str, key_path) if type(flag) is not str else _check_unset(flag, key_path)
        else:
            yield from _check_value(value, CallFlags if fields[key].name == "call" else fields[key].type, key_path)
            if (use := about(fields[key].type).get("path")) is not None:
                yield from _check_paths(value, key_path, written=use == "write")
            if key == "keys" and not all(map(_may_be_variable, value if type(value) is list else ())):
                yield ValueProblem(
                    key_path,
                    f"{dotted_path(key_path)} holds a value that is not a name of an environment variable; a key "
                    "itself does not belong here",
                )
    for key, field in fields.items():
        if field.required and key not in data:
            yield ValueProblem(path, f"{name} lacks '{key}'")
    if cls is SourceFacts and "url" in data:
        yield from (ValueProblem(path, f"{name} lacks '{key}'") for key in ("seen", "how") if key not in data)
    yield from _check_markers(data, cls, path)


@lru_cache(maxsize=256)  # more than there are tables; without it this would take half the time of a check
def _fields(cls: type[Struct]) -> dict[str, msgspec.structs.FieldInfo]:
    """Return the fields of a table by their names in a file."""
    return {field.encode_name: field for field in msgspec.structs.fields(cls)}


def _check_paths(value: Any, path: list[str], *, written: bool) -> Iterator[ValueProblem]:
    """Yield (path, fault) for the paths in a value that name nothing."""
    if type(value) is dict:
        for key, inner in value.items():
            yield from _check_paths(inner, [*path, key], written=written) if type(inner) is str else ()
        return
    for one in value if type(value) is list else [value]:
        if type(one) is str and (fault := path_fault(one, written=written)) is not None:
            yield ValueProblem(path, f"{dotted_path(path)}: '{one}' is not a path: {fault}")


def _check_markers(data: dict[str, Any], cls: type[Struct], path: list[str]) -> Iterator[ValueProblem]:
    """Yield (path, fault) for lists of markers that are empty or incomplete, and for tags without a partner."""
    tags = data.get("tags") if cls is ReasoningFlags else None
    if type(tags) is list and (len(tags) % 2 or not all(tags[1::2])):
        message = f"{dotted_path([*path, 'tags'])} must be pairs of an opening and a closing tag"
        yield ValueProblem([*path, "tags"], f'{message}; an opening tag that the model never writes is ""')
    elif type(tags) is list and "" in tags and data.get("tags_at") in ("start", "anywhere"):
        message = f"{dotted_path([*path, 'tags_at'])} has no effect: a text whose opening tag is empty begins inside it"
        yield ValueProblem([*path, "tags_at"], message)
    if cls is Leak:
        for key in ("open", "close", "format", "parts"):
            if type(items := data.get(key)) is list and not (items and all(items)):
                yield ValueProblem([*path, key], f"{dotted_path([*path, key])} must hold something")
        formats, parts = data.get("format"), data.get("parts")
        for grammar, forms in _KEYWORDS.items():
            items = parts.get(grammar) if type(parts) is dict else parts
            count = len(items) if type(items) is list else 0
            if type(formats) is list and grammar in formats and count not in map(len, forms):
                wanted = " or ".join(f"[{', '.join(form)}]" for form in forms)
                yield ValueProblem(path, f"{dotted_path(path)}: {grammar} need parts = {wanted}")


def _may_be_variable(name: Any) -> bool:
    """Whether a text may name an environment variable; what is no text is a fault of its type."""
    if type(name) is not str:
        return True
    is_key = name.startswith("sk-") or (not name.isupper() and looks_secret(name))
    return name.isascii() and name.replace("-", "_").isidentifier() and len(name) <= 64 and not is_key


def _check_unset(flag: str, path: list[str]) -> Iterator[ValueProblem]:
    """Yield (path, fault) for an item of `unset` that is not a flag."""
    keys = unset_path(flag)
    _, missing = flag_type(keys[2:] if keys[0] == "when" else keys, Flags)
    if missing is not None:
        yield ValueProblem(path, f"{dotted_path(path)}: there is no flag '{flag}'{missing}")


def flag_type(keys: list[str], table: type[Struct]) -> tuple[Any, str | None]:
    """Return the type of a flag in a table, None inside of a value of any form; for a missing one also a suggestion."""
    if table is Table and keys[0] in ("on", "when", "families") and len(keys) > 2:
        return flag_type(keys[2:], Flags if keys[0] == "when" else Table)
    kind: Any = table
    for index, key in enumerate(keys):
        if (struct := _struct(kind)) is None:
            return None, None
        if key not in _fields(struct):
            return None, _suggest_flag([*keys[:index], key], struct)
        kind = bare_type(_fields(struct)[key].type)
    return kind, None


def _check_layers(key: str, value: Any, path: list[str]) -> Iterator[ValueProblem]:
    """Yield (path, fault) for the tables in `on`, `when` or `families`."""
    if type(value) is not dict:
        yield ValueProblem(path, f"{dotted_path(path)} must be a table, not {_type_name(value)}")
        return
    conditions: set[str] = set()
    for name, table in value.items():
        if key == "when":
            if canonical_condition(name) in conditions:
                yield ValueProblem([*path, name], f"{dotted_path(path)} says '{canonical_condition(name)}' twice")
            conditions.add(canonical_condition(name))
            atoms = {a for atom in ATOMS for a in (atom, f"no-{atom}")}
            for atom in name.split("+"):
                if atom.strip() not in atoms:
                    yield ValueProblem(
                        [*path, name],
                        f"{dotted_path(path)} knows no condition '{atom}'{did_you_mean(atom, atoms)}",
                    )
            call = table.get("call") if type(table) is dict else None
            for option in _MODE_OPTIONS & set(call if type(call) is dict else ()):
                option_path = [*path, name, "call", option]
                message = f"{dotted_path(option_path)}: {option} decides the mode, so it cannot depend on one"
                yield ValueProblem(option_path, message)
        yield from _check_table(table, Flags if key == "when" else Table, [*path, name])


def _check_value(value: Any, kind: Any, path: list[str]) -> Iterator[ValueProblem]:
    """Yield (path, fault) for a value that its type does not allow."""
    kind = bare_type(kind)
    origin, args = typing.get_origin(kind), typing.get_args(kind)
    if origin is dict and type(value) is dict and args[1] is not Any:
        for key, item in value.items():
            yield from _check_value(item, args[1], [*path, key])
    elif origin is list and type(value) is list and _struct(args[0]):
        for index, item in enumerate(value):
            yield from _check_value(item, args[0], [*path, str(index)])
    elif (table := _struct(kind)) is not None and (table is kind or type(value) is dict):
        yield from _check_table(value, table, path)
    elif type(value) is list and (
        lists := [a for a in args if typing.get_origin(a) is list and _struct(*typing.get_args(a))]
    ):
        yield from _check_value(value, lists[0], path)
    elif type(value) is str and Param in args and value in _STATE_WORDS:
        message = f"{dotted_path(path)} = '{value}' would be a path on the wire. Did you mean {_STATE_WORDS[value]}?"
        yield ValueProblem(path, message)
    else:
        try:
            msgspec.convert(value, kind)
        except msgspec.ValidationError as error:
            excerpt = "…" if {"headers", "auth"} & set(path) else _excerpt(value)  # the value may be a password
            is_secret = excerpt == "…"
            correction = None if is_secret else corrected_value(value, kind)
            yield ValueProblem(
                path, f"{dotted_path(path)} = {excerpt}; {_expectation(value, kind, error)}", meant=correction
            )


def _expectation(value: Any, kind: Any, error: msgspec.ValidationError) -> str:
    """Return a sentence about the values that a type allows, for a value that it does not."""
    allowed = _literals(kind)
    if allowed:
        wrong = next((v for v in (value if type(value) is list else [value]) if v not in allowed), value)
        return f"it is one of {', '.join(allowed)}{did_you_mean(str(wrong), allowed)}"
    reason = str(error).split(" - at")[0].lower()
    if (expected := expected_type(kind)) and ", got `" in reason:
        return f"{expected} is expected, not {_type_name(value)}"
    if limit := re.fullmatch(r"expected `(?:int|float)` (>=|<=|>|<) (.+)", reason):
        return f"a number {_LIMITS[limit[1]]} {limit[2]} is expected"
    if "rfc3339" in reason:
        return "a date is written 2026-11-30"
    return reason


def bare_type(kind: Any) -> Any:
    """Return a type without its description and without None; a bound on its value stays."""
    while typing.get_origin(kind) is typing.Annotated and all(meta.ge is None for meta in kind.__metadata__):
        kind = typing.get_args(kind)[0]
    if typing.get_origin(kind) in (typing.Union, types.UnionType):
        members = [a for a in typing.get_args(kind) if a is not type(None)]
        if len(members) == 1:
            return bare_type(members[0])
    return kind


def _literals(kind: Any) -> list[str]:
    """Return the words that a type allows; none where it allows others."""
    if typing.get_origin(kind) is Literal:
        return [str(a) for a in typing.get_args(kind)]
    if typing.get_origin(kind) is list:
        return _literals(bare_type(typing.get_args(kind)[0]))
    if typing.get_origin(kind) in (typing.Union, types.UnionType):
        return [word for member in typing.get_args(kind) for word in _literals(member)]
    return []


def _struct(kind: Any) -> type[Struct] | None:
    """Return the table that a type is, or allows beside other values; None where it allows none."""
    members = (kind, *typing.get_args(kind))
    return next((one for one in members if isinstance(one, type) and issubclass(one, Struct)), None)


def _find_right_place(path: list[str], cls: type[Struct]) -> str:
    """Return where a key belongs that stands below the head of another table; "" where it does not."""
    *tables, key = path
    if cls is not RegistryFile and tables and key in _fields(RegistryFile) and key not in ("models", "providers"):
        return ": it belongs at the top of the file, above the first table in brackets"
    if cls is not Table and len(tables) > 2 and tables[0] in ("providers", "models") and key in _fields(Table):
        return f": it belongs to [{dotted_path(tables[:2])}], above [{dotted_path(tables)}]"
    return ""


def _suggest_flag(path: list[str], cls: type[Struct]) -> str:
    """Return the flag that a wrong key may mean, as a question: the flag with this old name, the only
    one with this name in a table below, or the most similar.
    """
    for field in msgspec.structs.fields(cls):
        if about(field.type).get("formerly") == path[-1]:
            return f". Did you mean '{field.encode_name}'?"
    for field in msgspec.structs.fields(Simulator):
        if f".{'.'.join(path)}".endswith(f".{about(field.type)['formerly']}"):
            return f". Did you mean 'simulator.{field.encode_name}'?"
    tables = {field.encode_name: inner_table(field.type) for field in msgspec.structs.fields(cls)}
    inner = [name for name, table in tables.items() if table is not None and path[-1] in _fields(table)]
    if len(inner) == 1:
        return f". Did you mean '{inner[0]}.{path[-1]}'?"
    return did_you_mean(path[-1], (field.encode_name for field in msgspec.structs.fields(cls)))


def _type_name(value: Any) -> str:
    """Return the type of a value in TOML's words."""
    return _VALUE_WORDS.get(type(value), type(value).__name__)


def _excerpt(value: Any) -> str:
    """Return at most 60 characters of a value."""
    return repr(value) if len(repr(value)) < 60 else repr(value)[:57] + "…"


SCHEMA = 1
"""The version of the format that this program reads."""

_PATHS = re.compile(r"/(?:chat/completions|messages|responses|models|completions)/?$")
_LOCAL = re.compile(r"(?:localhost|127\.|0\.0\.0\.0|192\.168\.|10\.|\[?::1)")


def value_faults(data: dict[str, Any]) -> Iterator[ValueProblem]:
    """Yield the faults of values in a file's data."""
    schema = data.get("schema")
    if type(schema) is int and schema != SCHEMA:
        yield ValueProblem(["schema"], f"schema = {schema}; this program reads schema {SCHEMA}", meant=SCHEMA)
    yield from _walk(data, [])


def _walk(table: dict[str, Any], path: list[str]) -> Iterator[ValueProblem]:
    for key, value in table.items():
        if type(value) is dict:
            yield from _walk(value, [*path, key])
            continue
        if key == "base_url" and type(value) is str:
            yield from _url_faults(value, [*path, key], has_path="path" in table)
            continue
        numbers = list(_numbers(value))
        # JSON has no NaN, and it is neither above nor below any cap.
        if any(type(number) is float and not math.isfinite(number) for number in numbers):
            yield ValueProblem([*path, key], f"{dotted_path([*path, key])} = {value}; a finite number is expected")
        elif not {"limits", "price"}.isdisjoint(path[2:]) and any(number < 0 for number in numbers):
            correction = None if type(value) is list else -value
            yield ValueProblem(
                [*path, key], f"{dotted_path([*path, key])} = {value}; it cannot be negative", meant=correction
            )


def _numbers(value: Any) -> Iterator[float]:
    """Yield the numbers of a value, those of lists and of tables in lists too."""
    if type(value) in (int, float):
        yield value
    elif type(value) in (list, dict):
        for item in value if type(value) is list else value.values():
            yield from _numbers(item)


def _url_faults(url: str, path: list[str], *, has_path: bool) -> Iterator[ValueProblem]:
    name = dotted_path(path)
    if not re.match(r"https?://", url, re.IGNORECASE):
        scheme = "http" if _LOCAL.match(url) else "https"
        bare = url.removeprefix("//")
        correction = f"{scheme}://{bare}" if "://" not in url and "@" not in url else None
        yield ValueProblem(path, f"{name} does not begin with http:// or https://", meant=correction)
    elif (match := _PATHS.search(url)) and not has_path:
        correction = url[: match.start()] if "@" not in url else None
        yield ValueProblem(path, f"{name} ends with {match[0]}, which cnllm adds to each request", meant=correction)
    elif (fault := address_fault(url)) is not None:
        yield ValueProblem(path, f"{name} is not an address that a call can use: {fault}")


def unnamed_model(name: str, table: Any) -> ValueProblem:
    """Return the fault of a model whose name lacks the provider or the id: its head lacks quotes, or one of them."""
    if "/" in name:
        return ValueProblem(["models", name], f'{dotted_path(["models", name])}: a model is named "provider/id"')
    keys = [name]
    flags = _fields(Table).keys()
    while type(table) is dict and table and not flags & table.keys():
        keys.append(next(iter(table)))
        table = table[keys[-1]]
    id = ".".join(keys)
    provider, _, rest = id.partition(".")
    is_dotted = len(keys) > 1 and not rest[:1].isdigit()
    head = f'[models."{provider}/{rest}"]' if is_dotted else f'[models."PROVIDER/{id}"]'
    return ValueProblem(["models", name], f'models.{id}: a model is named "provider/id", in quotes', corrected=head)
