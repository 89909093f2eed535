"""The raw log: every exchange as recorded bytes, without secrets, bounded, and at the price of no call."""

import json
import os
import stat
from pathlib import Path
from typing import Any

import pytest

import cnllm
from cnllm import Client, Registry
from cnllm.cassette import AsyncPlayer, AsyncRecorder, Player, Recorder, raw_log
from cnllm.simulator import SimTransport

from .peer import DONE, Pause, Peer, Step, delta, reply, stream, texts, usage
from .support import ONCE, Driver, at, registry

KEY = "sk-secret-raw-log-0123456789"


def lines(folder: Path) -> list[Any]:
    return [json.loads(line) for file in sorted(folder.iterdir()) for line in file.read_text().splitlines()]


@pytest.mark.parametrize("backend", ["sync", "asyncio"])
def test_a_setting_or_a_client_switches_it_on(backend: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CNLLM_DATA_DIR", str(tmp_path / "data"))
    own = tmp_path / "own"
    table: list[tuple[str | None, Any, Path | None]] = [
        (None, None, None),
        ("0", None, None),
        ("off", None, None),
        ("on", False, None),
        ("on", None, tmp_path / "data" / "raw"),
        (str(own), None, own),
        (None, True, tmp_path / "data" / "raw"),
        (None, own, own),
    ]
    for setting, option, folder in table:
        monkeypatch.delenv("CNLLM_RAW_LOG", raising=False)
        if setting is not None:
            monkeypatch.setenv("CNLLM_RAW_LOG", setting)
        for place in (own, tmp_path / "data" / "raw"):
            for file in place.glob("*"):
                file.unlink()
        with Peer([reply("Hi.")]) as peer, Driver(backend, raw_log=option, api_key=KEY) as client:
            client.call(at(peer))
        found = [p for p in (own, tmp_path / "data" / "raw") if p.exists() and any(p.iterdir())]
        assert found == ([] if folder is None else [folder]), (setting, option)


@pytest.mark.parametrize("backend", ["sync", "asyncio"])
def test_a_connection_whose_body_ends_after_the_reply_is_used_again(backend: Any, tmp_path: Path) -> None:
    """The end of a chunked body mostly comes in a packet of its own."""
    script: list[Step] = [stream(*texts("Hi."), DONE, end=False), Pause(0.01), b"0\r\n\r\n"]
    with Peer(script) as peer, Driver(backend, raw_log=tmp_path) as client:
        for _ in range(3):
            list(client.stream(at(peer)))
        assert peer.connections == 1
    assert [line["ended"] for line in lines(tmp_path)] == ["whole"] * 3


@pytest.mark.parametrize("backend", ["sync", "asyncio"])
def test_a_raw_log_holds_the_bytes_and_no_secret(backend: Any, tmp_path: Path) -> None:
    echo = json.dumps({"error": {"message": f"Incorrect API key provided: {KEY}"}}).encode()
    head = b"HTTP/1.1 401 No\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n" % len(echo)
    streamed = [stream(*texts("Hel", "lo"), delta(finish="stop"), usage(), DONE)]
    with Peer(streamed, [head + echo]) as peer, Driver(backend, raw_log=tmp_path, api_key=KEY) as client:
        list(client.stream(at(peer)))
        with pytest.raises(cnllm.BadKey):
            client.call(at(peer))
        model = at(peer)
    assert KEY not in "".join(file.read_text() for file in tmp_path.iterdir())
    first, second = lines(tmp_path)
    assert first["request"]["body"]["messages"] == [{"role": "user", "content": "hi"}]
    assert "Incorrect API key" in "".join(second["response"]["chunks"])
    (file,) = tmp_path.iterdir()
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    with Client(registry(), Player(file), api_key="x") as offline, offline.stream(model, "hi") as again:
        assert "".join(e.text for e in again if isinstance(e, cnllm.TextDelta)) == "Hello"


def test_files_are_bounded_in_size_and_number(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(raw_log, "FILE_BYTES", 1000)
    monkeypatch.setattr(raw_log, "FILES", 3)
    log = raw_log.RawLog(tmp_path)
    for number in range(20):
        log.write({"number": number, "text": "x" * 300})
    files = sorted(tmp_path.iterdir())
    assert len(files) == 3
    assert all(file.stat().st_size <= 1000 for file in files)
    assert [line["number"] for line in lines(tmp_path)][-1] == 19
    numbers = [line["number"] for line in lines(tmp_path)]
    assert numbers == list(range(numbers[0], 20))
    log.write({"text": "x" * 5000})
    assert lines(tmp_path)[-1]["text"] == "x" * 5000


def test_a_clock_that_was_set_back_lets_no_new_file_be_deleted(tmp_path: Path) -> None:
    for second in range(raw_log.FILES):
        (tmp_path / f"20990101T0000{second:02}.000000-1.jsonl").write_text('{"number": -1}\n')
    for number in range(3):
        raw_log.RawLog(tmp_path).write({"number": number})
    assert [line["number"] for line in lines(tmp_path)][-4:] == [-1, 0, 1, 2]
    assert len(list(tmp_path.iterdir())) == raw_log.FILES
    (tmp_path / "99999999T999999.999999-1.jsonl").touch()
    raw_log.RawLog(tmp_path).write({"number": 3})
    assert 3 in [line["number"] for line in lines(tmp_path)]


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_each_process_has_a_file_of_its_own(tmp_path: Path) -> None:
    log = raw_log.RawLog(tmp_path)
    log.write({"who": "parent"})
    child = os.fork()
    if not child:
        log.write({"who": "child"})
        os._exit(0)
    os.waitpid(child, 0)
    log.write({"who": "parent"})
    said = {file.name.rpartition("-")[2]: file.read_text().count("\n") for file in tmp_path.iterdir()}
    assert said == {f"{os.getpid()}.jsonl": 2, f"{child}.jsonl": 1}


def test_a_log_that_cannot_be_written_costs_no_call(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(cnllm.CnllmError, match="cannot"):
        Client(registry(), raw_log=tmp_path / "file" / "below")
    folder = tmp_path / "log"
    with Peer([reply("Hi.")]) as peer, Client(registry(), raw_log=folder, retry=ONCE) as client:
        for file in folder.iterdir():
            file.unlink()
        folder.rmdir()
        folder.write_text("in the way")
        assert client.call(at(peer), "hi").text == "Hi."


def test_what_is_no_place_is_refused() -> None:
    with pytest.raises(TypeError, match="raw_log"):
        Client(registry(), raw_log=3)  # type: ignore[arg-type]


@pytest.mark.parametrize("backend", ["sync", "asyncio"])
def test_a_replay_needs_no_key(backend: Any, tmp_path: Path) -> None:
    """Nor does a recording of a replay. With a key nothing is different, and another transport needs one."""
    tape, again = tmp_path / "tape.jsonl", tmp_path / "again.jsonl"
    with cnllm.Client(transport=Recorder(SimTransport(Registry.load()), tape), api_key=KEY) as client:
        said = [client.call(name, "Why?").text for name in ("glm-4.7", "anthropic/claude-sonnet-5-5")]
    kinds: Any = (Player, Recorder) if backend == "sync" else (AsyncPlayer, AsyncRecorder)
    player, recorder = kinds
    for transport, key in ((player(tape), None), (recorder(player(tape), again), None), (player(tape), KEY)):
        with Driver(backend, transport=transport, registry=Registry.load(), api_key=key) as client:
            assert [client.call(name, "Why?").text for name in ("glm-4.7", "anthropic/claude-sonnet-5-5")] == said
    with Driver(backend, registry=Registry.load()) as client, pytest.raises(cnllm.KeyMissing):
        client.call("glm-4.7", "Why?")
