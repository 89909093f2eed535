"""Build hook: a wheel carries the built-in registry parsed, in `cnllm/*.bin` (see cnllm.registry.read)."""

from __future__ import annotations

import sys
from pathlib import Path
from tempfile import mkdtemp
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface


class ParsedRegistry(BuildHookInterface[Any]):
    """Write the parsed registry and have the wheel include it. An editable install reads the TOML file itself."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Add the file to the wheel."""
        if self.target_name != "wheel" or version == "editable":
            return
        root = Path(self.root)
        sys.path.insert(0, str(root))
        from cnllm.registry.read import packed

        folder = Path(mkdtemp(prefix="cnllm-build-"))
        for name in ("providers", "catalogue"):
            file = folder / f"{name}.bin"
            file.write_bytes(packed((root / f"{name}.toml").read_bytes()))
            build_data["force_include"][str(file)] = f"cnllm/{name}.bin"
