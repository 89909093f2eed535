"""The definition of a server's tool, and its digest."""

from __future__ import annotations

import hashlib
import json
from typing import Any

from msgspec import Struct

__all__ = ["Definition"]


class Definition(Struct, frozen=True):
    """A tool as its server describes it. `offered_name` is its name for models; `server` is the command or URL.

    `digest` changes with the name, the description, the schema and the server: an approval holds for one digest.
    """

    offered_name: str
    label: str
    server: str
    name: str
    description: str | None
    schema: dict[str, Any]
    digest: str

    @classmethod
    def of(cls, offered_name: str, label: str, server: str, identity: str, tool: Any) -> Definition:
        """Build the definition of a tool in a server's list."""
        content = [identity, tool.name, tool.description, tool.input_schema]
        text = json.dumps(content, sort_keys=True, ensure_ascii=True, separators=(",", ":"))
        digest = hashlib.sha256(text.encode()).hexdigest()
        return cls(offered_name, label, server, tool.name, tool.description, tool.input_schema, digest)
