"""Files with keys or transcripts are 0600 in 0700 folders, whatever the umask and whatever was there before."""

from __future__ import annotations

import os
import stat
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from cli.support import ANSWER, Machine, Server

from cnllm import Registry, RegistryError
from cnllm.config import keys
from cnllm.registry.trusted_files import trust
from cnllm.store import Store
from cnllm.system import files

pytestmark = [
    pytest.mark.skipif(sys.platform == "win32", reason="modes are of POSIX"),
    pytest.mark.usefixtures("small_builtin"),
]
CALL = ("call", "-m", "home/m", "hi")


@pytest.fixture(params=[0o000, 0o022, 0o077], ids=lambda mask: f"umask {mask:03o}")
def _umask(request: pytest.FixtureRequest) -> Iterator[None]:
    before = os.umask(request.param)
    yield
    os.umask(before)


def mode(path: Path) -> str:
    return f"{stat.S_IMODE(path.stat().st_mode):03o}"


def modes(top: Path) -> dict[str, str]:
    """The modes of all that is below."""
    return {str(path.relative_to(top)): mode(path) for path in sorted(top.rglob("*"))}


def wide(top: Path) -> dict[str, str]:
    """What others can open."""
    return {name: found for name, found in modes(top).items() if found not in ("600", "700")}


@pytest.mark.usefixtures("_umask", "small_builtin")
def test_files_that_the_user_names_are_private_where_they_are_new(tmp_path: Path) -> None:
    machine, new = Machine(tmp_path), tmp_path / "new"
    new.mkdir(mode=0o700)
    rows = tmp_path / "rows.jsonl"
    rows.write_text('{"id": 1, "prompt": "hi"}\n{"id": 2}\n')
    with Server(ANSWER) as server:
        machine.overlay(server.url)
        machine.config.chmod(0o700)
        (machine.config / "providers.toml").chmod(0o600)
        for args in (
            ["batch", str(rows), "-m", "home/m", "-o", str(new / "out.jsonl")],
            ["models", "matrix", "--html", str(new / "page.html")],
            [*CALL, "--record", str(new / "tape")],
            ["call", "-m", "home/m", "--save", "template"],
            ["models", "default", "home/m"],
        ):
            assert machine.run(*args).status in (0, 3), args
    assert {"out.jsonl", "out.jsonl.errors.jsonl", "out.jsonl.svg", "page.html", "tape"} <= set(modes(new))
    assert wide(new) == {}
    for name in ("out.jsonl", "out.jsonl.errors.jsonl"):
        (new / name).chmod(0o640)
    with Server(ANSWER) as server:
        machine.overlay(server.url)
        machine.config.chmod(0o700)
        (machine.config / "providers.toml").chmod(0o600)
        machine.run("batch", str(rows), "-m", "home/m", "-o", str(new / "out.jsonl"), "--redo", "--input-order")
    assert {name: modes(new)[name] for name in ("out.jsonl", "out.jsonl.errors.jsonl")} == {
        "out.jsonl": "640",
        "out.jsonl.errors.jsonl": "640",
    }


@pytest.mark.usefixtures("_umask", "small_builtin")
def test_all_that_the_program_writes(tmp_path: Path) -> None:
    machine = Machine(tmp_path)
    for kind in ("CONFIG", "DATA", "CACHE"):  # folders above that are missing too
        machine.env[f"CNLLM_{kind}_DIR"] = str(tmp_path / "new" / "deep" / kind.lower())
    with Server(ANSWER) as server:
        machine.overlay(server.url)  # beside the folders in use
        machine.env["CNLLM_PROVIDERS"] = str(machine.config / "providers.toml")
        for args in (
            ["keys", "set", "SOME_KEY", "sk-0123456789abcdef"],
            ["registry", "trust", str(machine.config / "providers.toml")],
            [*CALL, "--record", str(tmp_path / "new" / "tape"), "--raw-log", str(tmp_path / "new" / "raw")],
            ["logs", "off"],
        ):
            assert machine.run(*args).status == 0
    made = modes(tmp_path / "new")
    assert wide(tmp_path / "new") == {}
    assert {"tape", "raw", "deep/config/keys.json", "deep/config/trusted.json", "deep/data/conversations.db"} <= set(
        made
    )


@pytest.mark.usefixtures("_umask")
def test_the_stores_own_files(tmp_path: Path) -> None:
    place = tmp_path / "data" / "conversations.db"
    with Store.open(place) as store, store.conversation().turn([], model="home/m"):
        assert set(modes(place.parent)) == {f"conversations.db{more}" for more in ("", "-wal", "-shm")}
        assert wide(tmp_path) == {}


@pytest.mark.usefixtures("small_builtin")
@pytest.mark.parametrize("kind", ["CONFIG", "DATA", "CACHE"])
def test_what_is_no_folder_keeps_its_mode(tmp_path: Path, kind: str) -> None:
    machine, file, pipe = Machine(tmp_path), tmp_path / "file", tmp_path / "pipe"
    file.write_text("mine")
    file.chmod(0o666)
    os.mkfifo(pipe)
    pipe.chmod(0o666)
    for path in (file, pipe):
        with Server(ANSWER) as server:
            machine.overlay(server.url)
            machine.env["CNLLM_PROVIDERS"] = str(machine.config / "providers.toml")
            machine.env[f"CNLLM_{kind}_DIR"] = str(path)
            for args in (CALL, ("keys", "set", "SOME_KEY", "sk-0123456789abcdef"), ("logs", "list")):
                machine.run(*args)
        assert mode(path) == "666"
        assert files.restrict_mode(pipe) is None
    assert file.read_text() == "mine"


@pytest.mark.usefixtures("small_builtin")
def test_what_was_open_to_others_is_closed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    machine = Machine(tmp_path)
    tape = tmp_path / "tape"
    with Server(ANSWER) as server:
        machine.overlay(server.url)
        machine.run(*CALL, "--record", str(tape))
        data = machine.data
        (data / "conversations.db-journal").write_text("")
        for each in (tape, data, *data.iterdir()):
            each.chmod(0o777)
        (machine.config / "keys.json").write_text("{}")
        (machine.config / "keys.json").chmod(0o666)
        done = machine.run(*CALL, "--record", str(tape))
    assert done.status == 0
    assert "other users could open the keys file" in machine.run("keys", "list").err or "keys file" in done.err
    assert (mode(tape), mode(data), mode(machine.config / "keys.json")) == ("600", "700", "600")
    assert mode(data / "conversations.db") == "600"


def test_a_folder_of_the_users_own_keeps_its_mode(tmp_path: Path) -> None:
    shared = tmp_path / "project"
    shared.mkdir()
    shared.chmod(0o755)
    with Store.open(shared / "mine.db"):
        assert (mode(shared), mode(shared / "mine.db")) == ("755", "600")
    files.make_private_folder(shared, narrow=False)
    assert mode(shared) == "755"


def test_a_list_of_trusted_files_that_others_can_write_is_not_believed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CNLLM_CONFIG_DIR", str(tmp_path / "config"))
    monkeypatch.setenv("ZAI_API_KEY", "sk-0123456789abcdef")
    overlay = tmp_path / "overlay.toml"
    overlay.write_text('[providers.zai]\nbase_url = "https://evil.example/v1"\n')
    trust(overlay)
    model = Registry.load(overlay).resolve("glm-4.7")
    assert model.trusts("ZAI_API_KEY", "https://evil.example")
    (tmp_path / "config" / "trusted.json").chmod(0o666)
    with pytest.raises(RegistryError, match="other users can write it"):
        Registry.load(overlay).resolve("glm-4.7").trusts("ZAI_API_KEY", "https://evil.example")


def test_a_keys_file_is_replaced_whole_and_leaves_nothing_beside_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CNLLM_CONFIG_DIR", str(tmp_path / "config"))
    for value in ("sk-first-0123456789", "sk-second-0123456789"):
        keys.set_key("SOME_KEY", value)
    assert modes(tmp_path) == {"config": "700", "config/keys.json": "600"}
