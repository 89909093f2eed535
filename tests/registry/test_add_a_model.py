"""Adding a model is six lines in an overlay, and no Python: done here as a user would do it."""

from __future__ import annotations

import json
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import program
import pytest

from cnllm import Client
from cnllm.config import paths

KEY = "sk-home-0123456789abcdef"
SIX_LINES = """\
[providers.home]
protocol = "openai-chat"
base_url = "{url}/v1"
keys = ["HOME_KEY"]
[models."home/my-model"]
reasoning = {{ mode = "toggle", on.set.think = true, off.set.think = false, fields = ["thoughts"] }}
"""


class Endpoint(ThreadingHTTPServer):
    """It thinks if it is told so, streams if it is asked to, and keeps what came."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.bodies: list[dict[str, Any]] = []
        self.heads: list[tuple[str, str | None]] = []

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}"


class Handler(BaseHTTPRequestHandler):
    def do_POST(self) -> None:
        assert isinstance(self.server, Endpoint)
        body = json.loads(self.rfile.read(int(self.headers["content-length"])))
        self.server.bodies.append(body)
        self.server.heads.append((self.path, self.headers["authorization"]))
        said = {"role": "assistant", "content": "Blue."} | ({"thoughts": "Light…"} if body.get("think") else {})
        usage = {"prompt_tokens": 3, "completion_tokens": 2, "total_tokens": 5}
        if body.get("stream"):
            chunks: list[dict[str, Any]] = [
                {"choices": [{"index": 0, "delta": said, "finish_reason": None}]},
                {"choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]},
                {"choices": [], "usage": usage},
            ]
            answer = "".join(f"data: {json.dumps({'id': '1', **chunk})}\n\n" for chunk in chunks) + "data: [DONE]\n\n"
            kind = "text/event-stream"
        else:
            choice = {"index": 0, "message": said, "finish_reason": "stop"}
            answer, kind = json.dumps({"id": "1", "choices": [choice], "usage": usage}), "application/json"
        self.send_response(200)
        self.send_header("content-type", kind)
        self.send_header("content-length", str(len(answer.encode())))
        self.end_headers()
        self.wfile.write(answer.encode())

    def log_message(self, format: str, *args: Any) -> None:
        """Quiet."""


@contextmanager
def endpoint() -> Iterator[Endpoint]:
    with Endpoint() as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True)
        thread.start()
        try:
            yield server
        finally:
            server.shutdown()
            thread.join()


@pytest.fixture
def home(monkeypatch: pytest.MonkeyPatch) -> Iterator[Endpoint]:
    """The six lines in the config folder, and the endpoint they speak of."""
    with endpoint() as server:
        text = SIX_LINES.format(url=server.url)
        assert len(text.splitlines()) == 6
        paths.config_dir().mkdir(parents=True)
        (paths.config_dir() / "providers.toml").write_text(text)
        monkeypatch.setenv("HOME_KEY", KEY)
        yield server


def cnllm(*args: str) -> subprocess.CompletedProcess[str]:
    return program.completed(args, {"NO_COLOR": "1"}, cwd=paths.config_dir())


@pytest.mark.parametrize("name", ["my-model", "home/my-model", "MY-MODEL"])
def test_the_shell_calls_it(home: Endpoint, name: str) -> None:
    run = cnllm("call", "--model", name, "--reasoning", "on", "--show-reasoning", "Why is the sky blue?")
    assert (run.returncode, run.stdout.strip()) == (0, "Blue."), run.stderr
    assert "Light…" in run.stderr
    (body,) = home.bodies
    assert body["model"] == "my-model"
    assert body["messages"] == [{"role": "user", "content": "Why is the sky blue?"}]
    assert body["think"] is True
    assert body["stream"] is True
    assert home.heads == [("/v1/chat/completions", f"Bearer {KEY}")]
    assert KEY not in run.stdout + run.stderr


def test_the_shell_calls_it_whole_and_without_reasoning(home: Endpoint) -> None:
    run = cnllm(
        "call", "--model", "my-model", "--reasoning", "off", "--no-stream", "--json", "-p", "temperature=0.5", "hi"
    )
    assert run.returncode == 0, run.stderr
    reply = json.loads(run.stdout)
    assert (reply["text"], reply["reasoning"], reply["finish"]) == ("Blue.", "", "stop")
    (body,) = home.bodies
    assert body == {
        "model": "my-model",
        "messages": [{"role": "user", "content": "hi"}],
        "think": False,
        "temperature": 0.5,
    }


@pytest.mark.usefixtures("small_builtin")
def test_the_shell_lists_explains_and_checks_it(home: Endpoint) -> None:
    assert "home/my-model" in cnllm("models", "list").stdout
    shown = cnllm("models", "show", "my-model", "--explain", "--json")
    assert shown.returncode == 0, shown.stderr
    lines = {fact["flag"]: fact["where"] for fact in json.loads(shown.stdout)}
    assert lines["base_url"] == f"{paths.config_dir() / 'providers.toml'}:3"
    assert lines["reasoning.on.set.think"] == f"{paths.config_dir() / 'providers.toml'}:6"
    run = cnllm("registry", "check")
    assert (run.returncode, run.stdout) == (0, ""), run.stdout


def test_a_slip_in_the_six_lines_is_told_and_nothing_is_sent(home: Endpoint) -> None:
    path = paths.config_dir() / "providers.toml"
    path.write_text(path.read_text().replace("reasoning =", "reasonning ="))
    run = cnllm("call", "--model", "my-model", "hi")
    assert (run.returncode, run.stdout, home.bodies) == (2, "", [])
    assert f"{path}:6: " in run.stderr
    assert "Did you mean 'reasoning'?" in run.stderr
    assert "Traceback" not in run.stderr


def test_a_program_calls_it(home: Endpoint) -> None:
    with Client() as client:
        reply = client.call("my-model", "hi", reasoning="on")
        assert (reply.text, reply.reasoning, reply.finish) == ("Blue.", "Light…", "stop")
        assert (reply.usage.input, reply.usage.output, reply.usage.total) == (3, 2, 5)
        assert reply.message.by == "home/my-model"
        with client.stream("my-model", "hi", reasoning="off") as stream:
            list(stream)
            assert (stream.reply.text, stream.reply.reasoning) == ("Blue.", "")
    assert [body.get("think") for body in home.bodies] == [True, False]
    assert [body.get("stream", False) for body in home.bodies] == [False, True]


def test_a_program_may_name_the_file_itself(tmp_path: Path) -> None:
    from cnllm import Registry

    with endpoint() as server:
        path = tmp_path / "mine.toml"
        path.write_text(SIX_LINES.format(url=server.url))
        with Client(Registry.load(path), api_key=KEY) as client:
            assert client.call("my-model", "hi").text == "Blue."
        assert server.heads == [("/v1/chat/completions", f"Bearer {KEY}")]
        assert "think" not in server.bodies[0]


def test_three_more_lines_make_a_second_model_of_it(home: Endpoint) -> None:
    path = paths.config_dir() / "providers.toml"
    path.write_text(path.read_text() + '[models."home/other"]\nextends = "home/my-model"\ncall.reasoning = "on"\n')
    with Client() as client:
        assert client.call("other", "hi").reasoning == "Light…"
    assert home.bodies[0]["model"] == "other"
