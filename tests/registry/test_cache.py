"""The cache of parsed files saves time and decides nothing."""

from __future__ import annotations

import os
import random
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import small

from cnllm import Registry, RegistryError
from cnllm.config import paths
from cnllm.registry import documents
from cnllm.registry import read as reading
from cnllm.registry.read import read

from .support import BUILTIN, HOME, Files, forget_builtin

pytestmark = pytest.mark.usefixtures("small_builtin")

PLAIN = f'{HOME}limits.output = 1\n[models."home/x"]\nstatus.since = 2026-11-20\n[aliases]\na = "home/x"\n'


@pytest.fixture(autouse=True)
def _own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CNLLM_CACHE_DIR", str(tmp_path / "own-cache"))
    forget_builtin(monkeypatch)


def entries() -> list[Path]:
    folder = paths.cache_dir()
    return sorted(folder.iterdir()) if folder.is_dir() else []


def output(path: Path) -> int | None:
    limits = Registry.load(path).resolve("home/x").flags.limits
    return limits.output


@pytest.fixture
def parsed(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What was parsed as TOML rather than found in the cache."""
    seen: list[str] = []
    real = documents.parse

    def parse(text: bytes, shown: str) -> dict[str, Any]:
        seen.append(shown)
        return real(text, shown)

    monkeypatch.setattr(reading, "parse", parse)
    return seen


def test_a_file_is_parsed_once_and_then_remembered(files: Files, parsed: list[str]) -> None:
    path = files.write(PLAIN)
    for _ in range(3):
        assert output(path) == 1
    assert sorted(parsed) == sorted([str(path), "providers.toml"])
    assert len(entries()) == 2


def test_what_is_remembered_equals_what_was_read(files: Files, parsed: list[str]) -> None:
    for path, builtin in ((BUILTIN, True), (files.write(PLAIN), False)):
        cold, warm = read(path, builtin=builtin), read(path, builtin=builtin)
        assert cold.data == warm.data
        assert list(cold.data["providers"]) == list(warm.data["providers"])
        assert {key: type(value) for key, value in tables(cold.data).items()} == {
            key: type(value) for key, value in tables(warm.data).items()
        }
    assert len(parsed) == 2


@pytest.mark.long
def test_every_model_is_the_same_cold_and_warm(files: Files, monkeypatch: pytest.MonkeyPatch) -> None:
    small.use(monkeypatch, BUILTIN)
    path = files.write(PLAIN)
    cold, warm = Registry.load(path), Registry.load(path)
    assert (cold.names(), cold.aliases, cold.providers) == (warm.names(), warm.aliases, warm.providers)
    for name in cold.names():
        one, other = cold.resolve(name), warm.resolve(name)
        assert one.flags == other.flags
        assert one.notes == other.notes
    for name in ("glm-4.7", "home/x", "deepseek/deepseek-flash"):
        assert cold.resolve(name).explain() == warm.resolve(name).explain()


def tables(data: Any) -> dict[str, Any]:
    """Each table of each section."""
    return {f"{s}.{n}": t for s in ("providers", "models", "families", "protocols") for n, t in data.get(s, {}).items()}


@pytest.mark.parametrize("keep_times", [False, True])
def test_an_edited_file_is_read_anew_even_with_its_old_times_and_size(files: Files, keep_times: bool) -> None:
    path = files.write(PLAIN)
    assert output(path) == 1
    times = path.stat()
    for value in (2, 3, 1):
        files.write(PLAIN.replace("output = 1", f"output = {value}"), path.name)
        if keep_times:
            os.utime(path, ns=(times.st_atime_ns, times.st_mtime_ns))
        assert path.stat().st_size == times.st_size
        assert output(path) == value


def test_a_damaged_entry_is_as_good_as_none(files: Files, parsed: list[str]) -> None:
    path = files.write(PLAIN)
    output(path)
    chance = random.Random(1)
    whole = {entry: entry.read_bytes() for entry in entries()}
    for damage in (
        lambda blob: b"",
        lambda blob: blob[:20],
        lambda blob: blob[:-1],
        lambda blob: blob + b"x",
        lambda blob: blob[: len(blob) // 2],
        lambda blob: bytes(len(blob)),
        lambda blob: b"not ours at all",
        lambda blob: blob[:-2] + bytes([blob[-2] ^ 1]) + blob[-1:],
        lambda blob: blob.replace(b"home", b"hone"),
        lambda blob: chance.randbytes(len(blob)),
    ):
        for entry, blob in whole.items():
            entry.write_bytes(damage(blob))
        parsed.clear()
        assert output(path) == 1
        assert str(path) in parsed
        assert {entry: entry.read_bytes() for entry in entries()}.keys() == whole.keys()


def test_an_entry_of_another_file_is_not_taken_for_this_one(files: Files) -> None:
    one = files.write(PLAIN)
    output(one)
    (first,) = [entry for entry in entries() if b"A server at home" in entry.read_bytes()]
    two = files.write(PLAIN.replace("output = 1", "output = 2"))
    output(two)
    (second,) = [entry for entry in entries() if b"A server at home" in entry.read_bytes() and entry != first]
    second.write_bytes(first.read_bytes())
    assert (output(one), output(two)) == (1, 2)


@pytest.mark.skipif(not hasattr(os, "geteuid"), reason="files have no owner")
def test_an_entry_that_others_can_write_is_not_read(files: Files, parsed: list[str]) -> None:
    """It could send the keys of a file that its user trusts to another address."""
    path = files.write(PLAIN)
    output(path)
    (entry,) = [entry for entry in entries() if b"A server at home" in entry.read_bytes()]
    dangers: list[Callable[[], object]] = [lambda: entry.chmod(0o666)]
    if os.geteuid() == 0:
        dangers.append(lambda: os.chown(entry, 12345, 12345))
    for make_unsafe in dangers:
        entry.chmod(0o600)
        make_unsafe()
        parsed.clear()
        assert output(path) == 1
        assert str(path) in parsed
    entry.unlink()
    os.mkfifo(entry)
    parsed.clear()
    assert output(path) == 1
    assert str(path) in parsed


def test_an_entry_may_be_a_folder(files: Files) -> None:
    path = files.write(PLAIN)
    output(path)
    for entry in entries():
        entry.unlink()
        entry.mkdir()
    assert output(path) == 1


@pytest.mark.parametrize("obstacle", ["a file in its place", "a file above it", "a device", "no space"])
def test_without_a_cache_folder_everything_works(
    files: Files, monkeypatch: pytest.MonkeyPatch, obstacle: str, caplog: pytest.LogCaptureFixture
) -> None:
    folder = {"a file above it": files.write("", "file") / "cache", "a device": Path("/dev/null")}.get(
        obstacle, files.folder / "cache"
    )
    if obstacle == "a file in its place":
        folder.write_text("mine")
    if obstacle == "no space":

        def full(*args: Any, **more: Any) -> Any:
            raise OSError(28, "No space left on device")

        monkeypatch.setattr(tempfile, "mkstemp", full)
    monkeypatch.setenv("CNLLM_CACHE_DIR", str(folder))
    path = files.write(PLAIN)
    for _ in range(2):
        assert output(path) == 1
    assert not caplog.records or all(record.levelname == "DEBUG" for record in caplog.records)


def test_a_faulty_overlay_is_refused_every_time(files: Files) -> None:
    path = files.write("foo = 1\n" + PLAIN)
    told = set()
    for _ in range(3):
        with pytest.raises(RegistryError) as caught:
            Registry.load(path)
        told.add(str(caught.value))
    assert len(told) == 1
    assert entries() == [entry for entry in entries() if b"A server at home" not in entry.read_bytes()]


def test_what_was_read_unchecked_as_the_built_in_file_is_still_checked_as_an_overlay(files: Files) -> None:
    path = files.write("foo = 1\n" + PLAIN)
    read(path, builtin=True)
    assert entries()
    with pytest.raises(RegistryError, match="has no flag 'foo'"):
        read(path)


def test_the_cache_holds_plain_data_and_is_the_users_own(files: Files) -> None:
    output(files.write(PLAIN))
    assert oct(paths.cache_dir().stat().st_mode & 0o777) == "0o700"
    for entry in entries():
        assert oct(entry.stat().st_mode & 0o777) == "0o600"
        assert entry.suffix == ".bin"
        assert b"cnllm.registry" not in entry.read_bytes()  # no pickled class


def test_a_registry_that_is_loaded_anew_reads_an_edited_built_in_file_and_shares_the_tables_of_another(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.undo()
    path = tmp_path / "providers.toml"
    path.write_text(PLAIN)
    first, again = (read(path, builtin=True) for _ in range(2))
    assert first.data["models"]["home/x"] is again.data["models"]["home/x"]
    assert first.data is not again.data
    path.write_text(PLAIN.replace("output = 1", "output = 2"))
    assert read(path, builtin=True).data["providers"]["home"]["limits"]["output"] == 2
