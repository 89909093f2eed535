"""Data files on disk: replaced and restored in one step, whatever happens in between."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from cnllm import Registry, RegistryError
from cnllm.registry.files import data_folder
from cnllm.registry_files.updates.data_store import replace_data_file, restore_data_file

from .support import write_data

pytestmark = pytest.mark.usefixtures("small_builtin")

OLD = b'[models."zai/glm-98"]\nlimits.context = 1\n'
NEW = b'[models."zai/glm-98"]\nlimits.context = 2\n'
NEWER = b'[models."zai/glm-98"]\nlimits.context = 3\n'

# Kills itself by SIGKILL at the n-th thing that it does to the folder; prints their number if it comes to the end.
CHILD = """
import os, signal, sys
from cnllm.registry_files.updates import data_store

class Count:
    done = 0

def watch(event, arguments):
    if event in ("open", "os.rename", "os.remove", "os.listdir", "os.scandir", "fcntl.flock", "tempfile.mkstemp"):
        if any(sys.argv[1] in str(argument) for argument in arguments) or event == "fcntl.flock":
            Count.done += 1
            if Count.done == int(sys.argv[2]):
                os.kill(os.getpid(), signal.SIGKILL)

sys.addaudithook(watch)
%s
print(Count.done)
"""
REPLACE = f"data_store.replace_data_file('updates.toml', {NEW!r}, lambda present: None)"
RESTORE = "data_store.restore_data_file('updates.toml')"


def anything(present: bytes | None) -> None:
    """Every present content may be replaced."""


def present() -> bytes:
    return (Path(data_folder()) / "updates.toml").read_bytes()


def killed_everywhere(step: str, prepare: Callable[[], None], check: Callable[[], None]) -> int:
    """Kill a step at each thing it does, in a folder that is prepared anew, and check what is left."""
    point = 0
    while True:
        point += 1
        prepare()
        done = subprocess.run(
            [sys.executable, "-c", CHILD % step, data_folder(), str(point)], capture_output=True, text=True, check=False
        )
        check()
        if done.returncode == 0:
            assert int(done.stdout) == point - 1
            return point - 1
        assert done.returncode == -9, done.stderr


def clear() -> None:
    for file in Path(data_folder()).glob("*") if Path(data_folder()).exists() else ():
        file.unlink()


def test_a_killed_replacement_leaves_the_old_file_or_the_new_one_and_a_way_back() -> None:
    seen: list[bytes] = []

    def prepare() -> None:
        clear()
        write_data(OLD.decode())

    def check() -> None:
        seen.append(present())
        assert seen[-1] in (OLD, NEW)
        Registry.load().resolve("zai/glm-98")
        replace_data_file("updates.toml", NEWER, anything)
        assert not list(Path(data_folder()).glob(".cnllm-*"))
        restore_data_file("updates.toml")
        assert present() == seen[-1]
        if seen[-1] == NEW:
            restore_data_file("updates.toml")
            assert present() == OLD

    assert killed_everywhere(REPLACE, prepare, check) >= 5
    assert set(seen) == {OLD, NEW}


def test_a_killed_restoration_leaves_the_old_file_or_the_new_one() -> None:
    seen: set[bytes] = set()

    def prepare() -> None:
        clear()
        write_data(OLD.decode())
        replace_data_file("updates.toml", NEW, anything)

    def check() -> None:
        seen.add(present())

    assert killed_everywhere(RESTORE, prepare, check) >= 3
    assert seen == {OLD, NEW}


def test_the_first_file_can_be_undone_too_and_nothing_before_it() -> None:
    path = replace_data_file("updates.toml", NEW, anything)
    restore_data_file("updates.toml")
    assert Registry.load().files[1:] == [str(path)]
    assert "zai/glm-98" not in Registry.load().names(catalogue=True)
    with pytest.raises(RegistryError, match="there is no earlier one"):
        restore_data_file("updates.toml")


def test_the_last_ten_are_kept() -> None:
    for number in range(14):
        replace_data_file("updates.toml", OLD + b"# %d\n" % number, anything)
    assert len(list(Path(data_folder()).glob("updates-*.toml"))) == 10
    for number in reversed(range(3, 13)):
        restore_data_file("updates.toml")
        assert present() == OLD + b"# %d\n" % number


def test_the_same_content_is_no_new_step() -> None:
    for _ in range(3):
        replace_data_file("updates.toml", NEW, anything)
    assert len(list(Path(data_folder()).glob("updates-*.toml"))) == 1


def test_only_the_owner_can_read_and_write_the_files() -> None:
    path = replace_data_file("updates.toml", NEW, anything)
    assert path.stat().st_mode & 0o777 == 0o600
    assert path.parent.stat().st_mode & 0o777 == 0o700


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_a_folder_that_cannot_be_written_is_said_so() -> None:
    folder = Path(data_folder())
    folder.mkdir(parents=True)
    folder.chmod(0o500)
    with pytest.raises(RegistryError, match="cannot be written: Permission denied"):
        replace_data_file("updates.toml", NEW, anything)


def test_a_file_in_the_place_of_the_folder_is_said_so() -> None:
    Path(data_folder()).parent.mkdir(parents=True, exist_ok=True)
    Path(data_folder()).write_text("")
    with pytest.raises(RegistryError, match="cannot be written"):
        replace_data_file("updates.toml", NEW, anything)


def test_a_full_disk_leaves_the_present_file(monkeypatch: pytest.MonkeyPatch) -> None:
    write_data(OLD.decode())

    def full(descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(RegistryError, match="No space left on device"):
        replace_data_file("updates.toml", NEW, anything)
    assert present() == OLD
    assert not list(Path(data_folder()).glob(".cnllm-*"))


def test_of_several_processes_at_once_each_step_is_whole() -> None:
    """Each process writes a file of its own, and each of these is the present one or an earlier one."""
    code = (
        "import sys\n"
        "from cnllm.registry_files.updates import data_store\n"
        "data_store.replace_data_file('updates.toml', b'# ' + sys.argv[1].encode(), lambda present: None)"
    )
    running = [subprocess.Popen([sys.executable, "-c", code, str(number)]) for number in range(6)]
    assert [process.wait(60) for process in running] == [0] * 6
    contents = {present()} | {file.read_bytes() for file in Path(data_folder()).glob("updates-*.toml")}
    assert contents == {b"schema = 1\n"} | {b"# %d" % number for number in range(6)}
