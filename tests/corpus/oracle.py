"""What a stream has said by the end of any of its frames, read naively and without the engine.

Used where the corpus has no expectation: for a stream that was cut. That it agrees with the corpus on whole
streams is itself tested.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

LINE = re.compile(rb"\r\n|\n|\r")


@dataclass
class Call:
    """A tool call as far as it came."""

    id: str = ""
    name: str = ""
    raw: str = ""


@dataclass
class Heard:
    """What a run of frames says."""

    text: str = ""
    reasoning: str = ""
    calls: list[Call] = field(default_factory=list)
    refused: bool = False
    finish: str | None = None
    usage: dict[str, Any] | None = None
    error: Any = None

    @property
    def empty(self) -> bool:
        """Has nothing been said?"""
        return not (self.text or self.reasoning or self.calls or self.finish or self.error)


def frames(content: bytes) -> list[dict[str, Any]]:
    """The JSON objects in a piece of a stream; the last may lack its line end, but not its closing brace."""
    found = []
    for line in LINE.split(content):
        if not line.startswith(b"data:"):
            continue
        try:
            frame = json.loads(line.removeprefix(b"data:"))
        except ValueError:  # the end of it is missing, or it is the closing [DONE]
            continue
        if isinstance(frame, dict):
            found.append(frame)
    return found


def chat(parts: Iterable[dict[str, Any]]) -> Heard:
    """Frames of openai-chat; of several candidates the first."""
    heard = Heard()
    places: dict[Any, Call] = {}
    for part in parts:
        heard.error = part.get("error") or heard.error
        heard.usage = part.get("usage") or heard.usage
        for choice in part.get("choices") or []:
            if choice.get("index", 0) != 0:
                continue
            delta = choice.get("delta") or choice.get("message") or {}
            heard.finish = choice.get("finish_reason") or heard.finish
            heard.text += content_of(delta, "text")
            heard.reasoning += reasoning_of(delta)
            if delta.get("refusal"):
                heard.text += delta["refusal"]
                heard.refused = True
            for piece in delta.get("tool_calls") or []:
                _add(heard.calls, places, piece)
    return heard


def _add(calls: list[Call], places: dict[Any, Call], piece: dict[str, Any]) -> None:
    place, ident = piece.get("index"), piece.get("id")
    call = places.get(place)
    if call is None or (ident and call.id and ident != call.id):
        call = places[place] = Call()
        calls.append(call)
    function = piece.get("function") or {}
    call.id = call.id or ident or ""
    call.name = call.name or function.get("name") or ""
    call.raw += function.get("arguments") or ""


def content_of(message: Mapping[str, Any], kind: str) -> str:
    """The text (kind "text") or the thinking (kind "thinking") in a message's or delta's `content`."""
    content = message.get("content")
    if isinstance(content, str):
        return content if kind == "text" else ""
    return "".join(_flat(part.get(kind)) for part in content or [] if part.get("type") == kind)


def reasoning_of(message: Mapping[str, Any]) -> str:
    """The reasoning in a message or delta, whatever the field; said in several fields it counts once."""
    details = message.get("reasoning_details") or []
    return (
        message.get("reasoning_content")
        or message.get("reasoning")
        or "".join(detail.get("text") or detail.get("summary") or "" for detail in details)
        or content_of(message, "thinking")
    )


def _flat(value: Any) -> str:
    if isinstance(value, list):
        return "".join(part.get("text", "") for part in value)
    return value or ""


def _responses(parts: Iterable[dict[str, Any]]) -> Heard:
    from .responses import hear

    return hear(parts)


ORACLES: Mapping[str, Callable[[Iterable[dict[str, Any]]], Heard]] = {
    "openai-chat": chat,
    "openai-responses": _responses,
}


def hear(protocol: str, content: bytes) -> Heard:
    """What a piece of a stream says."""
    return ORACLES[protocol](frames(content))


def split_think(text: str) -> tuple[str, str]:
    """Text that begins with a `<think>` block, as (text, reasoning); the block may still be open."""
    head = text.lstrip()
    if not head.startswith("<think>"):
        return text, ""
    inside, _, rest = head.removeprefix("<think>").partition("</think>")
    return rest.lstrip(), inside.strip()
