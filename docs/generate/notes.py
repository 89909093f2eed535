"""The codes of notes."""

from __future__ import annotations

import ast
from functools import cache

from docs.generate.markdown import cell, table
from docs.generate.note_codes import NOTE_CODES
from docs.generate.source import calls

__all__ = ["flags_of", "page"]

_MAKERS = {"Note", "note", "may_change", "cannot", "refuse", "_note", "tell"}
"""The functions that take a note's code and flag first."""


@cache
def flags_of() -> dict[str, list[str]]:
    """Return for each code that the package writes the flags of its notes, where the source has them as text."""
    out: dict[str, dict[str, None]] = {}
    for _, name, call in calls(rf"\b({'|'.join(_MAKERS)})\(\s*['\"]"):
        match call.args:
            case [ast.Constant(value=str(code)), *rest] if name in _MAKERS:
                flags = out.setdefault(code, {})
                if rest and isinstance(rest[0], ast.Constant) and _is_flag(flag := str(rest[0].value)):
                    flags[flag] = None
    return {code: sorted(flags) for code, flags in out.items()}


def _is_flag(text: str) -> bool:
    return text.replace(".", "").replace("_", "").isalnum()


def page() -> str:
    """Return a page with every code."""
    parts = [
        "# Notes",
        "A note says what cnllm changed or noticed: `code`, `flag` (the registry's flag, or the option), `said` (what "
        "was asked for, or arrived), `did` (what was made of it) and `where` (file and line of the registry, or "
        "empty). Codes are stable; the words of `said` and `did` may change. The code of a refusal comes in "
        "`CannotSend.note`.",
    ]
    for group, codes in NOTE_CODES.items():
        rows = [
            [f"`{code}`", cell(meaning), ", ".join(f"`{flag}`" for flag in flags_of().get(code, []))]
            for code, meaning in codes.items()
        ]
        parts += [f"## {group}", table(["code", "meaning", "flags"], rows)]
    return "\n\n".join(parts) + "\n"
