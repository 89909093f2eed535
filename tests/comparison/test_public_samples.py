"""Public samples of other instruments, judged by `cnllm compare` and by their own validators. They are not part of this
project: PUBLIC_SAMPLES names a folder that holds

- `compatibility-test`, that folder of openai/gpt-oss after `npm install` and `npm install tsx` there, and
- `benchmark-result`, with `results-*.jsonl` and `summary-*.json` as the script of MoonshotAI/K2-Vendor-Verifier writes
  them. Those of cndoit18/LLM-Vendor-Verfier, which runs it on samples of its own, are public.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

import pytest

from cnllm import Registry
from cnllm.comparison import ComparisonTask, TaskChoice, choose_hosts
from cnllm.comparison.hosts import NewConnections
from cnllm.comparison.report import Comparison, ask_hosts
from cnllm.comparison.run import Budget, LiveExchanges
from cnllm.comparison.tasks import RightStep
from cnllm.schemas.validate import validation_errors

from .test_compare import OVERLAY

SAMPLES = Path(os.environ.get("PUBLIC_SAMPLES", "/nowhere"))
PROVIDER = 'export const PROVIDERS = {here: {apiBaseUrl: "%s", apiKey: "k", apiType: ["chat"], modelName: "m"}};\n'


class SampleChoice(TaskChoice, frozen=True):
    """The tasks of samples."""

    samples: tuple[ComparisonTask, ...] = ()

    @property
    def tasks(self) -> tuple[ComparisonTask, ...]:
        return self.samples


def compare_one(
    folder: Path, tasks: tuple[ComparisonTask, ...], transport: Any, url: str = "https://home.test/v1"
) -> Comparison:
    """Ask one host the samples."""
    path = folder / "overlay.toml"
    path.write_text(OVERLAY.replace("https://home.test/v1", url))
    registry = Registry.load(path)
    model = registry.resolve("home/m")
    settings = SampleChoice(0, len(tasks), samples=tasks)
    (host,), _ = choose_hosts(registry, model, [model.name], need_keys=False)
    budget = Budget({})
    live = {host.name: LiveExchanges(transport, budget, None)}
    return ask_hosts(registry, model, [host], settings, budget, live)


def as_stream(choice: Mapping[str, Any], usage: Any = None) -> list[bytes]:
    """A whole reply as the pieces of a stream."""
    message = choice["message"]
    calls = [{**call, "index": index} for index, call in enumerate(message.get("tool_calls") or [])]
    delta = {"role": "assistant", "content": message.get("content"), "tool_calls": calls}
    if message.get("reasoning"):
        delta["reasoning"] = message["reasoning"]
    chunk = {"id": "c", "object": "chat.completion.chunk", "model": "m"}
    finish = {"index": 0, "delta": {}, "finish_reason": choice["finish_reason"]}
    chunks = [
        {**chunk, "choices": [{"index": 0, "delta": delta, "finish_reason": None}]},
        {**chunk, "choices": [finish], "usage": usage},
    ]
    return [*(f"data: {json.dumps(part)}\n\n".encode() for part in chunks), b"data: [DONE]\n\n"]


# ── the results of K2-Vendor-Verifier ────────────────────────────────────────
class Recorded:
    """A transport that gives recorded responses, one after the other."""

    def __init__(self, rows: list[dict[str, Any]]) -> None:
        self._rows = iter(rows)

    def send(self, plan: Any) -> Any:
        response = next(self._rows)["response"]
        pieces = as_stream(response["choices"][0], response.get("usage"))
        return 200, {"content-type": "text/event-stream"}, iter(pieces)


def recorded_task(row: Mapping[str, Any]) -> ComparisonTask:
    request = row["request"]
    prompt = "\n".join(str(message["content"]) for message in request["messages"])
    tools = {tool["function"]["name"]: tool for tool in reversed(request["tools"])}  # of a name, they take the first
    steps = (RightStep(((next(iter(tools)), {}),)),)  # their validator expects no certain call
    return ComparisonTask(str(row["data_index"]), "call", "en", prompt, steps, tuple(tools.values()))


def has_schema(tool: Mapping[str, Any]) -> bool:
    """Whether the parameters of a tool are a JSON Schema. Their validator finds every call of another one wrong."""
    try:
        validation_errors({}, tool["function"]["parameters"])
    except ValueError:
        return False
    return True


def count(rows: list[dict[str, Any]]) -> dict[str, int]:
    """What their validator found in these rows."""
    return {
        "success_count": sum(row["status"] == "success" for row in rows),
        "finish_tool_calls": sum(row["finish_reason"] == "tool_calls" for row in rows),
        "successful_tool_call_count": sum(row["tool_calls_valid"] is True for row in rows),
        "schema_validation_error_count": sum(row["tool_calls_valid"] is False for row in rows),
    }


@pytest.mark.long
@pytest.mark.skipif(not (SAMPLES / "benchmark-result").is_dir(), reason="the public results are not here")
def test_recorded_results_are_judged_as_their_own_validator_judges_them(tmp_path: Path) -> None:
    paths = sorted((SAMPLES / "benchmark-result").glob("results-*.jsonl"))
    assert paths
    for path in paths:
        summary = json.loads(
            path.with_name(path.name.replace("results-", "summary-")).with_suffix(".json").read_bytes()
        )
        rows = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
        assert count(rows) == {name: summary[name] for name in count(rows)}
        rows = [row for row in rows if row["status"] == "success" and all(map(has_schema, row["request"]["tools"]))]
        assert len(rows) > 500
        report = compare_one(tmp_path, tuple(map(recorded_task, rows)), Recorded(rows))
        shares = report.figures[0].shares
        own = {
            "success_count": shares["answered"].good,
            "finish_tool_calls": shares["called"].good,
            "successful_tool_call_count": shares["valid"].good,
            "schema_validation_error_count": shares["valid"].tasks - shares["valid"].good,
        }
        assert own == count(rows), path.name
        wrong = {task for task, why in report.problems["home/m"].items() if why == "arguments do not fit their schema"}
        assert wrong == {str(row["data_index"]) for row in rows if row["tool_calls_valid"] is False}


# ── the compatibility test of gpt-oss ────────────────────────────────────────
class SampleHost:
    """A host over HTTP that answers some cases rightly, and the others wrongly in several ways."""

    def __init__(self, cases: list[dict[str, Any]]) -> None:
        self._kinds = {case["input"]: (index % 6, case) for index, case in enumerate(cases)}
        self.tools: dict[str, dict[str, Any]] = {}  # by the text of the case, as the other program sends them

    def choice(self, body: Mapping[str, Any]) -> dict[str, Any]:
        """Return the choice of a reply."""
        text = next(message["content"] for message in body["messages"] if message["role"] == "user")
        text = text if isinstance(text, str) else text[0]["text"]
        self.tools.setdefault(text, body["tools"][0])
        kind, case = self._kinds[text]
        message: dict[str, Any] = {"role": "assistant", "content": None, "reasoning": "I think."}
        arguments = json.loads(case["expected_arguments"])
        if kind == 3:
            arguments = {name: [[value]] for name, value in arguments.items()}
        if kind == 4:
            arguments = {name: f"{value}!" if isinstance(value, str) else value for name, value in arguments.items()}
        if body["messages"][-1]["role"] == "tool" or kind in (2, 5):
            markup = f'<tool_call>\n{{"name": "{case["tool_name"]}", "arguments": {{}}}}\n</tool_call>'
            message["content"] = markup if kind == 5 else "That is all."
            return {"index": 0, "message": message, "finish_reason": "stop"}
        function = {"name": case["tool_name"], "arguments": json.dumps(arguments)}
        message["tool_calls"] = [{"id": "call_1", "type": "function", "function": function}]
        return {"index": 0, "message": message, "finish_reason": "tool_calls"}


@contextmanager
def serving(host: SampleHost) -> Iterator[str]:
    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["content-length"])))
            choice, usage = host.choice(body), {"prompt_tokens": 9, "completion_tokens": 9, "total_tokens": 18}
            whole = {"id": "c", "object": "chat.completion", "model": "m", "choices": [choice], "usage": usage}
            content = b"".join(as_stream(choice, usage)) if body.get("stream") else json.dumps(whole).encode()
            self.send_response(200)
            self.send_header("content-type", "text/event-stream" if body.get("stream") else "application/json")
            self.send_header("content-length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        def log_message(self, format: str, *args: Any) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = Thread(target=server.serve_forever, args=(0.05,), daemon=True)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}/v1"
        server.shutdown()
        thread.join()


@pytest.mark.long
@pytest.mark.skipif(not (SAMPLES / "compatibility-test").is_dir(), reason="the public cases are not here")
@pytest.mark.skipif(shutil.which("node") is None, reason="no JavaScript here")
def test_the_cases_of_a_compatibility_test_are_judged_as_its_own_program_judges_them(tmp_path: Path) -> None:
    source, work = SAMPLES / "compatibility-test", tmp_path / "work"
    work.mkdir()
    for path in source.iterdir():
        if path.suffix in (".ts", ".json", ".jsonl"):
            shutil.copy(path, work)
    (work / "node_modules").symlink_to(source / "node_modules")
    cases = [json.loads(line) for line in (source / "cases.jsonl").read_text(encoding="utf-8").splitlines() if line]
    host = SampleHost(cases)
    with serving(host) as url:
        (work / "providers.ts").write_text(PROVIDER % url)
        command = ["node", str(source / "node_modules" / "tsx" / "dist" / "cli.mjs"), "index.ts", "--provider", "here"]
        subprocess.run(command, cwd=work, check=True, capture_output=True, timeout=300)
        tasks = tuple(
            ComparisonTask(
                f"case-{index}",
                "call",
                "en",
                case["input"],
                (RightStep(((case["tool_name"], json.loads(case["expected_arguments"])),)),),
                (host.tools[case["input"]],),
            )
            for index, case in enumerate(cases)
        )
        connections = NewConnections()
        report = compare_one(tmp_path, tasks, connections, url)
        connections.close()
    (rollout,) = work.glob("rollout_here_*.jsonl")
    details = [json.loads(line)["result"]["toolCallingDetails"] for line in rollout.read_text().splitlines()]
    (analysis,) = work.glob("analysis_here_*.json")
    shares = report.figures[0].shares
    assert len(details) == shares["called"].tasks == len(cases)
    for figure, name in (
        ("called", "calledToolAtLeastOnce"),
        ("valid", "calledToolWithRightSchema"),
        ("call", "calledToolWithRightArguments"),
    ):
        assert shares[figure].good == sum(bool(detail.get(name)) for detail in details), figure
        assert 0 < shares[figure].good < len(cases)
    wrong = json.loads(analysis.read_text())["wrongInputToolCalls"]
    assert shares["valid"].good - shares["call"].good == wrong
