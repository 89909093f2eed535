"""What the tests of the store share."""

from __future__ import annotations

import os
import subprocess
import sys
from decimal import Decimal
from pathlib import Path
from typing import Any

from cnllm.store import Conversation
from cnllm.types import Cost, Message, Note, Part, Reasoning, Reply, Seal, Text, ToolCall, Usage

ROOT = Path(__file__).parent.parent.parent
SEAL = Seal("openai-chat", "zai", "glm-4.7", [{"type": "signature", "data": "c2lnbmVk"}])


def user(text: str) -> Message:
    return Message("user", [Text(text)])


def reply(text: str = "Hello", reasoning: str = "hm", calls: tuple[ToolCall, ...] = (), **more: Any) -> Reply:
    """A reply, whole unless `finish` says otherwise."""
    parts: list[Part] = [*([Reasoning(reasoning, SEAL)] if reasoning else []), *([Text(text)] if text else []), *calls]
    given: dict[str, Any] = {
        "finish": "stop",
        "raw_finish": "stop",
        "usage": Usage(12, 34, 46, 20, 3),
        "cost": Cost(Decimal("0.00012"), "USD"),
        "model": "glm-4.7",
        "id": "r1",
        "notes": [Note("simulated", "simulate", "this", "that", "providers.toml:1")],
        "incomplete": [],
        **more,
    }
    return Reply(
        text=text,
        reasoning=reasoning,
        tool_calls=list(calls),
        message=Message("assistant", parts, "zai/glm-4.7"),
        **given,
    )


def ask(conversation: Conversation, text: str, answer: Reply | None = None, **more: Any) -> None:
    """A whole turn."""
    more.setdefault("model", "zai/glm-4.7")
    with conversation.turn([user(text)], **more) as turn:
        turn.finish(answer or reply())


def script(code: str, *args: str) -> subprocess.Popen[str]:
    """Another process that runs some code; its lines can be read."""
    return subprocess.Popen(
        [sys.executable, "-u", "-c", code, *args],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        stdout=subprocess.PIPE,
        text=True,
    )
