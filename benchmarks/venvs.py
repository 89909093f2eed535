"""The interpreters of the peers: an environment for each under `.bench-venv`, with pinned versions.

`setup` installs what `pins/` says, so that another machine measures the same releases; `setup --latest` takes the
newest ones and writes `pins/` anew.
"""

import json
import shutil
import subprocess
import sys
import venv
from pathlib import Path

from cnllm.config.distribution import NAME

ROOT = Path(__file__).resolve().parent.parent
HOME = ROOT / ".bench-venv"
PINS = Path(__file__).with_name("pins")
WANTED = {
    "base": [
        NAME,
        "orjson",
        "httpx",
        "httpx2",
        "httptools",
        "uvloop",
        "aiohttp",
        "msgspec",
        "click",
        "jsonschema",
        "pydantic",
        "prometheus-client",
        "uvicorn",
        "cryptography",
    ],
    "openai": ["openai"],
    "anthropic": ["anthropic"],
    "google-genai": ["google-genai"],
    "pydantic-ai": ["pydantic-ai-slim[openai]"],
    "any-llm": ["any-llm-sdk[openai]"],
    "litellm": ["litellm[proxy]"],  # litellm alone cannot send tools
}
"""What each environment is for; cnllm-client is this checkout, editable."""


NODE = {"portkey": "@portkey-ai/gateway"}
"""Packages of npm's, each in an environment of its own; left out where there is no npm."""


def binary(name: str = "python", env: str = "base") -> Path:
    """Return the path of a program of an environment."""
    return HOME / env / "bin" / name


def setup(latest: bool) -> int:
    """Make the environments from the package index that pip is set to. End the program where one fails."""
    HOME.mkdir(exist_ok=True)
    (HOME / ".gitignore").write_text("*\n")
    PINS.mkdir(exist_ok=True)
    for env, wanted in WANTED.items():
        print(f"{env} …", file=sys.stderr, flush=True)
        if not binary(env=env).exists():
            venv.create(HOME / env, with_pip=True, symlinks=True)
        pins, own = PINS / f"{env}.txt", ["-e", str(ROOT)] if NAME in wanted else []
        if latest or not pins.exists():
            _pip(env, "install", "--quiet", "--upgrade", *(name for name in wanted if name != NAME), *own)
            frozen = _pip(env, "freeze", "--exclude-editable")
            pins.write_text("".join(f"{line}\n" for line in frozen.splitlines() if "==" in line))
        else:
            _pip(env, "install", "--quiet", "-r", str(pins), *own)
    for env, package in NODE.items():
        if npm := shutil.which("npm"):
            print(f"{env} …", file=sys.stderr, flush=True)
            _npm(npm, env, package, latest)
        else:
            print(f"{env}: there is no npm; it is left out", file=sys.stderr)
    for env, seen in versions():
        print(f"{env}: {', '.join(seen)}")
    return 0


def _pip(env: str, *arguments: str) -> str:
    done = subprocess.run([binary(env=env), "-m", "pip", *arguments], stdout=subprocess.PIPE, text=True, check=False)
    if done.returncode:
        sys.exit(
            f"{env}: pip could not {' '.join(arguments)}; `setup --latest` takes other versions than the pinned ones"
        )
    return done.stdout


def _npm(npm: str, env: str, package: str, latest: bool) -> None:
    """Install a package of npm's, without its scripts. Ends the program where that fails."""
    pins, home = PINS / f"{env}.txt", HOME / env
    wanted = f"{package}@latest" if latest or not pins.exists() else pins.read_text().strip()
    home.mkdir(exist_ok=True)
    arguments = ["install", "--prefix", str(home), "--ignore-scripts", "--no-audit", "--no-fund", "--silent", wanted]
    if subprocess.run([npm, *arguments], check=False).returncode:
        sys.exit(f"{env}: npm could not {' '.join(arguments)}")
    pins.write_text(f"{package}@{_node_version(env, package)}\n")


def _node_version(env: str, package: str) -> str:
    """Return the version of an installed package of npm's."""
    description = (HOME / env / "node_modules" / package / "package.json").read_text(encoding="utf-8")
    return str(json.loads(description)["version"])


def versions() -> tuple[tuple[str, tuple[str, ...]], ...]:
    """Return the packages of each environment that is there, as far as they are its purpose."""
    code = "import importlib.metadata as m, json, sys; print(json.dumps([f'{n} {m.version(n)}' for n in sys.argv[1:]]))"
    found = []
    for env, wanted in WANTED.items():
        names = [name.partition("[")[0] for name in wanted]
        if binary(env=env).exists():
            command: list[str | Path] = [binary(env=env), "-c", code, *names]
            done = subprocess.run(command, capture_output=True, text=True, check=False)
            found.append((env, tuple(json.loads(done.stdout)) if done.returncode == 0 else ("versions unknown",)))
    for env, package in NODE.items():
        if (HOME / env / "node_modules" / package).exists():
            found.append((env, (f"{package} {_node_version(env, package)}",)))
    return tuple(found)
