"""The gateways that are measured: how each is started and asked, and what it uses."""

import contextlib
import http.client
import json
import os
import re
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import urlsplit

from benchmarks import payloads
from benchmarks.peers import CNLLM_SERVE, CNLLM_SQLITE, DIRECT, LITELLM_PROXY, PORTKEY, RAW_GATEWAY
from benchmarks.processes import PATIENCE, Broken, Command, Missing, environment
from benchmarks.venvs import HOME, ROOT, binary

MODEL = "deepseek-v4-pro"
"""A model whose reasoning goes back to it: a gateway that keeps it has the most to do."""
_MESSAGES = "anthropic-messages"
_PATHS = {"openai-chat": "/v1/chat/completions", _MESSAGES: "/v1/messages"}
_END_SECONDS = 15
_SETTLE_SECONDS = 30


class Wrong(Broken):
    """An answer that is not the endpoint's."""


class Gateway(NamedTuple):
    """A gateway that runs."""

    url: str
    pid: int
    ready: float  # seconds from its start to its first answer
    headers: dict[str, str]

    def address(self, wire: str) -> str:
        """Return the URL of requests over a wire."""
        return self.url + _PATHS[wire]


def request_body(wire: str, stream: bool, turns: int | None = None) -> bytes:
    """Return the body that clients of a wire send: four messages and two tools, or so many messages of an agent."""
    body: dict[str, Any] = {**payloads.body(stream), "model": MODEL}
    if turns is not None:
        body["messages"] = payloads.agent_history(turns)
    if wire == _MESSAGES:
        system, *messages = payloads.MESSAGES
        tools = [{"name": t["function"]["name"], "input_schema": t["function"]["parameters"]} for t in payloads.TOOLS]
        body = {"model": MODEL, "system": system["content"], "messages": messages, "tools": tools, **payloads.LIMITS}
        body |= {"stream": True} if stream else {}
    return json.dumps(body, ensure_ascii=False, separators=(",", ":")).encode()


@contextlib.contextmanager
def running(peer: str, stub_port: int, home: Path) -> Iterator[Gateway]:
    """Run a gateway in front of the stub. Raises `Missing` where it is not installed, `Broken` where it fails."""
    endpoint = f"http://127.0.0.1:{stub_port}/m200"
    headers = {"content-type": "application/json", "authorization": f"Bearer {payloads.KEY}"}
    if peer == DIRECT:
        yield Gateway(endpoint, 0, 0.0, headers)
        return
    port = _free_port()
    command, env, more = _COMMANDS[peer](port, f"{endpoint}/v1", home)
    start = time.perf_counter()
    with tempfile.TemporaryFile("w+") as log:
        process = subprocess.Popen(command, cwd=ROOT, env=environment(home, "fast") | env, stdout=log, stderr=log)
        try:
            while not _answers(port):
                if process.poll() is not None or time.perf_counter() - start > PATIENCE:
                    log.seek(0)
                    raise Broken(log.read())
                time.sleep(0.005)
            ready = time.perf_counter() - start
            yield Gateway(f"http://127.0.0.1:{port}", process.pid, ready, headers | more)
        finally:
            process.send_signal(signal.SIGTERM)
            try:
                process.wait(_END_SECONDS)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


def check(gateway: Gateway, wire: str, stream: bool) -> None:
    """Ask a gateway once. Raises `Wrong` unless its answer has the endpoint's reasoning, text and arguments."""
    url = urlsplit(gateway.address(wire))
    connection = http.client.HTTPConnection(url.netloc, timeout=PATIENCE)
    with contextlib.closing(connection):
        try:
            connection.request("POST", url.path, request_body(wire, stream), gateway.headers)
            response = connection.getresponse()
            content = response.read()
        except (OSError, http.client.HTTPException) as error:
            raise Broken(f"no answer: {error!r}") from error
    if response.status != 200:
        raise Wrong(f"status {response.status}: {content[:120]!r}")
    expected = payloads.Setting(0, "m", 200 if stream else 0).expected
    try:
        reasoning, text, arguments = (_read_events if stream else _read_body)(wire, content)
        answer = payloads.Got(len(reasoning), len(text), json.loads(arguments or "null"))
    except (ValueError, LookupError, TypeError) as error:
        raise Wrong(f"wrong result ({error!r}): {content[:120]!r}") from error
    if answer != expected:
        raise Wrong(f"wrong result: got {answer}, expected {expected}")


def _read_body(wire: str, content: bytes) -> tuple[str, str, str]:
    """Return reasoning, text and arguments of a whole answer."""
    body = json.loads(content)
    if wire != _MESSAGES:
        message = body["choices"][0]["message"]
        arguments = message["tool_calls"][0]["function"]["arguments"]
        return message.get("reasoning_content") or "", message["content"], arguments
    texts = {"thinking": "", "text": "", "tool_use": ""}
    for block in body["content"]:
        kind = block["type"]
        texts[kind] += json.dumps(block["input"]) if kind == "tool_use" else block[kind]
    return texts["thinking"], texts["text"], texts["tool_use"]


def _read_events(wire: str, content: bytes) -> tuple[str, str, str]:
    """Return reasoning, text and arguments of a stream."""
    reasoning = text = arguments = ""
    for line in re.findall(rb"^data: ?(\{.*)$", content, re.MULTILINE):
        event = json.loads(line)
        if wire == _MESSAGES:
            delta = event.get("delta") or {}
            reasoning += delta.get("thinking", "")
            text += delta.get("text", "")
            arguments += delta.get("partial_json", "")
            continue
        for choice in event.get("choices") or ():
            delta = choice["delta"]
            reasoning += delta.get("reasoning_content") or ""
            text += delta.get("content") or ""
            for call in delta.get("tool_calls") or ():
                arguments += call["function"].get("arguments") or ""
    return reasoning, text, arguments


# ── what a gateway uses ───────────────────────────────────────────────────────


def cpu_seconds(pid: int) -> float:
    """Return the user and system time of a process and those that it started; 0 where nobody tells."""
    ticks = 0
    for process in _family(pid):
        with contextlib.suppress(OSError):
            fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
            ticks += int(fields[11]) + int(fields[12])
    return ticks / os.sysconf("SC_CLK_TCK")


def settle(pid: int) -> None:
    """Wait until a process rests: requests whose client has gone may still run, on the core of the next gateway."""
    end = time.monotonic() + _SETTLE_SECONDS
    while time.monotonic() < end:
        before = cpu_seconds(pid)
        time.sleep(0.1)
        if cpu_seconds(pid) - before <= 0.01:
            return


def resident_bytes(pid: int) -> int | None:
    """Return the resident memory of a process and those that it started; None where nobody tells."""
    pages = 0
    for process in _family(pid):
        with contextlib.suppress(OSError):
            pages += int(Path(f"/proc/{process}/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") or None


def _family(pid: int) -> list[int]:
    """Return a process and those that it started."""
    pids = [pid]
    for children in Path(f"/proc/{pid}/task").glob("*/children"):
        with contextlib.suppress(OSError):
            for child in children.read_text().split():
                pids += _family(int(child))
    return pids


# ── starting ──────────────────────────────────────────────────────────────────

Start = tuple[Command, dict[str, str], dict[str, str]]
"""A command, its environment, and the headers of requests."""


def _raw(port: int, endpoint: str, home: Path) -> Start:
    return [binary(), "-m", "benchmarks.runners.raw_gateway", str(port), endpoint], {}, {}


def _cnllm(store: str, *more: str) -> Callable[[int, str, Path], Start]:
    def command(port: int, endpoint: str, home: Path) -> Start:
        folder = home / "CONFIG" / "cnllm"
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "providers.toml").write_text(f'[providers.deepseek]\nbase_url = "{endpoint}"\nkeys = ["BENCH_KEY"]\n')
        # A wheel has the registry parsed. A checkout parses it once, which takes 13 MB that nobody gets back.
        warm: Command = [binary("cnllm"), "models", "show", MODEL]
        subprocess.run(warm, cwd=ROOT, env=environment(home, "fast"), check=True, stdout=subprocess.DEVNULL)
        options = ["--port", str(port), "--key", payloads.KEY, "--store", store.format(home=home)]
        options += ["--map", f"{MODEL}=deepseek/{MODEL}", *more]
        return [binary("cnllm"), "serve", *options], {}, {}

    return command


def _portkey(port: int, endpoint: str, home: Path) -> Start:
    script = HOME / "portkey" / "node_modules" / "@portkey-ai" / "gateway" / "build" / "start-server.js"
    node = shutil.which("node")
    if node is None or not script.exists():
        raise Missing("it is not installed: `python -m benchmarks setup` does so where there is npm")
    headers = {"x-portkey-provider": "openai", "x-portkey-custom-host": endpoint}
    return [node, script, f"--port={port}", "--headless"], {"TRUSTED_CUSTOM_HOSTS": "127.0.0.1"}, headers


def _litellm(port: int, endpoint: str, home: Path) -> Start:
    program = binary("litellm", env="litellm")
    if not program.exists():
        raise Missing("there is no environment litellm: `python -m benchmarks setup` makes it")
    settings = home / "litellm.yaml"
    settings.write_text(
        f"model_list:\n  - model_name: {MODEL}\n    litellm_params:\n      model: deepseek/{MODEL}\n"
        f"      api_base: {endpoint}\n      api_key: {payloads.KEY}\nlitellm_settings:\n  telemetry: false\n"
        "router_settings:\n  disable_cooldowns: true\n"
    )
    options = ["--config", str(settings), "--host", "127.0.0.1", "--port", str(port), "--num_workers", "1"]
    return [program, *options], {"LITELLM_LOG": "ERROR", "LITELLM_MASTER_KEY": payloads.KEY}, {}


_COMMANDS: dict[str, Callable[[int, str, Path], Start]] = {
    RAW_GATEWAY: _raw,
    CNLLM_SERVE: _cnllm("memory:"),
    CNLLM_SQLITE: _cnllm("sqlite:{home}/gateway.db"),
    PORTKEY: _portkey,
    LITELLM_PROXY: _litellm,
}


def _free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port: int = listener.getsockname()[1]
        return port


def _answers(port: int) -> bool:
    """Whether a gateway answers a request, with whatever status."""
    try:
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=PATIENCE)
        with contextlib.closing(connection):
            connection.request("GET", "/healthz")
            connection.getresponse().read()
    except (OSError, http.client.HTTPException):
        return False
    return True
