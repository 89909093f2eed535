"""`--tool`: what a model may call, and which calls are executed.

The built-in tools are harmless. What a user imports may do anything, so that none of it is executed unless the user
said so beforehand (`--approve all`) or says so then.
"""

from __future__ import annotations

import importlib
import importlib.util
import os
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any, Literal

from cnllm.cli.builtin_tools import SAFE
from cnllm.cli.output.errors import UsageError

if TYPE_CHECKING:
    from cnllm.tools import Tool
    from cnllm.types import ToolCall

__all__ = ["Answer", "Approval", "Toolbox"]

Approval = Literal["ask", "all", "none"]
Answer = Literal["yes", "no", "always"]

NEEDS_APPROVAL = "this tool may do anything, and the user did not give leave to run it (--approve all)"
_HOW = f"it looks like MODULE:FUNCTION or FILE.py:FUNCTION, or is one of {', '.join(SAFE)}"


class Toolbox:
    """The tools of a command. `ask` is asked for each call where `approval` says so."""

    def __init__(
        self, given: Sequence[str], approval: Approval, ask: Callable[[ToolCall], Answer] | None = None
    ) -> None:
        from cnllm.tools import as_tools, tool

        self.tools: list[Tool] = []
        self._safe = {name for name in given if name in SAFE}
        self._approval = approval
        self._ask = ask
        self._always: set[str] = set()
        for name in dict.fromkeys(given):
            try:
                made = tool(SAFE[name], name=name) if name in SAFE else as_tools([_imported(name)])[0]
            except UsageError:
                raise
            except Exception as error:  # an annotation may be anything
                raise UsageError(f"--tool {name}: {error}", "a typed function is meant, or a cnllm.tool") from error
            if any(made.name == other.name for other in self.tools):
                raise UsageError(f"--tool {name}: there is another tool called {made.name}", "leave one of them out")
            self.tools.append(made)

    def lines(self) -> list[str]:
        """What there is, a line each."""
        out = []
        for tool in self.tools:
            said = (tool.description or "").strip().partition("\n")[0]
            how = "" if tool.name in self._safe else f"  ({self._rule(tool.name)})"
            out.append(f"{tool.name}{f': {said}' if said else ''}{how}")
        return out

    def _rule(self, name: str) -> str:
        if self._approval == "all" or name in self._always:
            return "is run without asking"
        return "asks before each call" if self._approval == "ask" else "is not run: --approve none"

    def approve(self, call: ToolCall) -> bool | str:
        """May this call be executed? Otherwise why not, in words for the model."""
        if self._approval == "all" or call.name in self._safe or call.name in self._always:
            return True
        if self._approval == "none" or self._ask is None:
            return NEEDS_APPROVAL
        answer = self._ask(call)
        if answer == "always":
            self._always.add(call.name)
        return "the user said no" if answer == "no" else True


def _imported(given: str) -> Any:
    """The function that MODULE:FUNCTION or FILE.py:FUNCTION names."""
    place, colon, name = given.rpartition(":")
    if not colon or not place or not name:
        raise UsageError(f"--tool {given}: there is no such tool", _HOW)
    try:
        module = _file(Path(place)) if place.endswith(".py") else _module(place)
    except UsageError:
        raise
    except (Exception, SystemExit) as error:  # it is the user's code, and may fail in any way
        raise UsageError(f"--tool {given}: {type(error).__name__}: {error}", _HOW) from error
    found = getattr(module, name, None)
    if found is None:
        raise UsageError(f"--tool {given}: there is no {name} in {place}", _HOW)
    return found


def _module(name: str) -> ModuleType:
    here = os.getcwd()
    if here not in sys.path:
        sys.path.append(here)  # at the end, lest a file here take the place of a module that the program needs
    return importlib.import_module(name)


def _file(path: Path) -> ModuleType:
    if not path.is_file():
        raise UsageError(f"--tool {path}: there is no such file", _HOW)
    folder = str(path.resolve().parent)
    if folder not in sys.path:
        sys.path.append(folder)
    spec = importlib.util.spec_from_file_location(f"cnllm_tool_{path.stem}", path)
    assert spec is not None
    assert spec.loader is not None
    known = sys.modules.get(spec.name)
    if known is not None and getattr(known, "__file__", None) == str(path):  # two functions of one file
        return known
    module = importlib.util.module_from_spec(spec)
    sys.modules[module.__name__] = module  # annotations are looked up there
    spec.loader.exec_module(module)
    return module
