"""Real clients, started by `cnllm launch` on the simulator: they call their own tools and print an answer."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import home_folders
import pytest

from .programs import AGENTS, FOLDERS, Program, search_path

pytestmark = pytest.mark.long

TALKERS = (
    Program("llm", (), ()),
    Program("aider", ("--no-git", "--yes", "--message"), (), {"LITELLM_LOCAL_MODEL_COST_MAP": "True"}),
)


@pytest.mark.parametrize("program", [*AGENTS, *TALKERS], ids=lambda program: program.name)
def test_a_newcomer_sees_it_work(program: Program, tmp_path: Path) -> None:
    """No key, no network, nothing set up."""
    if program.path() is None:
        pytest.skip(f"{program.name} is neither on PATH nor in a folder of {FOLDERS}")
    (tmp_path / "work").mkdir()
    (tmp_path / "work" / "a-file-to-find.txt").touch()
    env = {
        **{name: value for name, value in os.environ.items() if name in ("LANG", "TERM", "TMPDIR")},
        **{f"CNLLM_{kind}_DIR": str(tmp_path / kind.lower()) for kind in ("CONFIG", "DATA")},
        **dict.fromkeys(("HTTP_PROXY", "HTTPS_PROXY", "http_proxy", "https_proxy"), "http://127.0.0.1:9"),
        **program.environment,
        "CNLLM_CACHE_DIR": str(home_folders.cache_dir()),
        "HOME": str(tmp_path),
        "PATH": search_path(),
    }
    command = [sys.executable, "-m", "cnllm", "launch", program.name, "--model", "glm-4.7", "--simulate", "--"]
    done = subprocess.run(
        [*command, *program.first, "Which files are here?"],
        env=env,
        cwd=tmp_path / "work",
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done
    words = " ".join(done.stdout.split())  # some wrap their lines
    assert "Simulated answer" in words, done
    if program in AGENTS:
        assert "a-file-to-find.txt" in words, done
    log = tmp_path / "data" / "launch" / program.name / "gateway.log"
    assert log.read_text() == ""
