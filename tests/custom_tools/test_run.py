"""A custom tool in a run: the function gets the text, after a wrong one was sent back."""

from __future__ import annotations

from pathlib import Path

import pytest
from client.peer import Peer
from client.support import home

import cnllm

from .support import BAD_LINES, GOOD_LINES, LINES, codes, gives, patching


@pytest.mark.parametrize("stream", [False, True])
def test_the_function_gets_the_second_input_alone(tmp_path: Path, stream: bool) -> None:
    got: list[str] = []

    @cnllm.tool(format=LINES)
    def apply_patch(input: str) -> str:
        """Edits files."""
        got.append(input)
        return "done"

    verb = "stream" if stream else "call"
    scripts = [
        [gives(verb, patching(BAD_LINES))],
        [gives("call", patching(GOOD_LINES, "c2"))],
        [gives(verb, text="Ok.")],
    ]
    with Peer(*scripts) as peer, cnllm.Client(api_key="sk-of-the-provider") as client:
        model = home(tmp_path, peer)
        if stream:
            with client.run_stream(model, "Go.", tools=[apply_patch]) as run:
                for _ in run:
                    pass
        else:
            run = client.run(model, "Go.", tools=[apply_patch])
        sent = [received.json() for received in peer.received]
    assert got == [GOOD_LINES]
    assert (run.reply.text, len(run.steps), run.usage.output) == ("Ok.", 2, 12)
    assert codes(run.steps[0].reply) == ["input-corrected"]
    assert [m["role"] for m in sent[2]["messages"]] == ["user", "assistant", "tool"]  # the wrong call is forgotten
    assert sent[2]["messages"][1]["tool_calls"][0]["id"] == "c2"


def test_a_function_of_anything_but_a_text_is_refused() -> None:
    def two(input: str, path: str) -> str:
        """Edits files."""
        return input + path

    with pytest.raises(TypeError, match="one parameter: input"):
        cnllm.tool(two, format=LINES)
