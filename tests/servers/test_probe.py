"""A probe of llama.cpp's own server, and the small model's answers by the overlay that it wrote."""

from __future__ import annotations

from pathlib import Path

from cnllm import Client, Registry, probe

from .conftest import Servers
from .test_llamacpp import ANSWERS, TOOLS

CALLS = {"say 3": ["get_weather"], "question number 4": ["get_weather", "get_time"]}


def test_the_answers_come_out_right_by_the_overlay_of_a_probe(servers: Servers, tmp_path: Path) -> None:
    for number, origin in enumerate((servers.parsed, servers.plain)):
        found = probe.run(origin, max_requests=100)
        file = tmp_path / f"{number}.toml"
        file.write_text(found.overlay, encoding="utf-8")
        values = {fact.flag: fact.value for fact in found.facts if fact.answer != "unknown"}
        assert values["messages.developer"] is True
        assert values["params.max_tokens"] == "max_tokens"
        assert not [flag for flag in values if flag.startswith("reasoning.")]  # it thinks after one prompt alone
        with Client(registry=Registry.load(file)) as client:
            for key in ("1", "2", "6", "7", "9"):
                _, reasoning, answer = ANSWERS[key]
                reply = client.call(found.name, f"say {key}", temperature=0)
                assert (reply.reasoning.strip(), reply.text) == (reasoning, answer), (origin, key, reply)
            for prompt, names in CALLS.items():
                reply = client.call(found.name, prompt, tools=TOOLS, temperature=0)
                assert [call.name for call in reply.tool_calls] == names, (origin, prompt, reply)
