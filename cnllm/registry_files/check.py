"""Check registry files: syntax, the types of flags, patterns, names, and whether the flags do something."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from cnllm.errors import CnllmError, RegistryError
from cnllm.registry.check import type_problems
from cnllm.registry.documents import Document, parse
from cnllm.registry.flags import ReasoningFlags
from cnllm.registry.mcp_servers import mcp_server_problems
from cnllm.registry.merge import find_path
from cnllm.registry.model import Model
from cnllm.registry.problem import Problem, dotted_path, problem_from_error
from cnllm.registry.read import builtin_path, catalogue_path, data_paths, overlay_paths, read
from cnllm.registry.registry import Registry
from cnllm.registry_files.check_references import citation_problems, reference_problems
from cnllm.schemas.patterns import ignore_case, whole_problem
from cnllm.system.files import read_bounded

__all__ = [
    "check",
    "pattern_faults",
]


_ANY_MODEL = "any"  # the id of a model that no file describes


def check(paths: list[str] | None = None, *, builtin_file: Path | None = None) -> list[Problem]:
    """Return every fault of the given files; without any, of the built-in file and the user's files.

    `builtin_file` is a file to check in the place of the built-in one: that of a checkout, or a new text of it.
    """
    data = data_paths() if paths is None else []
    overlays = overlay_paths() if paths is None else [Path(path) for path in paths]
    files = [(builtin_file or builtin_path(), True), *((path, False) for path in (*data, *overlays))]
    faults: list[Problem] = []
    documents: list[Document] = []
    for path, builtin in files:
        label = "providers.toml" if builtin else str(path)
        try:
            if builtin and paths:
                documents.append(read(path, builtin=True))  # its parsed form, which is not for a check
                continue
            text = path.read_bytes() if builtin else read_bounded(path)
            documents.append(Document(path, label, text, parse(text, label), builtin=builtin, is_data=path in data))
        except OSError as error:
            faults.append(Problem(label, None, f"cannot be read: {error.strerror}"))
        except RegistryError as error:
            faults.append(problem_from_error(error, label))
    # The built-in file takes seconds. It was checked when it was written: files that are named are checked alone.
    checked = [document for document in documents if not paths or not document.builtin]
    for document in checked:
        faults += type_problems(document)
        faults += mcp_server_problems(document)
    if not faults:
        registry = Registry([read(catalogue_path(), builtin=True), *documents])
        for document in checked:
            faults += [
                Problem(document.label, line, f"{dotted_path(path)}: {reason}")
                for path, line, reason in pattern_faults(document)
            ]
            faults += reference_problems(document, registry)
            faults += _effect_problems(document, registry)
            faults += citation_problems(document)
    first: dict[tuple[str, int | None, str], Problem] = {}
    for fault in faults:
        first.setdefault((fault.file, fault.line, fault.message), fault)
    return list(first.values())


_KEYS = ("pattern", "unless")


def pattern_faults(document: Document) -> Iterator[tuple[list[str], int | None, str]]:
    """Yield (path, line, fault) for each pattern that cannot be matched in linear time."""
    for path, source, is_whole in _patterns(document.data, []):
        if (problem := _problem(source, is_whole=is_whole)) is not None:
            yield path, _line(document, path, source), problem


def _line(document: Document, path: list[str], source: str) -> int | None:
    """Return the line of a pattern, or that of its key where the file writes the pattern with escapes."""
    key_line = document.line(path)
    for spelling in (source, source.replace("\\", "\\\\")):
        for number, line in enumerate(document.text.decode("utf-8", "replace").split("\n"), 1):
            if number >= (key_line or 1) and spelling in line:
                return number
    return key_line


def _patterns(data: dict[str, Any], path: list[str]) -> Iterator[tuple[list[str], str, bool]]:
    """Yield (path, pattern, whether it is matched as a whole) for the rules about errors and for call ids."""
    for key, value in data.items():
        key_path = [*path, key]
        if key == "errors" and type(value) is list:
            for index, rule in enumerate(value):
                for name in _KEYS:
                    for source in rule.get(name) or ():
                        yield [*key_path, str(index), name], source, False
        elif key == "call_id_pattern" and type(value) is str and path[-1:] == ["tools"]:
            yield key_path, value, True
        elif type(value) is dict:
            yield from _patterns(value, key_path)


def _problem(source: str, *, is_whole: bool) -> str | None:
    """Return why a pattern cannot be matched; None where it can."""
    if is_whole:
        problem = whole_problem(source)
    else:
        pattern = ignore_case(source)
        problem = None if pattern.problem is None else (pattern.problem, pattern.is_broken)
    if problem is None:
        return None
    verdict = "is not a regular expression" if problem[1] else "cannot be matched in linear time"
    return f"the pattern {_short_pattern(source)} {verdict}: {problem[0]}"


def _short_pattern(source: str) -> str:
    """Return a pattern of at most 60 characters for a message."""
    return repr(source) if len(source) < 60 else f"{source[:57]!r}…"


# ── effects ──────────────────────────────────────────────────────────────────


def _effect_problems(document: Document, registry: Registry) -> Iterator[Problem]:
    """Yield the flags of endpoints and models that have no effect."""

    def unread(wire: str) -> dict[str, str]:
        return registry._layers.section("protocols", wire, "unread")

    suspects = {flag for wire in registry._layers.names("protocols") for flag in unread(wire)}
    suspects |= {"reasoning.shape", "reasoning.replay_as", "reasoning.part_form", "supported"}
    for section in ("providers", "models"):
        for name, table in document.data.get(section, {}).items():
            for path, flags, wire in _tables_by_wire([section, name], table):
                if not any(find_path(flags, flag.split(".")) for flag in suspects):
                    continue  # nearly all: a model takes time to resolve
                if wire is None and "supported" in flags:
                    where = [*path, "supported"]
                    message = f"{dotted_path(where)} has no effect: it belongs in a table under `on`"
                    yield Problem(document.label, document.line(where), message)
                model = _model(section, name, wire, registry)
                protocol = wire or ("" if model is None else model.protocol)
                rules = None if model is None else model.flags.reasoning
                for flag, reason in _no_effects(flags, rules, unread(protocol)):
                    where = [*path, *flag.split(".")]
                    message = f"{dotted_path(where)} has no effect on {protocol}: {reason}"
                    yield Problem(document.label, document.line(where), message)


def _tables_by_wire(
    path: list[str], table: dict[str, Any], wire: str | None = None
) -> Iterator[tuple[list[str], dict[str, Any], str | None]]:
    """Yield (path, table, wire) for a table and those for one wire or mode in it; None is the wire of its calls."""
    yield path, table, wire
    for mode, flags in table.get("when", {}).items():
        yield [*path, "when", mode], flags, flags.get("protocol", wire)
    for name, inner in table.get("on", {}).items():
        yield from _tables_by_wire([*path, "on", name], inner, name)


def _model(section: str, name: str, wire: str | None, registry: Registry) -> Model | None:
    """Return the model that a table describes, or any model of a provider; None where it cannot be resolved."""
    try:
        return registry.resolve(name if section == "models" else f"{name}/{_ANY_MODEL}", protocol=wire)
    except CnllmError:
        return None  # another check names the reason


def _no_effects(
    flags: dict[str, Any], rules: ReasoningFlags | None, unread: dict[str, str]
) -> Iterator[tuple[str, str]]:
    """Yield (flag, reason) for the flags of a table that do nothing; `rules` are the model's for reasoning."""
    for flag, reason in unread.items():
        if find_path(flags, flag.split(".")) is not None:
            yield flag, reason
    own = flags.get("reasoning", {})
    if rules is None:
        return
    for key in ("shape", "replay_as"):
        if own.get(key) == "tags" and not rules.tags:
            yield f"reasoning.{key}", "reasoning.tags is not set"
        if own.get(key) == "content-parts" and not rules.part and "reasoning.part" not in unread:
            yield f"reasoning.{key}", "reasoning.part is not set"
    if "part_form" in own and not rules.part and "reasoning.part" not in unread:
        yield "reasoning.part_form", "reasoning.part is not set"
