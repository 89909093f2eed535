"""The name under which pip installs cnllm: one name in every hint and document, and the other project is noticed."""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest

import cnllm
from cnllm.config import distribution
from docs import status

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
    assert named > 9


def installed(folder: Path, monkeypatch: pytest.MonkeyPatch, direct_url: dict[str, Any] | None) -> None:
    """Let a folder hold what pip records of an installation of this package."""
    info = folder / f"cnllm_client-{cnllm.__version__}.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: cnllm-client\nVersion: {cnllm.__version__}\n")
    if direct_url is not None:
        (info / "direct_url.json").write_text(json.dumps(direct_url), encoding="utf-8")
    monkeypatch.syspath_prepend(folder)


def test_a_hint_installs_from_where_this_copy_came_until_there_is_a_release(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    checkout, wheel = tmp_path / "it's here", tmp_path / "cnllm_client-0.1.0-py3-none-any.whl"
    checkout.mkdir()
    (checkout / "pyproject.toml").touch()
    wheel.touch()
    git = {"url": "https://git.example/c.git", "vcs_info": {"vcs": "git", "commit_id": "c0ffee"}}
    cases: list[tuple[dict[str, Any] | None, list[str]]] = [
        ({"url": checkout.as_uri(), "dir_info": {}}, [f"{checkout}[mcp]"]),
        ({"url": checkout.as_uri(), "dir_info": {"editable": True}}, ["-e", f"{checkout}[mcp]"]),
        ({"url": wheel.as_uri(), "archive_info": {}}, [f"{wheel}[mcp]"]),
        ({"url": (tmp_path / "gone").as_uri(), "dir_info": {}}, [".[mcp]"]),
        (git, ["cnllm-client[mcp] @ git+https://git.example/c.git@c0ffee"]),
        ({**git, "subdirectory": "py"}, ["cnllm-client[mcp] @ git+https://git.example/c.git@c0ffee#subdirectory=py"]),
        (None, [f"{TOP}[mcp]"]),
    ]
    for number, (direct_url, words) in enumerate(cases):
        installed(tmp_path / str(number), monkeypatch, direct_url)
        monkeypatch.setattr(distribution, "RELEASED", False)
        command = distribution.install_command("mcp")
        assert shlex.split(command, comments=True) == ["pip", "install", *words]
        monkeypatch.setattr(distribution, "RELEASED", True)
        assert distribution.install_command("mcp") == "pip install 'cnllm-client[mcp]'"
        assert distribution.install_command() == "pip install cnllm-client"


@pytest.mark.parametrize("released", [False, True])
def test_pages_install_what_can_be_installed(released: bool) -> None:
    by_name, by_folder = re.compile(r"pip install '?cnllm-client"), re.compile(r"pip install (?:'\.\[(?!dev)|\.[\s`])")
    for path in status.PAGES:
        text = status.current(path, released=released)
        assert (by_name if released else by_folder).search(text), path
        assert not (by_folder if released else by_name).search(text), path
        assert released or path.read_text(encoding="utf-8") == text or distribution.RELEASED, "python -m docs.generate"
        assert not released or not re.search("checkout|在源码目录|尚未|not on PyPI", text.partition("## Contrib")[0]), (
            path
        )
    others = [path for path in files() if path.suffix == ".md" and path not in status.PAGES]
    for path in others:
        text = path.read_text(encoding="utf-8")
        assert path.name in ("CHANGELOG.md", "release.md") or (
            not by_name.search(text) and "cnllm-client[" not in text
        ), path


def test_readme_says_how_finished_cnllm_is() -> None:
    for name in ("README.md", "README.zh-CN.md"):
        second = (TOP / name).read_text(encoding="utf-8").split("\n\n")[2]
        assert re.match(r"<!-- status -->\n\*\*.*(alpha|Alpha).*PyPI", second), name
        assert 90 < sum(int(share) for share in re.findall(r"(\d+) ?%", second)) < 105
        for word in ("cnllm logs path", "cnllm logs off", "roadmap.md", "stability.md"):
            assert word in second.lower()


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
    assert "pip uninstall cnllm, then: pip install --force-reinstall --no-deps " in error
    assert len(error.splitlines()) == 2
    status, out, error = run("call", "--model", "glm-4.7", "--simulate", "--no-log", "hi", path=tmp_path)
    assert (status, "another project" in error) == (0, False)  # only where somebody asks


@pytest.mark.parametrize("is_installed", [True, False])
def test_the_command_sends_nothing_where_another_project_replaced_the_package(
    tmp_path: Path, is_installed: bool
) -> None:
    """The other project was installed after ours: `__init__.py` is its own, and all other files are ours."""
    package = tmp_path / "cnllm"
    package.mkdir()
    for path in (TOP / "cnllm").iterdir():
        if path.name not in ("__init__.py", "__pycache__"):
            (package / path.name).symlink_to(path)
    for name in ("providers.toml", "catalogue.toml"):
        (tmp_path / name).symlink_to(TOP / name)
    (package / "__init__.py").write_text(f"__version__ = {cnllm.__version__!r}\n", encoding="utf-8")
    if is_installed:
        other_project(tmp_path)
    status, out, error = run("call", "--model", "glm-4.7", "--simulate", "hi", path=tmp_path)
    assert (status, out, len(error.splitlines())) == (2, "", 2), error
    assert "cnllm/__init__.py belongs to another project" in error
    assert ("cnllm 0.9.10" in error) is is_installed
    assert "pip install --force-reinstall --no-deps" in error
    status, out, error = run("--version", path=tmp_path)
    assert (status, out) == (0, f"cnllm {cnllm.__version__}\n")


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
    expected = "belongs to another project" if first_line is not None else "cnllm/__init__.py is missing"
    assert expected in error
    assert "pip install --force-reinstall --no-deps " in error
    assert ("cnllm 0.9.10 of another project" in error) is is_installed
    assert "bug" not in error


def test_a_missing_dependency_names_what_brings_it(tmp_path: Path) -> None:
    (tmp_path / "cnllm").symlink_to(TOP / "cnllm")
    (tmp_path / "click").mkdir()
    (tmp_path / "click" / "__init__.py").write_text("raise ModuleNotFoundError('No module named click', name='click')")
    status, out, error = run("--version", path=tmp_path)
    assert (status, out) == (2, "")
    assert "No module named click" in error
    assert "pip install " in error


def test_an_import_looks_for_no_other_project() -> None:
    code = "import sys, cnllm; cnllm.Client; import cnllm.cli.app; print('importlib.metadata' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "False\n", done.stderr
