"""The interpreters of the peers: `.bench-venv`, and one environment more for each optional peer."""

import subprocess
import sys
import venv
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
HOME = ROOT / ".bench-venv"
BASICS = ["openai", "anthropic", "google-genai", "orjson", "httpx", "httptools", "msgspec", "click"]
OPTIONAL = {"litellm": "litellm[proxy]"}  # litellm alone cannot send tools


def binary(name: str = "python", peer: str = "") -> Path:
    """A program of the environment of `peer`, or of the basic one."""
    return (HOME / "peers" / peer if peer in OPTIONAL else HOME) / "bin" / name


def setup(optional: bool) -> int:
    """Makes the environments from the package index that pip is set to; cnllm is installed editable."""
    _make(HOME, *BASICS)
    (HOME / ".gitignore").write_text("*\n")
    for name, wanted in OPTIONAL.items() if optional else ():
        _make(HOME / "peers" / name, wanted)
    _make(HOME, "-e", str(ROOT))
    print(f"ready: {versions()}")
    return 0


def _make(where: Path, *wanted: str) -> None:
    python = where / "bin" / "python"
    if not python.exists():
        venv.create(where, with_pip=True, symlinks=True)
    command: list[str | Path] = [python, "-m", "pip", "install", "--quiet", "--upgrade", *wanted]
    if subprocess.run(command, check=False).returncode:
        sys.exit(f"could not install {' '.join(wanted)}")


def versions() -> str:
    """What is measured, for the head of the report."""
    code = "import importlib.metadata as m, sys; print(', '.join(n + ' ' + m.version(n) for n in sys.argv[1:]))"
    command: list[str | Path] = [binary(), "-c", code, "cnllm", *BASICS]
    return subprocess.run(command, capture_output=True, text=True, check=False).stdout.strip() or "versions unknown"
