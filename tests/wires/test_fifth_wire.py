"""A wire is one folder and one registration: copies of every wire work in a copy of the package."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import msgspec
import pytest
from builtin import written

from cnllm.protocols import _MODULES

ROOT = Path(__file__).parents[2]
PROGRAM = Path(__file__).with_name("fifth_wire.py")


@pytest.mark.long
def test_a_copied_folder_one_line_and_toml_are_a_wire(tmp_path: Path) -> None:
    package = tmp_path / "cnllm"
    shutil.copytree(ROOT / "cnllm", package)  # with what is compiled already
    for name in ("providers.toml", "catalogue.toml"):
        shutil.copy(ROOT / name, tmp_path)
    for protocol, folder in _MODULES.items():
        copy_wire(package / "protocols", protocol, folder)
    overlay = tmp_path / "overlay.toml"
    overlay.write_bytes(msgspec.toml.encode(described(written()["protocols"])))
    env = {**os.environ, "PYTHONPATH": str(tmp_path), "HOME": str(tmp_path), "CNLLM_CONFIG_DIR": str(tmp_path / "none")}
    done = subprocess.run(
        [sys.executable, str(PROGRAM), str(overlay), *_MODULES], env=env, cwd=tmp_path, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.split() == list(_MODULES)


def copy_wire(protocols: Path, protocol: str, folder: str) -> None:
    """Copy a wire's folder under a new name, give it paths of its own, and register it."""
    copied = protocols / f"copied_{folder}"
    shutil.copytree(protocols / folder, copied)
    for path in copied.glob("*.py"):
        text = path.read_text().replace(f"cnllm.protocols.{folder}", f"cnllm.protocols.copied_{folder}")
        text = re.sub(rf'"{re.escape(protocol)}"', f'"copied-{protocol}"', text)
        if path.name == "server.py":
            text = re.sub(r'"/(?=[^"]*(?:completions|messages|responses|models))', '"/copied/', text)
        path.write_text(text)
    registration = protocols / "__init__.py"
    line = f'_MODULES = {{\n    "copied-{protocol}": "copied_{folder}",'
    registration.write_text(registration.read_text().replace("_MODULES = {", line, 1))


def described(builtin: dict[str, Any]) -> dict[str, Any]:
    """Return an overlay: the flags of every wire under the copy's name, and an endpoint over it and the original."""
    out: dict[str, Any] = {"protocols": {}, "providers": {}, "models": {}}
    for protocol, table in builtin.items():
        out["protocols"][f"copied-{protocol}"] = table
        for name, over in ((f"first-{protocol}", protocol), (f"second-{protocol}", f"copied-{protocol}")):
            out["providers"][name] = {
                "title": name,
                "protocol": over,
                "base_url": "http://127.0.0.1:9/base",
                "keys": [],
                "reasoning": {"mode": "toggle", "default": "on"} | ({} if "openai-chat" in over else {"shape": "seal"}),
            }
            out["models"][f"{name}/m"] = {"limits": {"context": 100_000, "output": 9000}}
    return out
