"""Recording and replaying without a network, and the redaction both rest on."""

from __future__ import annotations

import asyncio
import base64
import copy
import errno
import itertools
import json
import os
import stat
import sys
import threading
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest
from cases import each
from examples import share
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from cnllm.cassette import AsyncPlayer, AsyncRecorder, Player, Recorder
from cnllm.config import redact
from cnllm.errors import CnllmError, IdleTimeout, TransportError

SECRET = "sk-secret/+0123456789\\"


@dataclass
class Plan:
    body: Any = field(default_factory=lambda: {"model": "m", "messages": [{"role": "user", "content": "hi"}]})
    method: str = "POST"
    url: str = "https://api.example/v1/chat"
    headers: dict[str, str] = field(default_factory=lambda: {"Authorization": f"Bearer {SECRET}", "X-Plain": "a"})


class Inner:
    """Answers with these chunks, then fails if told to."""

    def __init__(self, *chunks: bytes, error: Exception | None = None, headers: dict[str, str] | None = None) -> None:
        self.chunks, self.error = chunks, error
        self.headers = headers or {"content-type": "text/event-stream", "set-cookie": "a=b"}
        self.closed = False

    def send(self, plan: Any) -> tuple[int, dict[str, str], Iterator[bytes]]:
        if self.error and not self.chunks:
            raise self.error
        return 200, self.headers, self._iterate()

    def _iterate(self) -> Iterator[bytes]:
        try:
            yield from self.chunks
            if self.error:
                raise self.error
        finally:
            self.closed = True


class AsyncInner(Inner):
    async def send(self, plan: Any) -> tuple[int, dict[str, str], AsyncIterator[bytes]]:  # type: ignore[override]
        status, headers, chunks = Inner.send(self, plan)

        async def iterate() -> AsyncIterator[bytes]:
            for chunk in chunks:
                await asyncio.sleep(0)
                yield chunk

        return status, headers, iterate()


def lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def record(path: Path, *chunks: bytes, plan: Plan | None = None, **options: Any) -> None:
    list(Recorder(Inner(*chunks, **options), path, [SECRET]).send(plan or Plan())[2])


# ── recording ────────────────────────────────────────────────────────────────
def test_an_exchange_is_one_private_line(tmp_path: Path) -> None:
    path = tmp_path / "tape.jsonl"
    record(path, b"data: a\n", "é".encode()[:1], "é".encode()[1:])
    record(path, b"x")
    first, _ = lines(path)
    assert first["request"] == {
        "method": "POST",
        "url": "https://api.example/v1/chat",
        "headers": {"Authorization": "Bearer [redacted]", "X-Plain": "[redacted]"},
        "body": Plan().body,
    }
    assert first["response"]["status"] == 200
    assert first["response"]["headers"] == {"content-type": "text/event-stream", "set-cookie": "[redacted]"}
    assert first["response"]["chunks"] == ["data: a\n", {"base64": "ww=="}, {"base64": "qQ=="}]
    assert first["ended"] == "whole"
    assert first["when"].startswith("20")
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_a_file_that_was_there_becomes_private(tmp_path: Path) -> None:
    path = tmp_path / "tape.jsonl"
    path.touch(0o644)
    record(path, b"x")
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_an_abandoned_stream_is_recorded_as_such(tmp_path: Path) -> None:
    path, inner = tmp_path / "tape.jsonl", Inner(b"a", b"b")
    chunks = Recorder(inner, path).send(Plan())[2]
    assert next(chunks) == b"a"
    chunks.close()  # type: ignore[attr-defined]
    assert inner.closed
    assert (lines(path)[0]["response"]["chunks"], lines(path)[0]["ended"]) == (["a"], "abandoned")


def test_a_stream_that_is_only_forgotten_is_recorded_too(tmp_path: Path) -> None:
    path = tmp_path / "tape.jsonl"
    chunks = Recorder(Inner(b"a", b"b"), path).send(Plan())[2]
    next(chunks)
    del chunks
    assert lines(path)[0]["ended"] == "abandoned"


@each(
    "chunks, headers, ended",
    [
        ([b"data: 1\n\n", b"data: [DO", b"NE]\n\n"], {}, "whole"),
        ([b"data: 1\n\n"], {}, "abandoned"),
        ([b"12345"], {"Content-Length": "5"}, "whole"),
        ([b"1234"], {"Content-Length": "5"}, "abandoned"),
        ([b"12345"], {"Content-Length": "5", "Content-Encoding": "gzip"}, "abandoned"),
    ],
)
def test_who_stops_at_the_end_has_abandoned_nothing(
    tmp_path: Path, chunks: list[bytes], headers: dict[str, str], ended: str
) -> None:
    path = tmp_path / "tape.jsonl"
    answer = Recorder(Inner(*chunks, headers=headers), path).send(Plan())[2]
    for _ in chunks:
        next(answer)
    answer.close()  # type: ignore[attr-defined]
    assert lines(path)[0]["ended"] == ended


def test_failures_are_recorded_and_passed_on(tmp_path: Path) -> None:
    path = tmp_path / "tape.jsonl"
    with pytest.raises(TransportError):
        record(path, error=TransportError(f"refused, key {SECRET}"))
    with pytest.raises(IdleTimeout):
        record(path, b"a", error=IdleTimeout("silence"))
    before, during = lines(path)
    assert "response" not in before
    assert before["error"] == {"type": "TransportError", "message": "refused, key [redacted]"}
    assert (during["response"]["chunks"], during["ended"]) == (["a"], "failed")


def test_what_cannot_be_written_is_known_before_anything_is_sent(tmp_path: Path) -> None:
    with pytest.raises(CnllmError, match="cannot record to"):
        Recorder(Inner(b"a"), tmp_path / "none" / "tape.jsonl")


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=share(60))
@given(cuts=st.lists(st.integers(0, 200), max_size=6))
def test_no_secret_is_stored_however_the_pieces_fall(tmp_path: Path, cuts: list[int]) -> None:
    body = f'data: {{"key":{json.dumps(SECRET)}}} é\n\ndata: {SECRET} {quote(SECRET, safe="")}\n\n'.encode()
    edges = sorted({0, len(body), *(min(cut, len(body)) for cut in cuts)})
    pieces = [body[a:b] for a, b in itertools.pairwise(edges)]
    path = tmp_path / "tape.jsonl"
    path.unlink(missing_ok=True)
    record(path, *pieces)
    stored = lines(path)[0]["response"]["chunks"]
    assert len(stored) == len(pieces)
    joined = b"".join(p.encode() if isinstance(p, str) else base64.b64decode(p["base64"]) for p in stored)
    assert b"".join(Player(path).send(Plan())[2]) == joined
    assert joined.decode() == 'data: {"key":"[redacted]"} é\n\ndata: [redacted] [redacted]\n\n'


def test_secrets_in_url_and_body_are_hidden_and_still_match(tmp_path: Path) -> None:
    path = tmp_path / "tape.jsonl"
    plan = Plan(body={"prompt": f"is {SECRET} mine?"}, url=f"https://u:p@api.example/v1?key=abc&x=1&y={SECRET}")
    record(path, b"a", plan=plan)
    assert SECRET not in path.read_text()
    assert lines(path)[0]["request"]["url"] == "https://redacted@api.example/v1?key=[redacted]&x=1&y=[redacted]"
    assert list(Player(path, [SECRET]).send(plan)[2]) == [b"a"]


# ── replaying ────────────────────────────────────────────────────────────────
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=share(60))
@given(chunks=st.lists(st.binary(max_size=40), max_size=6))
def test_a_replay_is_split_as_the_original_was(tmp_path: Path, chunks: list[bytes]) -> None:
    path = tmp_path / "tape.jsonl"
    path.unlink(missing_ok=True)
    record(path, *chunks)
    status, headers, answer = Player(path).send(Plan(url="http://elsewhere/v1/chat", headers={}))
    assert (status, headers["content-type"], list(answer)) == (200, "text/event-stream", chunks)


def test_the_same_request_twice_is_answered_in_order_and_then_no_more(tmp_path: Path) -> None:
    path = tmp_path / "tape.jsonl"
    other = Plan(body={"model": "other"})
    record(path, b"one")
    record(path, b"else", plan=other)
    record(path, b"two")
    player = Player(path)
    assert list(player.send(Plan())[2]) == [b"one"]
    assert list(player.send(Plan())[2]) == [b"two"]
    assert list(player.send(other)[2]) == [b"else"]
    with pytest.raises(CnllmError, match="all 3 were used"):
        player.send(Plan())


@each(
    "plan, said",
    lambda: [
        (
            Plan(body={"model": "m", "messages": [{"role": "user", "content": "ho"}]}),
            'messages.0.content is "ho"',
        ),
        (
            Plan(body={"model": "m", "messages": [{"role": "user", "content": "hi"}], "n": 1}),
            "n is 1, recorded (line 1) is absent",
        ),
        (Plan(body={"model": "m", "messages": []}), "messages.0 is absent"),
        (Plan(body={"model": "n", "messages": []}), 'model is "n"'),
        (Plan(method="GET"), 'method is "GET"'),
        (Plan(url="https://api.example/v2"), 'path is "/v2", recorded (line 1) is "/v1/chat"'),
    ],
)
def test_a_request_that_nothing_answers_names_the_first_difference(tmp_path: Path, plan: Plan, said: str) -> None:
    path = tmp_path / "tape.jsonl"
    record(path, b"one")
    with pytest.raises(CnllmError) as caught:
        Player(path).send(plan)
    assert said in caught.value.message
    assert "--record" in (caught.value.hint or "")


def test_recorded_failures_fail_again(tmp_path: Path) -> None:
    path = tmp_path / "tape.jsonl"
    for error, chunks in ((TransportError("refused"), []), (IdleTimeout("silence"), [b"a"])):
        with pytest.raises(TransportError):
            record(path, *chunks, error=error)
    player = Player(path)
    with pytest.raises(TransportError, match="refused"):
        player.send(Plan())
    answer = player.send(Plan())[2]
    assert next(answer) == b"a"
    with pytest.raises(IdleTimeout, match="silence"):
        next(answer)


@each("content", [b"nonsense", b"[]", b'{"request": {}}', b"\xff", b'{"request": {"method": 1, "url": 2, "body": 3}}'])
def test_a_broken_cassette_is_named_with_its_line(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "tape.jsonl"
    path.write_bytes(b"\n" + content)
    with pytest.raises(CnllmError, match=r"tape\.jsonl:2: "):
        Player(path)


def test_a_missing_and_an_empty_cassette(tmp_path: Path) -> None:
    with pytest.raises(CnllmError, match="cannot replay"):
        Player(tmp_path / "none.jsonl")
    (tmp_path / "empty.jsonl").touch()
    with pytest.raises(CnllmError, match="it is empty"):
        Player(tmp_path / "empty.jsonl").send(Plan())


def test_a_recorder_passes_the_read_deadline_on(tmp_path: Path) -> None:
    class Chunks(Iterator[bytes]):
        hurried = 0.0

        def __next__(self) -> bytes:
            raise StopIteration

        def set_read_deadline(self, seconds: float) -> None:
            self.hurried = seconds

    chunks = Chunks()

    class Hurried(Inner):
        def send(self, plan: Any) -> tuple[int, dict[str, str], Iterator[bytes]]:
            return 200, {}, chunks

    Recorder(Hurried(), tmp_path / "t.jsonl").send(Plan())[2].set_read_deadline(2.0)  # type: ignore[attr-defined]
    assert chunks.hurried == 2.0
    Recorder(Inner(b"a"), tmp_path / "t.jsonl").send(Plan())[2].set_read_deadline(2.0)  # type: ignore[attr-defined]


def test_async_twins_do_the_same(tmp_path: Path) -> None:
    path = tmp_path / "tape.jsonl"

    async def run() -> None:
        recorder = AsyncRecorder(AsyncInner(b"a", b"b"), path, [SECRET])
        _, _, chunks = await recorder.send(Plan())
        assert [chunk async for chunk in chunks] == [b"a", b"b"]
        _, _, chunks = await recorder.send(Plan())
        assert await anext(chunks) == b"a"
        await chunks.aclose()  # type: ignore[attr-defined]
        with pytest.raises(IdleTimeout):
            await AsyncRecorder(AsyncInner(error=IdleTimeout("silence")), path).send(Plan())
        player = AsyncPlayer(path)
        _, _, chunks = await player.send(Plan())
        assert [chunk async for chunk in chunks] == [b"a", b"b"]

    asyncio.run(run())
    assert [line["ended"] for line in lines(path)] == ["whole", "abandoned", "failed"]


def exchange(body: Any, answer: str, path: str = "/v1/c") -> str:
    request = {"method": "POST", "url": f"https://x.test{path}", "body": body}
    return json.dumps({"request": request, "response": {"status": 200, "headers": {}, "chunks": [answer]}}) + "\n"


def asking(body: Any, path: str = "/v1/c") -> Plan:
    return Plan(body, url=f"https://x.test{path}")


def answer(player: Player, plan: Plan) -> str:
    return b"".join(player.send(plan)[2]).decode()


def test_the_work_of_a_replay_grows_with_its_exchanges_and_not_with_their_square(tmp_path: Path) -> None:
    def work(count: int, bodies: list[Any]) -> int:
        path = tmp_path / "tape"
        path.write_text("".join(exchange(body, str(i)) for i, body in enumerate(bodies)))
        calls = 0

        def counted(frame: Any, event: str, _: Any) -> None:
            nonlocal calls
            calls += event in ("call", "c_call") and frame.f_code.co_filename.endswith("replay.py")

        player = Player(path)
        order = [bodies.index(body) for body in bodies] if bodies[0] == bodies[-1] else range(count - 1, -1, -1)
        sys.setprofile(counted)
        try:
            said = [answer(player, asking(bodies[i])) for i in order]
            for _ in range(count):  # and each is used up
                with pytest.raises(CnllmError, match="were used"):
                    player.send(asking(bodies[0]))
        finally:
            sys.setprofile(None)
        assert said == [str(i) for i in (range(count) if bodies[0] == bodies[-1] else order)]
        return calls

    for make in (lambda i: {"messages": [{"role": "user", "content": f"turn {i}"}]}, lambda _: {"same": [1, {}]}):
        small, large = (work(count, [make(i) for i in range(count)]) for count in (50, 400))
        assert large < 9 * small, (small, large)


def test_requests_without_an_answer_cost_no_more_when_others_were_used(tmp_path: Path) -> None:
    path = tmp_path / "tape"
    path.write_text("".join(exchange({"n": i}, str(i)) for i in range(40)))
    player = Player(path)
    for i in range(39):
        assert answer(player, asking({"n": i})) == str(i)
    for _ in range(2):
        with pytest.raises(CnllmError, match=r"n is 99, recorded \(line 40\) is 39"):
            player.send(asking({"n": 99}))
        with pytest.raises(CnllmError, match=r"path is \"/other\", recorded \(line 40\)"):
            player.send(asking({"n": 99}, "/other"))
    assert answer(player, asking({"n": 39})) == "39"
    with pytest.raises(CnllmError, match="all 40 were used"):
        player.send(asking({"n": 39}))


def test_equal_bodies_match_in_any_order_of_keys_and_unequal_ones_do_not(tmp_path: Path) -> None:
    same: list[tuple[Any, Any]] = [
        ({"a": 1, "b": [{}, []]}, {"b": [{}, []], "a": 1}),
        ({"t": 1}, {"t": 1.0}),
        ({"t": 0.5, "u": None}, {"u": None, "t": 0.5}),
        ({"list": [1, 2]}, {"list": (1, 2)}),
        (None, None),
        ([-1, -2], [-1, -2]),
    ]
    other: list[tuple[Any, Any]] = [
        ({"a": {}}, {"a": []}),
        ({"a": -1}, {"a": -2}),  # two numbers with one hash
        ({"a": [1, 2]}, {"a": [2, 1]}),
        ({"a": None}, {}),
        ({"a": "1"}, {"a": 1}),
        ([{"a": -1}, {"a": -2}], [{"a": -2}, {"a": -1}]),
    ]
    path = tmp_path / "tape"
    for was, wants in same:
        path.write_text(exchange(was, "yes"))
        assert answer(Player(path), asking(wants)) == "yes", (was, wants)
    for was, wants in other:
        path.write_text(exchange(was, "no") + exchange(wants, "yes") + exchange(was, "no again"))
        player = Player(path)
        assert answer(player, asking(wants)) == "yes", (was, wants)
        assert [answer(player, asking(was)) for _ in range(2)] == ["no", "no again"], (was, wants)


def test_threads_share_a_replay(tmp_path: Path) -> None:
    path = tmp_path / "tape"
    path.write_text("".join(exchange({"same": 1}, str(i)) for i in range(200)))
    player = Player(path)
    said: list[str] = []
    threads = [
        threading.Thread(target=lambda: said.extend(answer(player, asking({"same": 1})) for _ in range(50)))
        for _ in range(4)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(20)
    assert sorted(said, key=int) == [str(i) for i in range(200)]


# ── redaction ────────────────────────────────────────────────────────────────
def test_every_spelling_of_a_secret_is_found() -> None:
    basic = base64.b64encode(f"user:{SECRET}".encode()).decode()
    other = base64.b64encode(f"{SECRET}:".encode()).decode()
    for spelling in (
        SECRET,
        json.dumps(SECRET)[1:-1],
        quote(SECRET, safe=""),
        quote(SECRET).lower(),
        basic,
        other,
    ):
        if spelling.lower() == spelling and spelling != SECRET:
            continue  # lower-casing the letters of the secret itself makes another secret
        assert redact.redact(f"<{spelling}>", [SECRET]) == "<[redacted]>"
    assert redact.redact(json.dumps({"a": f"Basic {basic}"}), [SECRET]) == '{"a": "Basic [redacted]"}'


def test_redaction_leaves_the_rest_alone() -> None:
    assert redact.redact("text", []) == "text"
    assert redact.redact("to be", ["be", ""]) == "to be"
    assert redact.redact("EMPTY handed", ["EMPTY"]) == "[redacted] handed"
    assert redact.redact("aaaa aaaab", ["aaaa", "aaaab"]) == "[redacted] [redacted]"


@given(st.text(min_size=12), st.text(), st.text(), st.integers(0, 2))
def test_no_secret_survives_in_base64(secret: str, before: str, after: str, shift: int) -> None:
    if "\0" in secret or not secret.strip():
        return
    whole = (b"x" * shift + before.encode() + secret.encode() + after.encode()).replace(b"\0", b"")
    text = base64.b64encode(whole).decode()
    assert redact.redact(text, [secret]) == "[redacted]"


def test_headers_are_hidden_by_name() -> None:
    shown = redact.redact_headers(
        {
            "Authorization": "Bearer abc",
            "Proxy-Authorization": "Basic abc",
            "x-api-key": "abc",
            "x-goog-api-key": "abc",
            "Cookie": "a=b",
            "x-ratelimit-remaining-tokens": "12",
            "content-type": "text/plain",
            "x-echo": "abcd-efgh",
        },
        ["abcd-efgh"],
    )
    assert shown == {
        "Authorization": "Bearer [redacted]",
        "Proxy-Authorization": "Basic [redacted]",
        "x-api-key": "[redacted]",
        "x-goog-api-key": "[redacted]",
        "Cookie": "[redacted]",
        "x-ratelimit-remaining-tokens": "12",
        "content-type": "text/plain",
        "x-echo": "[redacted]",
    }


# ── a proxy, a full disk, edited files ───────────────────────────────────────
@pytest.mark.parametrize("name", ["HTTP_PROXY", "https_proxy", "ALL_PROXY"])
def test_the_password_of_a_proxy_is_hidden_wherever_it_is_echoed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    password, path = "prXy-Secret-0123456789", tmp_path / "tape.jsonl"
    monkeypatch.setenv(name, f"http://user:{password}@127.0.0.1:9")
    basic = base64.b64encode(f"user:{password}".encode())
    inner = Inner(b"<p>", basic, b" ", password[:9].encode(), password[9:].encode())
    inner.headers = {"x-seen": password, "content-type": "text/html"}
    list(Recorder(inner, path).send(Plan())[2])
    with pytest.raises(TransportError):
        list(Recorder(Inner(error=TransportError(f"refused: {basic.decode()} {password}")), path).send(Plan())[2])
    assert len(lines(path)) == 2
    assert password not in path.read_text()
    assert basic.decode() not in path.read_text()


def test_a_full_disk_leaves_no_half_line_and_loses_no_answer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    path, write = tmp_path / "tape.jsonl", os.write
    record(path, b"first")
    whole = path.read_bytes()

    def full(descriptor: int, data: bytes) -> int:
        if len(data) <= 20:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return write(descriptor, data[: len(data) - 20])

    monkeypatch.setattr(os, "write", full)
    chunks = Recorder(Inner(b"paid ", b"answer"), path).send(Plan())[2]
    assert b"".join(chunks) == b"paid answer"
    monkeypatch.setattr(os, "write", write)
    assert path.read_bytes() == whole
    assert ["No space left" in entry.getMessage() for entry in caplog.records] == [True]
    record(path, b"last")
    assert [b"".join(Player(path, [SECRET]).send(Plan())[2])] == [b"first"]
    assert len(lines(path)) == 2


def test_what_a_crash_or_an_editor_left_is_never_glued_to_the_next_exchange(tmp_path: Path) -> None:
    path = tmp_path / "tape.jsonl"
    record(path, b"first")
    whole = path.read_bytes()
    for cut in range(len(whole)):
        path.write_bytes(whole + whole[:cut])
        record(path, b"last")
        kept = [line["response"]["chunks"] for line in lines(path)]
        assert kept == ([["first"], ["last"]] if cut < len(whole) - 1 else [["first"], ["first"], ["last"]])


def test_the_last_line_of_a_file_that_is_no_cassette_stays(tmp_path: Path) -> None:
    path = tmp_path / "notes.md"
    for text in ("the only line", "first\nlast", '{"whence": ', "x" * 200_000, '{"request": {}'):
        path.write_text(text)
        record(path, b"answer")
        before, _, line = path.read_text().removesuffix("\n").rpartition("\n")
        assert (before, json.loads(line)["response"]["chunks"]) == (text, ["answer"])


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_a_forked_child_records_nothing_of_its_parents_exchanges(tmp_path: Path) -> None:
    path = tmp_path / "tape.jsonl"
    chunks = Recorder(Inner(b"a", b"b"), path).send(Plan())[2]
    assert next(chunks) == b"a"
    child = os.fork()
    if not child:
        chunks.close()  # type: ignore[attr-defined]  # as the end of a child's program does
        os._exit(0)
    os.waitpid(child, 0)
    assert list(chunks) == [b"b"]
    assert [(line["response"]["chunks"], line["ended"]) for line in lines(path)] == [(["a", "b"], "whole")]


def _places(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    yield path
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, item in items:
        yield from _places(item, (*path, key))


def _edited(entry: dict[str, Any], path: tuple[Any, ...], value: Any) -> Any:
    if not path:
        return value
    entry = copy.deepcopy(entry)
    inner: Any = entry
    for key in path[:-1]:
        inner = inner[key]
    if value is ...:
        del inner[path[-1]]
    else:
        inner[path[-1]] = value
    return entry


def test_every_edited_cassette_is_answered_or_refused_by_its_line(tmp_path: Path) -> None:
    path, error = tmp_path / "tape.jsonl", TransportError("broken")
    record(path, b"data: a\n", b"\xff")
    with pytest.raises(TransportError):
        record(path, b"half", error=error)
    values: list[Any] = [..., None, True, 0, -1, 10**30, 1.5, "", "x", [], [1], ["x"], [None], {}]
    values += [{"base64": "?"}, {"x": [[]]}]
    edits = [_edited(entry, place, value) for entry in lines(path) for place in _places(entry) for value in values]
    texts = [json.dumps(entry) for entry in edits if entry is not ...]
    raw = path.read_bytes().splitlines()[0]
    deep = json.dumps(lines(path)[0] | {"request": {"method": "POST", "url": "/", "body": 0}})
    broken = [raw[:cut] for cut in range(1, len(raw), 7)] + [raw[:cut] + b"\xff" + raw[cut:] for cut in (1, 50, 200)]
    for depth in (900, 5_000, 200_000):
        broken.append(deep.replace('"body": 0', f'"body": {"[" * depth}{"]" * depth}').encode())
    refused = 0
    for line in [*(text.encode() for text in texts), *broken, b"9" * 5000]:
        path.write_bytes(b"\n" + line + b"\n")
        try:
            status, headers, chunks = Player(path, [SECRET]).send(Plan())
            assert type(status) is int
            assert all(type(name) is str and type(value) is str for name, value in headers.items())
            assert all(type(chunk) is bytes for chunk in chunks)
        except TransportError:
            continue
        except CnllmError as problem:
            text = str(problem)
            assert "holds no answer to this request" in text or f"{path}:2: this line is not a recorded" in text, text
            refused += "not a recorded" in text
    assert refused > len(texts) / 2
