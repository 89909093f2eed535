"""Probes of real servers, and the small model's ten answers by the overlays that they write."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from cnllm import Client, Model, Registry, Reply, probe

from .conftest import FORCED, Servers
from .test_llamacpp import ANSWERS, TOOLS

WEATHER, TIME = ("get_weather", {"city": "Bern"}), ("get_time", {"zone": "UTC"})
CALLS = {"say 3": [WEATHER], "question number 4": [WEATHER, TIME]}


def replies(client: Client, model: Model, prompt: Any, **options: Any) -> Iterator[Reply]:
    """Yield the reply as a whole and as a stream."""
    yield client.call(model, prompt, temperature=0, **options)
    with client.stream(model, prompt, temperature=0, **options) as stream:
        list(stream)
    assert stream.reply is not None
    yield stream.reply


def check_answers(client: Client, model: Model) -> None:
    """Ask for the answers that the model is not too small for."""
    for key in ("1", "2", "6", "7", "9"):
        _, reasoning, answer = ANSWERS[key]
        for reply in replies(client, model, f"say {key}"):
            assert (reply.reasoning.strip(), reply.text, reply.finish) == (reasoning, answer, "stop"), (key, reply)
    for prompt, calls in CALLS.items():
        for reply in replies(client, model, prompt, tools=TOOLS):
            assert [(call.name, call.arguments) for call in reply.tool_calls] == calls, (prompt, reply)
            assert (reply.text, reply.finish) == ("", "tool_calls"), (prompt, reply)
    run = client.run(model, "weather 3", tools=[get_weather], temperature=0)
    assert run.reply.text.startswith("It is 21 degree"), run.reply


def check_forced(client: Client, forced: dict[str, Model], **options: Any) -> None:
    """Ask for the two other answers of servers that force them, by a grammar or by options of a request."""
    for reply in replies(client, forced["5"], "say 5", tools=TOOLS, **options.get("5", {})):
        assert [(call.name, call.arguments) for call in reply.tool_calls] == [WEATHER], reply
        assert (reply.reasoning.strip(), reply.text) == ("Need weather.", ""), reply
    for reply in replies(client, forced["8"], "say 8", tools=TOOLS, **options.get("8", {})):
        assert (reply.tool_calls, reply.finish) == ([], "stop"), reply
        assert "{" not in reply.text, reply


def get_weather(city: str) -> str:
    """weather"""
    return "21 C" if city == "Bern" else "?"


def by_overlay(found: probe.Report, file: Path) -> Registry:
    file.write_text(found.overlay, encoding="utf-8")
    return Registry.load(file)


def test_the_answers_come_out_right_by_the_overlay_of_a_probe(servers: Servers, tmp_path: Path) -> None:
    for number, origin in enumerate((servers.parsed, servers.plain)):
        found = probe.run(origin, max_requests=100, sleep=lambda seconds: None)
        values = {fact.flag: fact.value for fact in found.facts if fact.answer != "unknown"}
        assert values["messages.developer"] is True
        assert values["params.max_tokens"] == "max_tokens"
        assert not [flag for flag in values if flag.startswith("reasoning.")]  # it thinks after one prompt alone
        registry = by_overlay(found, tmp_path / f"{number}.toml")
        forced = {
            key: registry.resolve(found.name, base_url=f"{pair.plain}/v1") for key, pair in servers.forced.items()
        }
        with Client(registry=registry) as client:
            check_answers(client, registry.resolve(found.name))
            check_forced(client, forced)


SPECIAL = ("<|endoftext|>", "<|im_start|>", "<|im_end|>", "<think>", "</think>", "<tool_call>", "</tool_call>")
"""The tokens after the bytes, in their order."""


def bias_to(text: str) -> dict[str, Any]:
    """Return options with which transformers' server can only write a text: each beginning of it wants the next token.

    It has no grammars, and the model is too small for two of its answers.
    """
    pieces = re.split(f"({'|'.join(map(re.escape, SPECIAL))})", f"{text}<|im_end|>")
    tokens = [n for p in pieces for n in ([256 + SPECIAL.index(p)] if p in SPECIAL else p.encode())]
    bias = [[tokens[:length], 100.0 * length] for length in range(1, len(tokens) + 1)]
    settings = {"sequence_bias": bias, "do_sample": False, "max_new_tokens": 200}
    return {"extra_body": {"generation_config": json.dumps(settings)}}


@pytest.mark.long
@pytest.mark.parametrize("protocol", ["openai-chat", "openai-responses"])
def test_the_answers_of_transformers_do_too(protocol: str, transformers_url: str, tmp_path: Path) -> None:
    """The Responses wire says of each tool whether it is strict. The server takes that and shows it to the model, which
    has never seen it, and is too small to read over it.
    """
    found = probe.run(transformers_url, protocol=protocol, max_requests=100)
    values = {fact.flag: fact.value for fact in found.facts if fact.answer != "unknown"}
    assert values.get("params.stop") != "ignored"  # the text ends with it
    assert values.get("tools.strict") is (False if protocol == "openai-responses" else None)
    assert not [flag for flag in values if flag.startswith("reasoning.")]
    registry = by_overlay(found, tmp_path / "probed.toml")
    model = registry.resolve(found.name)
    with Client(registry=registry) as client:
        check_answers(client, model)
        check_forced(client, dict.fromkeys(FORCED, model), **{key: bias_to(text) for key, text in FORCED.items()})
