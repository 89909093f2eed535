"""Encode replies of OpenAI Responses, whole and as streams."""

from __future__ import annotations

import time
from bisect import bisect_right
from collections.abc import Mapping
from operator import itemgetter
from typing import Any

from cnllm.protocols import Frames, Recall, ServerStream
from cnllm.protocols.client_tools import ArgumentReader, InputReader
from cnllm.protocols.event_order import citations_by_part
from cnllm.protocols.reply_fields import is_refusal, reply_id, select_keys, stream_id
from cnllm.protocols.responses.resource import ending, failure_code, response_resource, usage_counts
from cnllm.protocols.responses.server_items import (
    PROTOCOL,
    annotate,
    call_item,
    content_part,
    extend_text,
    part_item,
    source_annotation,
)
from cnllm.protocols.responses.server_tools import ClientTools, client_tools
from cnllm.protocols.server_interface import openai_error
from cnllm.types import (
    BlockEnd,
    Citation,
    CitationAdded,
    Event,
    ExtraAdded,
    Finished,
    Media,
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
)
from cnllm.types.parts import seal_data
from cnllm.types.tools import custom_input

__all__ = ["REPLY_KEYS", "StreamEncoder", "takes_raw", "unplaced_keys", "write_reply"]

_PREFIX = "resp_"

_CONTENT = (TextDelta, ReasoningDelta, BlockEnd, ToolCallStart, ToolCallDelta, ToolCallEnd)

Frame = tuple[str | None, Any]


def write_reply(reply: Reply, request: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """Return the body of a whole reply. `request` is the body that it answers."""
    tools = _client_tools(request)
    is_own = any(part.seal is not None and part.seal.protocol == PROTOCOL for part in reply.message.parts)
    id = reply_id(reply.id, _PREFIX, is_own=is_own)
    key = id.removeprefix(_PREFIX)
    output: list[dict[str, Any]] = []
    citations = [citation for citation in reply.citations if not seal_data(citation.seal, PROTOCOL)]
    for part, begin, own in citations_by_part(reply.message.parts, citations, len(reply.text)):
        continues = bool(output) and output[-1].get("type") == "message"
        keys = seal_data(part.seal, PROTOCOL)
        if type(part) is Text and not (part.text or own or keys):
            continue  # it holds a seal of another protocol alone
        if continues and type(part) is Text and (not keys or keys.get("at")):
            output[-1]["content"].append(content_part(part, refuses=is_refusal(reply.extra)))
        elif (item := part_item(part, f"{key}_{len(output)}", tools, refuses=is_refusal(reply.extra))) is not None:
            output.append(item)
        if type(part) is Text and part.text:
            annotate(output[-1]["content"][-1], [source_annotation(citation, begin) for citation in own])
    _add_logprobs(output, reply.extra.get("logprobs"))
    now = int(time.time())
    end = ending(reply.finish, reply.raw_finish, now)
    if end["status"] == "incomplete" and not reply.incomplete and output and output[-1].get("type") == "message":
        output[-1]["status"] = "incomplete"
    for call in reply.incomplete:
        output.append(tools.call_item(call, f"{key}_{len(output)}", "incomplete", seal_data(call.seal, PROTOCOL)))
    resource = response_resource(id, reply.model or "", now, request)
    return {
        **resource,
        **end,
        **select_keys(reply.extra, _ABOUT),
        "output": output,
        "usage": usage_counts(reply.usage, reply.extra),
    }


def _client_tools(request: Mapping[str, Any] | None) -> ClientTools:
    """Return the tools of the client's request. A request of the wrong form has none."""
    try:
        return client_tools(request or {}, Recall())
    except ValueError:
        return ClientTools(())


_ABOUT = (
    *("service_tier", "access_programs", "conversation", "image", "input_transformations", "moderation", "prompt"),
    *("prompt_cache_diagnostics", "prompt_cache_options", "prompt_cache_retention", "tool_usage"),
    "incomplete_details",
)
REPLY_KEYS = frozenset([*_ABOUT, "logprobs", "refusal"])
"""The keys of `Reply.extra` that a reply can hold."""


def unplaced_keys(reply: Reply) -> list[str]:
    """Return the names of what stands on texts alone, where a reply has no text but a refusal.

    The protocol's own parts have theirs.
    """
    parts = reply.message.parts
    has_own = any(part.seal is not None and part.seal.protocol == PROTOCOL for part in parts)
    if has_own or (any(type(part) is Text and part.text for part in parts) and not is_refusal(reply.extra)):
        return []
    held = {"citations": reply.citations, "logprobs": reply.extra.get("logprobs")}
    return [name for name, value in held.items() if value]


def _add_logprobs(output: list[dict[str, Any]], tokens: list[Any] | None) -> None:
    """Add the probabilities of tokens to the last text, as a stream has them, unless the texts have their own."""
    items = [item for item in output if item.get("type") == "message"]
    texts = [content for item in items for content in item["content"] if content.get("type") == "output_text"]
    if tokens and texts and not any(content.get("logprobs") for content in texts):
        texts[-1]["logprobs"] = tokens


def takes_raw(call: ToolCall, request: Mapping[str, Any] | None) -> bool:
    """Whether a reply to a request can hold a call whose arguments are no JSON object."""
    return _client_tools(request).takes_raw(call)


# ── streams ───────────────────────────────────────────────────────────────────


class _OpenItem:
    """An item that is being written: its position in the output, its first version, and its pieces.

    `refuses`: its text was a refusal when it began.
    """

    def __init__(self, output_index: int, kind: str, item: dict[str, Any], *, refuses: bool = False) -> None:
        self.refuses = refuses
        self.output_index = output_index
        self.kind = kind
        self.item = item
        self.contents: list[dict[str, Any]] = []  # the parts of a message that have ended
        self.pieces: list[str] = []
        self.input = InputReader() if kind == "custom_tool_call" else None
        self.arguments = ArgumentReader()
        self.done = False
        self.annotations: list[dict[str, Any]] = []
        self.logprobs: list[Any] = []

    def annotate(self, at: int, annotation: dict[str, Any]) -> int:
        """Add a source to a part of a message, and return its index there. The final response has it."""
        if at == len(self.contents) and not self.done:
            self.annotations.append(annotation)
            return len(self.annotations) - 1
        contents = [dict(part) for part in (self.item["content"] if self.done else self.contents)]
        known = contents[at].get("annotations") or []
        if annotation in known:  # the vendor's own stand there already
            return known.index(annotation)
        annotate(contents[at], [annotation])
        if self.done:
            self.item = {**self.item, "content": contents}
        else:
            self.contents = contents
        return len(known)


class StreamEncoder(ServerStream):
    """The encoder of one reply's events.

    An item ends when its event says so, perhaps after the next one began. That one has its end behind it: clients keep
    the items in the order in which they end.
    """

    def __init__(self, id: str, model: str, request: Mapping[str, Any] | None = None) -> None:
        super().__init__()
        id = stream_id(id, _PREFIX)
        self._id = id.removeprefix(_PREFIX)
        self._tools = _client_tools(request)
        self._resource = response_resource(id, model, int(time.time()), request)
        self._count = 0
        self._items: list[_OpenItem] = []
        self._open: dict[str, list[_OpenItem]] = {}  # items that have not ended, by kind
        self._ended = 0  # items whose end was written
        self._ends: dict[int, Frames] = {}  # frames that wait for the ends of the items before
        self._message: _OpenItem | None = None  # the last message
        self._offset = 0  # characters in the parts of messages before the last one
        self._places: list[tuple[int, _OpenItem, int]] = []  # where each begins, its message and its index there
        self._calls: dict[int, _OpenItem] = {}
        self._last_text: Text | None = None  # its item ends with the next event: the end may say that it is incomplete
        self._citations: list[Citation] = []  # that wait for a message

    def begin(self) -> Frames:
        """Return the frames before the first event."""
        created = self._frame("response.created", response=self._resource)
        return [created, self._frame("response.in_progress", response=self._resource)]

    def write(self, event: Event) -> Frames:
        """Return the frames of an event in the middle."""
        if type(event) is BlockEnd and type(event.part) is Text and not event.part.text and self._message is not None:
            # A part behind a call: its text was written with that of the part before it.
            if self._last_text is not None:
                self._last_text = extend_text(self._last_text, event.part)
            return []
        if self._last_text is not None and type(event) in _CONTENT:
            text, self._last_text = self._last_text, None
            goes_on = type(event) is TextDelta and self._goes_on(text)
            return [*self._block(text, goes_on=goes_on), *self.write(event)]
        match event:
            case TextDelta():
                return self._piece("message", event.text)
            case ReasoningDelta():
                return self._piece("reasoning", event.text)
            case ExtraAdded(extra=extra):
                return self._write_logprobs(extra["logprobs"]) if "logprobs" in extra else []
            case CitationAdded():
                self._citations.append(event.citation)
                return self._write_citations()
            case BlockEnd(part=Text() as text):
                self._last_text = text
            case BlockEnd():
                return self._block(event.part)
            case ToolCallStart():
                call = ToolCall(event.id, event.name)
                item = self._tools.call_item(call, f"{self._id}_{len(self._items)}", "in_progress", {})
                self._calls[event.index] = item_state = self._add(item["type"], item)
                return [self._item_added(item_state)]
            case ToolCallDelta() if (call_item := self._calls.get(event.index)) is not None:
                return self._call_piece(call_item, event.text)
            case ToolCallEnd() if (call_item := self._calls.get(event.index)) is not None:
                return self._end_call(call_item, event.call)
        return []

    def error(self, status: int, message: str, code: str | None) -> Frames:
        """Return the frames of a failure in the middle."""
        error = {"code": code or failure_code(status), "message": message}
        output = [item_state.item for item_state in self._items if item_state.done]
        failed = {**self._resource, "status": "failed", "error": error, "output": output}
        fields = {"code": code, "message": message, "param": None}
        kind = openai_error(status, message, code)["error"]["type"]
        # The specification has an object; the vendor's own clients read the same three fields outside of it.
        return [
            self._frame("error", error={"type": kind, **fields}, **fields),
            self._frame("response.failed", response=failed),
        ]

    def _goes_on(self, text: Text) -> bool:
        """Whether a piece of text behind a part belongs to the same message. A refusal is one of its own."""
        is_same = self._message is not None and self._message.refuses == is_refusal(self.extra)
        own = seal_data(text.seal, PROTOCOL)
        return is_same and (not own or bool(own.get("more")))

    # ── parts ─────────────────────────────────────────────────────────────────

    def _piece(self, kind: str, text: str) -> Frames:
        """Return the frames of a piece of text or reasoning."""
        out: Frames = []
        last = self._items[-1] if self._items else None
        if last is None or last.kind != kind or last.done:
            out, last = self._open_item(kind)
        last.pieces.append(text)
        at = len(last.contents)
        if kind == "message" and last.refuses:
            return [*out, self._item_frame("response.refusal.delta", last, content_index=at, delta=text)]
        if kind == "message":
            delta = self._item_frame("response.output_text.delta", last, content_index=at, delta=text, logprobs=[])
            return [*out, delta, *(self._write_citations() if self._citations else ())]
        return [*out, self._item_frame("response.reasoning_summary_text.delta", last, summary_index=0, delta=text)]

    def _write_logprobs(self, tokens: list[Any]) -> Frames:
        """Return the frame of the tokens of the last message: they come after their text."""
        last = self._message
        if last is None or last.refuses:
            return []
        last.logprobs += tokens
        if last.done:  # the final response has the item with them
            *others, content = last.item["content"]
            last.item = {**last.item, "content": [*others, {**content, "logprobs": last.logprobs}]}
            return []
        at = len(last.contents)
        return [self._item_frame("response.output_text.delta", last, content_index=at, delta="", logprobs=tokens)]

    def _write_citations(self, *, late: bool = False) -> Frames:
        """Return the frames of the sources that wait, if a message is open; `late`: also if it has ended."""
        last = self._message
        if last is None or (last.done and not late):
            return []
        out: Frames = []
        for citation in self._citations:
            at = bisect_right(self._places, citation.start, key=itemgetter(0)) if citation.start is not None else 0
            begin, item, content_index = self._places[at - 1]
            annotation = source_annotation(citation, begin)
            place = {"content_index": content_index, "annotation_index": item.annotate(content_index, annotation)}
            out.append(self._item_frame("response.output_text.annotation.added", item, **place, annotation=annotation))
        self._citations = []
        return out

    def _open_item(self, kind: str) -> tuple[Frames, _OpenItem]:
        """Begin an item of text or reasoning."""
        id = f"{self._id}_{len(self._items)}"
        if kind == "message":
            item = {"type": kind, "id": f"msg_{id}", "status": "in_progress", "role": "assistant", "content": []}
            new_item = self._add(kind, item)
            return [self._item_added(new_item), self._content_added(new_item)], new_item
        new_item = self._add(kind, {"type": kind, "id": f"rs_{id}", "summary": []})
        added, part = self._item_added(new_item), {"type": "summary_text", "text": ""}
        event = "response.reasoning_summary_part.added"
        return [added, self._item_frame(event, new_item, summary_index=0, part=part)], new_item

    def _content_added(self, open_item: _OpenItem) -> Frame:
        """Begin the next part of a message, and return the frame that announces it."""
        open_item.refuses = is_refusal(self.extra)
        open_item.pieces, open_item.annotations, open_item.logprobs = [], [], []
        fields = {"content_index": len(open_item.contents), "part": content_part(Text(""), refuses=open_item.refuses)}
        return self._item_frame("response.content_part.added", open_item, **fields)

    def _block(self, part: Part, status: str = "completed", *, goes_on: bool = False) -> Frames:
        """Complete a part: the first open one of its kind, or one that came in no pieces.

        `goes_on`: another part of the same message follows.
        """
        out: Frames = []
        kind = {Text: "message", Reasoning: "reasoning"}.get(type(part), "")
        open_item = next(iter(self._open.get(kind, ())), None)
        id = f"{self._id}_{len(self._items) if open_item is None else open_item.output_index}"
        refuses = is_refusal(self.extra) if open_item is None else open_item.refuses
        item = part_item(part, id, self._tools, refuses=refuses)
        if item is None:
            return []
        if kind == "message" and status != "completed":
            item = {**item, "status": status}
        if open_item is None and type(part) is Text and part.text:
            out = self._piece("message", part.text)
            open_item = self._items[-1]
        if open_item is None and type(part) is Reasoning and not part.text:
            # Its text was written in an item that had no seal.
            item |= {key: [] for key in ("summary", "content") if item.get(key)}
        if open_item is not None and kind == "message" and not item["content"][0].get("annotations"):
            annotate(item["content"][0], open_item.annotations)
        if open_item is not None and open_item.logprobs and not item["content"][0].get("logprobs"):
            item["content"][0]["logprobs"] = open_item.logprobs
        if open_item is None:
            begun = {**item, "status": "in_progress", "result": None} if type(part) is Media else item
            open_item = self._add(kind, begun)
            return [self._item_added(open_item), *self._item_done(open_item, item, [])]
        text = "".join(open_item.pieces)
        ends: list[tuple[str, dict[str, Any]]]
        if kind == "message":
            content = item["content"][0]
            if content["type"] == "refusal":
                ends = [("response.refusal.done", {"refusal": content["refusal"]})]
            else:
                ends = [("response.output_text.done", {"text": text, "logprobs": open_item.logprobs})]
            ends.append(("response.content_part.done", {"part": content}))
            place = {"content_index": len(open_item.contents)}
            open_item.contents.append(content)
            item["content"] = open_item.contents
        else:
            ends = [
                ("response.reasoning_summary_text.done", {"text": text}),
                ("response.reasoning_summary_part.done", {"part": {"type": "summary_text", "text": text}}),
            ]
            place = {"summary_index": 0}
        frames = [self._item_frame(event, open_item, **place, **fields) for event, fields in ends]
        if goes_on:
            self._offset += len(text)
            self._places.append((self._offset, open_item, len(open_item.contents)))
            return [*out, *frames, self._content_added(open_item)]
        return [*out, *self._item_done(open_item, item, frames)]

    def _call_piece(self, open_item: _OpenItem, text: str) -> Frames:
        """Return the frames of a piece of a call's arguments."""
        open_item.pieces.append(text)
        if open_item.kind == "function_call" and (piece := open_item.arguments.feed(text)) is not None:
            return [self._item_frame("response.function_call_arguments.delta", open_item, delta=piece)]
        if open_item.input is not None and (piece := open_item.input.feed(text)):
            return [self._item_frame("response.custom_tool_call_input.delta", open_item, delta=piece)]
        return []

    def _end_call(self, open_item: _OpenItem, call: ToolCall) -> Frames:
        """End a call. One that could not be executed as it is has no event that says that its arguments are there."""
        id = f"{self._id}_{open_item.output_index}"
        item = call_item(call, id, self._tools)
        if not self._tools.is_whole(call):
            return self._item_done(open_item, item, [])
        out: Frames = []
        if item["type"] == "function_call":
            arguments = item["arguments"]
            if rest := open_item.arguments.end(call):
                out.append(self._item_frame("response.function_call_arguments.delta", open_item, delta=rest))
            fields = {"arguments": arguments, "name": item["name"]}
            out.append(self._item_frame("response.function_call_arguments.done", open_item, **fields))
        elif item["type"] == "custom_tool_call":
            if open_item.input is not None and (rest := open_item.input.end(call)):
                out.append(self._item_frame("response.custom_tool_call_input.delta", open_item, delta=rest))
            out.append(self._item_frame("response.custom_tool_call_input.done", open_item, input=item["input"]))
        return self._item_done(open_item, item, out)

    def _cut_call(self, open_item: _OpenItem) -> Frames:
        """End a call that is not complete."""
        raw = "".join(open_item.pieces)
        item = {**open_item.item, "status": "incomplete"}
        if open_item.kind == "function_call":
            item["arguments"] = raw
        elif open_item.input is not None:
            item["input"] = open_item.input.text or custom_input(ToolCall("", "", None, raw))
        return self._item_done(open_item, item, [])

    def end(self, event: Finished) -> Frames:
        """Return the frames that end the stream. Items that are still open are incomplete."""
        end = {
            **ending(event.finish, event.raw, int(time.time())),
            "usage": usage_counts(self.usage, self.extra),
            **select_keys(self.extra, _ABOUT),
        }
        out: Frames = []
        if self._last_text is not None:
            has_call = bool(self._items) and self._items[-1] in self._calls.values()
            out += self._block(self._last_text, "completed" if has_call else end["status"])
        for open_item in self._items:
            if not open_item.done and open_item in self._calls.values():
                out += self._cut_call(open_item)
            elif not open_item.done:
                text = "".join(open_item.pieces)
                out += self._block(Text(text) if open_item.kind == "message" else Reasoning(text), end["status"])
        out += self._write_citations(late=True) if self._citations else []
        self.body = {**self._resource, **end, "output": [open_item.item for open_item in self._items]}
        return [*out, self._frame(f"response.{end['status']}", response=self.body)]

    # ── frames ────────────────────────────────────────────────────────────────

    def _add(self, kind: str, item: dict[str, Any]) -> _OpenItem:
        """Add an item."""
        open_item = _OpenItem(len(self._items), kind, item, refuses=is_refusal(self.extra))
        self._items.append(open_item)
        self._open.setdefault(kind, []).append(open_item)
        if kind == "message":
            if self._message is not None:
                self._offset += sum(map(len, self._message.pieces))
            self._message = open_item
            self._places.append((self._offset, open_item, 0))
        return open_item

    def _item_added(self, open_item: _OpenItem) -> Frame:
        """Return the frame that announces an item."""
        return self._frame("response.output_item.added", output_index=open_item.output_index, item=open_item.item)

    def _item_done(self, open_item: _OpenItem, item: dict[str, Any], last: Frames) -> Frames:
        """End an item, whose `last` frames come before its end. They wait for the ends of the items before it."""
        if "id" in open_item.item:  # readers know the item by its first id
            item = {**item, "id": open_item.item["id"]}
        open_item.item, open_item.done = item, True
        self._open[open_item.kind].remove(open_item)
        index = open_item.output_index
        frames = [*last, self._frame("response.output_item.done", output_index=index, item=item)]
        self._ends[index] = frames
        self._count -= len(frames)
        out: Frames = []
        while frames := self._ends.pop(self._ended, []):
            frames[-1][1]["item"] = self._items[self._ended].item  # sources may have come
            for _, data in frames:
                data["sequence_number"] = self._count
                self._count += 1
            out += frames
            self._ended += 1
        return out

    def _item_frame(self, kind: str, open_item: _OpenItem, **fields: Any) -> Frame:
        """Return the frame of an event of an item."""
        return self._frame(kind, item_id=open_item.item.get("id", ""), output_index=open_item.output_index, **fields)

    def _frame(self, kind: str, **fields: Any) -> Frame:
        """Return one frame."""
        self._count += 1
        return kind, {"type": kind, "sequence_number": self._count - 1, **fields}
