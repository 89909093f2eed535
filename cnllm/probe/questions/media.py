"""Ask for pictures, sounds and films: which the model reads."""

from __future__ import annotations

import base64
import re
from functools import partial

from cnllm.probe.exchange import Ask, reads_more
from cnllm.probe.facts import Finding
from cnllm.probe.question import ProbeContext, Steps, need, question
from cnllm.probe.questions.tool_rules import PIXEL
from cnllm.protocols import Recall, server_codec, wire
from cnllm.types import Media, Message, Seal, Text
from cnllm.types.media import media_kind

__all__ = ["kinds"]

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
_FORM = re.compile(r"size|dimension|pixel|too small|decod|corrupt|download|fetch|base64|invalid url", re.IGNORECASE)
"""The words of a refusal of this very medium, which says nothing of others."""
_LEAST = 20


@question("kinds of input", "input", requests=3, capable=True)
def kinds(context: ProbeContext) -> Steps:
    """Send one medium of each kind.

    Proof: its tokens are counted, or the endpoint takes it and refuses other kinds by name.
    """
    control = yield context.ask([Message("user", _TEXT)], why="text alone", control=True)
    passes: list[str] = []
    counted: list[str] = []
    tries: list[str] = []
    quote = ""
    for kind, media in _MEDIA.items():
        if not wire(context.bodies.model.protocol).takes_medium(media, context.bodies.model.flags):
            continue
        ask = context.ask([Message("user", (Text(_TEXT), media))], why=f"a message with {kind}")
        if not _has_part(context, ask, kind):
            continue
        answer = yield ask
        tries.append(kind)
        if answer.refused:
            need(not _FORM.search(answer.message))
            quote = quote or (answer.message if _ABILITY.search(answer.message) else "")
            continue
        passes.append(kind)
        if reads_more(answer, control, _LEAST):
            counted.append(kind)
    need(tries and (quote or counted == passes))  # else everything passes, and nothing shows that it is read
    need(not passes or len(tries) == len(_MEDIA))  # else the model may read kinds for which the wire has no part
    return [Finding("input", ["text", *passes], "works", quote)]


def _has_part(context: ProbeContext, ask: Ask, kind: str) -> bool:
    """Whether the wire's own documentation has a part for this kind: a server of the wire reads it back."""
    protocol = context.bodies.model.protocol
    try:
        request = server_codec(protocol).read_request(ask.body, "", partial(Seal, protocol, "", ""), Recall())
    except (TypeError, ValueError):
        return False
    return any(type(p) is Media and media_kind(p) == kind for m in request.messages for p in m.parts)
