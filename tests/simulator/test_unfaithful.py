"""Hosts with faults: what a client sees of each, over a socket."""

from __future__ import annotations

import time
from typing import Any

import pytest

from cnllm import Client, Model, Registry, Reply
from cnllm.simulator.server import running

MODEL = "zai/glm-4.7"
LONG = "Say this again, word for word: " + " ".join(f"word{n}" for n in range(30))


def count(number: int) -> int:
    """Count to a number."""
    return number


def ask(unfaithful: str, prompt: str, times: int = 1, **options: Any) -> list[Reply]:
    with running(Registry.load(), unfaithful=unfaithful) as server, Client(api_key="k") as client:
        model = Registry.load().resolve(MODEL, base_url=f"{server.url}/zai")
        return [_read(client, model, f"{prompt} {n}", options) for n in range(times)]


def _read(client: Client, model: Model, prompt: str, options: dict[str, Any]) -> Reply:
    with client.stream(model, prompt, **options) as stream:
        for _ in stream:
            pass
    return stream.reply


def test_a_host_that_loses_every_third_call() -> None:
    replies = ask("lost-calls=3", "Count", 6, tools=[count], recovery={"streams": 0})
    assert [len(reply.tool_calls) for reply in replies] == [1, 1, 0, 1, 1, 0]
    assert (replies[2].text, replies[2].raw_finish) == ("", "stop")


def test_a_call_that_a_host_leaves_in_the_text_is_recovered() -> None:
    replies = ask("leaked-calls=2", "Count", 2, tools=[count])
    assert [len(reply.tool_calls) for reply in replies] == [1, 1]
    assert [note.code for note in replies[0].notes if "leak" in note.code or "text" in note.code] == []
    assert replies[1].raw_finish == "stop"
    assert replies[1].notes


def test_a_host_that_ignores_schemas() -> None:
    (called,) = ask("ignored-schemas", "Count", tools=[count])
    assert '"number": [' in called.tool_calls[0].raw


def test_a_host_that_repeats_itself_and_one_that_cuts_quietly() -> None:
    (whole,) = ask("", LONG)
    (repeated,) = ask("repetition", LONG)
    (cut,) = ask("truncation=10", LONG)
    assert repeated.text != whole.text
    assert repeated.text[:40] == whole.text[:40]
    tail = repeated.text[-60:]
    assert tail[-20:] in tail[:-20]
    assert whole.text.startswith(cut.text)
    assert (len(cut.text) < len(whole.text), cut.finish) == (True, "stop")


def test_a_limit_of_tokens_is_not_named_by_a_host_that_cuts_quietly() -> None:
    (honest,) = ask("", LONG, max_tokens=5)
    (quiet,) = ask("truncation=10", LONG, max_tokens=5)
    assert (honest.finish, quiet.finish) == ("length", "stop")


def test_a_slow_host() -> None:
    began = time.monotonic()
    (reply,) = ask("slow=0.05", "Hi")
    assert reply.timing.first is not None
    assert reply.timing.first >= 0.05
    assert time.monotonic() - began >= 0.1


@pytest.mark.parametrize("words", ["lost-call=3", "lost-calls", "lost-calls=0", "repetition=2", "slow=x"])
def test_words_that_name_no_fault_are_refused(words: str) -> None:
    with pytest.raises(ValueError, match=r"fault of a host|takes"), running(Registry.load(), unfaithful=words):
        pass
