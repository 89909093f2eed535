"""The parsed registry that a wheel carries: used for its own text alone, and never needed."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import cnllm
from cnllm.registry import read as reading
from cnllm.registry.documents import parse
from cnllm.registry.read import builtin_path, packed, read

from .support import forget_builtin

TEXT = b'[providers.p]\nprotocol = "openai-chat"\nbase_url = "https://p.test/v1"\n[models."p/m"]\ntitle = "M"\n'


@pytest.fixture
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A built-in file with its parsed form, and an empty cache."""
    monkeypatch.setenv("CNLLM_CACHE_DIR", str(tmp_path / "cache"))
    forget_builtin(monkeypatch)
    path = tmp_path / "providers.toml"
    path.write_bytes(TEXT)
    path.with_suffix(".bin").write_bytes(packed(TEXT))
    return path


def test_the_shipped_data_is_the_data_of_the_text(file: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(reading, "parse", lambda *args: pytest.fail("parsed again"))
    data = read(file, builtin=True).data
    assert {key: dict(table) for key, table in data.items()} == parse(TEXT, "providers.toml")
    assert not (tmp_path / "cache").exists()


def test_shipped_data_of_another_text_or_damaged_is_not_used(file: Path) -> None:
    shipped = file.with_suffix(".bin")
    whole = shipped.read_bytes()
    file.write_bytes(TEXT.replace(b'"M"', b'"N"'))
    assert read(file, builtin=True).data["models"]["p/m"]["title"] == "N"
    file.write_bytes(TEXT)
    for damaged in (b"", whole[:40], whole[:-1], whole + b"x", whole[:-3] + b"???", b"\0" + whole[1:]):
        shipped.write_bytes(damaged)
        assert read(file, builtin=True).data["models"]["p/m"]["title"] == "M", damaged
    shipped.unlink()
    assert read(file, builtin=True).data["models"]["p/m"]["title"] == "M"


def test_a_file_of_the_user_never_has_shipped_data(file: Path) -> None:
    shipped = file.with_suffix(".bin")
    shipped.write_bytes(packed(TEXT.replace(b'"M"', b'"other"')))
    assert read(file).data["models"]["p/m"]["title"] == "M"


def test_an_installed_package_starts_without_parsing(tmp_path: Path) -> None:
    """The package as a wheel lays it out, with an empty home: no TOML is parsed, and no cache is written."""
    package = tmp_path / "site" / "cnllm"
    shutil.copytree(Path(cnllm.__file__).parent, package, ignore=shutil.ignore_patterns("__pycache__"))
    text = builtin_path().read_bytes()
    (package / "providers.toml").write_bytes(text)
    (package / "providers.bin").write_bytes(packed(text))
    code = (
        "import cnllm, sys; names = cnllm.Registry.load().names();"
        "assert cnllm.__file__.startswith(sys.argv[1]), cnllm.__file__;"
        "print(len(names), 'tomllib' in sys.modules)"
    )
    measured = ("COVERAGE_PROCESS_START", "COVERAGE_PROCESS_CONFIG")  # coverage would import tomllib in the program
    rest = {name: value for name, value in os.environ.items() if name not in measured}
    environment = {**rest, "PYTHONPATH": str(tmp_path / "site"), "CNLLM_CACHE_DIR": str(tmp_path / "cache")}
    done = subprocess.run(
        [sys.executable, "-c", code, str(tmp_path)], env=environment, cwd=tmp_path, capture_output=True, text=True
    )
    assert done.stdout.split() == [str(len(cnllm.Registry.load().names())), "False"], done.stderr
    assert not (tmp_path / "cache").exists()
