"""The request, the answers and the streams: deterministic, so that every runner's result can be checked."""

import json
from functools import cache
from typing import Any, NamedTuple

from benchmarks import wire_payloads
from benchmarks.tokens import ARGUMENTS, texts

BESIDE_TEXT = 24  # chunks of a stream that hold no text: role, tool start, 20 fragments, finish, usage
KEY = "bench-0123456789abcdef"  # as long as real ones are
_HEAD = (
    '{"id":"930c60df-bf64-41c9-a88e-3ec75f81e00e","object":"chat.completion.chunk","created":1763650000,'
    '"model":"bench","system_fingerprint":"fp_a49d71b8a1_prod0820_fp8_kvcache","choices":['
)
_USAGE = (
    '],"usage":{"prompt_tokens":412,"completion_tokens":311,"total_tokens":723,"prompt_tokens_details":'
    '{"cached_tokens":384},"completion_tokens_details":{"reasoning_tokens":180}}}'
)
_REASONING = "用户想知道北京的天气。I should call get_weather with city=北京, three days, celsius.\n" * 5
_TEXT = "好的,我来查询北京未来三天的天气。Let me look that up with the weather tool.\n" * 4

MARKUP = {
    "plain": "The quick brown fox jumps over the lazy dog.\n",
    "openers": "a <tool_call> ",  # alone on its line it would be markup, which is left out
    "halves": "<tool_cal",
    "barred": "<｜tool▁calls▁begin｜",
    "nested": "<tool_call>{",
    "html": '<div class="row"><p>Some <b>bold</b> text</p></div>\n',
    "code": "for (int i = 0; i < n; i++) { if (a[i] < b[i]) f<T>(a); }\n",
}  # of which a text is made, again and again


CHUNK = 20  # characters of a chunk of such a text


class Got(NamedTuple):
    """The data that a runner has read: two lengths and the parsed arguments of the one tool call."""

    reasoning: int
    text: int
    arguments: Any


class Setting(NamedTuple):
    """The input of a runner: the address of the stub, and the stream to request."""

    port: int
    mode: str  # how the stub frames a stream: c, m or o; for `parse` the cut of the bytes: whole, 16k, event
    chunks: int  # text chunks of a stream; 0: an answer that is not streamed
    wire: str = "openai-chat"

    @property
    def root(self) -> str:
        return f"http://127.0.0.1:{self.port}/{self.mode}{self.chunks}"

    @property
    def base_url(self) -> str:
        return f"{self.root}/v1"

    @property
    def units(self) -> int:
        """Return the number that a figure is divided by: the events of a stream."""
        if self.wire != "openai-chat":
            return len(self.events())
        return self.chunks + BESIDE_TEXT if self.chunks else 1

    def events(self) -> list[bytes]:
        return events(self.chunks) if self.wire == "openai-chat" else wire_payloads.events(self.wire, self.chunks)

    @property
    def expected(self) -> Got:
        return _expected(self.chunks)

    def marked(self) -> list[bytes]:
        """Return the events of a text of so many chunks, each with 20 characters, that `mode` names in `MARKUP`."""
        size = self.chunks * CHUNK
        text = (MARKUP[self.mode] * (size // len(MARKUP[self.mode]) + 1))[:size]
        found = [_chunk({"content": text[at : at + CHUNK]}) for at in range(0, size, CHUNK)]
        return [f"data: {event}\n\n".encode() for event in [*found, _chunk({}, "stop"), "[DONE]"]]

    def pieces(self) -> list[bytes]:
        """Return the bytes of the stream, cut as a parser gets them."""
        if self.mode == "event":
            return self.events()
        data = b"".join(self.events())
        step = len(data) if self.mode == "whole" else 16384
        return [data[i : i + step] for i in range(0, len(data), step)]


@cache
def _expected(chunks: int) -> Got:
    reasoning, text = texts(chunks) if chunks else (_REASONING, _TEXT)
    return Got(len("".join(reasoning)), len("".join(text)), json.loads(ARGUMENTS))


def _json(value: object) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def _chunk(delta: object, finish: str | None = None) -> str:
    choice = {"index": 0, "delta": delta, "logprobs": None, "finish_reason": finish}
    return f'{_HEAD}{_json(choice)}],"usage":null}}'


def _call(name: str | None, arguments: str) -> dict[str, Any]:
    if not name:
        return {"tool_calls": [{"index": 0, "function": {"arguments": arguments}}]}
    function = {"name": name, "arguments": arguments}
    return {"tool_calls": [{"index": 0, "id": "call_0_f2f3c4d5", "type": "function", "function": function}]}


@cache
def events(n: int, tool: bool = True) -> list[bytes]:
    """Return the SSE events: role, n/2 of reasoning, n/2 of text, the tool call, finish, usage, [DONE]."""
    reasoning, text = texts(n)
    found = [_chunk({"role": "assistant", "content": None, "reasoning_content": ""})]
    found += [_chunk({"content": None, "reasoning_content": token}) for token in reasoning]
    found += [_chunk({"content": token, "reasoning_content": None}) for token in text]
    if tool:
        cuts = [len(ARGUMENTS) * i // 20 for i in range(21)]
        found.append(_chunk(_call("get_weather", "")))
        found += [_chunk(_call(None, ARGUMENTS[cuts[i] : cuts[i + 1]])) for i in range(20)]
    found.append(_chunk({"content": "", "reasoning_content": None}, "tool_calls" if tool else "stop"))
    return [f"data: {event}\n\n".encode() for event in [*found, _HEAD + _USAGE, "[DONE]"]]


def full() -> bytes:
    """Return the answer that is not streamed."""
    message: dict[str, Any] = {"role": "assistant", "content": _TEXT, "reasoning_content": _REASONING}
    message |= _call("get_weather", ARGUMENTS)
    choice = {"index": 0, "message": message, "logprobs": None, "finish_reason": "tool_calls"}
    return f"{_HEAD.replace('.chunk', '')}{_json(choice)}{_USAGE}".encode()


PARAMETERS: dict[str, Any] = json.loads("""{"type": "object", "properties": {
    "city": {"type": "string", "description": "City name, e.g. 北京"},
    "unit": {"type": "string", "enum": ["celsius", "fahrenheit"]},
    "days": {"type": "integer", "minimum": 1, "maximum": 14},
    "fields": {"type": "array", "items": {"type": "string"}},
    "note": {"type": "string", "description": "free text"}},
    "required": ["city"], "additionalProperties": false}""")
_WHAT = {"description": "Look up the weather forecast of one city.", "parameters": PARAMETERS}
_TURN = "北京的天气怎么样? Please answer briefly and say which tool you used. " * 2


def tools(n: int) -> list[dict[str, Any]]:
    """Return that many tools, of which the model calls the first."""
    names = ["get_weather", *(f"get_forecast_{i}" for i in range(1, n))]
    return [{"type": "function", "function": {"name": name, **_WHAT}} for name in names]


def history(n: int) -> list[dict[str, Any]]:
    """Return that many messages: a system prompt, then the user and the assistant in turns."""
    system = {"role": "system", "content": "You are a helpful assistant. Use the tools when they help. " * 4}
    return [system, *({"role": ("user", "assistant")[i % 2], "content": _TURN} for i in range(n - 1))]


def agent_history(n: int) -> list[dict[str, Any]]:
    """Return that many messages of an agent: a system prompt, then questions, calls, their results, and answers."""
    turns: list[dict[str, Any]] = []
    for number in range(n // 4 + 1):
        id = f"call_{number:024}"
        function = {"name": "get_weather", "arguments": json.dumps({"city": f"place {number}", "days": 3})}
        turns += [
            {"role": "user", "content": f"Question {number}: what will the weather be like there, in one sentence?"},
            {"role": "assistant", "content": "", "tool_calls": [{"id": id, "type": "function", "function": function}]},
            {"role": "tool", "tool_call_id": id, "content": f"{number} degrees, a light wind, no rain. " * 4},
            {"role": "assistant", "content": f"It will be dry, with a light wind and {number} degrees."},
        ]
    return [*history(1), *turns[: n - 1]]


TOOLS, MESSAGES = tools(2), history(4)
LIMITS: dict[str, Any] = {"temperature": 0.2, "max_tokens": 512}
OPTIONS: dict[str, Any] = {"tools": TOOLS, **LIMITS}
LONG: dict[str, Any] = {"messages": history(100), "tools": tools(20), **LIMITS}
"""A request near the end of an agent's work."""


def body(stream: bool) -> dict[str, Any]:
    """Return the request as a dict, made anew for every call, as a client would."""
    made = {"model": "bench", "messages": MESSAGES, **OPTIONS}
    return {**made, "stream": True, "stream_options": {"include_usage": True}} if stream else made
