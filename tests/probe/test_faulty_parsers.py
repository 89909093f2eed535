"""A server whose parsers have faults that were reported: by the overlay of a probe, its ten answers come out right."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

import cnllm
from cnllm import probe

from .endpoint import KEY, Json, serving
from .odd import Odd

WEATHER: tuple[str, Json] = ("get_weather", {"city": "Bern"})
TIME: tuple[str, Json] = ("get_time", {})
THOUGHT = "Hm, I ponder what to say."
# the thought, the text and the calls, by the last character of the prompt
ANSWERS: dict[str, tuple[str, str, list[tuple[str, Json]]]] = {
    "1": ("", "Hello there!", []),
    "2": (THOUGHT, "The answer is 42.", []),
    "3": ("", "", [WEATHER]),
    "4": ("", "", [WEATHER, TIME]),
    "5": (THOUGHT, "", [WEATHER]),
    "6": ("", "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz", []),
    "7": ("", "你好，世界！🙂", []),
    "8": (THOUGHT, "You write <b>bold</b> so.", []),
    "9": ("", '{"ok": true}', []),
    "0": ("", "It is 21 degrees.", []),
}


class Fault(NamedTuple):
    """A parser, what is wrong with it, and where that was reported."""

    parser: str
    fault: str
    source: str
    settings: Json


FAULTS = (
    Fault("none", "nothing", "", {"field": "reasoning_content"}),
    Fault(
        "minimax_m2_append_think",
        "the thought stays in the content, between tags",
        "https://github.com/vllm-project/vllm/issues/34625",
        {"tags": ("<think>\n", "\n</think>")},
    ),
    Fault(
        "deepseek_r1",
        "the template opens the tag, and only its end arrives",
        "https://github.com/vllm-project/vllm/issues/13125",
        {"tags": ("", "\n</think>")},
    ),
    Fault(
        "hermes",
        "streamed calls stay in the text",
        "https://github.com/vllm-project/vllm/issues/31871",
        {"leaks": True},
    ),
    Fault(
        "hermes",
        "empty arguments are left out of a stream",
        "https://github.com/vllm-project/vllm/issues/11392",
        {"omits": True},
    ),
    Fault(
        "any",
        "a reply with calls ends with stop",
        "https://github.com/vllm-project/vllm/pull/25054",
        {"finish": ("stop", "length", "stop")},
    ),
)


class Server(Odd):
    def __init__(self, *, leaks: bool = False, omits: bool = False, **settings: Any) -> None:
        self.is_always = settings.get("tags", (" ", ""))[0] == ""
        super().__init__(**{"thinks": lambda request: True, "field": "reasoning", **settings})
        self.leaks, self.omits = leaks, omits

    def answer(self, request: Json) -> tuple[str, str, list[Json]]:
        last = request["messages"][-1]
        key = "0" if last["role"] == "tool" else str(last.get("content"))[-1:]
        if key not in ANSWERS:
            return super().answer(request)
        thought, text, calls = ANSWERS[key]
        made = [
            {"index": n, "id": f"c{n}", "type": "function", "function": {"name": name, "arguments": json.dumps(values)}}
            for n, (name, values) in enumerate(calls)
        ]
        return thought or (THOUGHT if self.is_always else ""), text, made if request.get("tools") else []

    def _pieces(self, thought: str, text: str, calls: list[Json], *, stream: bool) -> Iterator[Json]:
        if stream and self.leaks:
            for call in calls:
                call = {"name": call["function"]["name"], "arguments": json.loads(call["function"]["arguments"])}
                text += f"<tool_call>\n{json.dumps(call)}\n</tool_call>"
            calls = []
        if stream and self.omits:
            for call in calls:
                call["function"] = {k: v for k, v in call["function"].items() if v != "{}"}
        yield from super()._pieces(thought, text, calls, stream=stream)


TOOLS = [
    {"name": "get_weather", "parameters": {"type": "object", "properties": {"city": {"type": "string"}}}},
    {"name": "get_time", "parameters": {"type": "object", "properties": {}}},
]


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: f"{fault.parser}: {fault.fault}")
def test_the_ten_answers_come_out_right(fault: Fault, tmp_path: Path) -> None:
    server = Server(**fault.settings)
    with serving(server) as endpoint:
        found = probe.run(endpoint.url, api_key=KEY, max_requests=60)
        file = tmp_path / "probed.toml"
        file.write_text(found.overlay, encoding="utf-8")
        registry = cnllm.Registry.load(file)
        with cnllm.Client(registry=registry) as client:
            for key, (thought, text, calls) in ANSWERS.items():
                prompt: Any = f"say {key}"
                for streamed in (False, True):
                    if streamed:
                        with client.stream(found.name, prompt, tools=TOOLS) as stream:
                            list(stream)
                        reply = stream.reply
                    else:
                        reply = client.call(found.name, prompt, tools=TOOLS)
                    assert reply is not None
                    case = (key, streamed, reply, found.overlay)
                    assert reply.text.strip() == text, case
                    wanted = thought or (THOUGHT if server.is_always else "")
                    assert reply.reasoning.strip() == wanted, case
                    assert [(call.name, call.arguments) for call in reply.tool_calls] == calls, case
                    assert reply.finish == ("tool_calls" if calls else "stop"), case
