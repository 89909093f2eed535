"""A query on Daft's Ray runner: workers find their own keys, and Ray's files hold none."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from .support import KEY, serve_models  # isort: skip - first: skips

from batch.stub import stub

pytest.importorskip("ray.data")

PROGRAM = """
import json, sys
import ray

ray.init(num_cpus=2, include_dashboard=False, _temp_dir=sys.argv[1])
import daft
from daft.functions import prompt
import cnllm

daft.set_runner_ray()
session = daft.Session()
session.attach_provider(cnllm.daft.provider(model="home/m"))
frame = daft.from_pydict({"q": [f"q{n}" for n in range(200)]}).into_partitions(2)
with session:
    frame = frame.with_column("a", prompt(daft.col("q"), provider="cnllm", return_format=cnllm.daft.Answer))
    answer = prompt(daft.col("q"), provider="cnllm", model="glm-4.7", on_error="ignore")
    bad = daft.from_pydict({"q": ["x"]}).with_column("a", answer)
rows = frame.to_pydict()
texts = dict(zip(rows["q"], (answer["text"] for answer in rows["a"])))
try:
    bad.collect()
    missing = ""
except Exception as error:
    missing = str(error)
print(json.dumps({"texts": texts, "missing": missing}))
"""


@pytest.fixture
def folder() -> Iterator[Path]:
    """A folder with a short path, as Ray's sockets need."""
    made = Path(tempfile.mkdtemp(prefix="cn-"))
    yield made
    shutil.rmtree(made, ignore_errors=True)


@pytest.mark.long
def test_workers_of_ray_use_their_own_keys_and_ray_stores_none(folder: Path) -> None:
    with stub() as server:
        serve_models(server)
        command = [sys.executable, "-m", "cnllm", "keys", "set", "HOME_TEST_KEY"]
        subprocess.run(command, input=f"{KEY}\n", text=True, check=True, capture_output=True)
        environment = {**os.environ, "RAY_USAGE_STATS_ENABLED": "0"}
        done = subprocess.run(
            [sys.executable, "-c", PROGRAM, str(folder)],
            env=environment,
            capture_output=True,
            text=True,
            timeout=300,
        )
    assert done.returncode == 0, done.stderr[-3000:]
    found = json.loads(done.stdout.splitlines()[-1])
    assert found["texts"] == {f"q{n}": f"re: q{n}" for n in range(200)}
    assert set(server.keys) == {KEY}
    assert "no key for zai: none of ZAI_API_KEY, ZHIPU_API_KEY is set" in found["missing"]
    assert "on the worker" in found["missing"]
    files = [path for path in folder.rglob("*") if path.is_file()]
    assert files, "Ray has written its logs here"
    assert [path for path in files if KEY.encode() in path.read_bytes()] == []
    assert KEY not in done.stdout + done.stderr
