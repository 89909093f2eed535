"""Keys stay where they are: a query travels without any, and each process uses its own."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from .support import KEY, answers, serve_models, session, simulator  # isort: skip - first: skips

import daft
import daft.pickle
from batch.stub import stub
from daft.functions import prompt

import cnllm

WORKER = """
import pathlib, sys, daft.pickle, daft
expression = daft.pickle.loads(pathlib.Path(sys.argv[1]).read_bytes())
frame = daft.from_pydict({"question": ["a", "b"]})
print(frame.select(expression.alias("answer")).to_pydict()["answer"])
"""

FORKS = """
import os, daft, cnllm
from daft.functions import prompt
session = daft.Session()
session.attach_provider(cnllm.daft.provider(model="home/m"))
with session:
    expression = prompt(daft.col("question"), provider="cnllm")
children = []
for number in range(3):
    if (child := os.fork()) == 0:
        frame = daft.from_pydict({"question": [f"{number}-{n}" for n in range(20)]})
        found = frame.select(expression.alias("answer")).to_pydict()["answer"]
        os._exit(0 if found == [f"re: {number}-{n}" for n in range(20)] else 1)
    children.append(child)
print([os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in children])
"""


def pickled(**options: Any) -> bytes:
    """Return a `prompt` as Daft sends it to a worker."""
    with session():
        data: bytes = daft.pickle.dumps(prompt(daft.col("question"), provider="cnllm", **options))
    return data


def work(data: bytes, folder: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    """Compute a pickled `prompt` in a process of its own."""
    file = folder / "expression"
    file.write_bytes(data)
    return subprocess.run(
        [sys.executable, "-c", WORKER, str(file)],
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        timeout=120,
    )


def test_a_worker_uses_its_own_key_and_the_pickle_holds_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME_TEST_KEY", KEY)
    with stub() as server:
        serve_models(server)
        assert answers(["here"]) == ["re: here"]
        data = pickled(model="home/m", return_format=cnllm.daft.Answer)
        assert KEY.encode() not in data
        done = work(data, tmp_path, HOME_TEST_KEY="sk-of-the-worker-0123456789")
        assert "'text': 're: b'" in done.stdout, done.stderr
    assert server.keys == [KEY, "sk-of-the-worker-0123456789", "sk-of-the-worker-0123456789"]
    assert "sk-of-the-worker" not in done.stdout + done.stderr


def test_a_worker_without_a_key_says_so_whatever_on_error_is(tmp_path: Path) -> None:
    done = work(pickled(model="glm-4.7", on_error="ignore"), tmp_path)
    assert done.returncode != 0
    assert "no key for zai: none of ZAI_API_KEY, ZHIPU_API_KEY is set" in done.stderr
    assert "on the worker" in done.stderr
    assert "keys do not travel with a query" in done.stderr


def test_a_worker_reads_its_own_keys_file(tmp_path: Path) -> None:
    with stub() as server:
        serve_models(server)
        command = [sys.executable, "-m", "cnllm", "keys", "set", "HOME_TEST_KEY"]
        subprocess.run(command, input=f"{KEY}\n", text=True, check=True, capture_output=True)
        done = work(pickled(model="home/m"), tmp_path)
        assert done.stdout == "['re: a', 're: b']\n", done.stderr
    assert server.keys == [KEY, KEY]


def test_forked_processes_answer_each_on_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    with stub() as server:
        serve_models(server)
        done = subprocess.run([sys.executable, "-c", FORKS], capture_output=True, text=True, timeout=120)
    assert done.stdout == "[0, 0, 0]\n", done.stderr


@pytest.mark.parametrize(
    "options",
    [
        {"api_key": KEY},
        {"extra_headers": {"Authorization": f"Bearer {KEY}"}},
        {"base_url": f"https://user:{KEY}@example.org/v1"},
        {"base_url": f"https://example.org/v1?api_key={KEY}"},
    ],
)
def test_an_option_with_a_key_is_refused(options: dict[str, Any]) -> None:
    for where in (lambda: cnllm.daft.provider(**options), lambda: pickled(model="glm-4.7", **options)):
        with pytest.raises(cnllm.CnllmError, match="travel") as caught:
            where()
        assert KEY not in f"{caught.value} {caught.value.hint}"


def test_a_set_of_tools_is_refused() -> None:
    tools = [cnllm.mcp(["a-server"], env={"TOKEN": KEY})]
    with pytest.raises(cnllm.CnllmError, match="set of tools"):
        pickled(model="glm-4.7", tools=tools)


def test_no_key_in_the_error_of_a_row(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME_TEST_KEY", KEY)
    with stub(rule=lambda prompt, _: (401, {"error": {"message": f"wrong key {KEY}"}}, {})) as server:
        serve_models(server)
        (found,) = answers(["a"], on_error="log", return_format=cnllm.daft.Answer)
    assert found["error"].startswith("BadKey: wrong key")
    assert KEY not in str(found)


def test_the_simulator_answers_over_a_socket_too(monkeypatch: pytest.MonkeyPatch) -> None:
    with simulator(monkeypatch):
        assert 'You said: "Hi"' in answers(["Hi"], model="glm-4.7")[0]
