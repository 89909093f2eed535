"""Limits. Of parsing: bytes already received, split into lines, each decoded, nothing kept.

`parse` decodes with orjson, `parse_typed` with msgspec, only the fields that a client needs. Of building a request:
`build` encodes a body that is there already. Of both together: `both` encodes a short request and decodes its answer.
"""

from collections.abc import Callable

import msgspec
import orjson

from benchmarks.payloads import LONG, Got, Setting, body, full
from benchmarks.runners.stopped import check_body


class Delta(msgspec.Struct, gc=False):
    content: str | None = None
    reasoning_content: str | None = None
    tool_calls: list[dict[str, object]] | None = None


class Choice(msgspec.Struct, gc=False):
    delta: Delta
    finish_reason: str | None = None


class Chunk(msgspec.Struct, gc=False):
    choices: list[Choice]
    usage: dict[str, object] | None = None


def parse(setting: Setting, decode: Callable[[bytes], object] = orjson.loads) -> Callable[[], int]:
    """Pass over all pieces once, and return how many chunks were decoded."""
    pieces = setting.pieces()

    def one() -> int:
        rest, chunks = b"", 0
        for piece in pieces:
            lines = (rest + piece).split(b"\n") if rest else piece.split(b"\n")
            rest = lines.pop()
            for line in lines:
                if line.startswith(b"data: {"):
                    decode(line[6:])
                    chunks += 1
        return chunks

    return one


def parse_typed(setting: Setting) -> Callable[[], int]:
    return parse(setting, msgspec.json.Decoder(Chunk).decode)


def both(setting: Setting) -> Callable[[], Got]:
    """Encode a request, and decode its answer and the arguments in it."""
    answer = full()

    def one() -> Got:
        if not orjson.dumps(body(False)):
            raise SystemExit("wrong result: no body")
        message = orjson.loads(answer)["choices"][0]["message"]
        arguments = orjson.loads(message["tool_calls"][0]["function"]["arguments"])
        return Got(len(message["reasoning_content"]), len(message["content"]), arguments)

    return one


def build(setting: Setting) -> Callable[[], int]:
    request = {"model": "bench", **LONG}
    check_body(orjson.dumps(request))
    return lambda: bool(orjson.dumps(request))
