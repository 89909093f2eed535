"""Remember which tools of MCP servers the user approved: by the digest of their definition, in the config folder."""

from __future__ import annotations

import json
import os
import stat
import tempfile
from pathlib import Path

from cnllm.config import paths, private_files
from cnllm.errors import CnllmError
from cnllm.mcp_client.definition import Definition

__all__ = ["Approvals"]

_HINT = "delete it and approve again"


class Approvals:
    """The approvals of the user. They are read anew each time, because another program may change them."""

    def __init__(self) -> None:
        self._path = approvals_path()

    def check(self) -> None:
        """Raise `CnllmError` where the file cannot be used."""
        self._read()

    def has(self, definition: Definition) -> bool:
        """Whether a tool is approved with this very definition. Raise `CnllmError` where the file cannot be used."""
        return definition.digest in self._read()

    def has_other(self, definition: Definition) -> bool:
        """Whether the tool is approved with another definition only."""
        stored = self._read()
        entry = {"server": definition.server, "tool": definition.name}
        return definition.digest not in stored and entry in stored.values()

    def add(self, definition: Definition) -> None:
        """Approve a tool with this definition; an approval of another one ends."""
        entry = {"server": definition.server, "tool": definition.name}
        stored = {digest: other for digest, other in self._read().items() if other != entry}
        self._write({**stored, definition.digest: entry})

    def _read(self) -> dict[str, dict[str, str]]:
        try:
            with self._path.open() as file:
                status = os.fstat(file.fileno())
                if os.name != "nt" and status.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
                    raise ValueError("other users can write it")
                if os.name != "nt" and status.st_uid not in (os.geteuid(), 0):
                    raise ValueError("it belongs to another user")
                stored = json.loads(file.read())
            if not isinstance(stored, dict) or not all(isinstance(entry, dict) for entry in stored.values()):
                raise ValueError("it is no JSON object of objects")
        except FileNotFoundError:
            return {}
        except (OSError, ValueError) as error:
            raise CnllmError(f"{self._path} cannot be used: {error}", hint=_HINT) from error
        return stored

    def _write(self, stored: dict[str, dict[str, str]]) -> None:
        try:
            private_files.make_private_folder(self._path.parent)
            descriptor, name = tempfile.mkstemp(prefix=".mcp-", dir=self._path.parent)  # mkstemp makes it 0600
            with os.fdopen(descriptor, "w") as out:
                json.dump(stored, out, indent=1, sort_keys=True)
            os.replace(name, self._path)
        except OSError as error:
            raise CnllmError(f"{self._path} cannot be written: {error.strerror}") from error


def approvals_path() -> Path:
    """Return the path of the file, whether or not it exists."""
    return paths.config_dir() / "mcp-approvals.json"
