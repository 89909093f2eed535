"""A fault of a registry file, and the words in which it is described."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Literal, NamedTuple

from msgspec import Struct

from cnllm.errors import RegistryError

__all__ = ["Problem", "ValueProblem", "did_you_mean", "dotted_path", "problem_from_error", "write_hint"]

_WRITE = "write: "


class Problem(Struct, frozen=True):
    """A fault of a registry file. `severity` is "error" (the file is refused) or "warning".

    `corrected` is what to write instead, "" where that is not known.
    """

    file: str
    line: int | None
    message: str
    severity: Literal["error", "warning"] = "error"
    corrected: str = ""

    def __str__(self) -> str:
        return f"{self.file}:{self.line}: {self.message}" if self.line else f"{self.file}: {self.message}"


def problem_from_error(error: RegistryError, label: str) -> Problem:
    """Return an error about a registry file as a problem; `label` is the file where the error names none."""
    prefix = f"{error.file}:{error.line}: " if error.line else f"{error.file}: "
    corrected = (error.hint or "").removeprefix(_WRITE) if (error.hint or "").startswith(_WRITE) else ""
    return Problem(error.file or label, error.line, error.message.removeprefix(prefix), corrected=corrected)


def write_hint(corrected: str) -> str:
    """Return the hint that shows a corrected line."""
    return _WRITE + corrected


def did_you_mean(word: str, words: Iterable[str]) -> str:
    """Return the most similar of the right words as a question, or ""."""
    import difflib

    matches = difflib.get_close_matches(word, list(words), n=1, cutoff=0.5)
    return f". Did you mean '{matches[0]}'?" if matches else ""


def dotted_path(path: list[str]) -> str:
    """Return a path of keys with dots between them; a key with a slash, a dot or a plus sign is in quotes."""
    return ".".join(f'"{k}"' if "/" in k or "." in k or "+" in k else k for k in path)


class ValueProblem(NamedTuple):
    """The path of a value, what is wrong with it, and, where that is known, the value or the line that was meant."""

    path: list[str]
    message: str
    meant: Any = None
    corrected: str = ""
