"""Sets of tools: one value that stands for several tools, such as those of an MCP server."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from cnllm.tools.values import Tool

__all__ = ["ToolSet", "expand_sets", "has_sets", "set_labels"]


class ToolSet(ABC):
    """A set of tools, which may stand in a list of tools. What its tools need is open from `retain` to `release`.

    Both are counted: the last `release` closes it. Without any, `tools` opens it for as long as it takes.
    """

    @property
    @abstractmethod
    def label(self) -> str:
        """Return the word that the names of the tools begin with. It holds no double underscore."""

    @abstractmethod
    def tools(self, label: str | None = None) -> Sequence[Tool]:
        """Return the tools. `label` takes the place of the set's own."""

    @abstractmethod
    def retain(self) -> None:
        """Open what the tools need, or wait until it is open. Raise where that fails; then there is nothing to release.

        It may block for seconds.
        """

    @abstractmethod
    def release(self) -> None:
        """Undo one `retain`. It may block for seconds."""


def has_sets(items: Any) -> bool:
    """Whether a list of tools holds a set."""
    if not isinstance(items, list | tuple):
        return False
    for item in items:  # noqa: SIM110 (a generator costs more than the tests)
        if type(item) is not dict and isinstance(item, ToolSet):  # most tools are dicts, and the second test is slow
            return True
    return False


def expand_sets(items: Sequence[Any]) -> Sequence[Any]:
    """Return the list with the tools of each set in its place; the same object where it holds no set."""
    if not has_sets(items):
        return items
    labels = iter(set_labels([item for item in items if isinstance(item, ToolSet)]))
    expanded: list[Any] = []
    for item in items:
        if isinstance(item, ToolSet):
            expanded += item.tools(next(labels))
        else:
            expanded.append(item)
    return expanded


def set_labels(sets: Sequence[ToolSet]) -> list[str]:
    """Return the label of each set. Of two with the same one the later gets a number, so that names stay unique."""
    labels: list[str] = []
    for item in sets:
        label, number = item.label, 2
        while label in labels:
            label, number = f"{item.label}{number}", number + 1
        labels.append(label)
    return labels
