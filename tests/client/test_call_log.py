"""`log_calls`: what the library's calls cost stands in the file of `cnllm logs`, without a word of them."""

import contextlib
import json
import os
import subprocess
import sys
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

import cnllm
from cnllm import Client
from cnllm.store import Store

from .conftest import Make
from .peer import Peer, call_delta, delta, refused, reply, stream, usage
from .support import Driver, home

EACH = Decimal("0.000043")  # 3 in, 4 out
SECRET = "a-secret-word"
TOKEN = "the-token-of-home"


def priced(folder: Path, peer: Peer) -> cnllm.Model:
    """`home/m`, which is the peer, with a price."""
    return home(folder, peer, 'price = { currency = "USD", input = 1, output = 10 }')


@pytest.fixture
def data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("CNLLM_DATA_DIR", str(tmp_path / "data"))
    return tmp_path / "data"


def turns() -> list[Any]:
    with Store.open() as store:
        return [turn for record in store.records() for turn in record.turns]


def test_calls_are_logged_without_a_word(make: Make, data: Path, tmp_path: Path) -> None:
    good, streamed = reply(SECRET), stream(delta(SECRET), delta(finish="stop"), usage())
    with Peer([good], [streamed], [refused(400, SECRET)]) as peer:
        model = priced(tmp_path, peer)
        with contextlib.closing(make(log_calls=True, api_key=TOKEN)) as client:
            client.call(model, SECRET, tag="一号")
            with client.stream(model, SECRET) as events:
                assert list(events)
            with pytest.raises(cnllm.BadRequest):
                client.call(model, SECRET, tag="one")
    assert [(turn.client, turn.tag, turn.state, turn.model) for turn in turns()] == [
        ("library", "一号", "done", "home/m"),
        ("library", None, "done", "home/m"),
        ("library", "one", "failed", "home/m"),
    ]
    assert [turn.cost and turn.cost.amount for turn in turns()] == [EACH, EACH, None]
    assert {turn.origin for turn in turns()} == {"endpoint"}
    with Store.open() as store:
        assert {row.label: row.turns for row in store.costs("tag").rows} == {"一号": 1, "(no tag)": 1, "one": 1}
        total = store.costs("conversation").total
        assert (total.turns, total.exact, total.cost[0].amount) == (3, True, 2 * EACH), "a refusal costs nothing"
        with pytest.raises(cnllm.CnllmError, match="its words are not stored"):
            store.conversation(store.ids()[0])
        rows = store.file.execute("SELECT data FROM turns JOIN prices ON prices.id = turns.price")
        assert [json.loads(price)["input"] for (price,) in rows] == [1, 1, 1], "the price in force"
    content = b"".join(file.read_bytes() for file in data.iterdir())
    assert SECRET.encode() not in content
    assert TOKEN.encode() not in content


def test_nothing_is_logged_unless_the_user_wants_it(
    data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Peer([reply()]) as peer:
        model = priced(tmp_path, peer)
        for setting, argument, count in ((None, None, 0), ("off", None, 0), ("on", False, 0), ("on", None, 1)):
            if setting is not None:
                monkeypatch.setenv("CNLLM_LOG_CALLS", setting)
            with Client(log_calls=argument, api_key=TOKEN) as client:
                client.call(model, "Hi", tag="x")
            assert data.exists() is bool(count)
        assert len(turns()) == 1


def test_the_steps_of_a_run_are_one_conversation(data: Path, tmp_path: Path) -> None:
    def add(a: int) -> int:
        """Add."""
        return a + 1

    call = stream(call_delta(name="add", id="c1", arguments='{"a": 1}'), delta(finish="tool_calls"), usage())
    end = stream(delta("2"), delta(finish="stop"), usage())
    with Peer([call], [end], [reply()]) as peer, Client(log_calls=True, api_key=TOKEN) as client:
        model = priced(tmp_path, peer)
        with client.run_stream(model, "1+1?", tools=[add], tag="sum") as run:
            assert list(run)
        client.call(model, "Hi")
    with Store.open() as store:
        assert sorted(row.turns for row in store.costs("conversation").rows) == [1, 2]
        assert {row.label: row.turns for row in store.costs("tag").rows} == {"sum": 2, "(no tag)": 1}


def test_a_tag_is_short_can_be_printed_and_is_never_sent(client: Driver, data: Path, tmp_path: Path) -> None:
    with Peer([reply()]) as peer:
        model = priced(tmp_path, peer)
        for wrong in ("", " ", "a\nb", "a\x00", "x" * 101):
            with pytest.raises(ValueError, match="tag"):
                client.call(model, "Hi", tag=wrong)
        with pytest.raises(TypeError, match="tag is int"):
            client.call(model, "Hi", tag=3)
        assert not peer.received
        client.call(model, "Hi", tag="my-tag", api_key=TOKEN)
        client.call(model, "Hi", tag=None, api_key=TOKEN)
        tagged, bare = peer.received
    assert tagged.body == bare.body
    assert "my-tag" not in str(tagged)


def test_a_stream_that_its_reader_leaves_has_the_cost_of_what_arrived(make: Make, data: Path, tmp_path: Path) -> None:
    script = [stream(usage(), *map(delta, "abcdef"), delta(finish="stop"))]
    with Peer(script, script) as peer:
        model = priced(tmp_path, peer)
        with contextlib.closing(make(log_calls=True, api_key=TOKEN)) as client, client.stream(model, "Hi") as events:
            next(iter(events))
        with Client(log_calls=True, api_key=TOKEN) as plain, plain.stream(model, "Hi") as stopped:
            next(iter(stopped))
            left = stopped.stop()
    assert left is not None
    assert left.cost is not None
    assert (left.cost.amount, left.cost.missing) == (EACH, ("output",))
    for turn in turns():
        assert (turn.error.type, turn.cost, turn.usage) == ("Interrupted", left.cost, left.usage)


def test_a_program_that_does_not_close_its_client_loses_no_call(data: Path, tmp_path: Path) -> None:
    program = "import cnllm; cnllm.Client(simulate=True, log_calls=True).call('glm-4.7', 'Hi')"
    subprocess.run([sys.executable, "-c", program], check=True, timeout=60, env={**os.environ})
    (turn,) = turns()
    assert (turn.origin, turn.state) == ("simulated", "done")


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has no fork")
def test_a_forked_child_logs_its_own_calls_alone(data: Path) -> None:
    with Client(simulate=True, log_calls=True) as client:
        client.call("glm-4.7", "Hi", tag="parent")
        if not (child := os.fork()):
            with contextlib.suppress(BaseException):
                client.call("glm-4.7", "Hi", tag="child")
                client.close()
            os._exit(0)
        os.waitpid(child, 0)
    assert sorted(turn.tag for turn in turns()) == ["child", "parent"]
