"""Encode the parts of an answer as items of a Responses reply, which whole replies and streams share."""

from __future__ import annotations

from typing import Any

import msgspec

from cnllm.protocols.reply_fields import citation_fields
from cnllm.protocols.responses.server_tools import ClientTools
from cnllm.types import Citation, Media, Opaque, Part, Reasoning, Text, ToolCall
from cnllm.types.media import media_kind
from cnllm.types.parts import seal_data

__all__ = [
    "PROTOCOL",
    "annotate",
    "call_item",
    "content_part",
    "extend_text",
    "part_item",
    "source_annotation",
    "takes_media",
    "token_fields",
]

PROTOCOL = "openai-responses"


def source_annotation(citation: Citation, offset: int) -> dict[str, Any]:
    """Encode a source of a text that begins at an offset."""
    if own := seal_data(citation.seal, PROTOCOL):
        return dict(own)
    return {"type": "url_citation", **citation_fields(citation, offset)}


def annotate(content: dict[str, Any], annotations: list[dict[str, Any]]) -> None:
    """Add sources to a part of a message; a refusal has none."""
    if annotations and content["type"] == "output_text":
        content["annotations"] = [*(content.get("annotations") or []), *annotations]


def part_item(part: Part, id: str, tools: ClientTools, *, refuses: bool = False) -> dict[str, Any] | None:
    """Encode a part as an item, with an id of ours if it has none."""
    match part:
        case Text():
            item_keys = seal_data(part.seal, PROTOCOL).get("item") or {"id": f"msg_{id}", "status": "completed"}
            content = [content_part(part, refuses=refuses)]
            return {"type": "message", "role": "assistant", **item_keys, "content": content}
        case Reasoning():
            return _reasoning(part, id)
        case ToolCall():
            return call_item(part, id, tools)
        case Media() if takes_media(part):
            item_keys = seal_data(part.seal, PROTOCOL).get("item") or {"id": f"ig_{id}", "status": "completed"}
            return {"type": "image_generation_call", **item_keys, "result": part.data}
        case Opaque() if part.seal is not None and part.seal.protocol == PROTOCOL and isinstance(part.data, dict):
            return part.data
    return None


def call_item(call: ToolCall, id: str, tools: ClientTools) -> dict[str, Any]:
    """Encode a call that has ended. Whether it is whole is not for the endpoint to say."""
    keys = seal_data(call.seal, PROTOCOL)
    if tools.is_whole(call):
        return tools.call_item(call, id, "completed", keys)
    return tools.call_item(call, id, "incomplete", {key: keys[key] for key in keys if key != "status"})


def takes_media(media: Media) -> bool:
    """Whether a reply can hold a medium: an image with its data."""
    return media.data is not None and media_kind(media) == "image"


def content_part(part: Text, *, refuses: bool = False) -> dict[str, Any]:
    """Encode a text as a content part."""
    part_keys = seal_data(part.seal, PROTOCOL).get("part")
    if part_keys is None:
        part_keys = {"type": "refusal"} if refuses else {"annotations": [], "logprobs": []}
    if part_keys.get("type") == "refusal":
        return {"type": "refusal", "refusal": part.text, **part_keys}
    return {"type": "output_text", "text": part.text, **part_keys}


def extend_text(text: Text, later: Text) -> Text:
    """Return a text that holds that of a later part with the keys of the later item, whose text is the last word.

    Events have brought the sources of both.
    """
    data, later_data = seal_data(text.seal, PROTOCOL), seal_data(later.seal, PROTOCOL)
    if text.seal is None or not data or not later_data:
        return text
    item = {**(data.get("item") or {}), **(later_data.get("item") or {})}
    part = {**(data.get("part") or {}), "annotations": [], "logprobs": []}
    return msgspec.structs.replace(text, seal=msgspec.structs.replace(text.seal, data={"item": item, "part": part}))


def _reasoning(part: Reasoning, id: str) -> dict[str, Any]:
    """Encode reasoning."""
    sealed = seal_data(part.seal, PROTOCOL)
    sealed = sealed if sealed.get("type") == "reasoning" else {}
    is_token = part.seal is not None and not part.seal.provider
    summary = {"summary": _summary(part.text)} if is_token or not sealed else {}
    return {"type": "reasoning", "id": f"rs_{id}", **sealed, **summary}


def _summary(text: str) -> list[dict[str, Any]]:
    """Encode the text of reasoning."""
    return [{"type": "summary_text", "text": text}] if text else []


def token_fields(part: Reasoning) -> dict[str, Any]:
    """Return the fields of a reasoning item that has a token."""
    return {"type": "reasoning", "summary": _summary(part.text)}
