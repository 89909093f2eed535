"""The keys file: private, atomic, after the environment."""

from __future__ import annotations

import errno
import json
import os
import re
import stat
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from cases import each
from platformdirs import PlatformDirs

from cnllm import Client, Registry
from cnllm.config import keys, paths
from cnllm.errors import CnllmError

KEY = "sk-test-0123456789"


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name in ("A_KEY", "B_KEY"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("CNLLM_CONFIG_DIR", str(tmp_path / "config"))
    return tmp_path / "config"


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def test_set_makes_a_private_file_in_a_private_folder(folder: Path) -> None:
    old = os.umask(0)
    try:
        assert keys.set_key("A_KEY", KEY) == keys.keys_path() == folder / "keys.json"
    finally:
        os.umask(old)
    assert (mode(folder), mode(keys.keys_path())) == (0o700, 0o600)
    assert json.loads(keys.keys_path().read_text()) == {"A_KEY": KEY}
    assert list(folder.iterdir()) == [keys.keys_path()]


def test_set_tightens_a_folder_that_was_there(folder: Path) -> None:
    folder.mkdir(mode=0o755)
    keys.set_key("A_KEY", KEY)
    assert mode(folder) == 0o700


def test_set_leaves_the_mode_of_a_home_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tmp_path.chmod(0o755)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("CNLLM_CONFIG_DIR", str(tmp_path))
    keys.set_key("A_KEY", KEY)
    assert (mode(tmp_path), mode(tmp_path / "keys.json")) == (0o755, 0o600)


def test_set_keeps_the_others_and_replaces_its_own() -> None:
    keys.set_key("B_KEY", "one-one-one")
    keys.set_key("A_KEY", KEY)
    keys.set_key("B_KEY", "  two-two-two\n")
    assert keys.key_names() == ["A_KEY", "B_KEY"]
    assert keys.find_key(["B_KEY"]) == "two-two-two"


def test_set_writes_through_a_link(folder: Path, tmp_path: Path) -> None:
    folder.mkdir(mode=0o700)
    real = tmp_path / "dotfiles" / "keys.json"
    real.parent.mkdir()
    real.write_text("{}")
    keys.keys_path().symlink_to(real)
    keys.set_key("A_KEY", KEY)
    assert keys.keys_path().is_symlink()
    assert json.loads(real.read_text()) == {"A_KEY": KEY}


@each(
    "name, value",
    [("A_KEY", ""), ("A_KEY", " \n"), ("A_KEY", "a b"), ("A_KEY", "schlüssel"), ("A-KEY", "x"), ("", "x")],
)
def test_set_refuses_what_no_header_can_carry(name: str, value: str) -> None:
    with pytest.raises(ValueError):
        keys.set_key(name, value)
    assert not keys.keys_path().exists()


def test_the_environment_goes_first_and_empty_is_absent(monkeypatch: pytest.MonkeyPatch) -> None:
    assert keys.find_key(["A_KEY", "B_KEY"]) is None
    keys.set_key("A_KEY", KEY)
    assert keys.find_key(["A_KEY", "B_KEY"]) == KEY
    monkeypatch.setenv("B_KEY", "from-the-environment")
    assert keys.find_key(["A_KEY", "B_KEY"]) == "from-the-environment"
    monkeypatch.setenv("B_KEY", "  ")
    assert keys.find_key(["A_KEY", "B_KEY"]) == KEY
    assert keys.find_key(["B_KEY"]) is None
    assert keys.find_key([]) is None
    assert (keys.key_source("A_KEY"), keys.key_source("B_KEY")) == ("file", None)


def test_find_makes_a_readable_file_private_and_says_so(folder: Path, caplog: pytest.LogCaptureFixture) -> None:
    keys.set_key("A_KEY", KEY)
    keys.keys_path().chmod(0o644)
    assert keys.find_key(["A_KEY"]) == KEY
    assert mode(keys.keys_path()) == 0o600
    assert "0644" in caplog.text
    assert KEY not in caplog.text


def test_find_refuses_a_readable_file_that_it_cannot_repair(monkeypatch: pytest.MonkeyPatch) -> None:
    keys.set_key("A_KEY", KEY)
    keys.keys_path().chmod(0o640)

    def refuse(file: int, mode: int) -> None:
        raise PermissionError(1, "Operation not permitted")

    monkeypatch.setattr(os, "chmod", refuse)
    with pytest.raises(CnllmError, match="other users") as caught:
        keys.find_key(["A_KEY"])
    assert "chmod 600" in (caught.value.hint or "")


@pytest.mark.parametrize(
    "content",
    ["{", '["a"]', '{"A_KEY": 1}', '{"A_KEY": "sk-test-0123456789"', b"\xff\xfe", b"[" * 100_000],
    ids=range(6),
)
def test_a_broken_file_is_named_and_not_quoted(folder: Path, content: str | bytes) -> None:
    folder.mkdir(mode=0o700)
    keys.keys_path().write_bytes(content if isinstance(content, bytes) else content.encode())
    with pytest.raises(CnllmError) as caught:
        keys.find_key(["A_KEY"])
    assert str(keys.keys_path()) in caught.value.message
    assert "sk-test" not in caught.value.message
    assert caught.value.__cause__ is None


def test_an_empty_file_holds_no_keys(folder: Path) -> None:
    folder.mkdir(mode=0o700)
    keys.keys_path().touch(0o600)
    assert keys.key_names() == []


def test_a_service_whose_home_is_no_folder_has_the_keys_of_its_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CNLLM_CONFIG_DIR", "/dev/null/.config/cnllm")
    monkeypatch.setenv("CNLLM_DATA_DIR", "/dev/null/data")
    monkeypatch.setenv("ZAI_API_KEY", "sk-0123456789abcdef")
    sent = []

    class Transport:
        def send(self, plan: Any) -> tuple[int, dict[str, str], Iterator[bytes]]:
            sent.append(plan.headers["authorization"])
            return 200, {}, iter([b'{"choices": [{"message": {"content": "Hi."}, "finish_reason": "stop"}]}'])

    with Client(transport=Transport()) as client:
        assert client.call("glm-4.7", "hi").text == "Hi."
    assert sent == ["Bearer sk-0123456789abcdef"]
    assert keys.key_names() == []


def test_a_folder_that_cannot_be_entered_is_named_with_what_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    files: dict[str, Callable[[], object]] = {
        "keys.json": lambda: keys.find_key(["A_KEY"]),
        "release.toml": Registry.load,
    }
    real_open, real_stat = os.open, os.lstat

    def refusing(real: Callable[..., Any]) -> Callable[..., Any]:
        def refuse(path: Any, *args: Any, **options: Any) -> Any:
            if str(path).endswith(tuple(files)):
                raise PermissionError(errno.EACCES, "Permission denied", path)
            return real(path, *args, **options)

        return refuse

    monkeypatch.setattr(os, "open", refusing(real_open))
    monkeypatch.setattr(os, "lstat", refusing(real_stat))
    for name, read in files.items():
        with pytest.raises(CnllmError, match=rf"{re.escape(name)}.* cannot be read: Permission denied") as caught:
            read()
        assert "CNLLM_CONFIG_DIR" in str(caught.value.hint)


def test_many_writers_lose_nothing() -> None:
    threads = [threading.Thread(target=keys.set_key, args=(f"K{i}", KEY)) for i in range(16)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(keys.key_names()) == 16


def test_a_failed_write_leaves_the_old_file(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    keys.set_key("A_KEY", KEY)

    def fail(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "replace", fail)
    with pytest.raises(CnllmError, match="No space left on device"):
        keys.set_key("B_KEY", KEY)
    assert keys.key_names() == ["A_KEY"]
    assert list(folder.iterdir()) == [keys.keys_path()]


def test_folders_can_be_moved_and_are_not_made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for variable, folder in (
        ("CNLLM_CONFIG_DIR", paths.config_dir),
        ("CNLLM_DATA_DIR", paths.data_dir),
        ("CNLLM_CACHE_DIR", paths.cache_dir),
    ):
        monkeypatch.setenv(variable, str(tmp_path / variable))
        assert folder() == tmp_path / variable
        assert not folder().exists()
        monkeypatch.setenv(variable, "")
        assert folder().name == "cnllm"


@each("home", ["/home/someone", "/home/someone/", "relative", "", None])
@each("base", ["/somewhere", "/some where/", "relative", "~/mine", " ", "", None])
def test_folders_are_those_of_platformdirs(home: str | None, base: str | None, monkeypatch: pytest.MonkeyPatch) -> None:
    given = {"HOME": home, **{f"XDG_{kind}_HOME": base for kind in ("CONFIG", "DATA", "CACHE")}}
    for variable, value in given.items():
        monkeypatch.delenv(variable, raising=False)
        if value is not None:
            monkeypatch.setenv(variable, value)
    dirs = PlatformDirs("cnllm", appauthor=False)
    for kind, folder in (("CONFIG", paths.config_dir), ("DATA", paths.data_dir), ("CACHE", paths.cache_dir)):
        monkeypatch.delenv(f"CNLLM_{kind}_DIR", raising=False)
        assert str(folder()) == str(Path(getattr(dirs, f"user_{kind.lower()}_dir")))


def test_importing_paths_and_keys_brings_no_platformdirs() -> None:
    code = "import sys, cnllm.config.paths, cnllm.config.keys; print('platformdirs' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "False\n"
