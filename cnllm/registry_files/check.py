"""Check registry files: their syntax, the types of their flags, their patterns, and the names in them."""

from __future__ import annotations

from pathlib import Path

from cnllm.config.bounded_files import read_bounded
from cnllm.errors import RegistryError
from cnllm.registry.check import type_problems
from cnllm.registry.mcp_servers import mcp_server_problems
from cnllm.registry.problem import Problem, dotted_path, problem_from_error
from cnllm.registry_files.check_citations import citation_problems
from cnllm.registry_files.check_effects import effect_problems
from cnllm.registry_files.check_patterns import pattern_faults
from cnllm.registry_files.check_references import reference_problems

__all__ = ["check"]


def check(paths: list[str] | None = None) -> list[Problem]:
    """Return every fault of the built-in file and the user's files, or the given files in their place."""
    from cnllm.registry.documents import Document, builtin_path, catalogue_path, data_paths, overlay_paths, parse, read
    from cnllm.registry.registry import Registry

    data = data_paths() if paths is None else []
    overlays = overlay_paths() if paths is None else [Path(path) for path in paths]
    files = [(builtin_path(), True), *((path, False) for path in (*data, *overlays))]
    faults: list[Problem] = []
    documents: list[Document] = []
    for path, builtin in files:
        label = "providers.toml" if builtin else str(path)
        try:
            if builtin:
                documents.append(read(path, builtin=True))
                continue
            text = read_bounded(path)
            documents.append(Document(path, label, text, parse(text, label), builtin=False, is_data=path in data))
        except OSError as error:
            faults.append(Problem(label, None, f"cannot be read: {error.strerror}"))
        except RegistryError as error:
            faults.append(problem_from_error(error, label))
    for document in documents:
        faults += type_problems(document)
        faults += mcp_server_problems(document)
    if not faults:
        registry = Registry([read(catalogue_path(), builtin=True), *documents])
        for document in documents:
            faults += [
                Problem(document.label, line, f"{dotted_path(path)}: {reason}")
                for path, line, reason in pattern_faults(document)
            ]
            faults += reference_problems(document, registry)
            faults += effect_problems(document, registry)
            faults += citation_problems(document)
    first: dict[tuple[str, int | None, str], Problem] = {}
    for fault in faults:
        first.setdefault((fault.file, fault.line, fault.message), fault)
    return list(first.values())
