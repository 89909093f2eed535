"""A server that runs at home is read at least as an endpoint that nobody described: its model may be any."""

from __future__ import annotations

import pytest

from cnllm import Registry, UnknownModel, engine

BARE = "openai-compatible"
SERVERS = ("llamacpp", "lmstudio", "ollama", "sglang", "vllm")
WIRES = ("openai-chat", "openai-responses", "anthropic-messages")
HOME = "http://127.0.0.1:9/v1"


def test_a_self_hosted_server_is_read_at_least_as_an_unknown_one() -> None:
    registry = Registry.load()
    seen = 0
    for server in SERVERS:
        for wire in WIRES:
            try:
                flags = registry.resolve(f"{server}/any", protocol=wire).flags
            except UnknownModel:  # it does not speak that wire
                continue
            least = registry.resolve(f"{BARE}/any", protocol=wire, base_url=HOME).flags
            assert set(flags.reasoning.tags or ()) >= set(least.reasoning.tags or ("none",)), (server, wire)
            assert set(flags.reasoning.fields or ()) >= set(least.reasoning.fields or ()), (server, wire)
            assert set(flags.finish or ()) >= set(least.finish or ()), (server, wire)
            assert [str(leak) for leak in flags.leaks or ()] == [str(leak) for leak in least.leaks or ()], (
                server,
                wire,
            )
            seen += 1
    assert seen >= 12


@pytest.mark.parametrize("tag", ["think", "THINK", "seed:think", "mm:think", "longcat_think"])
def test_reasoning_in_the_tags_of_any_family_is_told_from_the_answer(tag: str) -> None:
    open, close = (f"[{tag}]", f"[/{tag}]") if tag.isupper() else (f"<{tag}>", f"</{tag}>")
    registry = Registry.load()
    for server in (*SERVERS, BARE):
        model = registry.resolve(f"{server}/any", base_url=HOME)
        text = f"{open}Hm.{close}\\n\\nYes."
        body = f'{{"choices":[{{"message":{{"role":"assistant","content":"{text}"}},"finish_reason":"stop"}}]}}'
        reply = engine.parse_response(model, 200, {"content-type": "application/json"}, body.encode())
        assert (reply.reasoning, reply.text.strip()) == ("Hm.", "Yes."), (server, tag)
