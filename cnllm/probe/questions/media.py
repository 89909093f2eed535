"""Ask for pictures, sounds and films: which the model reads."""

from __future__ import annotations

import base64
import re

from cnllm.probe.exchange import Ask
from cnllm.probe.question import Context, Finding, Question, Steps
from cnllm.probe.questions.tool_rules import PIXEL
from cnllm.protocols import wire
from cnllm.types import Media, Message, Text

__all__ = ["QUESTIONS"]

_WAV = base64.b64encode(
    b"RIFF" + (36 + 800).to_bytes(4, "little") + b"WAVEfmt " + (16).to_bytes(4, "little")
    + (1).to_bytes(2, "little") * 2 + (8000).to_bytes(4, "little") * 2 + (1).to_bytes(2, "little")
    + (8).to_bytes(2, "little") + b"data" + (800).to_bytes(4, "little") + b"\x80" * 800
).decode()  # fmt: skip
_MEDIA = {
    "image": Media("image/png", data=PIXEL),
    "audio": Media("audio/wav", data=_WAV),
    "video": Media("video/mp4", data=base64.b64encode(b"\0\0\0\x18ftypmp42\0\0\0\0mp42isom").decode()),
}
_TEXT = "What do you see or hear here? Answer in one word."
_ABILITY = re.compile(r"support|read|modal|vision|image|audio|video|capab|不支持|不能", re.IGNORECASE)
_LEAST = 20


def _kinds(context: Context) -> Steps:
    """Send one medium of each kind."""
    control = yield context.ask([Message("user", _TEXT)], why="text alone", control=True)
    before = control.reply.usage.input if control.reply is not None else None
    taken: list[str] = []
    counted: list[str] = []
    quotes: list[str] = []
    asked: list[str] = []
    for kind, media in _MEDIA.items():
        if not wire(context.bodies.model.protocol).takes_medium(media, context.bodies.model.flags):
            continue
        ask = _ask(context, media, kind)
        if media.data is None or media.data not in str(ask.body):
            continue
        answer = yield ask
        asked.append(kind)
        if answer.refused:
            if _ABILITY.search(answer.message):
                quotes.append(answer.message)
            continue
        if not answer.passed:
            return []
        taken.append(kind)
        after = answer.reply.usage.input if answer.reply is not None else None
        if before is not None and after is not None and after - before >= _LEAST:
            counted.append(kind)
    if not quotes and counted != taken:
        return []  # everything passes, and nothing shows that it is read
    return [Finding("input", ["text", *taken], "works", quotes[0] if quotes else "")] if asked else []


def _ask(context: Context, media: Media, kind: str) -> Ask:
    return context.ask([Message("user", (Text(_TEXT), media))], why=f"a message with {kind}")


QUESTIONS = (
    Question(
        "kinds of input",
        ("input",),
        "its tokens are counted, or the endpoint takes it and refuses other kinds by name",
        3,
        _kinds,
        capable=True,
    ),
)
