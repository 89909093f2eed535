"""OpenAI Responses, as a server speaks it: replies, whole and as streams."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from typing import Any

import msgspec

from cnllm.protocols.responses.resource import response_resource
from cnllm.types import (
    BlockEnd,
    Event,
    Finished,
    Opaque,
    Part,
    Reasoning,
    ReasoningDelta,
    Reply,
    Text,
    TextDelta,
    ToolCall,
    ToolCallDelta,
    ToolCallEnd,
    ToolCallStart,
    Usage,
    UsageSeen,
)

__all__ = ["StreamEncoder", "write_error", "write_reply"]

NAME = "openai-responses"
_KINDS = {401: "authentication_error", 403: "permission_error", 404: "not_found_error", 429: "rate_limit_error"}

Frame = tuple[str | None, Any]


def write_reply(reply: Reply, request: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """The body of a whole answer. `request` is the body that it answers."""
    id = reply.id or "resp"
    output: list[dict[str, Any]] = []
    for part in reply.message.parts:
        if type(part) is Text and _sealed(part).get("at") and output and output[-1].get("type") == "message":
            output[-1]["content"].append(_content(part))
        elif (item := _item(part, f"{id}_{len(output)}", reply)) is not None:
            output.append(item)
    output += [_call(call, f"{id}_{len(output) + n}", "incomplete") for n, call in enumerate(reply.incomplete)]
    now = int(time.time())
    resource = response_resource(id, reply.model or "", now, request)
    return {**resource, **_ending(reply.finish, reply.raw_finish, now), "output": output, "usage": _usage(reply.usage)}


def _ending(finish: str, raw: str | None, now: int) -> dict[str, Any]:
    """The fields that say how a reply ended, and when if it is complete."""
    status, why = _status(finish, raw)
    return {
        "status": status,
        "completed_at": now if status == "completed" else None,
        "incomplete_details": why,
        "error": {"code": "server_error", "message": "the model failed"} if status == "failed" else None,
    }


def _status(finish: str, raw: str | None) -> tuple[str, dict[str, Any] | None]:
    """The status, and why a reply is incomplete. A refusal is a whole reply, if the model itself refused."""
    match finish:
        case "length":
            return "incomplete", {"reason": "max_output_tokens"}
        case "content_filter" if raw != "completed":
            return "incomplete", {"reason": "content_filter"}
        case "error":
            return "failed", None
        case "cut":
            return "incomplete", None
    return "completed", None


def _usage(usage: Usage) -> dict[str, Any] | None:
    """The counts that are known; None where none is."""
    if usage == Usage():
        return None
    given: dict[str, Any] = {"cached_tokens": usage.cached or 0}
    if usage.cache_write is not None:
        given["cache_write_tokens"] = usage.cache_write
    return {
        "input_tokens": usage.input or 0,
        "input_tokens_details": given,
        "output_tokens": usage.output or 0,
        "output_tokens_details": {"reasoning_tokens": usage.reasoning or 0},
        "total_tokens": usage.total if usage.total is not None else (usage.input or 0) + (usage.output or 0),
    }


def write_error(status: int, message: str, code: str | None) -> dict[str, Any]:
    """The body of a refusal."""
    kind = _KINDS.get(status, "server_error" if status >= 500 else "invalid_request_error")
    return {"error": {"message": message, "type": kind, "param": None, "code": code}}


# ── items ────────────────────────────────────────────────────────────────────


def _sealed(part: Part) -> dict[str, Any]:
    """What this protocol said of a part besides what the part says."""
    seal = part.seal
    return seal.data if seal is not None and seal.protocol == NAME and isinstance(seal.data, dict) else {}


def _item(part: Part, id: str, reply: Reply | None = None) -> dict[str, Any] | None:
    """A part as an item, with an id of ours where it has none."""
    match part:
        case Text():
            beside = _sealed(part).get("item") or {"id": f"msg_{id}", "status": "completed"}
            refused = reply is not None and reply.finish == "content_filter" and reply.raw_finish == "completed"
            content = [_content(part, refused=refused)]
            return {"type": "message", "role": "assistant", **beside, "content": content}
        case Reasoning():
            return _thought(part, id)
        case ToolCall():
            return _call(part, id, "completed")
        case Opaque() if part.seal is not None and part.seal.protocol == NAME and isinstance(part.data, dict):
            return part.data
    return None


def _content(part: Text, *, refused: bool = False) -> dict[str, Any]:
    beside = _sealed(part).get("part")
    if beside is None:
        beside = {"type": "refusal"} if refused else {"annotations": [], "logprobs": []}
    if beside.get("type") == "refusal":
        return {"type": "refusal", "refusal": part.text, **beside}
    return {"type": "output_text", "text": part.text, **beside}


def _thought(part: Reasoning, id: str) -> dict[str, Any]:
    if (sealed := _sealed(part)).get("type") == "reasoning":
        return sealed
    summary = [{"type": "summary_text", "text": part.text}] if part.text else []
    return {"type": "reasoning", "id": f"rs_{id}", "summary": summary}


def _call(call: ToolCall, id: str, status: str) -> dict[str, Any]:
    arguments = call.raw
    if not arguments and status == "completed":
        arguments = msgspec.json.encode(call.arguments or {}).decode()
    own = {"id": f"fc_{id}", "status": status}
    beside = {**own, **_sealed(call)}
    return {"type": "function_call", **beside, "call_id": call.id, "name": call.name, "arguments": arguments}


# ── streams ──────────────────────────────────────────────────────────────────


class _Open:
    """An item that is being written: its place in the output, itself as it began, and what has come of it."""

    def __init__(self, place: int, kind: str, item: dict[str, Any]) -> None:
        self.place = place
        self.kind = kind
        self.item = item
        self.pieces: list[str] = []
        self.done = False


class StreamEncoder:
    """The events of one reply. An item is over when the reader's events say so, which may be after the next began."""

    def __init__(self, id: str, model: str, request: Mapping[str, Any] | None = None) -> None:
        self._id = id
        self._resource = response_resource(id, model, int(time.time()), request)
        self._count = 0
        self._items: list[_Open] = []
        self._calls: dict[int, _Open] = {}
        self._usage: Usage = Usage()

    def begin(self) -> list[Frame]:
        """What comes before the first event."""
        created = self._frame("response.created", response=self._resource)
        return [created, self._frame("response.in_progress", response=self._resource)]

    def event(self, event: Event) -> list[Frame]:
        """One event; `Finished` ends the stream."""
        match event:
            case TextDelta():
                return self._piece("message", event.text)
            case ReasoningDelta():
                return self._piece("reasoning", event.text)
            case BlockEnd():
                return self._block(event.part)
            case ToolCallStart():
                item = _call(ToolCall(event.id, event.name), f"{self._id}_{len(self._items)}", "in_progress")
                self._calls[event.index] = opened = self._add("function_call", item)
                return [self._added(opened)]
            case ToolCallDelta() if (called := self._calls.get(event.index)) is not None:
                called.pieces.append(event.text)
                return [self._at("response.function_call_arguments.delta", called, delta=event.text)]
            case ToolCallEnd() if (called := self._calls.get(event.index)) is not None:
                return self._called(called, event.call)
            case UsageSeen():
                self._usage = event.usage
            case Finished(finish="error" | "cut"):
                return []  # what does not end well has no closing word
            case Finished():
                return self._end(event)
        return []

    def error(self, status: int, message: str, code: str | None) -> list[Frame]:
        """A failure in the middle."""
        error = {"code": code or "server_error", "message": message}
        output = [opened.item for opened in self._items if opened.done]
        failed = {**self._resource, "status": "failed", "error": error, "output": output}
        said = {"code": code, "message": message, "param": None}
        kind = write_error(status, message, code)["error"]["type"]
        # The specification has an object; the vendor's own clients read the same three fields beside it.
        return [
            self._frame("error", error={"type": kind, **said}, **said),
            self._frame("response.failed", response=failed),
        ]

    # ── parts ────────────────────────────────────────────────────────────────

    def _piece(self, kind: str, text: str) -> list[Frame]:
        out: list[Frame] = []
        last = self._items[-1] if self._items else None
        if last is None or last.kind != kind or last.done:
            out, last = self._open(kind)
        last.pieces.append(text)
        if kind == "message":
            return [*out, self._at("response.output_text.delta", last, content_index=0, delta=text, logprobs=[])]
        return [*out, self._at("response.reasoning_summary_text.delta", last, summary_index=0, delta=text)]

    def _open(self, kind: str) -> tuple[list[Frame], _Open]:
        """An item of text or reasoning begins."""
        id = f"{self._id}_{len(self._items)}"
        if kind == "message":
            item = {"type": kind, "id": f"msg_{id}", "status": "in_progress", "role": "assistant", "content": []}
            opened = self._add(kind, item)
            part = _content(Text(""))
            return [
                self._added(opened),
                self._at("response.content_part.added", opened, content_index=0, part=part),
            ], opened
        opened = self._add(kind, {"type": kind, "id": f"rs_{id}", "summary": []})
        part = {"type": "summary_text", "text": ""}
        return [
            self._added(opened),
            self._at("response.reasoning_summary_part.added", opened, summary_index=0, part=part),
        ], opened

    def _block(self, part: Part) -> list[Frame]:
        """A part is complete: the first of its kind that was not yet, or one of which nothing came in pieces."""
        out: list[Frame] = []
        kind = {Text: "message", Reasoning: "reasoning"}.get(type(part), "")
        opened = next((i for i in self._items if i.kind == kind and not i.done), None) if kind else None
        item = _item(part, f"{self._id}_{len(self._items) if opened is None else opened.place}")
        if item is None:
            return []
        if opened is None and type(part) is Text and part.text:
            out = self._piece("message", part.text)
            opened = self._items[-1]
        if opened is None:
            opened = self._add(kind, item)
            return [self._added(opened), *self._done(opened, item)]
        text = "".join(opened.pieces)
        if kind == "message":
            content = item["content"][0]
            key = "refusal" if content["type"] == "refusal" else "text"
            if key == "text":
                out.append(self._at("response.output_text.done", opened, content_index=0, text=text, logprobs=[]))
            else:
                out.append(self._at("response.refusal.done", opened, content_index=0, refusal=content["refusal"]))
            out.append(self._at("response.content_part.done", opened, content_index=0, part=content))
        else:
            said = {"type": "summary_text", "text": text}
            out.append(self._at("response.reasoning_summary_text.done", opened, summary_index=0, text=text))
            out.append(self._at("response.reasoning_summary_part.done", opened, summary_index=0, part=said))
        return [*out, *self._done(opened, item)]

    def _called(self, opened: _Open, call: ToolCall) -> list[Frame]:
        item = _call(call, f"{self._id}_{opened.place}", "completed")
        arguments = item["arguments"]
        out: list[Frame] = []
        if not opened.pieces and arguments:
            out.append(self._at("response.function_call_arguments.delta", opened, delta=arguments))
        out.append(self._at("response.function_call_arguments.done", opened, arguments=arguments, name=call.name))
        return [*out, *self._done(opened, item)]

    def _end(self, event: Finished) -> list[Frame]:
        """What is still open was cut off."""
        out: list[Frame] = []
        for opened in self._items:
            if not opened.done and opened.kind == "function_call":
                out += self._done(opened, {**opened.item, "arguments": "".join(opened.pieces), "status": "incomplete"})
            elif not opened.done:
                text = "".join(opened.pieces)
                out += self._block(Text(text) if opened.kind == "message" else Reasoning(text))
        end = {**_ending(event.finish, event.raw, int(time.time())), "usage": _usage(self._usage)}
        response = {**self._resource, **end, "output": [opened.item for opened in self._items]}
        return [*out, self._frame(f"response.{end['status']}", response=response)]

    # ── frames ───────────────────────────────────────────────────────────────

    def _add(self, kind: str, item: dict[str, Any]) -> _Open:
        opened = _Open(len(self._items), kind, item)
        self._items.append(opened)
        return opened

    def _added(self, opened: _Open) -> Frame:
        return self._frame("response.output_item.added", output_index=opened.place, item=opened.item)

    def _done(self, opened: _Open, item: dict[str, Any]) -> Iterable[Frame]:
        if "id" in opened.item:  # readers know the item by the id that it began with
            item = {**item, "id": opened.item["id"]}
        opened.item, opened.done = item, True
        return [self._frame("response.output_item.done", output_index=opened.place, item=item)]

    def _at(self, kind: str, opened: _Open, **said: Any) -> Frame:
        return self._frame(kind, item_id=opened.item.get("id", ""), output_index=opened.place, **said)

    def _frame(self, kind: str, **said: Any) -> Frame:
        self._count += 1
        return kind, {"type": kind, "sequence_number": self._count - 1, **said}
