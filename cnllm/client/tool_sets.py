"""Keep sets of tools open for a client or a run."""

from __future__ import annotations

import threading
import weakref
from collections.abc import Mapping
from typing import Any

from cnllm.system.processes import fork_safe
from cnllm.tools.values import ToolSet, expand_sets

__all__ = ["HeldSets"]


class HeldSets:
    """The sets of tools that a client or a run keeps open. It does not keep a set alive that nobody else has."""

    def __init__(self) -> None:
        self._lock = fork_safe(threading.Lock())
        self._sets: weakref.WeakSet[ToolSet] = weakref.WeakSet()
        self._closed = False

    def retain(self, items: Any) -> None:
        """Open the sets in a list of tools that are not open yet. It may block. Raise where one cannot be opened."""
        for item in items:
            if not isinstance(item, ToolSet) or item in self._sets:
                continue
            item.retain()
            with self._lock:
                is_needed = not self._closed and item not in self._sets
                if is_needed:
                    self._sets.add(item)
            if not is_needed:
                item.release()

    def open_options(self, options: Mapping[str, Any]) -> dict[str, Any]:
        """Return the options of a call with the tools of each set in its place. It may block."""
        self.retain(options["tools"])
        return {**options, "tools": list(expand_sets(options["tools"]))}

    def release(self) -> None:
        """Release the sets. It may block."""
        with self._lock:
            self._closed = True
            sets = list(self._sets)
            self._sets.clear()
        for item in sets:
            item.release()
