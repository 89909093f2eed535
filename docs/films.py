"""Record the films of the manual: real commands at a terminal, against the simulator on this machine.

    python -m docs.films                 record those that can be recorded here
    python -m docs.films cut launch      record these
    python -m docs.films --check cut     exit with 1 if the commands print something else today

A recording is `docs/static/NAME.cast`; `python -m docs.generate` draws `NAME-light.svg` and `NAME-dark.svg` from it. A
file whose last picture is the same but for seconds, rates and ports stays as it is. `launch` needs Claude Code on the
path, or in the folder that `CNLLM_CLIENTS` names.
"""

from __future__ import annotations

import codecs
import os
import re
import select
import shutil
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import msgspec

from docs.generate import film
from docs.generate.builtin import registry
from docs.generate.terminal import environment

__all__ = ["FILMS", "Film", "main", "missing", "record", "same", "settings"]

_TYPING, _LETTERS = 0.1, 3  # seconds for so many letters of a command
_READ, _IDLE = 0.6, 0.8  # seconds before a command starts, and the longest that nothing moves
WIDTH, _ROWS = 100, 60  # of the terminal: no film scrolls


class Film(msgspec.Struct, frozen=True):
    """The commands of a film. `fault` is what the simulator does wrong; `program` is what has to be installed."""

    title: str
    commands: tuple[str, ...]
    files: Mapping[str, str] = {}
    fault: str = ""
    pace: float = 0.06
    program: str | None = None
    statuses: tuple[int, ...] = ()


FILMS = {
    "cut": Film(
        "A stream that breaks off is an error, and half a tool call is not run; the next answer is whole",
        (
            "# a simulated endpoint ends its first replies half-way",
            'cnllm -m zai/glm-4.7 --reasoning off "Why is the sky blue?"; echo "status: $?"',
            'cnllm -m zai/glm-4.7 --reasoning off --tool calc "17 * 23"',
            'cnllm -m zai/glm-4.7 --reasoning off "Why is the sky blue?"',
        ),
        fault="cut;times=3",
        statuses=(0, 0, 3, 0),
    ),
    "capped-batch": Film(
        "A batch stops before it costs more than its cap; with a higher cap it goes on where it was",
        (
            "cnllm batch in.csv -m zai/glm-4.7 -o out.jsonl --max-tokens 100 --concurrency 1 --max-cost 0.001",
            "cnllm batch in.csv -m zai/glm-4.7 -o out.jsonl --max-tokens 100 --concurrency 1 --max-cost 1",
        ),
        {"in.csv": "prompt\n" + "".join(f"What is {number} * {number}?\n" for number in range(1, 21))},
        fault="slow=0.1",
        statuses=(3, 0),
    ),
    "launch": Film(
        "Claude Code runs with the simulator as its model, and lists the files of a folder",
        ("cnllm launch claude --model glm-4.7 --simulate -- -p 'List the files of this folder'",),
        {"README.md": "# A project\n", "main.py": "print('Hi')\n"},
        program="claude",
    ),
}


def missing(name: str) -> str | None:
    """Return the program that a film needs and that is not installed."""
    program = FILMS[name].program
    return None if program is None or shutil.which(program, path=_path()) else program


def same(one: str, other: str) -> bool:
    """Whether two recordings end with the same window, but for seconds, rates and ports."""
    return _without_numbers(film.screen(film.parse(one))) == _without_numbers(film.screen(film.parse(other)))


def _without_numbers(text: str) -> str:
    return re.sub(r"\d+(\.\d+)? ?(s\b|rows/s|tokens/s|tok/s)|(?<=127\.0\.0\.1:)\d+", "", text)


def record(name: str) -> str:
    """Run the commands of a film and return the recording. Raises `RuntimeError` where one of them fails."""
    scene = FILMS[name]
    pieces: list[tuple[float, str]] = []
    now = 0.0
    with _place(scene) as (folder, env):
        for number, command in enumerate(scene.commands):
            typed = f"\r\n$ {command}" if number and command[0] != "#" else f"$ {command}"
            for at in range(0, len(command), _LETTERS):
                lead = typed[: len(typed) - len(command)] + "\x1b[1m" if at == 0 else "\x1b[1m"
                pieces.append((now, f"{lead}{command[at : at + _LETTERS]}\x1b[0m"))
                now += _TYPING
            pieces.append((now, "\r\n"))
            now += _READ
            status, output = _run(command, folder, env)
            if status != (scene.statuses[number] if scene.statuses else 0):
                raise RuntimeError(f"{command}: exit status {status}: {''.join(text for _, text in output)}")
            before = 0.0
            for at_second, text in output:
                now += min(at_second - before, _IDLE)
                before = at_second
                pieces.append((now, text))
            now += _READ
    header = {"version": 2, "width": WIDTH, "height": _height(pieces), "title": scene.title}
    rows = [header, *([round(when, 2), "o", text] for when, text in pieces)]
    return "".join(msgspec.json.encode(row).decode() + "\n" for row in rows)


def _height(pieces: list[tuple[float, str]]) -> int:
    recording = film.Recording(WIDTH, _ROWS, "", tuple(pieces))
    return film.screen(recording).count("\n") + 2


@contextmanager
def _place(scene: Film) -> Iterator[tuple[Path, dict[str, str]]]:
    """Give a folder with the files of a film, and variables that lead a command to the simulator."""
    from cnllm.simulator.server import running

    if scene.program:
        home = Path(tempfile.gettempdir(), "cnllm-film")  # `launch` prints it: the same name each time
        home.mkdir(mode=0o700)
    else:
        home = Path(tempfile.mkdtemp())
    try:
        folder, programs = home / "project", home / "programs"
        folder.mkdir()
        programs.mkdir()
        for name, text in scene.files.items():
            (folder / name).write_text(text, encoding="utf-8")
        env = environment(programs)
        env |= {"HOME": str(home), "PATH": os.pathsep.join((str(programs), _path()))}
        env |= {f"CNLLM_{name}_DIR": str(home / name.lower()) for name in ("CONFIG", "CACHE", "DATA")}
        if scene.program:
            yield folder, env
            return
        with running(registry(), pace=scene.pace) as server:
            config = home / "config" / "providers.toml"
            config.parent.mkdir()
            config.write_text(settings(scene, server.url), encoding="utf-8")
            env["ZAI_API_KEY"] = "any-text-does"
            status, output = _run(f"cnllm registry trust {config}", folder, env)
            if status:
                raise RuntimeError(f"the simulator cannot be used: {output}")
            yield folder, env
    finally:
        shutil.rmtree(home)


def settings(scene: Film, url: str) -> str:
    """Return a registry file that leads the models of a film to a simulator at this address, with the film's fault."""
    return f'[providers.zai]\nbase_url = "{url}/zai"\nheaders = {{ x-cnllm-fault = "{scene.fault}" }}\n'


def _path() -> str:
    clients = os.environ.get("CNLLM_CLIENTS", "").split(os.pathsep)
    folders = [os.path.join(folder, "node_modules", ".bin") for folder in clients if folder]
    return os.pathsep.join((*folders, os.environ.get("PATH", os.defpath)))


def _run(command: str, folder: Path, env: Mapping[str, str]) -> tuple[int, list[tuple[float, str]]]:
    """Run a command at a terminal and return its status, and what it wrote after so many seconds."""
    import pexpect

    child = pexpect.spawn("/bin/sh", ["-c", command], env=dict(env), cwd=str(folder), dimensions=(_ROWS, WIDTH))
    decoder, output, start = codecs.getincrementaldecoder("utf-8")(), [], time.monotonic()
    while True:
        select.select([child.child_fd], [], [], 120)
        try:
            data = os.read(child.child_fd, 65536)
        except OSError:  # Linux: the program has ended
            break
        if not data:
            break
        output.append((time.monotonic() - start, decoder.decode(data)))
    child.close()
    return int(child.exitstatus or 0), output


def main(arguments: list[str]) -> int:
    """Record the films, or check them. Return the exit status."""
    check = "--check" in arguments
    names = [name for name in arguments if name != "--check"] or list(FILMS)
    if unknown := [name for name in names if name not in FILMS]:
        print(f"no such film: {', '.join(unknown)}; there are {', '.join(FILMS)}", file=sys.stderr)
        return 2
    old = 0
    for name in names:
        if program := missing(name):
            print(f"{name}: {program} is not installed: not recorded")
            continue
        path = film.FOLDER / f"{name}.cast"
        recorded = record(name)
        if path.is_file() and same(path.read_text(encoding="utf-8"), recorded):
            continue
        old = 1
        if check:
            print(f"{name} is out of date: python -m docs.films {name} && python -m docs.generate")
            continue
        path.write_text(recorded, encoding="utf-8")
        print(f"{name} written")
    return old if check else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
