"""Draw a terminal with commands of cnllm and what they print: a real run with the simulator, as SVG.

`docs/static/terminal-light.svg` and `terminal-dark.svg` differ in their colors alone.
"""

from __future__ import annotations

import os
import re
import shlex
import sys
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory

from docs.generate import window
from docs.generate.colors import DARK, LIGHT, Colors
from docs.generate.terminal_screen import Run, lines

__all__ = ["COMMANDS", "dark", "environment", "light", "same"]

COMMANDS = (
    'cnllm -m glm-4.7 --simulate --temperature 1.5 --tool calc "17 * 23"',
    "cnllm models show glm-4.7 --explain | grep temperature.max",
)
"""What the picture shows, line after line."""

WIDTH = 95
"""The columns of the window."""

_TITLE = "cnllm asks a simulated model that calls a tool, and names the line of the registry behind a change"


def light() -> str:
    """Return the picture for a light page."""
    return _draw(LIGHT)


def dark() -> str:
    """Return the picture for a dark page."""
    return _draw(DARK)


def same(one: str, other: str) -> bool:
    """Whether two pictures differ in nothing but the seconds that a call took."""
    return _without_seconds(one) == _without_seconds(other)


def _without_seconds(picture: str) -> str:
    return re.sub(r"\d+\.\d s to the first token", "", picture)


@cache
def _screen() -> tuple[tuple[Run, ...], ...]:
    """Run the commands and return the lines of the window."""
    shown: list[tuple[Run, ...]] = []
    for number, command in enumerate(COMMANDS):
        prompt = lines(f"$ \x1b[1m{command}", WIDTH)
        shown += [(), *map(tuple, prompt)] if number else map(tuple, prompt)
        shown += map(tuple, lines(_output(command).rstrip(), WIDTH))
    return tuple(shown)


def environment(folder: Path) -> dict[str, str]:
    """Return the variables of a shell that finds `cnllm` and no files or keys of this user."""
    program = folder / "cnllm"
    program.write_text(f'#!/bin/sh\nexec {shlex.quote(sys.executable)} -m cnllm "$@"\n')
    program.chmod(0o755)
    return {
        "HOME": str(folder),
        "LANG": "C.UTF-8",
        "PATH": os.pathsep.join((str(folder), os.defpath)),
        "PYTHONPATH": str(Path(__file__).parents[2]),
        "TERM": "xterm-256color",
        **{f"CNLLM_{name}_DIR": str(folder / name.lower()) for name in ("CONFIG", "CACHE", "DATA")},
    }


def _output(command: str) -> str:
    """Return what a command writes to a terminal, with no files and keys of this user. Raises where it fails."""
    import pexpect

    with TemporaryDirectory() as folder:
        env = environment(Path(folder))
        child = pexpect.spawn("/bin/sh", ["-c", command], env=env, dimensions=(50, WIDTH), encoding="utf-8", timeout=60)
        output = str(child.read())
        child.close()
        if child.exitstatus:
            raise RuntimeError(f"{command}: exit status {child.exitstatus}: {output}")
        return output


def _draw(colors: Colors) -> str:
    screen = _screen()
    texts = [window.text(run, row) for row, runs in enumerate(screen) for run in runs if run.text.strip()]
    return window.svg(_TITLE, WIDTH, len(screen), texts, colors, {run.style for runs in screen for run in runs})
