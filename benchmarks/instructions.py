"""Count the instructions of a task, which do not depend on what else the machine does.

valgrind runs the program (`--tool=cachegrind`, without caches). Start and warm-up cancel out: the same worker runs
twice, with different numbers of calls, and the difference is divided by the difference of the calls. Times of a busy
machine vary twofold; these numbers by less than one in a hundred. They say nothing about waiting for memory.
"""

import re
import shutil
import subprocess
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from benchmarks.payloads import Setting
from benchmarks.peers import PEERS
from benchmarks.processes import PATIENCE, Command, environment, use_every_core, worker_command
from benchmarks.venvs import ROOT

_TOTAL = re.compile(r"I +refs: +([\d,]+)")
_FEW = 5  # calls of the shorter run: enough for what is made at the first ones


def is_available() -> bool:
    """Whether valgrind is installed."""
    return shutil.which("valgrind") is not None


def count_calls(peer: str, task: str, setting: Setting, home: Path, calls: int) -> float | None:
    """Return the instructions of one call of a peer's task; None where valgrind cannot run it."""
    command = worker_command(PEERS[peer], task, setting)
    with ThreadPoolExecutor(2) as pool:
        few, many = (pool.submit(_count, command, home, PEERS[peer].transport, f"{n}\n") for n in (_FEW, _FEW + calls))
        low, high = few.result(), many.result()
    return None if low is None or high is None else (high - low) / calls


def count_process(command: Command, home: Path, transport: str) -> float | None:
    """Return the instructions of a whole process, its children not among them."""
    return _count(command, home, transport, "", cwd=home)


def _count(command: Sequence[str | Path], home: Path, transport: str, lines: str, cwd: Path = ROOT) -> int | None:
    tool = ["valgrind", "--tool=cachegrind", "--cache-sim=no", "--cachegrind-out-file=/dev/null"]
    env = environment(home, transport) | {"PYTHONHASHSEED": "0", "PYTHONMALLOC": "pymalloc"}
    try:
        done = subprocess.run(
            [*tool, *command],
            cwd=cwd,
            env=env,
            input=lines,
            capture_output=True,
            text=True,
            timeout=10 * PATIENCE,
            check=False,
            preexec_fn=use_every_core,  # instructions do not depend on the core
        )
    except subprocess.TimeoutExpired:
        return None
    found = _TOTAL.search(done.stderr)
    return int(found[1].replace(",", "")) if found and done.returncode == 0 else None
