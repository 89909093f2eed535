"""An answer that is not valid goes back with the validator's words, at most so many times."""

from decimal import Decimal
from pathlib import Path

import pytest
from client.peer import Peer, delta, refused, stream
from client.support import Driver, ask, counted, drained, folds

import cnllm

from .support import ADA, BAD, GOOD, SCHEMA, WORDS, codes, endpoint, gives, note

VERBS = ["call", "stream"]
METHODS = ["json_schema", "json_object", "tool", "prompt"]


@pytest.mark.parametrize("verb", VERBS)
@pytest.mark.parametrize("method", METHODS)
def test_an_invalid_answer_is_sent_back_with_the_validators_words(
    client: Driver, tmp_path: Path, method: str, verb: str
) -> None:
    with Peer([gives(verb, method, BAD)], [gives("call", method, GOOD)]) as peer:
        model = endpoint(tmp_path, peer, method, 'price = { currency = "USD", input = 1e6, output = 1e6 }')
        got = ask(client, verb, model, schema=SCHEMA, corrections=1)
        first, second = (received.json() for received in peer.received)
    assert second["messages"][: len(first["messages"])] == first["messages"]
    assistant, user = second["messages"][-2:]
    assert (assistant["role"], assistant["content"], user["role"]) == ("assistant", BAD, "user")
    assert WORDS in user["content"]
    assert {k: v for k, v in second.items() if k not in ("messages", "stream")} == {
        k: v for k, v in first.items() if k not in ("messages", "stream", "stream_options")
    }
    assert (got.parsed, got.text) == (ADA, GOOD)
    assert (note(got, "answer-corrected").said, note(got, "answer-corrected").flag) == (WORDS, "corrections")
    assert "answer-invalid" not in codes(got)
    assert got.usage == cnllm.Usage(input=6, output=8, total=14)
    assert got.cost == cnllm.Cost(Decimal(14), "USD")


def test_a_stream_begins_anew_for_the_other_answer(client: Driver, tmp_path: Path) -> None:
    with Peer([gives("stream", "tool", BAD)], [gives("call", "tool", GOOD)]) as peer:
        events, got = drained(client.stream(endpoint(tmp_path, peer, "tool"), schema=SCHEMA, corrections=1))
    folds(events, got)
    assert counted(events, cnllm.Restarted) == 1
    assert [e for e in events if isinstance(e, cnllm.UsageSeen)][-1].usage == got.usage
    told = [event.note for event in events if isinstance(event, cnllm.NoteAdded)]
    assert [n.code for n in told] == ["answer-corrected"]


def test_a_correction_happens_once_by_default_and_never_to_a_stream(client: Driver, tmp_path: Path) -> None:
    with Peer([gives("call", "prompt", BAD)]) as peer:
        got = client.call(endpoint(tmp_path, peer, "prompt"), schema=SCHEMA)
        assert len(peer.received) == 2
    assert codes(got)[-2:] == ["answer-corrected", "answer-invalid"]
    with Peer([gives("stream", "prompt", BAD)]) as peer:
        events, got = drained(client.stream(endpoint(tmp_path, peer, "prompt"), schema=SCHEMA))
        assert len(peer.received) == 1
    assert codes(got)[-1] == "answer-invalid"
    assert counted(events, cnllm.Restarted) == 0


def test_a_model_may_have_another_default(client: Driver, tmp_path: Path) -> None:
    with Peer([gives("call", "prompt", BAD)]) as peer:
        client.call(endpoint(tmp_path, peer, "prompt", "call = { corrections = 2 }"), schema=SCHEMA)
        assert len(peer.received) == 3
        client.call(endpoint(tmp_path, peer, "prompt", "call = { corrections = 2 }"), schema=SCHEMA, corrections=0)
        assert len(peer.received) == 4


@pytest.mark.parametrize("verb", VERBS)
def test_what_stays_invalid_is_kept_with_every_attempt_noted(client: Driver, tmp_path: Path, verb: str) -> None:
    worse = "no JSON at all"
    with Peer([gives(verb, "tool", BAD)], [gives("call", "tool", BAD)], [gives("call", "prompt", worse)]) as peer:
        model = endpoint(tmp_path, peer, "tool")
        events, got = (
            ([], client.call(model, schema=SCHEMA, corrections=2))
            if verb == "call"
            else drained(client.stream(model, schema=SCHEMA, corrections=2))
        )
        assert len(peer.received) == 3
        assert [m["role"] for m in peer.received[2].json()["messages"]] == ["user", *["assistant", "user"] * 2]
    assert (got.parsed, got.text, got.finish) == (None, worse, "stop")
    assert [n.did[:44] for n in got.notes if n.code == "answer-corrected"] == [
        "sent back, and asked again (1 of 2); usage a",
        "sent back, and asked again (2 of 2); usage a",
    ]
    assert note(got, "answer-invalid").said == "there is no JSON in it"
    assert got.usage.total == 21
    if events:
        folds(events, got)


@pytest.mark.parametrize("verb", VERBS)
@pytest.mark.parametrize("how", ["refused", "length"])
def test_where_no_other_answer_comes_the_first_is_kept(client: Driver, tmp_path: Path, verb: str, how: str) -> None:
    second = refused(400, "too much") if how == "refused" else gives("call", "prompt", GOOD[:9], finish="length")
    with Peer([gives(verb, "prompt", BAD)], [second]) as peer:
        model = endpoint(tmp_path, peer, "prompt")
        if verb == "call":
            got = client.call(model, schema=SCHEMA)
        else:
            events, got = drained(client.stream(model, schema=SCHEMA, corrections=1))
            folds(events, got)
            assert counted(events, cnllm.Restarted) == 0
    assert (got.text, got.parsed, got.finish) == (BAD, None, "stop")
    assert codes(got)[-2:] == ["answer-invalid", "correction-failed"]
    assert ("too much" if how == "refused" else "length") in note(got, "correction-failed").did


def test_messages_that_can_be_read_once_are_all_there_the_second_time(client: Driver, tmp_path: Path) -> None:
    with Peer([gives("call", "prompt", BAD)], [gives("call", "prompt", GOOD)]) as peer:
        client.call(endpoint(tmp_path, peer, "prompt"), iter(["one"]), schema=SCHEMA)
        assert "one" in str(peer.received[1].json()["messages"])


def test_what_one_request_does_not_tell_is_not_known_of_both(client: Driver, tmp_path: Path) -> None:
    silent = gives("call", "prompt", GOOD).replace(b'"usage"', b'"us_ge"')
    with Peer([gives("call", "prompt", BAD)], [silent]) as peer:
        got = client.call(endpoint(tmp_path, peer, "prompt"), schema=SCHEMA)
    assert (got.parsed, got.usage) == (ADA, cnllm.Usage())


def test_an_endpoint_that_only_streams_is_corrected_too(client: Driver, tmp_path: Path) -> None:
    with Peer([gives("stream", "tool", BAD)], [gives("stream", "tool", GOOD)]) as peer:
        got = client.call(endpoint(tmp_path, peer, "tool", "stream.required = true"), schema=SCHEMA)
        assert [received.json()["stream"] for received in peer.received] == [True, True]
    assert got.parsed == ADA


def test_a_stream_that_was_cut_and_asked_for_again_is_corrected_too(client: Driver, tmp_path: Path) -> None:
    cut = stream(delta(BAD[:9]))
    with Peer([cut], [gives("call", "prompt", BAD)], [gives("call", "prompt", GOOD)]) as peer:
        model = endpoint(tmp_path, peer, "prompt")
        events, got = drained(client.stream(model, schema=SCHEMA, corrections=1, if_cut="again-whole"))
        assert len(peer.received) == 3
    folds(events, got)
    assert {"again-whole", "answer-corrected"} <= set(codes(got))
    assert got.parsed == ADA


def test_whole_sentences_of_a_corrected_stream_begin_anew_with_it(client: Driver, tmp_path: Path) -> None:
    with Peer([gives("stream", "prompt", "No. I won't.")], [gives("call", "prompt", GOOD)]) as peer:
        model = endpoint(tmp_path, peer, "prompt")
        events, got = drained(client.stream(model, schema=SCHEMA, corrections=1, by="sentence"))
    folds(events, got)
    assert got.parsed == ADA
