"""Files that a user names: a device without an end, a pipe that nobody writes to, more than anyone reads."""

from __future__ import annotations

import os
import resource
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import home_folders
import pytest
from cases import each
from examples import some

from cnllm.system import files
from cnllm.system.files import read_bounded

CALL = ("call", "-m", "glm-5v-turbo", "--simulate")
WAYS: list[tuple[str, ...]] = [
    (*CALL, "-f", "FILE", "hi"),
    (*CALL, "-a", "FILE", "hi"),
    (*CALL, "--image", "FILE", "hi"),
    (*CALL, "--schema", "FILE", "hi"),
    (*CALL, "--tools", "FILE", "hi"),
    (*CALL, "--extra-body", "@FILE", "hi"),
    (*CALL, "--replay", "FILE", "hi"),
    ("batch", "FILE", "-m", "glm-4.7", "--simulate", "-o", "out.jsonl"),
    ("batch", "in.jsonl", "-m", "glm-4.7", "--simulate", "-o", "out.jsonl", "--schema", "FILE"),
    ("batch", "in.jsonl", "-m", "glm-4.7", "--simulate", "-o", "FILE"),
    ("compare", "--replay", "FILE"),
    ("registry", "check", "FILE"),
    ("registry", "check", "--against", "FILE"),
    ("registry", "trust", "FILE"),
    ("registry", "update", "--from", "FILE"),
    ("serve", "--keys-file", "FILE"),
]


def run(folder: Path, *arguments: str, **more: Any) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, **home_folders.variables(folder)}
    options: dict[str, Any] = {"capture_output": True, "text": True, "timeout": 60, "cwd": folder, "env": environment}
    options |= {} if "stdin" in more else {"stdin": subprocess.DEVNULL}
    done: subprocess.CompletedProcess[str] = subprocess.run(
        [sys.executable, "-m", "cnllm", *arguments],
        **options | more,
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_AS, (2 << 30, 2 << 30)),
    )
    return done


@pytest.mark.sampled
@each("way", some(WAYS))
def test_a_device_without_an_end_is_an_error_that_names_it(tmp_path: Path, way: tuple[str, ...]) -> None:
    (tmp_path / "in.jsonl").write_text('{"prompt": "hi"}\n')
    done = run(tmp_path, *[word.replace("FILE", "/dev/zero") for word in way])
    assert done.returncode not in (0, -9), way
    text = done.stdout + done.stderr
    assert "/dev/zero" in text
    assert "Traceback" not in done.stderr
    assert "bug" not in done.stderr
    assert "bytes" in text or "device" in text or "regular file" in text, text


def test_a_batch_writes_no_device_and_no_pipe(tmp_path: Path) -> None:
    (tmp_path / "in.jsonl").write_text('{"prompt": "hi"}\n')
    os.mkfifo(tmp_path / "pipe")
    for name in ("/dev/null", "/dev/zero", "pipe"):
        done = run(tmp_path, "batch", "in.jsonl", "-m", "glm-4.7", "--simulate", "-o", name)
        assert done.returncode == 2
        assert f"{name} is a device or a pipe" in done.stderr
        assert not Path(f"{name}.state").exists()


def test_a_listing_reads_no_device_as_a_registry_file(tmp_path: Path) -> None:
    environment = {**os.environ, **home_folders.variables(tmp_path), "CNLLM_PROVIDERS": "/dev/zero"}
    done = run(tmp_path, "models", "list", "glm", env=environment)
    assert done.returncode == 2
    assert "/dev/zero: cannot be read: it has more than" in done.stderr


def test_registry_files_and_stdin_have_bounds(tmp_path: Path) -> None:
    config = home_folders.config_dir(tmp_path)
    config.mkdir(parents=True)
    for name in ("providers.toml", "keys.json", "default-model"):
        (config / name).symlink_to("/dev/zero")
        done = run(tmp_path, "call", "--simulate", "hi", *(() if name == "default-model" else ("-m", "glm-4.7")))
        (config / name).unlink()
        assert "bug" not in done.stderr
        assert done.returncode == 0 or "more than" in done.stderr
    with open("/dev/zero", "rb") as zero:
        for arguments in ((*CALL, "-"), (*CALL, "-a", "-", "hi"), ("keys", "set", "X_KEY")):
            done = run(tmp_path, *arguments, stdin=zero)
            assert done.returncode == 2, done.stderr
            assert "more than" in done.stderr


def test_a_pipe_is_read_to_its_end_and_no_longer_than_a_while(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    content = b"x" * 300_000
    writer = threading.Thread(target=lambda: pipe.write_bytes(content))
    writer.start()
    assert read_bounded(pipe) == content
    writer.join()
    monkeypatch.setattr(files, "_SILENCE", 0.1)
    with pytest.raises(OSError, match="nothing came for"):
        read_bounded(pipe)
    monkeypatch.setattr(files, "_DURATION", 0.3)
    end = os.open(pipe, os.O_RDWR)
    stop = threading.Event()

    def trickle() -> None:
        while not stop.wait(0.02):
            os.write(end, b"x")

    writer = threading.Thread(target=trickle)
    writer.start()
    try:
        with pytest.raises(OSError, match="did not end"):
            read_bounded(pipe)
    finally:
        stop.set()
        writer.join()
        os.close(end)


def test_a_bound_is_one_of_bytes(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"x" * 10)
    assert read_bounded(path, 10) == b"x" * 10
    for most in (9, 1, 0):
        with pytest.raises(OSError, match=f"more than {most} bytes"):
            read_bounded(path, most)
    assert read_bounded("/proc/self/status").startswith(b"Name:")
    for path, kind in ((tmp_path, IsADirectoryError), (tmp_path / "none", FileNotFoundError)):
        with pytest.raises(kind):
            read_bounded(path)
