"""What a stream has said by the end of any of its frames, read naively and without the engine.

Used where the corpus has no expectation: for a stream that was cut. That it agrees with the corpus on whole
streams is itself tested.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from . import messages, responses
from .heard import Call, Heard

LINE = re.compile(rb"\r\n|\n|\r")


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


def gemini(parts: Iterable[dict[str, Any]]) -> Heard:
    """Frames of generateContent; of several candidates the first. A call without an id is known by its number."""
    heard = Heard()
    fragments: list[tuple[str, str]] | None = None  # of a call that goes on: the paths and what came at each
    for part in parts:
        heard.error = part.get("error") or heard.error
        heard.usage = (heard.usage or {}) | (part.get("usageMetadata") or {}) or None
        for candidate in part.get("candidates") or []:
            if candidate.get("index", 0) != 0:
                continue
            heard.finish = candidate.get("finishReason") or heard.finish
            for piece in (candidate.get("content") or {}).get("parts") or []:
                if piece.get("thought"):
                    heard.reasoning += piece.get("text", "")
                else:
                    heard.text += piece.get("text", "")
                if "functionCall" in piece:
                    fragments = _called(heard.calls, piece["functionCall"], fragments)
    return heard


def _called(
    calls: list[Call], said: dict[str, Any], fragments: list[tuple[str, str]] | None
) -> list[tuple[str, str]] | None:
    """One piece of a call; of those in fragments, as recorded: strings, each at a path of one step."""
    if "name" in said:
        raw = json.dumps(said.get("args") or {}, ensure_ascii=False, separators=(",", ":"))
        calls.append(Call(said.get("id") or f"call_{len(calls)}", said["name"], raw))
        fragments = [] if said.get("willContinue") else None
    if fragments is None:
        return None
    closed = True
    for fragment in said.get("partialArgs") or []:
        path, text = fragment["jsonPath"], fragment["stringValue"]
        before = fragments.pop()[1] if fragments and fragments[-1][0] == path else ""
        fragments.append((path, before + text))
        closed = not fragment.get("willContinue")
    members = [f"{json.dumps(path[2:])}:{json.dumps(text, ensure_ascii=False)}" for path, text in fragments]
    calls[-1].raw = "{" + ",".join(members)
    if not closed:
        calls[-1].raw = calls[-1].raw[:-1]
    if said.get("willContinue"):
        return fragments
    calls[-1].raw += "}"
    return None


ORACLES: Mapping[str, Callable[[Iterable[dict[str, Any]]], Heard]] = {
    "openai-chat": chat,
    "anthropic-messages": messages.hear,
    "gemini": gemini,
    "openai-responses": responses.hear,
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
