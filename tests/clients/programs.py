"""Real clients: where they are, and how one turn of a conversation is run without a terminal."""

from __future__ import annotations

import os
import shutil
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

FOLDERS = "CNLLM_CLIENTS"
"""Folders with clients from npm or PyPI, separated as in PATH: `npm install --prefix FOLDER …`, or a venv."""

_KEPT = os.environ.get(FOLDERS, "")  # tests run without variables of this name


@dataclass(frozen=True)
class Program:
    """A client. `first` and `next` are its arguments before the prompt.

    `keeps_history` says whether it sends an old conversation again as it was, so that a turn without calls is found.
    """

    name: str
    first: Sequence[str]
    next: Sequence[str]
    environment: dict[str, str] = field(default_factory=dict)
    keeps_history: bool = True

    def path(self) -> str | None:
        """Where it is installed."""
        return shutil.which(self.name, path=search_path())


def search_path() -> str:
    """The PATH with the folders of clients."""
    folders = [Path(folder) for folder in _KEPT.split(os.pathsep) if folder]
    places = [str(place) for folder in folders for place in (folder / "node_modules" / ".bin", folder / "bin")]
    return os.pathsep.join([*places, os.environ["PATH"]])


def module_folder(*names: str) -> Path | None:
    """The first of the folders whose node_modules has all of these."""
    folders = [Path(folder) for folder in _KEPT.split(os.pathsep) if folder]
    return next((f for f in folders if all((f / "node_modules" / name).is_dir() for name in names)), None)


_CLAUDE = ("--dangerously-skip-permissions", "--output-format", "stream-json", "--verbose", "-p")
_CODEX = ("--json", "--skip-git-repo-check", "--dangerously-bypass-approvals-and-sandbox")

AGENTS = (
    Program("claude", _CLAUDE, ("--continue", *_CLAUDE), {"IS_SANDBOX": "1"}),  # which lets root skip permissions
    Program("codex", ("exec", *_CODEX), ("exec", "resume", "--last", *_CODEX)),
    Program(
        "gemini",
        ("--yolo", "--skip-trust", "-p"),
        ("--resume", "latest", "--yolo", "--skip-trust", "-p"),
        keeps_history=False,  # its first message lists the files of the folder, anew at each start
    ),
    Program("opencode", ("run", "--auto"), ("run", "--auto", "--continue")),
)

PLANNER = Program(
    "claude",
    ("--permission-mode", "plan", *_CLAUDE[1:]),
    ("--continue", *_CLAUDE),
    {"IS_SANDBOX": "1", "ENABLE_TOOL_SEARCH": "true"},
)
"""Claude Code that begins with a plan, and searches its tools instead of sending them all."""

_AIDER = ("--no-git", "--yes", "--no-check-update", "--edit-format", "diff", "--file", "code.py")

EDITOR = Program(
    "aider",
    (*_AIDER, "--message"),
    (*_AIDER, "--restore-chat-history", "--message"),
    {"LITELLM_LOCAL_MODEL_COST_MAP": "True"},
)
"""aider, which has no tools: it edits files by blocks in the text of the reply."""
