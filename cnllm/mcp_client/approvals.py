"""Remember which tools of MCP servers the user approved: by the digest of their definition, in the config folder."""

from __future__ import annotations

import json
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

        def change(_: bytes | None) -> bytes:
            stored = {digest: other for digest, other in self._read().items() if other != entry}
            return json.dumps({**stored, definition.digest: entry}, indent=1, sort_keys=True).encode()

        private_files.change_file(self._path, change)

    def _read(self) -> dict[str, dict[str, str]]:
        try:
            content = private_files.read_safe_file(self._path)
            stored: dict[str, dict[str, str]] = {} if content is None else json.loads(content)
            if not isinstance(stored, dict) or not all(isinstance(entry, dict) for entry in stored.values()):
                raise ValueError("it is no JSON object of objects")
        except (OSError, ValueError) as error:
            raise CnllmError(f"{self._path} cannot be used: {error}", hint=_HINT) from error
        return stored


def approvals_path() -> Path:
    """Return the path of the file, whether or not it exists."""
    return paths.config_dir() / "mcp-approvals.json"
