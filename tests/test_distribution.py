"""The name under which pip installs cnllm: one name in every hint and document, and the other project is noticed."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

import cnllm
from cnllm.config import distribution

TOP = Path(__file__).parent.parent
ENDINGS = {".py", ".md", ".toml", ".txt", ".yml", ".yaml", ".sh", ".cfg", ".html", ".js", ".conf", ""}
INSTALL = re.compile(
    r"(?:pip3?|pipx|pdm|poetry|uvx|uv|rye|conda|easy_install)['\"]?,?\s+(?:pip\s+)?"
    r"(?:['\"]?(?:install|add|inject|run|--from)['\"]?,?\s+)+(?P<rest>[^\n`)]*)"
)
OURS = re.compile(r"(?<![\w./-])cnllm(?![\w./-])(?:\[[\w,. -]+\])?")
EXTRA = re.compile(r"(?<![\w./-])cnllm\[(?!fast\] \|)\w[\w,]*\]")
PROGRAM = f"""
import sys
sys.path = [path for path in sys.path if path != {str(TOP)!r}]  # as where the package is installed
import cnllm.cli
sys.exit(cnllm.cli.program())
"""


def files() -> list[Path]:
    """The files of the repository that a person or the program shows."""
    folders = [TOP / name for name in ("cnllm", "docs", "deploy", "fuzz", "schemas", ".ci", ".github")]
    found = [path for folder in folders if folder.exists() for path in folder.rglob("*")]
    found += [path for path in TOP.iterdir() if path.is_file()]
    return [path for path in found if path.is_file() and path.suffix in ENDINGS and "__pycache__" not in path.parts]


def wrong_hints(text: str) -> list[str]:
    """The places of a text that tell somebody to install another distribution in cnllm's place."""
    found = [match[0] for match in EXTRA.finditer(text)]
    for match in INSTALL.finditer(text):
        rest = re.split(r"&&|;|\||#|, then", match["rest"])[0]  # a further command may be cnllm itself
        if OURS.search(rest) and "uninstall" not in match[0]:
            found.append(match[0])
    return found


def test_every_hint_and_document_names_the_same_distribution() -> None:
    project = tomllib.loads((TOP / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert project["name"] == distribution.NAME != "cnllm"
    assert project["version"] == cnllm.__version__
    assert project["scripts"] == {"cnllm": "cnllm.cli:program", distribution.NAME: "cnllm.cli:program"}
    extras = project["optional-dependencies"]
    named = 0
    for path in files():
        text = path.read_text(encoding="utf-8", errors="replace")
        if path.name == "CHANGELOG.md":
            continue
        assert wrong_hints(text) == [], path
        for match in re.finditer(rf"{distribution.NAME}\[([\w,]+)\]|install_command\(['\"](\w+)['\"]\)", text):
            named += 1
            assert all(extra in extras for extra in (match[1] or match[2]).split(",")), (path, match[0])
    assert named > 15
    assert distribution.install_command("chat") == f"pip install '{project['name']}[chat]'"


def test_a_wrong_hint_is_found() -> None:
    for wrong in (
        "pip install cnllm",
        "pip install -U 'cnllm[chat]'",
        "`pip3 install --upgrade cnllm`",
        "uv pip install cnllm",
        "uv add cnllm",
        "pipx install cnllm",
        "uvx --from cnllm cnllm call",
        "poetry add cnllm[serve]",
        "hint=\"pip install 'cnllm[serve]'\"",
        "the extra cnllm[fast]",
    ):
        assert wrong_hints(wrong), wrong
    for right in (
        "pip install cnllm-client",
        "pip install 'cnllm-client[chat]'",
        "pip install . && cnllm call hi",
        "pip install -e '.[dev]' && .venv/bin/pytest",
        "pip uninstall cnllm",
        "cnllm keys set",
        "pip install llm",
    ):
        assert not wrong_hints(right), right


def other_project(folder: Path, version: str = "0.9.10") -> None:
    """Another project's distribution of the name cnllm."""
    info = folder / f"cnllm-{version}.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: cnllm\nVersion: {version}\n", encoding="utf-8")
    (info / "RECORD").write_text("cnllm/__init__.py,,\n", encoding="utf-8")


def run(*args: str, path: Path, code: str = PROGRAM) -> tuple[int, str, str]:
    """Run the command with a folder of packages before the others."""
    environment = {**os.environ, "PYTHONPATH": str(path), "CNLLM_CONFIG_DIR": str(path), "CNLLM_CACHE_DIR": str(path)}
    done = subprocess.run(
        [sys.executable, "-c", code, *args], cwd=path, env=environment, capture_output=True, text=True, check=False
    )
    return done.returncode, done.stdout, done.stderr


def test_the_version_tells_of_the_other_project(tmp_path: Path) -> None:
    for name in ("cnllm", "providers.toml", "catalogue.toml"):
        (tmp_path / name).symlink_to(TOP / name)
    status, out, error = run("--version", path=tmp_path)
    assert (status, out, error) == (0, f"cnllm {cnllm.__version__}\n", "")
    other_project(tmp_path)
    status, out, error = run("--version", path=tmp_path)
    assert (status, out) == (0, f"cnllm {cnllm.__version__}\n")
    assert "cnllm 0.9.10 of another project" in error
    assert f"pip uninstall cnllm, then: pip install --force-reinstall --no-deps {distribution.NAME}" in error
    assert len(error.splitlines()) == 2
    status, out, error = run("call", "--model", "glm-4.7", "--simulate", "--no-log", "hi", path=tmp_path)
    assert (status, "another project" in error) == (0, False)  # only where somebody asks


@pytest.mark.parametrize("first_line", ["__version__ = '0.9.10'", "from .entry.client import CNLLM", None])
@pytest.mark.parametrize("is_installed", [True, False])
def test_an_import_that_fails_says_what_is_in_the_way(
    tmp_path: Path, first_line: str | None, is_installed: bool
) -> None:
    """The other project's files lie over ours, or its removal took ours along."""
    package = tmp_path / "cnllm"
    package.mkdir()
    for path in (TOP / "cnllm").iterdir():
        if path.name not in ("__init__.py", "__pycache__", "registry"):
            (package / path.name).symlink_to(path)
    if first_line is not None:
        (package / "__init__.py").write_text(f"{first_line}\n", encoding="utf-8")
        (package / "entry").mkdir()
        (package / "entry" / "client.py").write_text("class CNLLM: ...\n", encoding="utf-8")
    if is_installed:
        other_project(tmp_path)
    status, out, error = run("call", "--simulate", "hi", path=tmp_path)
    assert (status, out) == (2, "")
    assert len(error.splitlines()) == 2, error
    assert "No module named 'cnllm.registry'" in error
    assert f"pip install --force-reinstall --no-deps {distribution.NAME}" in error
    assert ("cnllm 0.9.10 of another project" in error) is is_installed
    assert "bug" not in error


def test_a_missing_dependency_names_what_brings_it(tmp_path: Path) -> None:
    (tmp_path / "cnllm").symlink_to(TOP / "cnllm")
    (tmp_path / "click").mkdir()
    (tmp_path / "click" / "__init__.py").write_text("raise ModuleNotFoundError('No module named click', name='click')")
    status, out, error = run("--version", path=tmp_path)
    assert (status, out) == (2, "")
    assert "No module named click" in error
    assert f"pip install {distribution.NAME}" in error


def test_an_import_looks_for_no_other_project() -> None:
    code = "import sys, cnllm; cnllm.Client; import cnllm.cli.app; print('importlib.metadata' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "False\n", done.stderr
