"""A chat endpoint that thinks, calls and streams in forms that no vendor has; a test says which."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable, Iterator
from typing import Any

from .endpoint import Answer, Json, listing, refused

THOUGHT = "The user wants something from me, so I weigh it first: "
Rule = Callable[[Json], str | Answer | None]


class Odd:
    """Settings of the endpoint.

    `thinks(request)` says whether it does, `field` and `tags` where the thought arrives, `finish` are its words,
    `usage` the path of its counts, `rules` refuse a request with words or an answer.
    """

    def __init__(
        self,
        *rules: Rule,
        thinks: Callable[[Json], bool] = lambda request: False,
        field: str | None = None,
        tags: tuple[str, str] | None = None,
        part: str | None = None,
        finish: tuple[str, str, str] = ("stop", "length", "tool_calls"),
        usage: tuple[str, str, str] = ("usage", "prompt_tokens", "completion_tokens"),
        only_streams: bool = False,
        cumulative: bool = False,
        streams: bool = True,
        json: bool = True,
    ) -> None:
        self.rules = rules
        self.thinks = thinks
        self.field, self.tags, self.part = field, tags, part
        self.finish, self.usage = finish, usage
        self.only_streams, self.cumulative, self.streams = only_streams, cumulative, streams
        self.json = json

    def __call__(self, request: Json | None, number: int) -> Answer:
        if request is None:
            return listing()
        if self.only_streams and not request.get("stream"):
            return refused("This endpoint answers only with stream=true.")
        for rule in self.rules:
            answer = rule(request)
            if answer is not None:
                return refused(answer) if isinstance(answer, str) else answer
        return self.reply(request)

    def reply(self, request: Json) -> Answer:
        thought, text, calls = self.answer(request)
        limit, words = request.get("max_tokens"), text.split()
        cut = limit is not None and len(words) > limit
        text = " ".join(words[:limit]) if cut else text
        finish = self.finish[1 if cut else 2 if calls else 0]
        counts: Json = {}
        _put(counts, self.usage[1], len(json.dumps([request["messages"], request.get("tools")])) // 4)
        _put(counts, self.usage[2], len(text.split()) + len(thought.split()) + 9 * len(calls))
        pieces = list(self._pieces(thought, text, calls, stream=bool(request.get("stream"))))
        if request.get("stream") and self.streams:
            return self._stream(pieces, finish, counts)
        message: Json = {"role": "assistant", "content": None}
        for piece in pieces:
            _add(message, piece)
        body = {"id": "r", "model": "m", "choices": [{"index": 0, "message": message, "finish_reason": finish}]}
        _put(body, self.usage[0], counts)
        return 200, "application/json", json.dumps(body).encode()

    def answer(self, request: Json) -> tuple[str, str, list[Json]]:
        """Return a thought, a text and calls."""
        prompt = str(request["messages"][-1].get("content"))
        thought = THOUGHT + prompt[:60] if self.thinks(request) else ""
        calls, text = self._calls(request), f"I am a small model, and my answer to '{prompt[:80]}' ends right here."
        wanted = (request.get("response_format") or {}).get("type")
        if calls:
            text = ""
        elif wanted == "json_schema":
            schema = request["response_format"]["json_schema"]["schema"]
            text = json.dumps(dict.fromkeys(schema.get("properties", {}), 1))
        elif wanted == "json_object":
            text = json.dumps({"answer": prompt})
        return thought, text, calls

    def _calls(self, request: Json) -> list[Json]:
        last = request["messages"][-1]
        tools, choice = request.get("tools") or [], request.get("tool_choice")
        asks = "weather" in str(last.get("content")) or choice == "required" or isinstance(choice, dict)
        if not tools or choice == "none" or last.get("role") != "user" or not asks:
            return []
        name = choice["function"]["name"] if isinstance(choice, dict) else tools[0]["function"]["name"]
        function = {"name": name, "arguments": '{"city": "Bern"}'}
        return [{"index": 0, "id": "call_1", "type": "function", "function": function}]

    def _pieces(self, thought: str, text: str, calls: list[Json], *, stream: bool) -> Iterator[Json]:
        if thought and self.tags:
            text = f"{self.tags[0]}{thought}{self.tags[1]}\n\n{text}"
        elif thought and self.part:
            yield {"content": [{"type": self.part, self.part: thought}, {"type": "text", "text": text}]}
            text = ""
        elif thought and self.field:
            for word in thought.split():
                piece: Json = {}
                _put(piece, self.field, word + " ")
                yield piece
        yield from ({"content": word + " "} for word in text.rstrip().split(" ") if text)
        if calls:
            yield {"tool_calls": calls}

    def _stream(self, pieces: list[Json], finish: str, counts: Json) -> Answer:
        chunks: list[Json] = []
        so_far: Json = {}
        for piece in pieces:
            _add(so_far, piece)
            delta = {key: copy.deepcopy(so_far[key]) for key in piece} if self.cumulative else piece
            chunks.append({"choices": [{"index": 0, "delta": delta, "finish_reason": None}]})
        chunks.append({"choices": [{"index": 0, "delta": {}, "finish_reason": finish}]})
        _put(chunks[-1], self.usage[0], counts)
        frames = b"".join(b"data: " + json.dumps(chunk).encode() + b"\n\n" for chunk in chunks)
        return 200, "text/event-stream", frames + b"data: [DONE]\n\n"


def _add(message: Json, piece: Json) -> None:
    for key, value in piece.items():
        if isinstance(value, dict):
            _add(message.setdefault(key, {}), value)
        else:
            message[key] = value if message.get(key) is None else message[key] + value


def _put(body: Json, path: str, value: Any) -> None:
    *parents, last = path.split(".")
    for key in parents:
        body = body.setdefault(key, {})
    body[last] = value
