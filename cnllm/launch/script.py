"""Write the start of a client as a shell script that can be pasted."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from pathlib import Path

from cnllm.launch.setup import ClientFile, Setup

__all__ = ["shell_script"]

_MARK = "CNLLM_FILE"


def shell_script(setup: Setup, serve: Sequence[str], key: str) -> str:
    """Return a script for sh: the gateway in the background, the files, the environment, and the client.

    `serve` is the command line of the gateway, which reads its key from CNLLM_SERVE_KEY. It prints a line when it is
    ready, and `head` waits for that line.
    """
    lines = [
        "# The gateway. It prints its PID and keeps running after the client; stop it with kill PID.",
        f"{{ CNLLM_SERVE_KEY={shlex.quote(key)} {shlex.join(serve)} & }} | head -n 1",
    ]
    for path, file in setup.files.items():
        lines += _file(path, file)
    for name, value in setup.variables.items():
        lines.append(f"unset {name}" if value is None else f"export {name}={shlex.quote(value)}")
    lines.append(shlex.join(setup.command))
    return "\n".join(lines)


def _file(path: Path, file: ClientFile) -> list[str]:
    """Return the lines that write a file."""
    mark, content = _MARK, file.content.splitlines()
    while mark in content:
        mark += "_"
    name = shlex.quote(str(path))
    lines = [f"mkdir -p {shlex.quote(str(path.parent))}"]
    test = f"[ -e {name} ] || " if file.once else ""
    return [*lines, f"{test}cat > {name} <<'{mark}'", *content, mark]
