"""Looks for inputs that break a target's properties, guided by coverage; libFuzzer ends the process it runs in.

    python -m fuzz.search TARGET FOLDER SECONDS [SEEDS_FOLDER…]

The inputs that reach something new gather in FOLDER/corpus, the shortest one of each way to fail in FOLDER/findings.
"""

from __future__ import annotations

import importlib
import random
import sys
import traceback
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec

from .given import HEAD

_SLOW = 60  # seconds after which an input is taken for one that hangs


def failure(error: BaseException) -> str:
    """Name a way to fail: the kind of error, and the line of this project that it came out of."""
    top = Path(__file__).resolve().parent.parent
    frames = [f for f in traceback.extract_tb(error.__traceback__) if Path(f.filename).is_relative_to(top)]
    last = frames[-1]
    said = str(error)[:30] if isinstance(error, AssertionError) else ""
    words = f"{type(error).__name__}-{Path(last.filename).stem}-{last.lineno}-{said}"
    return "".join(c if c.isascii() and c.isalnum() else "-" for c in words).strip("-")


def keep(folder: Path, data: bytes, error: BaseException) -> None:
    """Write an input that failed, unless a shorter one failed in the same way."""
    name = failure(error)
    place = folder / f"{name}.bin"
    if place.exists() and place.stat().st_size <= len(data):
        return
    place.write_bytes(data)
    (folder / f"{name}.txt").write_text("".join(traceback.format_exception(error))[-8000:], encoding="utf-8")


def texts(value: Any) -> Iterator[str]:
    """Yield long texts in a recording: bodies, and texts that models wrote."""
    if isinstance(value, str) and len(value) > 20:
        yield value
    elif isinstance(value, dict | list):
        for inner in value.values() if isinstance(value, dict) else value:
            yield from texts(inner)


def recorded(folders: list[str], longest: int, dice: random.Random) -> list[bytes]:
    """Return texts in the JSON files of these folders, as inputs for any model."""
    files = [file for folder in folders for file in sorted(Path(folder).rglob("*.json"))]
    found = [text for file in files for text in texts(msgspec.json.decode(file.read_bytes()))]
    bodies = [text.encode("utf-8", "replace") for text in found]
    return [dice.randbytes(HEAD) + body for body in bodies if len(body) <= longest]


def main() -> None:
    name, folder, seconds, *folders = sys.argv[1:]
    atheris = importlib.import_module("atheris")
    with atheris.instrument_imports(include=["cnllm"]):
        from .mutate import mutated, rechosen
        from .targets import TARGETS
        from .words import literals
    target = TARGETS[name]
    corpus, findings = Path(folder) / "corpus", Path(folder) / "findings"
    for place in (corpus, findings):
        place.mkdir(parents=True, exist_ok=True)
    seeds = target.seeds() + recorded(folders, target.longest, random.Random(1))
    for number, data in enumerate(seeds):
        (corpus / f"seed-{number:05}").write_bytes(data)
    payloads = [data[HEAD:] for data in seeds]
    words = Path(folder) / "words.dict"
    words.write_text("".join('"' + "".join(f"\\x{byte:02x}" for byte in word) + '"\n' for word in literals()))

    def one(data: bytes) -> None:
        try:
            target.check(data)
        except Exception as error:  # noqa: BLE001 - whatever it is, it is kept and the search goes on
            keep(findings, data, error)

    def mutator(data: bytes, longest: int, seed: int) -> bytes:
        dice = random.Random(seed)
        head, payload = data[:HEAD].ljust(HEAD, b"\0"), data[HEAD:]
        choice = dice.random()
        if choice < 0.15:
            return rechosen(head, dice) + payload
        if choice < 0.75:
            return (head + mutated(payload, target.kind, dice, payloads))[:longest]
        return head + bytes(atheris.Mutate(payload, max(1, longest - HEAD)))

    options = [f"-max_total_time={seconds}", f"-max_len={target.longest}", f"-dict={words}", f"-timeout={_SLOW}"]
    options += ["-print_final_stats=1", "-rss_limit_mb=3000", f"-artifact_prefix={findings}/", "-len_control=0"]
    atheris.Setup([sys.argv[0], *options, str(corpus)], one, custom_mutator=mutator)
    atheris.Fuzz()


if __name__ == "__main__":
    main()
