"""Find out why a model cannot serve a request, as far as the registry knows. Unknown is not no."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from cnllm.registry.model import Model
from cnllm.types import Media, Message
from cnllm.types.documents import file_text
from cnllm.types.media import media_kind

__all__ = ["obstacle"]

_NAMES = {"image": "images", "audio": "audio", "video": "video", "file": "files"}


def obstacle(model: Model, messages: Sequence[Message], options: Mapping[str, Any]) -> str | None:
    """Return why a model cannot serve a request; None where it can, or where that is unknown."""
    flags = model.flags
    if flags.status is not None and flags.status.is_ == "retired":
        return "it is retired"
    if options.get("tools") and flags.tools.supported is False:
        return "it takes no tools"
    if flags.input is not None:
        for message in messages:
            for part in message.parts:
                if (
                    type(part) is Media
                    and (kind := media_kind(part)) in _NAMES
                    and kind not in flags.input
                    and file_text(part) is None
                ):
                    return f"it takes no {_NAMES[kind]}"
    if options.get("schema") is not None and model.layer("schema.methods") != "defaults":
        methods = flags.schema.methods
        if methods is not None and not {"json_schema", "json_object", "tool"} & set(methods):
            return "it has no structured output"
    mode = flags.reasoning.mode
    reasoning = options.get("reasoning")
    if reasoning == "off" and mode == "always":
        return "its reasoning cannot be turned off"
    if reasoning not in (None, "off") and mode == "never":
        return "it does not reason"
    return None
