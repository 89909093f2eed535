"""What is wrong with a registry file, with the line of each fault and the nearest right word."""

from __future__ import annotations

import types
import typing
from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path
from typing import Any, Literal

import msgspec
from msgspec import Struct

from cnllm.errors import CnllmError, RegistryError
from cnllm.registry.check_patterns import pattern_faults
from cnllm.registry.flags import Call, File, Flags, Leak, Param, Reasoning, Simulator, Table, about
from cnllm.registry.merge import canonical_condition, unset_path
from cnllm.registry.model import ATOMS

if typing.TYPE_CHECKING:
    from cnllm.registry.documents import Document
    from cnllm.registry.registry import Registry

__all__ = ["Problem", "check", "did_you_mean", "dotted_path", "problems", "require_valid", "unsourced_paths"]

_FREE = {"title", "docs", "status", "call", "keys"}  # who and what, not what the wire does: needs no source

_NEEDED = {"sections": ("begin", "separator", "end"), "arg-pairs": ("key", "value")}
"""Grammars without words of their own: a rule names them."""

_NO_PATHS = {
    **dict.fromkeys(("refused", "false", "refuse", "unsupported"), "false"),
    **dict.fromkeys(("works", "true"), "true"),
    **dict.fromkeys(("ignore", "ignores"), "'ignored'"),
    "unknown": "to leave it out",
}
"""Words for the state of a parameter that are written in another way."""

_DECIDES = {"reasoning", "stream", "tools", "tool_choice", "schema", "on_unsupported"}  # of `call`: settled before it


class Problem(Struct, frozen=True):
    """One fault: `severity` is "error" (the file is refused) or "warning"."""

    file: str
    line: int | None
    message: str
    severity: Literal["error", "warning"] = "error"

    def __str__(self) -> str:
        return f"{self.file}:{self.line}: {self.message}" if self.line else f"{self.file}: {self.message}"


def check(paths: list[str] | None = None) -> list[Problem]:
    """Every fault of the files in force, or of the built-in file with the given ones on it."""
    from cnllm.registry.documents import Document, builtin_path, overlay_paths, parse
    from cnllm.registry.registry import Registry

    chosen = [(builtin_path(), True)]
    chosen += [(Path(p), False) for p in (overlay_paths() if paths is None else paths)]
    found: list[Problem] = []
    documents: list[Document] = []
    for path, builtin in chosen:
        shown = "providers.toml" if builtin else str(path)
        try:
            text = path.read_bytes()
            documents.append(Document(path, shown, text, parse(text, shown), builtin=builtin))
        except OSError as error:
            found.append(Problem(shown, None, f"cannot be read: {error.strerror}"))
        except RegistryError as error:
            found.append(_told(error, shown))
    for document in documents:
        found += problems(document)
    if not found:
        registry = Registry(documents)
        for document in documents:
            found += [
                Problem(document.shown, line, f"{dotted_path(path)}: {said}")
                for path, line, said in pattern_faults(document)
            ]
            found += _references(document, registry)
    return list(dict.fromkeys(found))


def require_valid(document: Document) -> None:
    """Raises `RegistryError` for the first fault of a file; its message lists how many more there are."""
    found = problems(document)
    if found:
        more = f" (and {len(found) - 1} more)" if len(found) > 1 else ""
        raise RegistryError(
            found[0].message + more,
            file=found[0].file,
            line=found[0].line,
            hint="`cnllm registry check` lists every fault",
        )


def problems(document: Document) -> list[Problem]:
    """What the flags' own types refuse in one file."""
    return sorted(
        (Problem(document.shown, document.line(path), message) for path, message in _walk(document.data, File, [])),
        key=lambda p: p.line or 0,
    )


# ── types ────────────────────────────────────────────────────────────────────


def _walk(data: Any, cls: type[Struct], path: list[str]) -> Iterator[tuple[list[str], str]]:
    """(path, fault) of everything in `data` that `cls` does not allow."""
    shown = dotted_path(path) or "the file"
    if type(data) is not dict:
        yield path, f"{shown} must be a table, not {_kind(data)}"
        return
    fields = _fields(cls)
    for key, value in data.items():
        here = [*path, key]
        if key not in fields:
            yield here, f"{shown} has no flag '{key}'{_hint(here, cls)}"
        elif cls is Table and key in ("on", "when", "families"):
            yield from _layers(key, value, here)
        elif cls is Table and key == "unset" and type(value) is list:
            for flag in value:
                yield from _value(flag, str, here) if type(flag) is not str else _unset(flag, here)
        else:
            yield from _value(value, Call if fields[key].name == "call" else fields[key].type, here)
            if key == "keys" and not all(map(_is_variable, value if type(value) is list else ())):
                yield (
                    here,
                    f"{dotted_path(here)} holds what is no name of a variable; a key itself does not belong here",
                )
    for key, field in fields.items():
        if field.required and key not in data:
            yield path, f"{shown} lacks '{key}'"
    yield from _markers(data, cls, path)


@lru_cache(maxsize=256)  # more than there are; msgspec works them out anew each time, for as long as the check takes
def _fields(cls: type[Struct]) -> dict[str, msgspec.structs.FieldInfo]:
    """The fields of a table by the names that they have in a file."""
    return {field.encode_name: field for field in msgspec.structs.fields(cls)}


def _markers(data: dict[str, Any], cls: type[Struct], path: list[str]) -> Iterator[tuple[list[str], str]]:
    """Lists of markers that a reader can do nothing with."""
    if cls is Reasoning and type(tags := data.get("tags")) is list and (len(tags) % 2 or not all(tags)):
        yield [*path, "tags"], f"{dotted_path([*path, 'tags'])} must be pairs of an opening and a closing tag"
    if cls is Leak:
        for key in ("open", "close", "format", "parts"):
            if type(said := data.get(key)) is list and not (said and all(said)):
                yield [*path, key], f"{dotted_path([*path, key])} must hold something"
        formats, parts = data.get("format"), data.get("parts")
        for grammar, needed in _NEEDED.items():
            said = parts.get(grammar) if type(parts) is dict else parts
            if type(formats) is list and grammar in formats and not (type(said) is list and len(said) == len(needed)):
                yield path, f"{dotted_path(path)}: {grammar} need parts = [{', '.join(needed)}]"


def _is_variable(name: Any) -> bool:
    return type(name) is not str or (name.isascii() and name.replace("-", "_").isidentifier() and len(name) <= 64)


def _unset(flag: str, path: list[str]) -> Iterator[tuple[list[str], str]]:
    """A flag to be taken away must be one."""
    kind: Any = Flags
    keys = unset_path(flag)
    for place, key in enumerate(keys[2:] if keys[0] == "when" else keys):
        if not _is_struct(kind):
            return
        fields = _fields(kind)
        if key not in fields:
            yield path, f"{dotted_path(path)}: there is no flag '{flag}'{_hint([*keys[:place], key], kind)}"
            return
        kind = _bare(fields[key].type)


def _layers(key: str, value: Any, path: list[str]) -> Iterator[tuple[list[str], str]]:
    if type(value) is not dict:
        yield path, f"{dotted_path(path)} must be a table, not {_kind(value)}"
        return
    said: set[str] = set()
    for name, table in value.items():
        if key == "when":
            if canonical_condition(name) in said:
                yield [*path, name], f"{dotted_path(path)} says '{canonical_condition(name)}' twice"
            said.add(canonical_condition(name))
            known = {a for atom in ATOMS for a in (atom, f"no-{atom}")}
            for atom in name.split("+"):
                if atom.strip() not in known:
                    yield (
                        [*path, name],
                        f"{dotted_path(path)} knows no condition '{atom}'{did_you_mean(atom, known)}",
                    )
            call = table.get("call") if type(table) is dict else None
            for option in _DECIDES & set(call if type(call) is dict else ()):
                here = [*path, name, "call", option]
                yield here, f"{dotted_path(here)}: {option} decides the mode, so it cannot depend on one"
        yield from _walk(table, Flags if key == "when" else Table, [*path, name])


def _value(value: Any, kind: Any, path: list[str]) -> Iterator[tuple[list[str], str]]:
    kind = _bare(kind)
    origin, args = typing.get_origin(kind), typing.get_args(kind)
    if isinstance(kind, type) and issubclass(kind, Struct):
        yield from _walk(value, kind, path)
    elif origin is dict and type(value) is dict and args[1] is not Any:
        for key, item in value.items():
            yield from _value(item, args[1], [*path, key])
    elif origin is list and type(value) is list and _is_struct(args[0]):
        for place, item in enumerate(value):
            yield from _value(item, args[0], [*path, str(place)])
    elif type(value) is dict and Param in args:
        yield from _walk(value, Param, path)
    elif type(value) is str and Param in args and value in _NO_PATHS:
        yield path, f"{dotted_path(path)} = '{value}' would be a path on the wire. Did you mean {_NO_PATHS[value]}?"
    else:
        try:
            msgspec.convert(value, kind)
        except msgspec.ValidationError as error:
            shown = "…" if {"headers", "auth"} & set(path) else _shown(value)  # a password may stand there
            yield path, f"{dotted_path(path)} = {shown}; {_expected(value, kind, error)}"


def _expected(value: Any, kind: Any, error: msgspec.ValidationError) -> str:
    words = _literals(kind)
    if words:
        given = next((v for v in (value if type(value) is list else [value]) if v not in words), value)
        return f"it is one of {', '.join(words)}{did_you_mean(str(given), words)}"
    return str(error).split(" - at")[0].lower()


def _bare(kind: Any) -> Any:
    """A type without its description and without None; its least value stays."""
    while typing.get_origin(kind) is typing.Annotated and all(meta.ge is None for meta in kind.__metadata__):
        kind = typing.get_args(kind)[0]
    if typing.get_origin(kind) in (typing.Union, types.UnionType):
        rest = [a for a in typing.get_args(kind) if a is not type(None)]
        if len(rest) == 1:
            return _bare(rest[0])
    return kind


def _literals(kind: Any) -> list[str]:
    if typing.get_origin(kind) is Literal:
        return [str(a) for a in typing.get_args(kind)]
    if typing.get_origin(kind) is list:
        return _literals(_bare(typing.get_args(kind)[0]))
    if typing.get_origin(kind) in (typing.Union, types.UnionType):
        return [word for one in typing.get_args(kind) for word in _literals(one)]
    return []


def _is_struct(kind: Any) -> bool:
    return isinstance(kind, type) and issubclass(kind, Struct)


def _hint(path: list[str], cls: type[Struct]) -> str:
    """Return the flag that a wrong key means, as a question: the one that had this name, or the nearest."""
    for field in msgspec.structs.fields(cls):
        if about(field.type).get("formerly") == path[-1]:
            return f". Did you mean '{field.encode_name}'?"
    for field in msgspec.structs.fields(Simulator):
        if f".{'.'.join(path)}".endswith(f".{about(field.type)['formerly']}"):
            return f". Did you mean 'simulator.{field.encode_name}'?"
    return did_you_mean(path[-1], (field.encode_name for field in msgspec.structs.fields(cls)))


def did_you_mean(word: str, known: Any) -> str:
    """The nearest of the right words as a question, or nothing."""
    import difflib

    close = difflib.get_close_matches(word, list(known), n=1, cutoff=0.5)
    return f". Did you mean '{close[0]}'?" if close else ""


def _kind(value: Any) -> str:
    names = {
        dict: "a table",
        list: "a list",
        str: "text",
        bool: "true or false",
        int: "a number",
        float: "a number",
    }
    return names.get(type(value), type(value).__name__)


def _shown(value: Any) -> str:
    return repr(value) if len(repr(value)) < 60 else repr(value)[:57] + "…"


def dotted_path(path: list[str]) -> str:
    """A path of keys as TOML writes it, or nearly."""
    return ".".join(f'"{k}"' if "/" in k or "." in k or "+" in k else k for k in path)


# ── what points at something ─────────────────────────────────────────────────


def _references(document: Document, registry: Registry) -> Iterator[Problem]:
    """Names that name nothing, sources that back nothing, switches that are not there."""
    models = set(registry.names())
    providers = set(registry.providers)
    protocols = registry._names("protocols")
    families = registry._names("families")

    def problem(path: list[str], message: str) -> Problem:
        return Problem(document.shown, document.line(path), message)

    for path, table in _tables(document.data):
        wire = table.get("protocol")
        if wire is not None and wire not in protocols:
            yield problem(
                [*path, "protocol"],
                f"{dotted_path(path)}: no protocol is called '{wire}'{did_you_mean(wire, protocols)}",
            )
        for mode, said in table.get("when", {}).items():
            wire = said.get("protocol")
            if wire is not None and wire not in protocols:
                yield problem(
                    [*path, "when", mode, "protocol"],
                    f"{dotted_path(path)}.when: no protocol is called '{wire}'{did_you_mean(wire, protocols)}",
                )
        for kind, one, known in (("on", "protocol", protocols), ("families", "family", families)):
            for name in table.get(kind, {}):
                if name not in known:
                    yield problem(
                        [*path, kind, name],
                        f"{dotted_path(path)}.{kind}: no {one} is called '{name}'{did_you_mean(name, known)}",
                    )
        use = table.get("status", {}).get("use")
        if use is not None and use not in models:
            yield problem(
                [*path, "status"], f"{dotted_path(path)}: no model is called '{use}'{did_you_mean(use, models)}"
            )
        if table.get("status", {}).get("is") == "retired" and use is None:
            yield problem([*path, "status"], f"{dotted_path(path)} is retired and names no successor")
        for name, source in table.get("sources", {}).items():
            for backed in source["backs"]:
                if not _has(table, backed):
                    yield problem(
                        [*path, "sources", name],
                        f"{dotted_path(path)}.sources.{name} backs '{backed}', which is not there",
                    )
    if not document.builtin and document.data.get("defaults", {}).get("leaks") == []:
        yield Problem(
            document.shown,
            document.line(["defaults", "leaks"]),
            "defaults.leaks = [] takes away the general markup only, that of families stays; for all of it: "
            '[defaults.call] recover_text_calls = "keep"',
            "warning",
        )
    for name in document.data.get("prefer", ()):
        if name not in providers:
            yield problem(["prefer"], f"prefer: no provider is called '{name}'{did_you_mean(name, providers)}")
    for name in document.data.get("providers", {}):
        try:
            registry._extends_chain("providers", name)
        except RegistryError as error:
            yield _told(error, document.shown)
    for name in document.data.get("models", {}):
        provider = name.partition("/")[0]
        path = ["models", name]
        if provider not in providers:
            yield problem(
                path,
                f"models.\"{name}\": no provider is called '{provider}'{did_you_mean(provider, providers)}",
            )
            continue
        try:
            model = registry.resolve(name)
        except RegistryError as error:
            yield _told(error, document.shown)
            continue
        reasoning = model.flags.reasoning
        if reasoning and reasoning.mode == "toggle" and not (reasoning.on or reasoning.off or reasoning.effort):
            yield problem(path, f'models."{name}": reasoning.mode is toggle, but nothing says how to switch it')
    for alias, target in document.data.get("aliases", {}).items():
        if target not in models:
            yield problem(
                ["aliases", alias],
                f"alias '{alias}' names no model: '{target}'{did_you_mean(target, models)}",
            )
    for name, target in document.data.get("gateway", {}).get("models", {}).items():
        try:
            if not target.startswith("tier:"):
                registry.resolve(target)
            elif target.removeprefix("tier:") not in registry.tiers:
                yield problem(["gateway", "models", name], f"gateway.models.'{name}' names no tier: '{target}'")
        except CnllmError as error:
            yield problem(["gateway", "models", name], f"gateway.models.'{name}': {error.message}")


def _told(error: RegistryError, shown: str) -> Problem:
    place = f"{error.file}:{error.line}: " if error.line else f"{error.file}: "
    return Problem(error.file or shown, error.line, error.message.removeprefix(place))


def _tables(data: dict[str, Any]) -> Iterator[tuple[list[str], dict[str, Any]]]:
    """Every layer's table with its path."""
    found = [(["defaults"], data["defaults"])] if "defaults" in data else []
    for section in ("protocols", "families", "providers", "models"):
        found += [([section, name], table) for name, table in data.get(section, {}).items()]
    for path, table in found:
        yield path, table
        for kind in ("on", "families"):
            for name, inner in table.get(kind, {}).items():
                yield [*path, kind, name], inner


def _has(table: dict[str, Any], flag: str) -> bool:
    """Is there anything at a dotted flag? Keys with dots in them are tried whole."""
    here: Any = table
    keys = flag.split(".")
    while keys:
        if type(here) is not dict:
            return False
        for length in range(len(keys), 0, -1):
            key = ".".join(keys[:length])
            if key in here:
                here, keys = here[key], keys[length:]
                break
        else:
            return False
    return True


def unsourced_paths(document: Document) -> list[str]:
    """The dialect flags of a file that no source of their own table backs, as dotted paths."""
    from cnllm.registry.merge import META, flatten

    out: list[str] = []
    for path, table in _tables(document.data):
        if path[0] in ("defaults", "protocols"):
            continue  # the wire itself, not an endpoint's way with it
        backs = [b for s in table.get("sources", {}).values() for b in s.get("backs", ())]
        flags = {k: v for k, v in table.items() if (k not in META or k == "when") and k not in _FREE}
        for keys, _ in flatten(flags):
            flag = ".".join(keys)
            if not any(flag == b or flag.startswith(b + ".") for b in backs):
                out.append(dotted_path([*path, *keys]))
    return out
