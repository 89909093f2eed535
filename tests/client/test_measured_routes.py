"""`Fallback(order="measured")`: which host is asked first, by what was seen of it or by a report, and what is said."""

import json
import multiprocessing
import os
from pathlib import Path
from typing import Any

import pytest

import cnllm
from cnllm import Client, Fallback, Message, Retry

from .peer import Script, answer, refused, whole
from .routes import two

TOOL = {
    "type": "function",
    "function": {
        "name": "look",
        "parameters": {"type": "object", "properties": {"page": {"type": "integer"}}, "required": ["page"]},
    },
}


@pytest.fixture(autouse=True)
def _keys(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ONE_KEY", "sk-one-0123456789")
    monkeypatch.setenv("TWO_KEY", "sk-two-9876543210")


def calling(arguments: str) -> Script:
    """A reply with one call of the tool."""
    call = {"id": "call_1", "type": "function", "function": {"name": "look", "arguments": arguments}}
    return [answer(200, whole(None, "tool_calls", tool_calls=[call]))]


RIGHT = calling('{"page": 1}')


def client_of(registry: cnllm.Registry, **rules: Any) -> Client:
    fallback = Fallback(targets=("two/m",), **{"order": "measured", **rules})
    return Client(registry, fallback=fallback, retry=Retry(attempts=1))


def note_of(got: cnllm.Reply) -> cnllm.Note:
    (note,) = [note for note in got.notes if note.code == "route-measured"]
    return note


def report(folder: Path, **failed: int) -> str:
    """A file with the figures of a comparison of 200 tool turns."""
    figures = [
        {"host": f"{host}/m", "shares": {"kept": {"good": 200 - count, "tasks": 200}, "call": {"good": 0, "tasks": 9}}}
        for host, count in failed.items()
    ]
    path = folder / "report.json"
    path.write_text(json.dumps({"form": "cnllm-comparison-1", "figures": figures}), encoding="utf-8")
    return str(path)


@pytest.mark.parametrize(
    "wrong",
    [
        calling('{"page": "one"}'),
        calling('{"page": '),
        calling("{}"),
        [answer(200, whole(None, "stop"))],
        [refused(503, "busy")],
    ],
    ids=["schema", "json", "missing", "empty", "error"],
)
def test_a_host_whose_tool_turns_fail_is_no_longer_asked_first(tmp_path: Path, wrong: Script) -> None:
    with two(tmp_path, [wrong], [RIGHT]) as (registry, one, other), client_of(registry, cooldown=0) as client:
        for number in range(16):
            got = client.call("one/m", f"Look {number}", tools=[TOOL])
        before = len(one.received)
        assert 4 <= before <= 12
        assert len(other.received) >= 4
        for number in range(8):
            got = client.call("one/m", f"See {number}", tools=[TOOL])
            assert got.message.by == "two/m"
        assert len(one.received) <= before + 1  # a re-test
        note = note_of(got)
        assert note.did.startswith("two/m is asked first")
        assert "one/m: " in note.said
        assert "turns failed" in note.said


def test_what_another_host_would_not_have_spared_counts_against_none(tmp_path: Path) -> None:
    with (
        two(tmp_path, [[refused(400, "no such parameter")]], [RIGHT]) as (registry, one, _),
        client_of(registry) as client,
    ):
        for _ in range(12):
            with pytest.raises(cnllm.BadRequest):
                client.call("one/m", "Look", tools=[TOOL])
        assert len(one.received) >= 11


def test_the_first_order_is_that_of_the_list_and_each_choice_is_explained(tmp_path: Path) -> None:
    with two(tmp_path, [RIGHT], [RIGHT]) as (registry, one, _), client_of(registry) as client:
        first = note_of(client.call("one/m", "Look", tools=[TOOL]))
        assert (first.flag, first.said) == ("route", "one/m: no turns yet; two/m: no turns yet")
        assert first.did == "one/m is asked first: no other host is shown to be better"
        assert len(one.received) == 1


def test_a_report_decides_before_anything_was_seen(tmp_path: Path) -> None:
    path = report(tmp_path, one=30, two=0)
    with two(tmp_path, [RIGHT], [RIGHT]) as (registry, one, other), client_of(registry, report=path) as client:
        note = note_of(client.call("one/m", "Look", tools=[TOOL]))
        assert (len(one.received), len(other.received)) == (0, 1)
        assert note.said.startswith("one/m: 30 of 200 turns failed (13 to 17 %)")


def test_a_report_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    for name, content in (("missing.json", None), ("other.json", '{"form": 1}'), ("deep.json", '{"x":' * 100_000)):
        path = tmp_path / name
        if content is not None:
            path.write_text(content, encoding="utf-8")
        with two(tmp_path, [RIGHT], [RIGHT]) as (registry, one, _), client_of(registry, report=path) as client:
            with pytest.raises(cnllm.CnllmError, match=name) as caught:
                client.call("one/m", "Look")
            assert "cnllm compare" in str(caught.value.hint)
            assert not one.received


def test_a_conversation_stays_with_the_host_that_has_it(tmp_path: Path) -> None:
    """The second host takes over for a turn, and then has the conversation: the first one is as good, and cold."""
    with (
        two(tmp_path, [[refused(503, "busy")], RIGHT], [RIGHT]) as (registry, one, other),
        client_of(registry) as client,
    ):
        talk: list[Any] = [Message.user("Look")]
        for _ in range(4):
            got = client.call(
                "one/m", talk, tools=[TOOL], fallback=Fallback(targets=("two/m",), order="measured", cooldown=0)
            )
            talk += [got.message, Message.tool(got.tool_calls[0].id, "A page.")]
        assert (len(one.received), len(other.received)) == (1, 4)
        assert note_of(got).did == "two/m is asked first: it has the beginning of the conversation in its cache"
        client.call("one/m", "Another one", tools=[TOOL])
        assert len(one.received) == 2


@pytest.mark.parametrize(
    ("rules", "says"),
    [
        ({"order": "best"}, 'order.*"measured"'),
        ({"order": "measured", "weights": [1, 1]}, "weights exclude each other"),
        ({"report": "a.json"}, "order="),
        ({"order": "measured", "report": 3}, "report.*path"),
        ({"order": "measured", "report": ""}, "report.*path"),
        ({"most": 0}, "most.*from 1"),
    ],
)
def test_rules_that_say_nothing_are_refused(rules: dict[str, Any], says: str) -> None:
    with pytest.raises(ValueError, match=says):
        Fallback(targets=("two/m",), **rules)
    with pytest.raises(ValueError, match=says):
        Fallback.of({"targets": ["two/m"], **rules})


def test_a_route_in_the_order_of_its_list_measures_nothing(tmp_path: Path) -> None:
    with two(tmp_path, [RIGHT], [RIGHT]) as (registry, _, _), client_of(registry, order=None) as client:
        got = client.call("one/m", "Look", tools=[TOOL])
        assert [note for note in got.notes if note.code == "route-measured"] == []
        assert "measurements" not in vars(client._route_memory[0])


def test_a_host_that_cannot_take_the_request_is_not_chosen(tmp_path: Path) -> None:
    path = report(tmp_path, one=60, two=0)
    with (
        two(tmp_path, [RIGHT], [RIGHT], other="tools.supported = false") as (registry, one, other),
        client_of(registry, report=path) as client,
    ):
        client.call("one/m", "Look", tools=[TOOL])
        assert (len(one.received), len(other.received)) == (1, 0)


def _first_host(client: Client, results: Any) -> None:
    results.put(client.call("one/m", "Look", tools=[TOOL]).message.by)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system does not fork")
def test_a_forked_child_goes_on_with_what_was_seen(tmp_path: Path) -> None:
    with two(tmp_path, [calling("{}")], [RIGHT]) as (registry, _, _), client_of(registry) as client:
        for number in range(30):
            client.call("one/m", f"Look {number}", tools=[TOOL])
        context: Any = multiprocessing.get_context("fork")
        results = context.Queue()
        with client._route_memory[0].measurements._lock:  # as if another thread was at it
            child = context.Process(target=_first_host, args=(client, results))
            child.start()
        assert results.get(timeout=30) == "two/m"
        child.join()
