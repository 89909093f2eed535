"""Write a conversation into a file: as JSON for programs, as Markdown for people."""

from __future__ import annotations

import json
from collections.abc import Sequence

from cnllm.cli.output import errors
from cnllm.config.private_files import open_private
from cnllm.config.redact import redact
from cnllm.types import Message, ToolCall, ToolResult

__all__ = ["write_conversation"]


def write_conversation(name: str, messages: Sequence[Message]) -> int:
    """Write messages into a new file, without keys, and return their number. Raise `UsageError` where it exists."""
    if name.endswith(".json"):
        text = json.dumps([message.to_dict() for message in messages], ensure_ascii=False, indent=2) + "\n"
    else:
        text = "\n".join(map(_markdown, messages))
    try:
        with open(name, "x", encoding="utf-8", errors="surrogatepass", opener=open_private) as file:
            file.write(redact(text, errors.hide_secrets()))
    except FileExistsError:
        raise errors.UsageError(f"{name} exists", "name another file") from None
    except OSError as error:
        raise errors.UsageError(f"{name} cannot be written: {error.strerror}", "name another file") from error
    return len(messages)


def _markdown(message: Message) -> str:
    """Return a message under a heading with its role and, for an answer, its model."""
    author = f" ({message.by})" if message.by else ""
    lines = [f"## {message.role}{author}", ""]
    if message.text:
        lines += [message.text, ""]
    for part in message.parts:
        if isinstance(part, ToolCall):
            lines += [f"calls `{part.name}` with `{part.raw}`", ""]
        elif isinstance(part, ToolResult):
            lines += [f"{'error' if part.error else 'result'} of `{part.name}`:", "", part.text, ""]
    return "\n".join(lines)
