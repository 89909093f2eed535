"""The user's files: an update is never lost, a failure changes nothing, and no file of somebody else is touched."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import re
import resource
import signal
import sqlite3
import stat
import subprocess
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from batch.stub import stub
from batch.support import prompts
from batch.support import run as run_batch
from cli.support import Machine

from cnllm import Client, CnllmError
from cnllm.batch.identity import AnswerCache
from cnllm.batch.shared.allowance import RunLedger
from cnllm.cassette import record
from cnllm.cassette.raw_log import FILES, RawLog
from cnllm.cli.mcp_servers import Approvals
from cnllm.config import keys, settings_files, templates
from cnllm.gateway.tokens import keys_in_file
from cnllm.launch.setup import ClientFile, Setup, write_files
from cnllm.mcp_client import Definition
from cnllm.registry.trusted_files import is_trusted, trust
from cnllm.simulator import SimTransport
from cnllm.store import Store
from cnllm.system import files

PACKAGE = Path(files.__file__).parents[1]
DESTRUCTIVE = re.compile(
    r"\.(glob|rglob|iterdir|unlink|rmdir|chmod|rename|write_text|write_bytes)\("
    r"|os\.(unlink|remove|replace|rename|chmod|fchmod|truncate|ftruncate|rmdir|scandir|listdir)\("
    r"|shutil\.(rmtree|move|copyfile|copy2?|copytree)\(|file\.truncate\(|O_TRUNC"
)
WORDS = {  # file below the folder of settings → the command that writes it
    "providers.toml": ("aliases", "set", "quick", "glm-4.7"),
    "keys.json": ("keys", "set", "SOME_KEY", "sk-0123456789abcdef"),
    "default-model": ("models", "default", "glm-4.7"),
    "templates/short.toml": ("call", "--save", "short", "-s", "Be short."),
    "trusted.json": ("registry", "trust", "other.toml"),
}


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def statuses(running: list[subprocess.Popen[bytes]]) -> list[int]:
    """The exit status of each process."""
    for process in running:
        process.communicate()
    return [process.returncode for process in running]


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("CNLLM_CONFIG_DIR", str(tmp_path / "config"))
    monkeypatch.setenv("CNLLM_DATA_DIR", str(tmp_path / "data"))
    return tmp_path


# ── whose file it is ─────────────────────────────────────────────────────────
def test_each_call_that_touches_files_says_why_it_may() -> None:
    """A line that lists, deletes, renames or overwrites says why the file is ours, or that it only reads."""
    silent = []
    for path in PACKAGE.rglob("*.py"):
        lines = path.read_text(encoding="utf-8").splitlines()
        for number, line in enumerate(lines):
            if DESTRUCTIVE.search(line) and "stdio.write_text(" not in line and "def write_text" not in line:
                near = "\n".join(lines[max(0, number - 1) : number + 1])
                if not re.search(r"# .*\b(ours|only reads|asked for)\b", near):
                    silent.append(f"{path.relative_to(PACKAGE)}:{number + 1}: {line.strip()}")
    assert silent == [], "write behind it whose file that is: # ours: …, # only reads, or # asked for: …"


def test_the_raw_log_deletes_its_own_files_only(tmp_path: Path) -> None:
    tmp_path.chmod(0o755)
    others = [f"Train-{n:02}.jsonl" for n in range(20)] + [
        "20260101T000000.000000-1.jsonl.bak",
        "20260101T000000-1.jsonl",
        "x20260101T000000.000000-1.jsonl",
        "20260101T000000.000000-a.jsonl",
    ]
    for name in others:
        (tmp_path / name).write_text("mine\n")
    for number in range(FILES + 5):
        (tmp_path / f"20250101T000000.{number:06}-77.jsonl").write_text("")
    logs = [RawLog(tmp_path) for _ in range(2)]
    assert {path.name for path in tmp_path.iterdir()} >= set(others)
    assert len(list(tmp_path.iterdir())) == len(others) + FILES
    assert mode(tmp_path) == 0o755
    script = (
        "import sys; from pathlib import Path; from cnllm.cassette.raw_log import RawLog\n"
        "log = RawLog(Path(sys.argv[1]))\n"
        "for number in range(200): log.write({'number': number})\n"
        "sys.exit(log.failed is not None)\n"
    )
    running = [subprocess.Popen([sys.executable, "-c", script, str(tmp_path)]) for _ in range(2)]
    logs[0].write({"number": 0})
    assert [process.wait() for process in running] == [0, 0]
    written = [p for p in tmp_path.iterdir() if p.name not in others]
    assert sum(len(p.read_text().splitlines()) for p in written) == 401


@pytest.mark.parametrize("make", [AnswerCache, RunLedger, Store.open], ids=["answers", "ledger", "store"])
def test_a_database_of_another_program_stays_as_it_is(make: Callable[[Path], Any], tmp_path: Path) -> None:
    path = tmp_path / "mine.db"
    with closing(sqlite3.connect(path, isolation_level=None)) as db:
        db.execute("CREATE TABLE mine (x)")
    db.close()
    path.chmod(0o644)
    before = path.read_bytes()
    with pytest.raises(CnllmError, match="database of another program"):
        make(path)
    assert (path.read_bytes(), mode(path)) == (before, 0o644)
    assert [p.name for p in tmp_path.iterdir()] == ["mine.db"]


def test_a_batch_leaves_files_beside_its_output_alone(tmp_path: Path) -> None:
    names = ("out.jsonl.new", "out.jsonl.errors.jsonl", "out.jsonl.errors.jsonl.new")
    for name in names:
        (tmp_path / name).write_text("mine\n")
    with stub() as server:
        report = run_batch(server, tmp_path, prompts(3), order=True)
    assert [(tmp_path / name).read_text() for name in names] == ["mine\n"] * 3
    assert "no batch has written it" in " ".join(report.messages)


# ── read, change, write ──────────────────────────────────────────────────────
def test_no_alias_of_many_processes_is_lost(tmp_path: Path) -> None:
    machine = Machine(tmp_path)
    running = [machine.start("aliases", "set", f"a{number}", "glm-4.7") for number in range(4)]
    assert statuses(running) == [0] * 4
    text = (machine.config / "providers.toml").read_text()
    assert [n for n in range(4) if f"a{n} =" not in text] == []


@pytest.mark.long  # the same file as that of aliases, by the same function
def test_no_preferred_provider_of_many_processes_is_lost(tmp_path: Path) -> None:
    machine = Machine(tmp_path)
    names = ["zai", "zhipuai", "deepseek", "moonshotai-cn"]
    running = [machine.start("prefer", name) for name in names]
    assert statuses(running) == [0] * 4
    assert sorted(machine.run("prefer", "--json").json()) == sorted(names)


def test_no_update_of_many_threads_is_lost(home: Path) -> None:
    files = [home / f"{number}.toml" for number in range(200)]
    for file in files:
        file.write_text(f"# {file}\n")
    approvals = Approvals()
    definitions = [Definition(f"t{n}", "files", "run files", f"t{n}", None, {}, f"{n:064x}") for n in range(200)]

    def write(number: int) -> None:
        keys.set_key(f"KEY_{number}", "sk-0123456789abcdef")
        trust(files[number])
        approvals.add(definitions[number])

    with ThreadPoolExecutor(16) as pool:
        list(pool.map(write, range(200)))
    assert len(keys.key_names()) == 200
    assert all(is_trusted(file, file.read_bytes()) for file in files)
    assert all(approvals.has(definition) for definition in definitions)


@pytest.mark.share(2)
@pytest.mark.parametrize("there", [True, False], ids=["old", "new"])
@pytest.mark.parametrize("name", WORDS)
def test_a_full_disk_changes_nothing(name: str, there: bool, tmp_path: Path) -> None:
    machine = Machine(tmp_path)
    (tmp_path / "other.toml").write_text("# mine\n")
    if there:
        assert machine.run(*WORDS[name], cwd=tmp_path).status == 0
        path = machine.config / name
        path.write_text(path.read_text().replace("glm-4.7", "glm-4.6").replace("Be short.", "Be long."))
    (machine.config / "templates").mkdir(parents=True, exist_ok=True)
    before = {path: path.read_bytes() for path in machine.config.rglob("*") if path.is_file()}
    words = WORDS[name] if name != "trusted.json" else ("registry", "trust", "third.toml")
    (tmp_path / "third.toml").write_text("# mine too\n")
    if name == "keys.json":
        words = ("keys", "set", "OTHER_KEY", "sk-0123456789abcdef")
    done = subprocess.run(
        machine.command(*words),
        env=machine.env,
        cwd=tmp_path,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0)),
        check=False,
    )
    assert done.returncode != 0
    assert "cannot be written: File too large" in done.stderr
    assert {path: path.read_bytes() for path in machine.config.rglob("*") if path.is_file()} == before


@pytest.mark.parametrize("name", WORDS)
def test_a_link_stays_a_link_and_a_file_keeps_its_mode(name: str, tmp_path: Path) -> None:
    machine = Machine(tmp_path)
    (tmp_path / "other.toml").write_text("# mine\n")
    assert machine.run(*WORDS[name], cwd=tmp_path).status == 0
    path, dotfiles = machine.config / name, tmp_path / "dotfiles"
    assert mode(path) == 0o600
    wanted = path.read_bytes()
    dotfiles.mkdir(mode=0o755)
    dotfiles.chmod(0o755)
    (dotfiles / path.name).write_text({"keys.json": "{}", "trusted.json": "{}"}.get(name, ""))
    (dotfiles / path.name).chmod(0o640)
    path.unlink()
    path.symlink_to(dotfiles / path.name)
    assert machine.run(*WORDS[name], cwd=tmp_path).status == 0
    assert path.is_symlink()
    assert path.read_bytes() == wanted
    assert mode(path) == (0o600 if name == "keys.json" else 0o640), "keys are for their owner alone"
    assert mode(dotfiles) == 0o755


@pytest.mark.skipif(files.user_id() != 0, reason="only root writes the files of others")
def test_what_root_writes_stays_its_owners(home: Path) -> None:
    keys.set_key("SOME_KEY", "sk-0123456789abcdef")
    os.chown(keys.keys_path(), 12345, 12346)
    keys.set_key("OTHER_KEY", "sk-0123456789abcdef")
    status = keys.keys_path().stat()
    assert (status.st_uid, status.st_gid, stat.S_IMODE(status.st_mode)) == (12345, 12346, 0o600)
    assert keys.key_names() == ["OTHER_KEY", "SOME_KEY"]


def test_a_process_that_is_stopped_in_the_middle_of_a_change_does_not_stop_others_for_good(
    home: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(files, "_LOCK_SECONDS", 0.1)
    monkeypatch.setattr(record, "_LOCK_SECONDS", 0.1)
    keys.set_key("SOME_KEY", "sk-0123456789abcdef")
    path, tape = keys.keys_path(), home / "tape.jsonl"
    recorder = record.Recorder(SimTransport(), tape)
    before = path.read_bytes()
    with contextlib.ExitStack() as stack:
        for place in (path.parent, tape):
            descriptor = os.open(place, os.O_RDONLY)
            stack.callback(os.close, descriptor)
            fcntl.flock(descriptor, fcntl.LOCK_EX)
        with pytest.raises(CnllmError, match=r"keys\.json cannot be written: another program has locked it"):
            keys.set_key("OTHER_KEY", "sk-0123456789abcdef")
        with Client(transport=recorder, api_key="sk-0123456789abcdef") as client:
            assert client.call("glm-4.7", "hi").text
    assert "another program has locked it; this exchange is not recorded" in caplog.text
    assert (path.read_bytes(), tape.read_bytes()) == (before, b"")


def test_other_small_files(home: Path) -> None:
    """Those that no command above writes: the mode of the log, the gateway's keys, the files of a launched client."""
    settings_files.set_log_mode("off")
    folder = home / "data" / "launch" / "x"
    once, each = folder / "once.json", folder / "deep" / "each.json"
    for content in ("a", "b"):
        files = {once: ClientFile("", content, once=True), each: ClientFile("", content)}
        write_files(folder, Setup((), {}, files))
    assert (once.read_text(), each.read_text()) == ("a", "b")
    with ThreadPoolExecutor(8) as pool:
        assert len({tuple(found) for found in pool.map(lambda _: keys_in_file(home / "serve.keys"), range(8))}) == 1
    found = [path for path in home.rglob("*") if path.is_file()]
    assert {mode(path) for path in found} == {0o600}
    assert not [path for path in found if path.name.startswith(".cnllm-")]


def test_what_is_removed_is_only_the_name(home: Path) -> None:
    settings_files.set_default_model("glm-4.7")
    path, real = home / "config" / "default-model", home / "mine"
    os.rename(path, real)
    path.symlink_to(real)
    settings_files.set_default_model(None)
    assert (settings_files.default_model(), real.read_text()) == (None, "glm-4.7\n")
    templates.write_template(templates.Template(name="short", system="Be short."))
    assert templates.remove_template("short")
    assert templates.template_names() == []


def test_a_device_is_no_file_of_settings(tmp_path: Path) -> None:
    path = tmp_path / "providers.toml"
    path.symlink_to("/dev/zero")
    with pytest.raises(CnllmError, match="not a regular file"):
        files.change_file(path, lambda _: b"x")
    assert stat.S_ISCHR(Path("/dev/zero").stat().st_mode)


def test_a_killed_writer_leaves_the_old_content_or_the_new_one(tmp_path: Path) -> None:
    path = tmp_path / "settings.json"
    script = (
        "import sys; from pathlib import Path; from cnllm.system.files import change_file\n"
        "print('ready', flush=True)\n"
        "change = lambda old: b'b' * 70000 if old and old[:1] == b'a' else b'a' * 60000\n"
        "while True: change_file(Path(sys.argv[1]), change)\n"
    )
    for turn in range(12):
        with subprocess.Popen([sys.executable, "-c", script, str(path)], stdout=subprocess.PIPE) as process:
            assert process.stdout is not None
            process.stdout.readline()
            while not path.exists():
                assert process.poll() is None
            for _ in range(turn * 400):
                path.stat()
            process.send_signal(signal.SIGKILL)
        assert path.read_bytes() in (b"a" * 60000, b"b" * 70000)
    files.change_file(path, lambda _: json.dumps({"whole": True}).encode())
    assert [entry.name for entry in tmp_path.iterdir()] == ["settings.json"], "what was left unfinished is gone"
