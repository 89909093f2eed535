"""J1, J4, J5: weight, secrets, new models without a release."""

import json
import logging
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from cases import each

import cnllm
from cnllm import Client, Registry

from .support import (
    SSE_HEAD,
    Json,
    Server,
    Wire,
    anywhere,
    call_turn,
    chunk,
    cli,
    failed,
    frame,
    http,
    ok,
    overlay,
    overlay_text,
    plan,
    python,
    read_whole,
    result_turn,
    seen,
    sse,
    text_chunks,
    tool,
    whole_body,
)

CANARY = "sk-canary-5f1d0c2e9b7a4d63"

# ── J1 ───────────────────────────────────────────────────────────────────────
WATCH = """
import sys
touched = []
def hook(event, args):
    if event.startswith("socket."):
        touched.append(event)
sys.addaudithook(hook)
{run}
heavy = ("httpx", "pydantic", "pydantic_settings", "jsonschema", "rich", "requests", "openai")
print("LOADED", sorted(m for m in heavy if m in sys.modules), touched)
"""


def test_J1_importing_loads_nothing_heavy_and_opens_no_socket() -> None:
    done = python(WATCH.format(run="import cnllm"))
    assert done.stdout.strip() == "LOADED [] []", done.stderr


def test_J1_the_public_names_are_there_all_the_same() -> None:
    done = python("import cnllm; print(*sorted(n for n in cnllm.__all__ if getattr(cnllm, n, None) is None))")
    assert (done.stdout.strip(), done.returncode) == ("", 0), done.stderr


@each("args", [["--help"], ["call", "--help"], ["models", "--help"]])
def test_J1_help_loads_nothing_heavy_and_opens_no_socket(args: list[str]) -> None:
    run = (
        f"sys.argv = ['cnllm', *{args!r}]\nfrom cnllm.cli import main\n"
        "try:\n    main()\nexcept SystemExit as done:\n    assert not done.code, done.code"
    )
    done = python(WATCH.format(run=run))
    assert done.stdout.splitlines()[-1] == "LOADED [] []", done.stderr
    assert "Usage" in done.stdout


def test_J1_planning_opens_no_socket() -> None:
    run = (
        "import cnllm\nfrom cnllm import engine\n"
        "model = cnllm.Registry.load().resolve('deepseek/deepseek-flash')\n"
        "assert engine.build_request(model, 'hi').body['messages']"
    )
    done = python(WATCH.format(run=run))
    assert done.stdout.strip() == "LOADED [] []", done.stderr


# ── J4 ───────────────────────────────────────────────────────────────────────
def _shown(error: BaseException) -> str:
    """Everything of an exception that could end in a log: text, fields, traceback, and what caused it."""
    parts: list[str] = []
    todo: list[BaseException | None] = [error]
    done: list[BaseException] = []
    while todo:
        one = todo.pop()
        if one is None or one in done:
            continue
        done.append(one)
        fields = vars(one)
        parts += [str(one), repr(one), repr(one.args), repr(fields), *map(str, fields.values())]
        parts += getattr(one, "__notes__", [])
        todo += [one.__cause__, None if one.__suppress_context__ else one.__context__]
    return "\n".join(parts) + "".join(traceback.format_exception(error))


def _clean(*texts: Any) -> None:
    for text in texts:
        assert CANARY not in (text if isinstance(text, str) else f"{text!s}{text!r}")


def test_J4_the_key_is_in_no_plan(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DEEPSEEK_API_KEY", CANARY)
    with Client(api_key=CANARY) as client:
        _clean(client)
        for made in (
            client.plan("deepseek/deepseek-flash", "hi"),
            client.plan("deepseek/deepseek-flash", "hi", api_key=CANARY, temperature=9, tool_choice="auto"),
        ):
            _clean(made, made.url, dict(made.headers), made.body, made.content, made.notes)


def test_J4_the_key_travels_in_a_header_and_not_in_the_url() -> None:
    wire = Wire(ok(whole_body({"content": "hi"})))
    for name in (
        "deepseek/deepseek-flash",
        "zai/glm-4.7",
        "openrouter/moonshotai/kimi-k3",
        "openai/gpt-6-sol",
    ):
        with Client(transport=wire.transport, api_key=CANARY) as client:
            reply = client.call(name, "hi")
        sent = wire.requests[-1]
        assert any(CANARY in value for value in sent.headers.values())
        _clean(str(sent.url), sent.content.decode(), reply, reply.notes, reply.to_dict())


ECHOES: list[tuple[int, Json]] = [
    (401, {"error": {"message": f"Incorrect API key provided: {CANARY}.", "code": "invalid_api_key"}}),
    (
        400,
        {
            "error": {"message": "Bad", "param": CANARY},
            "request": {"headers": {"Authorization": f"Bearer {CANARY}"}},
        },
    ),
    (403, {"error": {"message": "Bad key", "code": CANARY, "type": CANARY}}),
    (500, {"detail": [f"key={CANARY}&x"]}),
    (200, {"error": {"message": f"token {CANARY} expired", "code": 401}}),
    (200, {"choices": None, "seen": CANARY}),
]


@pytest.mark.parametrize(("status", "body"), ECHOES)
@pytest.mark.parametrize("streaming", [False, True])
def test_J4_an_endpoint_that_echoes_the_key_does_not_leak_it(
    status: int,
    body: Json,
    streaming: bool,
    caplog: pytest.LogCaptureFixture,
    capfd: pytest.CaptureFixture[str],
) -> None:
    caplog.set_level(logging.DEBUG)
    wire, name = Wire(failed(status, body, **{"x-request-id": CANARY})), "deepseek/deepseek-flash"
    retry = cnllm.Retry(attempts=2, base=0.001, cap=0.001)
    with (
        Client(transport=wire.transport, api_key=CANARY, retry=retry) as client,
        pytest.raises(cnllm.EndpointError) as caught,
    ):
        _ = seen(client.stream(name, "hi")) if streaming else client.call(name, "hi")
    out, err = capfd.readouterr()
    _clean(_shown(caught.value), caplog.text, out, err, caught.value.body, caught.value.message)
    assert caught.value.message


def test_J4_nor_does_one_that_echoes_it_inside_a_stream() -> None:
    error = {"error": {"message": f"key {CANARY} was revoked"}}
    body = sse([*text_chunks("The sky"), error])
    answer = failed(200, {})
    wire = Wire(type(answer)(200, body, {"content-type": "text/event-stream"}))
    with (
        Client(transport=wire.transport, api_key=CANARY) as client,
        pytest.raises(cnllm.EndpointError) as caught,
    ):
        seen(client.stream("deepseek/deepseek-flash", "hi"))
    _clean(_shown(caught.value))
    assert caught.value.reply is not None
    _clean(caught.value.reply, caught.value.reply.notes)


def test_J4_a_peer_that_fails_on_the_socket_does_not_leak_it(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    scripts: list[list[Any]] = [
        [b"HTTP/1.1 nonsense " + CANARY.encode() + b"\r\n\r\n"],
        [b""],
        [SSE_HEAD + frame(text_chunks("The sky")[0])],
        [http(302, b"", {"Location": f"http://127.0.0.1:9/?key={CANARY}"})],
        [http(200, b"not json, but " + CANARY.encode())],
    ]
    for script in scripts:
        with Server(script) as server:
            registry = Registry.load(str(overlay(tmp_path, base_url=server.url)))
            retry = cnllm.Retry(attempts=1)
            with (
                Client(registry, api_key=CANARY, retry=retry) as client,
                pytest.raises(cnllm.CnllmError) as caught,
            ):
                seen(client.stream(registry.resolve("home/m"), "hi"))
            _clean(_shown(caught.value))
    # httpcore writes what it received into DEBUG lines of its own; nothing of that is ours to change
    ours = [r for r in caplog.records if r.name.startswith("cnllm") or r.levelno >= logging.INFO]
    _clean(*(record.getMessage() for record in ours))


def test_J4_a_redirect_is_not_followed_with_the_key(tmp_path: Path) -> None:
    with Server([http(200, whole_body({"content": "stolen"}))]) as thief:
        with Server([http(307, b"", {"Location": f"{thief.url}/chat/completions"})]) as server:
            registry = Registry.load(str(overlay(tmp_path, base_url=server.url)))
            with Client(registry, api_key=CANARY) as client, pytest.raises(cnllm.CnllmError) as caught:
                client.call("home/m", "hi")
        assert thief.received == []
        assert thief.url in str(caught.value)


def test_J4_a_built_in_key_does_not_go_to_another_origin(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ZAI_API_KEY", CANARY)
    with Server([http(200, whole_body({"content": "stolen"}))]) as thief:
        changed = f'[providers.zai]\nbase_url = "{thief.url}"\n'
        borrowed = overlay_text(base_url=thief.url).replace("keys = []", 'keys = ["ZAI_API_KEY"]')
        for text, name in ((changed, "zai/glm-4.7"), (borrowed, "home/m")):
            path = tmp_path / "overlay.toml"
            path.write_text(text)
            with Client(Registry.load(str(path))) as client, pytest.raises(cnllm.Untrusted) as caught:
                client.call(name, "hi")
            _clean(_shown(caught.value))
        assert thief.received == []


COMMANDS: list[Callable[[str], list[str]]] = [
    lambda log: ["call", "hi", "--model", "home/m"],
    lambda log: ["call", "hi", "--model", "home/m", "--no-stream", "--json"],
    lambda log: ["call", "hi", "--model", "home/m", "--events"],
    lambda log: ["call", "hi", "--model", "home/m", "--plan"],
    lambda log: ["call", "hi", "--model", "home/m", "--curl"],
    lambda log: ["call", "hi", "--model", "home/m", "--raw-log", log],
    lambda log: ["call", "hi", "--model", "home/m", "--record", log],
]


@each("command", COMMANDS)
def test_J4_the_command_line_shows_and_stores_no_key(tmp_path: Path, command: Callable[[str], list[str]]) -> None:
    log = tmp_path / "log"
    body = json.dumps({"error": {"message": f"Incorrect API key provided: {CANARY}"}}).encode()
    with Server([http(401, body, {"X-Echo": CANARY})]) as server:
        path = tmp_path / "overlay.toml"
        path.write_text(overlay_text(base_url=server.url).replace("keys = []", 'keys = ["HOME_KEY"]'))
        trusted = cli("registry", "trust", str(path))
        assert trusted.returncode == 0, trusted.stderr
        args = command(str(log))
        done = cli(*args, CNLLM_PROVIDERS=str(path), HOME_KEY=CANARY)
        planned = {"--plan", "--curl"} & set(args)
        assert done.returncode == (0 if planned else 1), done.stderr
        assert len(server.received) == (0 if planned else 1)
    _clean(done.stdout, done.stderr)
    if "--curl" in args:
        assert "HOME_KEY" in done.stdout
    if log.exists():
        _clean(log.read_text(encoding="utf-8"))
    if {"--raw-log", "--record"} & set(args):
        assert log.exists()


# ── J5 ───────────────────────────────────────────────────────────────────────
SIX_LINES = """
[models."zai/glm-9"]
limits = { context = 2_000_000, output = 200_000 }
[models."zai/glm-9".reasoning]
mode = "always"
default = "on"
"""


def test_J5_a_new_model_is_six_lines_in_a_file(tmp_path: Path) -> None:
    path = tmp_path / "overlay.toml"
    path.write_text(SIX_LINES)
    target = Registry.load(str(path)).resolve("zai/glm-9")
    made = plan(target, tools=[tool()], reasoning="off", max_tokens=150_000)
    assert made.body["model"] == "glm-9"
    assert made.body["max_tokens"] == 150_000
    assert made.body["tools"]
    assert made.body.get("thinking", {}).get("type") != "disabled"
    mine = [fact for fact in target.explain() if (fact.flag, fact.value) == ("reasoning.mode", "always")]
    assert [fact.where.rpartition("/")[2] for fact in mine] == ["overlay.toml:5"]


def test_J5_a_change_of_the_file_holds_at_the_next_load(tmp_path: Path) -> None:
    path = overlay(tmp_path, 'tool_choice.allowed = ["auto"]')
    before = plan(Registry.load(str(path)).resolve("home/m"), tools=[tool()], tool_choice="required")
    overlay(tmp_path, 'tool_choice.allowed = ["auto", "none", "required", "named"]')
    after = plan(Registry.load(str(path)).resolve("home/m"), tools=[tool()], tool_choice="required")
    assert before.body.get("tool_choice", "auto") == "auto"
    assert after.body["tool_choice"] == "required"


UNKNOWN = [
    "deepseek/deepseek-v99",
    "zai/glm-99",
    "moonshotai/kimi-k99",
    "minimax/MiniMax-M99",
    "alibaba/qwen99-max",
]


@each("name", UNKNOWN)
def test_J5_an_id_no_one_has_heard_of_works_with_its_providers_facts_and_a_note(name: str) -> None:
    turns = [{"role": "user", "content": "a"}, call_turn(reasoning="because"), result_turn()]
    made = plan(name, turns, tools=[tool()], max_tokens=100)
    assert made.body["model"] == name.partition("/")[2]
    assert [t["function"]["name"] for t in made.body["tools"]] == ["search"]
    assert made.body["messages"][1]["tool_calls"]
    assert [note for note in made.notes if name in note.said], "it must say that it does not know this model"
    reply = read_whole(name, {"content": "x", "reasoning_content": "y"}, asked=made)
    assert (reply.text, reply.reasoning) == ("x", "y")
    assert [note for note in reply.notes if name in note.said], "the reply says so too"


def test_J5_an_endpoint_no_one_has_described_works() -> None:
    made = plan(anywhere(), tools=[tool()], tool_choice="required", temperature=0.3, stream=True)
    assert made.url == "http://127.0.0.1:9/v1/chat/completions"
    assert (made.body["model"], made.body["temperature"], made.body["tool_choice"]) == (
        "any-id",
        0.3,
        "required",
    )
    reply = read_whole(anywhere(), {"content": "x"})
    assert (reply.text, reply.finish) == ("x", "stop")


def test_J5_a_provider_no_one_has_heard_of_is_refused_with_near_names() -> None:
    with pytest.raises(cnllm.UnknownModel) as caught:
        Registry.load().resolve("deepseak/deepseek-flash")
    assert any("deepseek" in name for name in caught.value.close)


MINE = '[models."home/brand-new"]\nlimits = { context = 9_000 }\n[aliases]\nmine = "home/brand-new"\n'


@pytest.mark.usefixtures("small_builtin")
def test_J5_the_command_line_takes_the_users_file(tmp_path: Path) -> None:
    script = [SSE_HEAD + sse([*text_chunks("hel", "lo"), chunk(finish="stop")])]
    with Server(script) as server:
        path = overlay(tmp_path, base_url=server.url, more=MINE)
        for name in ("home/brand-new", "mine", "home/never-listed"):
            done = cli("call", "hi", "--model", name, CNLLM_PROVIDERS=str(path))
            assert (done.returncode, done.stdout.strip()) == (0, "hello"), done.stderr
        listed = cli("models", "list", CNLLM_PROVIDERS=str(path))
        assert "home/brand-new" in listed.stdout
    unknown = cli("call", "hi", "--model", "nowhere/x", CNLLM_PROVIDERS=str(path))
    assert unknown.returncode == 2
    assert unknown.stdout == ""
    assert 1 <= len(unknown.stderr.strip().splitlines()) <= 2
