"""J5 – J8: what the user's own registry file is good for, with no code, no release and no restart."""

import json
import os
import re
import threading
import tomllib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from cases import each

import cnllm
from cnllm import Client, Registry

from .support import (
    ROOT,
    SSE_HEADERS,
    Json,
    Server,
    Wire,
    call_turn,
    chunk,
    cli,
    expect_note,
    frame,
    http,
    notes_about,
    ok,
    overlay,
    overlay_text,
    plan,
    play,
    result_turn,
    sse,
    streamed,
    text_chunks,
    tool,
    whole_body,
)

HELLO = whole_body({"content": "hello"})


def client_of(path: Path, wire: Wire) -> Client:
    return Client(Registry.load(path), transport=wire.transport, retry=cnllm.Retry(attempts=1))


def line_of(where: str) -> str:
    """The text of the line that a note names."""
    file, _, number = where.rpartition(":")
    return Path(file).read_text(encoding="utf-8").splitlines()[int(number) - 1]


# ── J5 ───────────────────────────────────────────────────────────────────────
def test_J5_an_unknown_id_goes_out_with_its_tools_and_comes_back_with_one_warning() -> None:
    wire = Wire(ok(HELLO))
    turns = [{"role": "user", "content": "a"}, call_turn(reasoning="because"), result_turn()]
    with Client(transport=wire.transport, api_key="k") as client:
        reply = client.call("zai/glm-99-turbo", turns, tools=[tool()], tool_choice="auto", temperature=0.5)
    sent = wire.body()
    assert (sent["model"], sent["temperature"], sent["tool_choice"]) == ("glm-99-turbo", 0.5, "auto")
    assert sent["tools"] == [tool()]
    assert sent["messages"][1]["tool_calls"] == call_turn()["tool_calls"]
    assert reply.text == "hello"
    [warning] = reply.notes
    assert (warning.code, warning.said) == ("unknown-model", "zai/glm-99-turbo")
    assert re.fullmatch(r"providers\.toml:\d+", warning.where)


def test_J5_the_command_line_warns_of_an_unknown_id_and_goes_on(tmp_path: Path) -> None:
    with Server([http(200, HELLO)]) as server:
        path = overlay(tmp_path, base_url=server.url)
        done = cli("call", "hi", "--model", "home/never-listed", "--no-stream", CNLLM_PROVIDERS=str(path))
        assert server.received[0].json()["model"] == "never-listed"
    assert (done.returncode, done.stdout) == (0, "hello\n")
    assert [line for line in done.stderr.splitlines() if "home/never-listed" in line and str(path) in line]


@pytest.mark.usefixtures("small_builtin")
def test_J5_the_lines_of_the_manual_are_all_a_new_endpoint_needs(tmp_path: Path) -> None:
    section = (ROOT / "docs" / "how-to" / "registry.md").read_text(encoding="utf-8").partition("\n## Add a model\n")[2]
    text = section.partition("```toml\n")[2].partition("```")[0]
    [name] = tomllib.loads(text)["models"]
    with Server([http(200, HELLO)]) as server:
        path = tmp_path / "mine.toml"
        path.write_text(text.replace("http://127.0.0.1:8000/v1", server.url), encoding="utf-8")
        assert cli("registry", "check", CNLLM_PROVIDERS=str(path)).returncode == 0
        args = ("call", "--model", name, "--reasoning", "off", "--no-stream", "--json", "Hi")
        done = cli(*args, CNLLM_PROVIDERS=str(path))
        sent = server.received[0].json()
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["notes"] == []
    assert sent["model"] == name.partition("/")[2]
    assert sent["chat_template_kwargs"] == {"enable_thinking": False}


def test_J5_a_model_added_by_command_is_there_for_the_next_one() -> None:
    said = ("--context", "9000", "--output", "900", "--reasoning", "always", "--alias", "nine")
    done = cli("models", "add", "--provider", "zai", "--id", "glm-9", *said)
    assert done.returncode == 0, done.stderr
    planned = cli("call", "--model", "nine", "-p", "max_tokens=5000", "--plan", "Hi")
    assert planned.returncode == 0, planned.stderr
    shown = json.loads(planned.stdout)
    assert (shown["body"]["model"], shown["body"]["max_tokens"]) == ("glm-9", 900)
    assert "unknown-model" not in planned.stdout
    own = Registry.load()
    with Client(own, simulate=True) as client:
        assert client.call("nine", "hi").message.by == "zai/glm-9"
    [file] = own.files[1:]
    assert len([line for line in Path(file).read_text(encoding="utf-8").splitlines() if line.strip()]) <= 7


# ── J6 ───────────────────────────────────────────────────────────────────────
ASKED: Json = {
    "tools": [tool()],
    "tool_choice": "required",
    "parallel_tool_calls": True,
    "temperature": 1.7,
    "top_p": 0.4,
    "max_tokens": 123_456,
    "seed": 7,
    "stop": ["END"],
}
SCHEMA = {"type": "object", "properties": {"sky": {"type": "string"}}, "required": ["sky"]}


def test_J6_what_nobody_described_is_sent_and_nothing_is_said(tmp_path: Path) -> None:
    wire = Wire(ok(whole_body({"content": '{"sky": "blue"}'})))
    path = overlay(tmp_path, more='[models."home/m"]\n')
    with client_of(path, wire) as client:
        reply = client.call("home/m", "hi", schema=SCHEMA, extra_body={"vendor_switch": {"deep": 1}}, **ASKED)
    sent = wire.body()
    assert {name: sent[name] for name in ASKED} == ASKED
    assert sent["response_format"]["json_schema"]["schema"] == SCHEMA
    assert sent["vendor_switch"] == {"deep": 1}
    assert [note.code for note in reply.notes] == ["tool-choice-ignored"]  # of the request nothing is said


REFUSES = """
tools.parallel = false
tool_choice.allowed = ["auto", "none"]
limits.output = 4096
[providers.home.params]
temperature = { as = "temperature", max = 1 }
top_p = false
seed = false
stop = "stop_sequences"
"""
DROPS = {
    "tools.parallel": ("parallel_tool_calls=True", "left out"),
    "tool_choice.allowed": ("required", "auto"),
    "limits.output": ("max_tokens=123456", "4096"),
    "params.temperature": ("temperature=1.7", "1"),
    "params.top_p": ("0.4", "left out"),
    "params.seed": ("7", "left out"),
}


def test_J6_every_drop_has_one_note_that_says_why(tmp_path: Path) -> None:
    wire = Wire(ok(HELLO))
    path = overlay(tmp_path, REFUSES, more='[models."home/m"]\n')
    with client_of(path, wire) as client:
        reply = client.call("home/m", "hi", **ASKED)
    sent = wire.body()
    assert sorted(note.flag for note in reply.notes) == sorted(DROPS)
    for flag, (said, did) in DROPS.items():
        note = expect_note(reply.notes, flag, said=said, did=did, where=str(path))
        assert flag.rpartition(".")[2] in line_of(note.where)
    assert (sent["tool_choice"], sent["max_tokens"], sent["temperature"]) == ("auto", 4096, 1)
    assert not {"top_p", "seed", "parallel_tool_calls"} & sent.keys()
    assert (sent["tools"], sent["stop_sequences"]) == ([tool()], ["END"])


def test_J6_the_command_line_tells_each_drop_with_its_line(tmp_path: Path) -> None:
    given = [f"-p{name}={ASKED[name]}" for name in ("temperature", "top_p", "seed", "max_tokens")]
    with Server([http(200, HELLO)]) as server:
        path = overlay(tmp_path, REFUSES, base_url=server.url, more='[models."home/m"]\n')
        done = cli("call", "hi", "--model", "home/m", "--no-stream", *given, CNLLM_PROVIDERS=str(path))
        sent = server.received[0].json()
    assert (done.returncode, done.stdout) == (0, "hello\n")
    assert sent.keys() == {"model", "messages", "temperature", "max_tokens"}
    for flag in ("params.temperature", "params.top_p", "params.seed", "limits.output"):
        [told] = [line for line in done.stderr.splitlines() if flag in line]
        assert re.search(rf"{re.escape(str(path))}:\d+", told)


def test_J6_who_wants_no_drop_gets_an_error_with_the_line_or_sends_as_asked(tmp_path: Path) -> None:
    wire = Wire(ok(HELLO))
    path = overlay(tmp_path, REFUSES, more='[models."home/m"]\n')
    with client_of(path, wire) as client:
        with pytest.raises(cnllm.CannotSend) as caught:
            client.call("home/m", "hi", on_unsupported="error", top_p=0.4)
        assert wire.requests == []
        reply = client.call("home/m", "hi", on_unsupported="send", **ASKED)
    assert caught.value.note is not None
    assert line_of(caught.value.note.where) == "top_p = false"
    sent = wire.body()
    assert {name: sent[name] for name in ASKED if name != "stop"} == {k: v for k, v in ASKED.items() if k != "stop"}
    assert [note.code for note in reply.notes] == ["tool-choice-ignored"]  # of the request nothing is said


THREE = """
[models."home/yes"]
tools = { supported = true, parallel = true }
input = ["text", "image"]
[models."home/no"]
tools = { supported = true, parallel = false }
input = ["text"]
[models."home/unknown"]
"""


def test_J6_yes_no_and_unknown_are_three_things_on_the_wire(tmp_path: Path) -> None:
    wire = Wire(ok(HELLO))
    sent: dict[str, tuple[bool, int]] = {}
    with client_of(overlay(tmp_path, more=THREE), wire) as client:
        for state in ("yes", "no", "unknown"):
            reply = client.call(f"home/{state}", "hi", tools=[tool()], parallel_tool_calls=True)
            told = notes_about(reply.notes, "tools.parallel")
            sent[state] = "parallel_tool_calls" in wire.body(), len(told)
    assert sent == {"yes": (True, 0), "no": (False, 1), "unknown": (True, 0)}


@pytest.mark.usefixtures("small_builtin")
def test_J6_yes_no_and_unknown_are_three_things_in_the_listing(tmp_path: Path) -> None:
    path = str(overlay(tmp_path, more=THREE))

    def listed(*more: str) -> tuple[list[str], str]:
        done = cli("models", "list", "--provider", "home", "--json", *more, CNLLM_PROVIDERS=path)
        assert done.returncode == 0, done.stderr
        return [row["name"] for row in json.loads(done.stdout)], done.stderr

    everything, _ = listed()
    able, told = listed("--can", "parallel-tools,images")
    perhaps, _ = listed("--can", "parallel-tools,images", "--maybe")
    assert everything == ["home/no", "home/unknown", "home/yes"]
    assert able == ["home/yes"]
    assert "1 more are unknown" in told
    assert perhaps == ["home/unknown", "home/yes"]


@pytest.mark.usefixtures("small_builtin")
def test_J6_yes_no_and_unknown_are_told_apart_as_json_and_in_words(tmp_path: Path) -> None:
    path = str(overlay(tmp_path, more=THREE))
    rows = json.loads(cli("models", "list", "home/", "--json", CNLLM_PROVIDERS=path).stdout)
    states = {row["id"]: (row["capabilities"]["parallel-tools"], row["capabilities"]["images"]) for row in rows}
    assert states == {"yes": (True, True), "no": (False, False), "unknown": (None, None)}
    shown = cli("models", "list", "home/", "--can", "parallel-tools", "--maybe", CNLLM_PROVIDERS=path)
    head, *lines = shown.stdout.splitlines()
    assert head.split()[-1] == "PARALLEL-TOOLS"
    assert {line.split()[0]: line.split()[-1] for line in lines} == {"home/yes": "yes", "home/unknown": "?"}
    cards = {state: cli("models", "show", f"home/{state}", CNLLM_PROVIDERS=path).stdout for state in states}
    words = {"yes": "can", "no": "cannot", "unknown": "unknown"}
    for state, word in words.items():
        [line] = [line for line in cards[state].splitlines() if "parallel-tools" in line]
        assert line.split()[0] == word


LEARNED = """
[models."home/m".reasoning]
mode = "toggle"
effort = { at = "thinking.depth", high = "deep", max = "bottomless" }
"""


def test_J6_an_effort_that_cannot_be_spelled_is_told_and_sent_once_it_is_learned(tmp_path: Path) -> None:
    wire = Wire(ok(HELLO))
    path = overlay(tmp_path, more='[models."home/m"]\n')
    with client_of(path, wire) as client:
        before = client.call("home/m", "hi", reasoning="max")
    assert wire.body().keys() == {"model", "messages"}
    [note] = before.notes
    assert (note.flag, note.said) == ("reasoning.effort", "max")
    assert "no way to request it is known" in note.did
    with client_of(overlay(tmp_path, more=LEARNED), wire) as client:
        after = client.call("home/m", "hi", reasoning="max")
    assert wire.body()["thinking"] == {"depth": "bottomless"}
    [note] = after.notes
    assert (note.flag, note.said, note.did) == ("reasoning.effort", "max", "bottomless")
    assert "bottomless" in line_of(note.where)


# ── J7 ───────────────────────────────────────────────────────────────────────
FREE = ["whatever", "interleaved_field", "x-thoughts", "思考", "Chain of Thought", "reasoning_text"]


def thinks_in(field: str) -> str:
    return f'[providers.home.reasoning]\nfields = ["{field}"]\nreplay = "always"\nreplay_field = "{field}"\n'


@each("field", FREE)
def test_J7_reasoning_may_arrive_and_go_back_in_a_field_of_any_name(tmp_path: Path, field: str) -> None:
    chunks = [chunk({field: "be"}), chunk({field: "cause"}), *text_chunks("blue"), chunk(finish="stop")]
    wire = Wire(ok(whole_body({"content": "blue", field: "because"})), streamed(chunks), ok(HELLO))
    path = overlay(tmp_path, thinks_in(field), more='[models."home/m"]\n')
    history: list[Any] = [{"role": "user", "content": "Why?"}]
    with client_of(path, wire) as client:
        whole = client.call("home/m", history)
        with client.stream("home/m", history) as stream:
            heard = [event.text for event in stream if isinstance(event, cnllm.ReasoningDelta)]
        history += [stream.reply.message, {"role": "user", "content": "And at sunset?"}]
        last = client.call("home/m", history)
    assert (whole.text, whole.reasoning) == (stream.reply.text, stream.reply.reasoning) == ("blue", "because")
    assert "".join(heard) == "because"
    assert wire.body()["messages"][1] == {"role": "assistant", field: "because", "content": "blue"}
    assert [*whole.notes, *last.notes] == []


@pytest.mark.usefixtures("small_builtin")
@each("field", ["whatever", "思考"])
def test_J7_the_check_and_the_command_line_take_any_name(tmp_path: Path, field: str) -> None:
    with Server([http(200, whole_body({"content": "blue", field: "because"}))]) as server:
        path = overlay(tmp_path, thinks_in(field), base_url=server.url, more='[models."home/m"]\n')
        checked = cli("registry", "check", CNLLM_PROVIDERS=str(path))
        done = cli("call", "Why?", "--model", "home/m", "--no-stream", "--json", CNLLM_PROVIDERS=str(path))
    assert checked.returncode == 0, checked.stderr
    assert json.loads(done.stdout)["reasoning"] == "because", done.stderr


WORDS = """
finish = { fertig = "stop", zu_lang = "length" }
usage = { at = ["verbrauch"], input = ["tokens.hin"], output = ["tokens.zurück"], reasoning = ["tokens.gedacht"] }
params = { max_tokens = "grenzen.länge", temperature = "Wärme" }
error = { at = ["fehler"], message = ["satz"], code = ["nummer"] }
errors = [{ kind = "quota", code = ["E-17"] }]
"""


def test_J7_so_may_every_other_word_of_an_endpoint_be(tmp_path: Path) -> None:
    used = {"tokens": {"hin": 3, "zurück": 5, "gedacht": 2}}
    wire = Wire(
        ok(whole_body({"content": "ja"}, "fertig", verbrauch=used)),
        ok(whole_body({"content": "j"}, "zu_lang")),
        ok(json.dumps({"fehler": {"satz": "Das Konto ist leer.", "nummer": "E-17"}}).encode()),
    )
    path = overlay(tmp_path, WORDS, more='[models."home/m"]\n')
    with client_of(path, wire) as client:
        done, cut = (client.call("home/m", "hi", max_tokens=9, temperature=0.5) for _ in range(2))
        with pytest.raises(cnllm.QuotaExceeded, match=r"Das Konto ist leer\.") as caught:
            client.call("home/m", "hi")
    assert json.loads(wire.requests[0].content).keys() == {"model", "messages", "grenzen", "Wärme"}
    assert wire.body(0)["grenzen"] == {"länge": 9}
    assert (done.finish, done.raw_finish, cut.finish) == ("stop", "fertig", "length")
    assert done.usage is not None
    assert (done.usage.input, done.usage.output, done.usage.reasoning) == (3, 5, 2)
    assert caught.value.code == "E-17"


@each(
    "wrong, near",
    [
        ("reasoning.feilds = ['x']", "fields"),
        ("reasoning.replay = 'allways'", "always"),
        ("resoning = {}", "reasoning"),
    ],
)
def test_J7_what_is_no_free_word_is_refused_with_its_line_and_what_was_meant(
    tmp_path: Path, wrong: str, near: str
) -> None:
    path = overlay(tmp_path, wrong)
    done = cli("registry", "check", CNLLM_PROVIDERS=str(path))
    said = done.stdout + done.stderr
    assert done.returncode != 0
    assert f"{path}:6" in said
    assert near in said
    with pytest.raises(cnllm.RegistryError) as caught:
        Registry.load(path)
    assert (caught.value.file, caught.value.line) == (str(path), 6)


# ── J8 ───────────────────────────────────────────────────────────────────────
NEW = '[models."home/new"]\nlimits.output = 7\n[aliases]\nfresh = "home/new"\n'


def as_it_was(path: Path, text: str) -> None:
    """Writes a file of the same size anew, as old as it was."""
    stat = path.stat()
    path.write_text(text, encoding="utf-8")
    os.utime(path, ns=(stat.st_atime_ns, stat.st_mtime_ns))
    assert path.stat().st_size == stat.st_size


def test_J8_a_reload_is_enough_for_a_client_that_runs(tmp_path: Path) -> None:
    wire = Wire(ok(HELLO))
    path = overlay(tmp_path)
    registry = Registry.load(path)
    with Client(registry, transport=wire.transport) as client:
        with pytest.raises(cnllm.UnknownModel):
            client.call("fresh", "hi")
        client.call("home/new", "hi", max_tokens=100)
        overlay(tmp_path, more=NEW)
        registry.reload()
        client.call("fresh", "hi", max_tokens=100)
    assert [json.loads(request.content)["max_tokens"] for request in wire.requests] == [100, 7]
    assert wire.body()["model"] == "new"


def test_J8_with_watch_nothing_at_all_is_needed(tmp_path: Path) -> None:
    wire = Wire(ok(HELLO))
    path = overlay(tmp_path)
    with Client(Registry.load(path, watch=True), transport=wire.transport) as client:
        client.call("home/new", "hi", max_tokens=100)
        overlay(tmp_path, more=NEW)
        client.call("fresh", "hi", max_tokens=100)
        overlay(tmp_path, more=NEW.replace("= 7", "= 2000"))
        client.call("fresh", "hi", max_tokens=100)
        overlay(tmp_path)
        with pytest.raises(cnllm.UnknownModel):
            client.call("fresh", "hi")
    assert [json.loads(request.content)["max_tokens"] for request in wire.requests] == [100, 7, 100]


def test_J8_with_watch_no_menu_is_stale(tmp_path: Path) -> None:
    registry = Registry.load(overlay(tmp_path), watch=True)
    menus: list[Callable[[], object]] = [
        lambda: "home/new" in registry.names(),
        lambda: registry.complete("home/"),
        lambda: registry.complete("fre"),
        lambda: registry.aliases.get("fresh"),
        lambda: "other" in registry.providers,
        lambda: list(registry.tiers),
    ]
    more = NEW + '[tiers]\nquick = ["home/new"]\n[providers.other]\nextends = "home"\n'
    for menu in menus:  # each is asked first after an edit, so none profits from another
        overlay(tmp_path)
        before = menu()
        overlay(tmp_path, more=more)
        assert menu() != before
        overlay(tmp_path)
        assert menu() == before


def test_J8_with_watch_a_first_file_is_noticed_and_so_is_that_it_goes(monkeypatch: pytest.MonkeyPatch) -> None:
    config = Path(os.environ["HOME"]) / "of-its-own"
    config.mkdir()
    monkeypatch.setenv("CNLLM_CONFIG_DIR", str(config))
    registry = Registry.load(watch=True)
    assert len(registry.files) == 1
    (config / "providers.toml").write_text(overlay_text(more=NEW), encoding="utf-8")
    assert registry.resolve("fresh").name == "home/new"
    (config / "providers.toml").unlink()
    assert len(registry.files) == 1
    with pytest.raises(cnllm.UnknownModel):
        registry.resolve("fresh")


def test_J8_a_file_that_is_broken_for_a_while_is_told_with_its_line_and_needs_no_restart(tmp_path: Path) -> None:
    wire = Wire(ok(HELLO))
    path = overlay(tmp_path, more=NEW)
    registry = Registry.load(path, watch=True)
    with Client(registry, transport=wire.transport) as client:
        kept = registry.resolve("fresh")
        path.write_text(overlay_text(more=NEW) + "[models.", encoding="utf-8")
        for _ in range(2):
            with pytest.raises(cnllm.RegistryError) as caught:
                client.call("fresh", "hi")
            assert (caught.value.file, caught.value.line) == (str(path), len(path.read_text().splitlines()))
        assert wire.requests == []
        client.call(kept, "hi", max_tokens=100)  # a model in hand stays as it is
        overlay(tmp_path, more=NEW)
        client.call("fresh", "hi", max_tokens=100)
    assert [json.loads(request.content)["max_tokens"] for request in wire.requests] == [7, 7]


def test_J8_without_watch_a_broken_file_leaves_all_as_it_was(tmp_path: Path) -> None:
    wire = Wire(ok(HELLO))
    path = overlay(tmp_path, more=NEW)
    registry = Registry.load(path)
    with Client(registry, transport=wire.transport) as client:
        path.write_text(overlay_text(more=NEW) + "[models.", encoding="utf-8")
        with pytest.raises(cnllm.RegistryError):
            registry.reload()
        client.call("fresh", "hi", max_tokens=100)
    assert wire.body()["max_tokens"] == 7


class Halfway:
    """A transport that answers a stream and, when half of it is read, does something else."""

    def __init__(self, between: Callable[[], None]) -> None:
        self.between = between

    def send(self, sent: cnllm.Plan) -> tuple[int, dict[str, str], Iterator[bytes]]:
        return 200, dict(SSE_HEADERS), self._body()

    def _body(self) -> Iterator[bytes]:
        yield frame(chunk({"whatever": "because"}))
        self.between()
        yield frame(chunk({"whatever": ", because"})) + sse([*text_chunks("blue"), chunk(finish="stop")])


def test_J8_a_reload_leaves_a_stream_that_runs_alone(tmp_path: Path) -> None:
    registry = Registry.load(overlay(tmp_path, thinks_in("whatever"), more='[models."home/m"]\n'))

    def edit() -> None:
        overlay(tmp_path, thinks_in("another"), more='[models."home/m"]\n')
        registry.reload()

    with Client(registry, transport=Halfway(edit)) as client, client.stream("home/m", "Why?") as stream:
        events = list(stream)
    assert isinstance(events[-1], cnllm.Finished)
    assert (stream.reply.reasoning, stream.reply.text) == ("because, because", "blue")
    assert (
        play(registry.resolve("home/m"), [chunk({"another": "x"}), chunk({"content": "y"}, "stop")]).reasoning() == "x"
    )


def test_J8_what_a_model_in_hand_says_of_itself_does_not_change(tmp_path: Path) -> None:
    registry = Registry.load(overlay(tmp_path, more=NEW))
    listed, unlisted = registry.resolve("home/new"), registry.resolve("home/other")
    overlay(tmp_path, more='[models."home/other"]\n')
    registry.reload()
    assert [note.code for note in listed.notes] == []
    assert [note.code for note in unlisted.notes] == ["unknown-model"]
    assert [note.code for note in registry.resolve("home/new").notes] == ["unknown-model"]
    assert [note.code for note in registry.resolve("home/other").notes] == []


def test_J8_threads_that_call_meanwhile_leave_nothing_old_behind(tmp_path: Path) -> None:
    def text(output: int) -> None:
        overlay(tmp_path, more=f'[models."home/m"]\nlimits.output = {output}\n')

    text(1)
    registry = Registry.load(tmp_path / "overlay.toml")
    over = threading.Event()
    failed: list[BaseException] = []

    def call() -> None:
        try:
            while not over.is_set():
                plan(registry.resolve("home/m"), max_tokens=10_000)
        except BaseException as error:  # noqa: BLE001 - a thread has nobody else to tell
            failed.append(error)

    threads = [threading.Thread(target=call) for _ in range(3)]
    for thread in threads:
        thread.start()
    seen = []
    try:
        for output in range(2, 20):
            text(output)
            registry.reload()
            seen.append(plan(registry.resolve("home/m"), max_tokens=10_000).body["max_tokens"])
    finally:
        over.set()
        for thread in threads:
            thread.join()
    assert failed == []
    assert seen == list(range(2, 20))


@pytest.mark.usefixtures("small_builtin")
@pytest.mark.long
def test_J8_each_command_reads_the_files_as_they_are(tmp_path: Path) -> None:
    path = overlay(tmp_path, more=NEW)
    env = {"CNLLM_PROVIDERS": str(path), "XDG_CACHE_HOME": os.environ["XDG_CACHE_HOME"]}

    def shown() -> tuple[list[str], int]:
        rows = json.loads(cli("models", "list", "home/", "--json", **env).stdout)
        body = json.loads(cli("call", "--model", rows[0]["name"], "-p", "max_tokens=100", "--plan", "Hi", **env).stdout)
        return [row["name"] for row in rows], body["body"]["max_tokens"]

    assert shown() == (["home/new"], 7)
    as_it_was(path, overlay_text(more=NEW.replace("home/new", "home/two").replace("= 7", "= 8")))
    assert shown() == (["home/two"], 8)


def test_J8_an_edit_of_the_same_size_and_age_is_taken_up_by_a_reload(tmp_path: Path) -> None:
    path = overlay(tmp_path, more=NEW)
    registry = Registry.load(path)
    as_it_was(path, overlay_text(more=NEW.replace("= 7", "= 8")))
    registry.reload()
    assert plan(registry.resolve("fresh"), max_tokens=100).body["max_tokens"] == 8
