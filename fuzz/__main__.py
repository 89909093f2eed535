"""`python -m fuzz TARGET [--seconds N] [--seeds FOLDER]… [--out FOLDER]`, `python -m fuzz TARGET --replay FILE…`

The search needs atheris (`pip install atheris`, into an environment that has cnllm). What it finds is kept, made
shorter, and named; the exit status is 1 when there is anything.
"""

from __future__ import annotations

import argparse
import importlib.util
import re
import subprocess
import sys
import time
from pathlib import Path

from .shrink import shrunk
from .targets import TARGETS

_SHRINK = 30.0  # seconds for each way to fail


def searched(name: str, seconds: int, seeds: list[str], out: Path) -> int:
    """Run one target for a while; return the number of ways in which it failed."""
    folder = out / name
    began = time.monotonic()
    command = [sys.executable, "-m", "fuzz.search", name, str(folder), str(seconds), *seeds]
    process = subprocess.run(command, stderr=subprocess.PIPE, text=True, errors="replace", check=False)
    spent = time.monotonic() - began
    (folder / "log.txt").write_text(process.stderr, encoding="utf-8")
    done = re.findall(r"#(\d+)\s+\w+\s+cov: (\d+) ft: (\d+) corp: (\d+)", process.stderr)
    runs, cov, features, kept = done[-1] if done else ("?", "?", "?", "?")
    if process.returncode:
        print(f"{name}: ended with {process.returncode}; {folder / 'log.txt'} says why")
    found = sorted((folder / "findings").glob("*.bin"))
    for file in found:
        file.write_bytes(shrunk(TARGETS[name].check, file.read_bytes(), _SHRINK))
    others = [f for f in (folder / "findings").iterdir() if f.suffix not in (".bin", ".txt")]
    print(f"{name}: {runs} runs, {spent:.0f} s, coverage {cov}, features {features}, corpus {kept}", flush=True)
    for file in [*found, *others]:
        print(f"  {file} ({file.stat().st_size} bytes)", flush=True)
    return len(found) + len(others) + bool(process.returncode)


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m fuzz", description="hostile input, guided by coverage")
    parser.add_argument("targets", nargs="+", metavar="TARGET", help=f"all, or any of {', '.join(TARGETS)}")
    parser.add_argument("--seconds", type=int, default=60, help="for each target")
    parser.add_argument("--seeds", action="append", default=[], metavar="FOLDER", help="recordings to begin from, too")
    parser.add_argument("--out", type=Path, default=Path(".fuzz"), help="where inputs gather (.fuzz)")
    parser.add_argument("--replay", nargs="+", type=Path, metavar="FILE", help="only run these inputs")
    asked = parser.parse_args()
    names = list(TARGETS) if asked.targets == ["all"] else asked.targets
    if unknown := set(names) - set(TARGETS):
        parser.error(f"there is no target {', '.join(unknown)}; there are {', '.join(TARGETS)}")
    if asked.replay:
        for name in names:
            for file in asked.replay:
                TARGETS[name].check(file.read_bytes())
        return 0
    if importlib.util.find_spec("atheris") is None:
        parser.error("atheris is not installed here: pip install atheris")
    return 1 if sum(searched(name, asked.seconds, asked.seeds, asked.out) for name in names) else 0


if __name__ == "__main__":
    sys.exit(main())
