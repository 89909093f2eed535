"""Processes that write conversations into one file, and are killed in the middle of it, again and again.

    python -m fuzz.killed [--writers 8] [--seconds 300]

A writer says the name of a turn once the store has said that it is finished. Whatever was said has to be in the file
afterwards, whole, and the file has to be sound.
"""

from __future__ import annotations

import argparse
import contextlib
import random
import sqlite3
import subprocess
import sys
import tempfile
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO

import cnllm
from cnllm import Client, CnllmError
from cnllm.store import Store

from .models import registry

__all__ = ["Told", "killed"]

_MODEL = "zai/glm-4.7"
_ROOT = Path(__file__).resolve().parent.parent


@dataclass
class Told:
    """The outcome. `said` are the turns that were said to be finished; `wrong` holds what must not be, in words."""

    said: list[str] = field(default_factory=list)
    kept: Counter[str] = field(default_factory=Counter)
    kills: int = 0
    checks: int = 0
    refused: int = 0
    wrong: list[str] = field(default_factory=list)


# ── one writer ───────────────────────────────────────────────────────────────
def write(path: str, name: str) -> None:
    """Write turns without end, in new conversations and in the last one, no matter which process began it."""
    dice, number = random.Random(name), 0
    with Store.open(path) as store, Client(registry(), simulate=True) as client:
        while True:
            said = f"{name}-{number}"
            number += 1
            try:
                old = dice.random() < 0.5 and number > 1
                conversation = store.conversation("last" if old else None)
                asked = cnllm.Message("user", [cnllm.Text(f"number {said}.")])
                with conversation.turn([asked], model=_MODEL) as turn:
                    turn.exchange({"request": "x" * dice.choice((10, 3000))})
                    turn.finish(client.call(_MODEL, [asked]))
            except CnllmError as error:  # held by another for too long: it was told, so nothing is claimed
                print(f"! {error}", flush=True)
                continue
            print(said, flush=True)


# ── those who kill them ──────────────────────────────────────────────────────
def sound(path: Path, told: Told) -> None:
    """Check that the file is not corrupt, as SQLite itself sees it."""
    told.checks += 1
    with contextlib.closing(sqlite3.connect(path, timeout=60)) as raw:
        for pragma, fine in (("integrity_check", [("ok",)]), ("foreign_key_check", [])):
            found = raw.execute(f"PRAGMA {pragma}").fetchall()
            if found != fine:
                told.wrong.append(f"{pragma}: {found[:3]}")


def begun(folder: Path, path: Path, name: str) -> tuple[subprocess.Popen[bytes], IO[bytes]]:
    """Start a writer, and return it with the file that it writes to."""
    out = (folder / f"{name}.out").open("wb")
    command = [sys.executable, "-m", "fuzz.killed", "--write", str(path), name]
    return subprocess.Popen(command, stdout=out, cwd=_ROOT), out


def killed(folder: Path, writers: int, seconds: float, kills: int = 0, seed: int = 0) -> Told:
    """Kill writers at random for so long, and at least so many times; then read the file."""
    told, dice, path = Told(), random.Random(seed), folder / "conversations.db"
    running, names = [], iter(range(1_000_000))
    began = checked = time.monotonic()
    for _ in range(writers):
        running.append(begun(folder, path, f"w{next(names)}"))
    while told.kills < kills or time.monotonic() - began < seconds:
        at = dice.randrange(writers)
        process, out = running[at]
        wanted, end = dice.randint(1, 40), time.monotonic() + 30
        while Path(out.name).stat().st_size < 5 * wanted and process.poll() is None and time.monotonic() < end:
            time.sleep(0.002 + dice.random() / 100)  # it is to die within a turn, wherever in it that is
        if process.poll() is not None:
            told.wrong.append(f"a writer ended by itself: {process.returncode}")
        process.kill()
        process.wait()
        out.close()
        told.kills += 1
        running[at] = begun(folder, path, f"w{next(names)}")
        if time.monotonic() - checked > 30:
            sound(path, told)
            checked = time.monotonic()
    for process, out in running:
        process.kill()
        process.wait()
        out.close()
    for file in folder.glob("*.out"):
        lines = [line for line in file.read_text().splitlines(keepends=True) if line.endswith("\n")]
        told.refused += sum(line.startswith("!") for line in lines)
        told.said += [line.strip() for line in lines if not line.startswith("!")]
    sound(path, told)
    _read(path, told)
    return told


def _read(path: Path, told: Told) -> None:
    """Compare the content of the file with the turns that were said to be finished."""
    done: Counter[str] = Counter()
    with Store.open(path) as store:
        for recorded in store.records(exchanges=True):
            for turn in recorded.turns:
                told.kept[turn.state] += 1
                question = str(turn.messages[0]["content"])
                name = question.removeprefix("number ").removesuffix(".")
                if turn.state == "done":
                    done[name] += 1
                    answer = str(turn.messages[-1]["content"])
                    if len(turn.messages) != 2 or question not in answer or len(turn.exchanges) != 1:
                        told.wrong.append(f"{name} is not whole: {turn.messages}")
                elif len(turn.messages) != 1 or turn.exchanges:
                    told.wrong.append(f"{name} is {turn.state}, and half of its answer is there")
    told.wrong += [f"{name} was said to be finished, and is not there" for name in told.said if not done[name]]
    told.wrong += [f"{name} is there {count} times" for name, count in done.items() if count > 1]


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="python -m fuzz.killed", description="the store under writers that are killed"
    )
    parser.add_argument("--writers", type=int, default=8)
    parser.add_argument("--seconds", type=float, default=300)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--write", nargs=2, metavar=("FILE", "NAME"), help=argparse.SUPPRESS)
    asked = parser.parse_args()
    if asked.write:
        write(*asked.write)
    with tempfile.TemporaryDirectory() as folder:
        told = killed(Path(folder), asked.writers, asked.seconds, seed=asked.seed)
        size = (Path(folder) / "conversations.db").stat().st_size
    print(f"{told.kills} kills of {asked.writers} writers, {told.checks} checks of a file that grew to {size} bytes")
    print(f"{len(told.said)} turns were said to be finished, {told.refused} were refused; kept: {dict(told.kept)}")
    for said in told.wrong[:20]:
        print(f"  {said[:400]}")
    print(f"{len(told.wrong)} wrong")
    return 1 if told.wrong else 0


if __name__ == "__main__":
    sys.exit(main())
