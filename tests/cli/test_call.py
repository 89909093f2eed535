"""`cnllm call` against a peer on a real socket: what goes where, and which status it ends with."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import time

import pytest

from .support import (
    DONE,
    HEAD,
    KEY,
    Hold,
    Machine,
    Reset,
    Server,
    Step,
    chunk,
    http,
    interrupt,
    read_until,
    texts,
    whole,
)

CALL = ("call", "--model", "home/m")


_HEAVY = {"_hashlib", "asyncio", "cnllm.simulator", "httpx", "jsonschema", "logging", "pydantic", "tomllib"}


def test_a_call_loads_nothing_heavy_that_it_does_not_use(machine: Machine) -> None:
    """Each of them takes longer to load than the call's own work."""
    env = {**machine.env, "CNLLM_TRANSPORT": "fast"}
    program = "import sys\nfrom cnllm.cli import main\ntry:\n    main()\nfinally:\n    print(*sys.modules)"
    command = [sys.executable, "-c", program, *CALL, "hi"]
    script = [HEAD, texts("Hello"), chunk(finish="stop"), DONE]
    with Server(script, script) as peer:
        machine.overlay(peer.url)
        for _ in range(2):  # the first one reads the registry files, and keeps what they say
            done = subprocess.run(command, env=env, capture_output=True, text=True, timeout=60, check=True)
    loaded = set(done.stdout.split())
    assert {"Hello", "cnllm.engine.decode.parser"} <= loaded
    assert loaded & _HEAVY == set()


# ── a whole answer ───────────────────────────────────────────────────────────
@pytest.mark.usefixtures("server")
def test_the_answer_is_on_stdout_and_all_else_on_stderr(machine: Machine) -> None:
    done = machine.run(*CALL, "hi")
    assert (done.status, done.out) == (0, "Hello\n")
    assert done.err == "hm\nhome/m · 12 in · 34 out\n"


@pytest.mark.usefixtures("server")
def test_reasoning_can_be_hidden(machine: Machine) -> None:
    done = machine.run(*CALL, "--hide-reasoning", "hi")
    assert (done.status, done.out, "hm" in done.err) == (0, "Hello\n", False)


def test_a_whole_answer_looks_the_same(machine: Machine) -> None:
    with Server([http(200, whole(content="Hello", reasoning_content="hm"))]) as peer:
        machine.overlay(peer.url)
        done = machine.run(*CALL, "--no-stream", "hi")
        assert (done.status, done.out, done.err) == (0, "Hello\n", "hm\nhome/m · 12 in · 34 out\n")
        assert not peer.received[0].json().get("stream")


def test_a_web_search_goes_in_the_endpoints_form_and_its_sources_are_shown(machine: Machine) -> None:
    page = {"title": "Sky", "url": "https://sky.test/blue", "start_index": 0, "end_index": 5}
    answer = whole(content="Hello", annotations=[{"type": "url_citation", "url_citation": page}] * 2)
    flags = "web_search = { tool = { type = 'find' }, fee = 0.5 }"
    streamed = [HEAD, chunk(content="Hello", annotations=[{"type": "url_citation", "url_citation": page}])]
    for way, script in (("--no-stream", [http(200, answer)]), ("--stream", [*streamed, chunk(finish="stop"), DONE])):
        with Server(script) as peer:
            machine.overlay(peer.url, flags)
            done = machine.run(*CALL, way, "--web-search", "hi")
        assert (done.status, done.out) == (0, "Hello\n"), done.err
        assert done.err.splitlines().count("source: Sky · https://sky.test/blue") == 1
        assert peer.received[0].json()["tools"] == [{"type": "find"}]


def test_a_model_without_a_web_search_is_asked_without_one(machine: Machine, server: Server) -> None:
    done = machine.run(*CALL, "--web-search", "hi")
    assert (done.status, done.out) == (0, "Hello\n")
    assert "search" in done.err
    assert "tools" not in server.received[0].json()


def test_a_web_search_stands_beside_tools_that_run(machine: Machine) -> None:
    flags = "web_search = { tool = { type = 'find' } }"
    with Server([http(200, whole(content="Hello"))]) as peer:
        machine.overlay(peer.url, flags)
        assert machine.run(*CALL, "--no-stream", "--web-search", "--tool", "calc", "hi").status == 0
    offered = peer.received[0].json()["tools"]
    assert [tool["type"] for tool in offered] == ["function", "find"]


@pytest.mark.parametrize("arguments", ['{"path": "/tm', "[1]", '{"path": '])
def test_half_a_call_is_no_whole_answer(machine: Machine, arguments: str) -> None:
    call = {"index": 0, "id": "c1", "type": "function", "function": {"name": "wipe", "arguments": arguments}}
    streamed = [HEAD, chunk(tool_calls=[call]), chunk(finish="tool_calls"), DONE]
    body = http(200, whole(content="", tool_calls=[call], finish="tool_calls"))
    for way, script in (("--stream", streamed), ("--no-stream", [body])):
        with Server(script) as peer:
            machine.overlay(peer.url)
            done = machine.run(*CALL, way, "hi")
        assert (done.status, "tool call" in done.err) == (3, True), done.err


def test_a_model_may_be_asked_for_whole_answers_by_default(machine: Machine) -> None:
    with Server([http(200, whole(content="Hello"))]) as peer:
        machine.overlay(peer.url, "call = { stream = false }")
        done = machine.run(*CALL, "hi")
        assert (done.status, done.out) == (0, "Hello\n")
        assert not peer.received[0].json().get("stream")


def test_the_key_is_sent_and_shown_nowhere(machine: Machine, server: Server) -> None:
    done = machine.run(*CALL, "--debug", "hi")
    assert f"Bearer {KEY}" in server.received[0].head
    assert KEY not in done.out + done.err


def test_the_key_may_be_in_another_variable_or_in_the_file(machine: Machine, server: Server) -> None:
    del machine.env["HOME_TEST_KEY"]
    assert machine.run(*CALL, "--key-env", "OTHER", "hi", env={"OTHER": "sk-other"}).status == 0
    assert "Bearer sk-other" in server.received[-1].head
    machine.run("keys", "set", "HOME_TEST_KEY", stdin="sk-kept\n")
    assert machine.run(*CALL, "hi").status == 0
    assert "Bearer sk-kept" in server.received[-1].head


@pytest.mark.usefixtures("server")
def test_json_is_one_reply(machine: Machine) -> None:
    for streaming in ("--stream", "--no-stream"):
        done = machine.run(*CALL, "--json", streaming, "hi")
        if streaming == "--no-stream":
            continue  # this peer only streams
        reply = done.json()
        assert (done.status, len(done.out.splitlines())) == (0, 1)
        assert (reply["text"], reply["reasoning"], reply["finish"]) == ("Hello", "hm", "stop")
        assert (reply["usage"]["input"], reply["usage"]["output"]) == (12, 34)
        assert done.err == ""


@pytest.mark.usefixtures("server")
def test_events_are_one_object_a_line(machine: Machine) -> None:
    done = machine.run(*CALL, "--events", "hi")
    events = done.lines()
    assert "".join(e["text"] for e in events if e["type"] == "text_delta") == "Hello"
    assert "".join(e["text"] for e in events if e["type"] == "reasoning_delta") == "hm"
    assert events[-1] == {"type": "finished", "finish": "stop", "raw": "stop"}
    assert (done.status, done.err) == (0, "")


def test_events_of_a_whole_reply(machine: Machine) -> None:
    call = {"id": "c1", "type": "function", "function": {"name": "look", "arguments": '{"q":1}'}}
    with Server([http(200, whole("tool_calls", content="Hello", tool_calls=[call]))]) as peer:
        machine.overlay(peer.url)
        events = machine.run(*CALL, "--events", "--no-stream", "hi").lines()
    kinds = [event["type"] for event in events]
    assert kinds[:4] == ["text_delta", "tool_call_start", "tool_call_delta", "tool_call_end"]
    assert kinds[-1] == "finished"
    assert events[3]["call"]["arguments"] == {"q": 1}


def test_tool_calls_are_told_and_not_run(machine: Machine) -> None:
    first = chunk(tool_calls=[{"index": 0, "id": "c1", "function": {"name": "look", "arguments": '{"q":'}}])
    second = chunk(tool_calls=[{"index": 0, "function": {"arguments": "1}"}}])
    with Server([HEAD, first, second, chunk("tool_calls"), DONE]) as peer:
        machine.overlay(peer.url)
        done = machine.run(*CALL, "hi")
    assert (done.status, done.out) == (0, "")
    assert 'tool call: look {"q":1}' in done.err


def test_notes_are_told_with_their_place(machine: Machine, server: Server) -> None:
    machine.overlay(server.url, flags="params.temperature = { max = 1.0, otherwise = 'clamp' }")
    done = machine.run(*CALL, "-p", "temperature=1.5", "hi")
    assert (done.status, done.out) == (0, "Hello\n")
    assert "note: " in done.err
    assert "temperature" in done.err
    assert "providers.toml:" in done.err


def test_the_answer_comes_as_it_comes(machine: Machine) -> None:
    with Server([HEAD, texts("Hel"), Hold]) as peer:
        machine.overlay(peer.url)
        process = machine.start(*CALL, "hi")
        assert process.stdout is not None
        assert os.read(process.stdout.fileno(), 100) == b"Hel"
        process.kill()
        process.communicate()


# ── what is not whole ────────────────────────────────────────────────────────
@pytest.mark.parametrize(
    ("finish", "words"), [("length", ["limit of tokens", "-p max_tokens=N"]), ("content_filter", ["withheld"])]
)
def test_an_answer_that_is_not_whole_ends_with_3(machine: Machine, finish: str, words: list[str]) -> None:
    with Server([HEAD, texts("Hel"), chunk(finish), DONE]) as peer:
        machine.overlay(peer.url)
        done = machine.run(*CALL, "hi")
        assert (done.status, done.out) == (3, "Hel\n")
        assert all(word in done.err for word in ("cnllm: the answer is incomplete", f"finish {finish}", *words))
        done = machine.run(*CALL, "--json", "hi")
        assert (done.status, done.json()["finish"]) == (3, finish)


def test_an_answer_that_the_endpoint_paused_ends_with_3(machine: Machine) -> None:
    paused, rest = [HEAD, texts("Hel"), chunk("hold"), DONE], [HEAD, texts("lo"), chunk("stop"), DONE]
    with Server(paused, paused, rest) as peer:
        machine.overlay(peer.url, 'finish = { hold = "pause" }')
        done = machine.run(*CALL, "hi")
        assert (done.status, done.out) == (3, "Hel\n")
        assert "cnllm: the endpoint paused before the end of its answer (hold)" in done.err
        done = machine.run(*CALL, "--tool", "calc", "hi")
        assert (done.status, done.out) == (0, "Hello\n")


@pytest.mark.parametrize(
    ("script", "finish"),
    [
        ([HEAD, texts("Hel")], "cut"),
        ([HEAD, texts("Hel"), Reset], None),
        ([HEAD, texts("Hel"), b'data: {"error": {"message": "out of luck", "code": 500}}\n\n'], "error"),
    ],
)
def test_what_came_before_a_failure_is_kept_and_3(machine: Machine, script: list[Step], finish: str | None) -> None:
    with Server(script) as peer:
        machine.overlay(peer.url)
        done = machine.run(*CALL, "hi")
        assert (done.status, done.out) == (3, "Hel\n")
        last = [line for line in done.err.splitlines() if line.startswith("cnllm: ")]
        assert len(last) == 1
        assert re.search("broke|cut|ended before", last[0])  # not the endpoint's sentence alone
        assert "Traceback" not in done.err
        done = machine.run(*CALL, "--json", "hi")
        assert (done.status, done.json()["text"]) == (3, "Hel")
        if finish is not None:
            assert done.json()["finish"] == finish


def test_a_call_that_is_cut_off_is_shown_as_such(machine: Machine) -> None:
    half = chunk(tool_calls=[{"index": 0, "id": "c1", "function": {"name": "look", "arguments": '{"q": "Be'}}])
    with Server([HEAD, texts("Hel"), half, chunk("length"), DONE]) as peer:
        machine.overlay(peer.url)
        done = machine.run(*CALL, "hi")
    assert (done.status, done.out) == (3, "Hel\n")
    assert 'tool call, cut off: look {"q": "Be' in done.err
    assert "tool call: look" not in done.err


def test_a_kept_cut_is_3_too(machine: Machine) -> None:
    with Server([HEAD, texts("Hel")]) as peer:
        machine.overlay(peer.url)
        done = machine.run(*CALL, "-p", "if_cut=keep", "hi")
    assert (done.status, done.out) == (3, "Hel\n")
    assert "finish cut" in done.err


def test_an_answer_taken_anew_is_alone_on_a_pipe(machine: Machine) -> None:
    with Server([HEAD, texts("Hel")], [http(200, whole(content="Good day"))]) as peer:
        machine.overlay(peer.url)
        done = machine.run(*CALL, "-p", "if_cut=again-whole", "hi")
    assert (done.status, done.out) == (0, "Good day\n")


def test_an_answer_that_does_not_fit_the_schema_goes_back_once(machine: Machine) -> None:
    wrong = [HEAD, texts("Ann"), chunk(finish="stop"), DONE]
    right = [http(200, whole(content='{"name": "Ann"}'))]
    with Server(wrong, right) as peer:
        machine.overlay(peer.url)
        done = machine.run(*CALL, "--schema", "name", "hi")
        assert (done.status, done.out) == (0, '{"name": "Ann"}\n')
        assert "sent back" in done.err
    with Server(wrong, wrong, wrong) as peer:
        machine.overlay(peer.url, "call = { corrections = 0 }")
        for options in ((), ("-p", "corrections=0")):
            done = machine.run(*CALL, "--schema", "name", *options, "hi")
            assert (done.status, done.out) == (3, "Ann\n"), "a script that reads JSON is told"
            assert "cnllm: the answer does not follow the schema\n" in done.err
        assert machine.run(*CALL, "--schema", "name", "--json", "hi").status == 3
        assert len(peer.received) == 3


@pytest.mark.parametrize("options", [(), ("-p", "if_cut=again-whole")])
def test_reasoning_and_answer_in_one_file_are_on_lines_of_their_own(machine: Machine, options: tuple[str, ...]) -> None:
    with Server([HEAD, chunk(reasoning_content="hm"), texts("Hello"), chunk(finish="stop"), DONE]) as peer:
        machine.overlay(peer.url)
        command = machine.command(*CALL, *options, "hi")
        out = subprocess.check_output(command, env=machine.env, stderr=subprocess.STDOUT, timeout=60)
    assert out.splitlines()[:2] == [b"hm", b"Hello"]


# ── nothing came ─────────────────────────────────────────────────────────────
def test_the_endpoints_own_words_and_1(machine: Machine) -> None:
    body = json.dumps({"error": {"message": f"Wrong key {KEY}\nprovided \x1b[31m", "code": "bad"}}).encode()
    with Server([http(401, body)]) as peer:
        machine.overlay(peer.url)
        for form in ([], ["--json"], ["--events"], ["--no-stream"]):
            done = machine.run(*CALL, *form, "hi")
            done.fails(1, "Wrong key [redacted] provided \\x1b[31m")
            assert KEY not in done.err
        done = machine.run(*CALL, "--debug", "hi")
        assert "Traceback" in done.err
        assert KEY not in done.err


def test_words_of_the_endpoint_are_told_from_those_of_cnllm(machine: Machine) -> None:
    with Server([http(404, b'{"error": {"message": "no such model"}}')]) as peer:
        machine.overlay(peer.url)
        machine.run(*CALL, "hi").fails(1, "cnllm: no such model\n", "the endpoint answered with status 404\n")


@pytest.mark.parametrize("script", [[Reset], [HEAD], [http(404, b"<h1>none</h1>", "text/html")]])
def test_nothing_came_and_1(machine: Machine, script: list[Step]) -> None:
    with Server(script) as peer:
        machine.overlay(peer.url)
        machine.run(*CALL, "--timeout", "5", "hi").fails(1)


def test_nobody_listens_and_1(machine: Machine) -> None:
    machine.overlay("http://127.0.0.1:9/v1")
    machine.run(*CALL, "hi").fails(1, "no connection to 127.0.0.1:9: ")


def test_time_runs_out(machine: Machine) -> None:
    with Server([Hold]) as peer:
        machine.overlay(peer.url)
        began = time.monotonic()
        machine.run(*CALL, "--timeout", "0.3", "hi").fails(1)
        assert time.monotonic() - began < 20
    with Server([HEAD, texts("Hel"), Hold]) as peer:
        machine.overlay(peer.url)
        done = machine.run(*CALL, "--timeout", "0.5", "hi")
        assert (done.status, done.out) == (3, "Hel\n")


# ── the reader leaves ────────────────────────────────────────────────────────
@pytest.mark.parametrize("form", [[], ["--events"]])
def test_a_closed_stdout_ends_it_quietly(machine: Machine, form: list[str]) -> None:
    with Server([HEAD, *[texts("line\n" * 2000)] * 50, chunk("stop"), DONE]) as peer:
        machine.overlay(peer.url)
        process = machine.start(*CALL, *form, "hi")
        head = subprocess.run(["head", "-c", "3"], stdin=process.stdout, capture_output=True, check=True)
        assert process.stdout is not None
        process.stdout.close()
        _, err = process.communicate(timeout=30)
    assert (len(head.stdout), process.returncode, err) == (3, 0, b"")


def test_a_listing_into_a_closed_pipe(machine: Machine) -> None:
    ran = subprocess.run(
        ["bash", "-c", "set -o pipefail; " + " ".join(machine.command("registry", "schema")) + " | head -1"],
        env=machine.env,
        capture_output=True,
        check=False,
    )
    assert (ran.returncode, ran.stdout, ran.stderr) == (0, b"{\n", b"")


# ── Ctrl-C ───────────────────────────────────────────────────────────────────
def interrupted(
    machine: Machine, peer: Server, *args: str, shown: str = "", seconds: float = 0
) -> tuple[int, str, str]:
    """Interrupt a call once the peer has sent all, the words are on stdout, and the seconds have passed."""
    process = machine.start(*CALL, *args, "hi")
    assert peer.holding.wait(30)
    begun = read_until(process, shown.encode())
    time.sleep(seconds)
    out, err = interrupt(process)
    return process.returncode, (begun + out).decode(), err.decode()


def test_ctrl_c_keeps_what_came(machine: Machine) -> None:
    with Server([HEAD, chunk(reasoning_content="hm"), texts("Hel"), Hold]) as peer:
        machine.overlay(peer.url)
        status, out, err = interrupted(machine, peer, shown="Hel")
        assert (status, out) == (130, "Hel\n")
        assert err.startswith("hm\n")
        assert "interrupted" in err
        assert "Traceback" not in err


def test_ctrl_c_with_json_gives_what_came(machine: Machine) -> None:
    with Server([HEAD, texts("Hel"), Hold]) as peer:
        machine.overlay(peer.url)
        status, out, err = interrupted(machine, peer, "--json", seconds=0.8)  # nothing shows that the text was read
        reply = json.loads(out)
        assert (status, reply["text"], reply["finish"]) == (130, "Hel", "cut")
        assert "Traceback" not in err


def test_ctrl_c_before_anything_came(machine: Machine) -> None:
    with Server([Hold]) as peer:
        machine.overlay(peer.url)
        status, out, err = interrupted(machine, peer)
        assert (status, out, err) == (130, "", "cnllm: interrupted; no answer arrived\n")


def test_ctrl_c_after_a_step_shows_its_text_once(machine: Machine) -> None:
    call = {"index": 0, "id": "c1", "function": {"name": "calc", "arguments": '{"expression": "1+1"}'}}
    with Server(
        [HEAD, texts("One."), chunk(tool_calls=[call]), chunk("tool_calls"), DONE], [HEAD, texts("Two. Thr"), Hold]
    ) as peer:
        machine.overlay(peer.url)
        status, out, err = interrupted(machine, peer, "--tool", "calc", "--sentences", shown="Two.")
    assert (status, out.split()) == (130, ["One.", "Two.", "Thr"])
    assert err.endswith("cnllm: interrupted; the answer so far is shown above\n")
    with Server([HEAD, texts("One."), chunk(tool_calls=[call]), chunk("tool_calls"), DONE], [HEAD, Hold]) as peer:
        machine.overlay(peer.url)
        status, out, _ = interrupted(machine, peer, "--tool", "calc", shown="One.")
        assert (status, out) == (130, "One.\n")


def test_ctrl_c_shows_the_sentence_that_has_not_ended(machine: Machine) -> None:
    with Server([HEAD, texts("One. Two. Thr"), Hold]) as peer:
        machine.overlay(peer.url)
        status, out, err = interrupted(machine, peer, "--sentences", shown="One.")
        assert (status, out) == (130, "One. Two. Thr\n")
        assert err == "cnllm: interrupted; the answer so far is shown above\n"


# ── the simulator ────────────────────────────────────────────────────────────
def test_simulated_answers_say_so(machine: Machine, server: Server) -> None:
    del machine.env["HOME_TEST_KEY"]
    done = machine.run(*CALL, "--simulate", "为什么天空是蓝色的？")
    assert done.status == 0
    assert done.out.strip()
    assert "simulated" in done.err
    reply = machine.run(*CALL, "--simulate", "--json", "hi").json()
    assert any("simulat" in note["code"] for note in reply["notes"])
    assert not server.received


# ── streams that are not as usual ────────────────────────────────────────────
def shell(machine: Machine, script: str) -> subprocess.CompletedProcess[bytes]:
    call = " ".join(machine.command(*CALL, "hi"))
    return subprocess.run(
        ["bash", "-c", script.replace("CALL", call)], env=machine.env, capture_output=True, timeout=60, check=False
    )


def test_a_stdout_that_is_not_there(machine: Machine, server: Server) -> None:
    done = shell(machine, "CALL < /dev/null >&-")
    assert (done.returncode, done.stderr.decode().splitlines()[0]) == (2, "cnllm: stdout is closed")
    assert not server.received


@pytest.mark.usefixtures("server")
def test_a_stderr_that_is_not_there_or_that_no_one_reads(machine: Machine) -> None:
    done = shell(machine, "CALL < /dev/null 2>&-")
    assert (done.returncode, done.stdout, done.stderr) == (0, b"Hello\n", b"")
    done = shell(machine, "CALL < /dev/null 2> >(true)")
    assert (done.returncode, done.stdout) == (0, b"Hello\n")


@pytest.mark.usefixtures("server")
def test_a_stdin_that_is_not_there(machine: Machine) -> None:
    assert shell(machine, "CALL <&-").returncode == 0


@pytest.mark.usefixtures("server")
def test_both_into_one_closed_pipe(machine: Machine) -> None:
    done = shell(machine, "CALL < /dev/null 2>&1 | true; exit ${PIPESTATUS[0]}")
    assert (done.returncode, done.stdout, done.stderr) == (0, b"", b"")


@pytest.mark.usefixtures("server")
def test_a_full_disk(machine: Machine) -> None:
    done = shell(machine, "CALL < /dev/null > /dev/full")
    assert done.returncode == 1
    assert done.stderr.decode().splitlines()[-1] == "cnllm: stdout: No space left on device"
    assert b"Exception ignored" not in done.stderr


@pytest.mark.usefixtures("server")
def test_no_locale_is_needed(machine: Machine) -> None:
    with Server([HEAD, texts("天空"), chunk("stop"), DONE]) as peer:
        machine.overlay(peer.url)
        machine.env |= {"LANG": "C", "LC_ALL": "C", "PYTHONCOERCECLOCALE": "0", "PYTHONUTF8": "0"}
        assert machine.run(*CALL, "hi").out == "天空\n"


@pytest.mark.usefixtures("server")
def test_who_waits_for_stdin_is_told(machine: Machine) -> None:
    process = subprocess.Popen(
        machine.command(*CALL, "hi"),
        env=machine.env,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    assert process.stderr is not None
    assert b"waiting for stdin" in process.stderr.readline()
    out, _ = process.communicate(b"more")
    assert (process.returncode, out) == (0, b"Hello\n")


# ── by sentence ──────────────────────────────────────────────────────────────
def test_a_stream_may_be_printed_a_sentence_at_a_time(machine: Machine) -> None:
    with Server([HEAD, texts("One. T", "wo. ", "3"), chunk("stop"), DONE]) as peer:
        machine.overlay(peer.url)
        events = machine.run(*CALL, "--sentences", "--events", "hi").lines()
        plain = machine.run(*CALL, "--sentences", "hi")
    assert [event["text"] for event in events if event["type"] == "text_delta"] == ["One. ", "Two. ", "3"]
    assert (plain.status, plain.out) == (0, "One. Two. 3\n")


# ── before a call ────────────────────────────────────────────────────────────
PRICE = "price = { currency = 'CNY', input = 2, output = 8, cached = 0.5 }\nlimits = { context = 9000, output = 1000 }"


def test_a_quote_says_what_a_call_can_cost_and_sends_nothing(machine: Machine) -> None:
    with Server([http(200, whole(content="Hello"))]) as peer:
        machine.overlay(peer.url, PRICE)
        del machine.env["HOME_TEST_KEY"]
        done = machine.run(*CALL, "--quote", "--max-tokens", "50", "hi " * 100)
        assert (done.status, done.err) == (0, "")
        first, tokens, output, cost = done.out.splitlines()
        assert first == "a call of home/m; nothing was sent"
        assert tokens.startswith("input: about ")
        assert " (usually within " in tokens
        assert output == "output: 50 tokens at most"
        assert cost.startswith("cost: 0.000")
        assert " CNY at least, 0.00" in cost
        found = machine.run(*CALL, "--quote", "--json", "--max-tokens", "50", "hi " * 100).json()
        assert f"about {found['input']} tokens" in tokens
        assert cost == f"cost: {found['low']} CNY at least, {found['high']} at most"
        assert (found["cached"], found["output_max"], found["unknown"]) == (None, 50, [])
        assert machine.run("logs", "list", "--json").json() == []
        machine.run(*CALL, "--quote", "--plan", "hi").fails(2, "--quote", "--plan")
        assert peer.received == []


def test_a_quote_of_a_conversation_knows_what_was_sent_before(machine: Machine) -> None:
    with Server([http(200, whole(content="Hello"))]) as peer:
        machine.overlay(peer.url, PRICE)
        assert machine.run(*CALL, "--no-stream", "hi " * 500).status == 0
        found = machine.run("call", "-c", "--quote", "--json", "and now?").json()
        assert found["input"] > found["cached"] > 100
        assert "sent before: about" in machine.run("call", "-c", "--quote", "and now?").out
        assert len(peer.received) == 1


def test_a_quote_of_an_unknown_price_names_it(machine: Machine) -> None:
    machine.overlay("http://127.0.0.1:1")
    done = machine.run(*CALL, "--quote", "hi")
    assert done.out.splitlines()[2:] == [
        "cost: unknown",
        "not known: the price of home/m",
        "not known: the greatest length of a reply of home/m",
    ]
