"""The version of the data: in replies, logs, cassettes, telemetry and the gateway's log."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

import cnllm
from cnllm import Client, Registry
from cnllm.registry.files import data_folder

VERSION = re.compile(r"\d+\.\d+\.\d+\+[0-9a-f]{8}")
PATCH = '[models."zai/glm-4.7"]\nprice = { currency = "USD", input = 0.5 }\n'


def write_updates(text: str = PATCH) -> Path:
    """Write the updates of this user."""
    path = Path(data_folder()) / "updates.toml"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return path


def test_a_reply_carries_the_version_of_the_data() -> None:
    with Client(simulate=True) as client:
        reply = client.call("zai/glm-4.7", "hi")
    assert VERSION.fullmatch(reply.registry)
    assert reply.registry == Registry.load().version
    assert reply.to_dict()["registry"] == reply.registry


def test_a_stream_and_a_run_carry_it_too() -> None:
    with Client(simulate=True) as client:
        with client.stream("zai/glm-4.7", "hi") as stream:
            list(stream)
        assert VERSION.fullmatch(stream.reply.registry)
        assert client.run("zai/glm-4.7", "hi").reply.registry == stream.reply.registry


def test_the_version_changes_with_the_updates_and_after_a_reload() -> None:
    registry = Registry.load()
    old = registry.version
    model = registry.resolve("zai/glm-4.7")
    write_updates()
    registry.reload()
    assert re.fullmatch(re.escape(old) + " updates [0-9a-f]{8}", registry.version)
    assert model.data_version == old  # a model keeps the data that it comes from
    assert registry.resolve("zai/glm-4.7").data_version == registry.version
    assert registry.resolve("poe/xai/grok-code-fast-1").data_version == registry.version  # of the catalogue


def test_updates_of_an_older_package_do_not_count(monkeypatch: pytest.MonkeyPatch) -> None:
    write_updates(f'made_for = "{cnllm.__version__}"\n{PATCH}')
    price = Registry.load().resolve("zai/glm-4.7").flags.price
    assert price is not None
    assert price.input == 0.5
    monkeypatch.setattr("cnllm.registry.data_layer.VERSION", "99.0.0")
    newer = Registry.load()
    price = newer.resolve("zai/glm-4.7").flags.price
    assert price is not None
    assert price.input != 0.5
    assert "updates" not in newer.version


def test_telemetry_and_a_cassette_carry_it(tmp_path: Path) -> None:
    events: list[object] = []
    with Client(simulate=True, on_event=events.append, raw_log=tmp_path) as client:
        reply = client.call("zai/glm-4.7", "hi")
    (ended,) = [event for event in events if type(event).__name__ == "CallEnded"]
    assert ended.registry == reply.registry  # type: ignore[attr-defined]
    (file,) = tmp_path.glob("*.jsonl")
    assert json.loads(file.read_text())["registry"] == reply.registry


def test_the_gateway_s_log_carries_it() -> None:
    from cnllm.gateway.monitoring.entry import Entry
    from cnllm.gateway.monitoring.monitor import set_reply

    with Client(simulate=True) as client:
        reply = client.call("zai/glm-4.7", "hi")
    entry = Entry("1", "POST", "/v1/chat/completions")
    set_reply(entry, reply, reply.notes)
    assert entry.registry == reply.registry


def test_a_store_of_an_earlier_version_takes_the_column_and_loses_nothing(tmp_path: Path) -> None:
    import sqlite3

    from cnllm.store import Store
    from cnllm.store.file import MARK, STEPS, migrate

    path = tmp_path / "a.db"
    raw = sqlite3.connect(path, isolation_level=None)
    migrate(raw, STEPS[:1], MARK)
    raw.execute("INSERT INTO conversations VALUES ('c', '2026-11-01T00:00:00+00:00')")
    columns = "conversation, began, state, model, origin"
    raw.execute(f"INSERT INTO turns ({columns}) VALUES ('c', '2026-11-01T00:00:00+00:00', 'done', 'a/b', 'endpoint')")
    raw.close()
    with Store.open(path) as store:
        (record,) = store.records()
        assert [(turn.model, turn.registry) for turn in record.turns] == [("a/b", None)]
        with Client(simulate=True) as client:
            reply = client.call("zai/glm-4.7", "hi")
        with store.conversation("c").turn([], model="a/b") as turn:
            turn.finish(reply)
        (record,) = store.records()
        assert record.turns[1].registry == reply.registry
