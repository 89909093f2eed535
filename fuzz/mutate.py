"""Changes to an input that keep most of it readable: frames, JSON values, words of a text, lines of a file."""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from typing import Any

from .given import HEAD
from .words import fields, marks

__all__ = ["KINDS", "mutated"]

_ODD: tuple[Any, ...] = (
    *(None, True, False, 0, 1, -1, 1.5, -0.0, 2**31, 2**63, 2**64, 10**30, float("nan"), float("inf"), 1e300),
    *("", " ", "\n", "0", "null", "a", "为", "\ud83d", "\ude00", "😀", "\x00", "\u2028", "{}", "[]", '{"q":"a"}'),
    *('{"q":', "x" * 300, [], {}, [[]], [None], [{}], {"": None}, {"q": "a"}, {"text": "hm"}, ["a", 1, {}]),
)


def mutated(payload: bytes, kind: str, dice: random.Random, others: list[bytes]) -> bytes:
    """Return the payload with a few changes of its kind; `others` are payloads to take from."""
    for _ in range(dice.choice((1, 1, 2, 4))):
        payload = KINDS[kind](payload, dice, others)
    return payload


# ── values ───────────────────────────────────────────────────────────────────
def _places(value: Any, found: list[tuple[Any, Any]]) -> None:
    """Collect every (container, key) in a value."""
    todo = [value]
    while todo:
        at = todo.pop()
        keys = list(at) if isinstance(at, dict) else range(len(at)) if isinstance(at, list) else ()
        for key in keys:
            found.append((at, key))
            if isinstance(at[key], dict | list):
                todo.append(at[key])


def change(value: Any, dice: random.Random) -> Any:
    """Return a JSON value, changed in place somewhere."""
    places: list[tuple[Any, Any]] = []
    _places(value, places)
    if not places:
        return dice.choice(_ODD)
    at, key = dice.choice(places)
    inner = at[key]
    match dice.randrange(10):
        case 0:
            at[key] = dice.choice(_ODD)
        case 1:
            del at[key]
        case 2 if isinstance(at, dict):
            at[dice.choice(fields())] = at.pop(key)
        case 3 if isinstance(at, dict):
            at[dice.choice(fields())] = json.loads(json.dumps(dice.choice((inner, dice.choice(_ODD)))))
        case 4 if isinstance(at, list):
            at.insert(dice.randint(0, len(at)), json.loads(json.dumps(inner)))
        case 5:
            at[key] = dice.choice(([inner], {"text": inner}, {"0": inner}, [inner, inner]))
        case 6:
            other, its = dice.choice(places)  # the same thing twice, or one in the place of another
            if its in other if isinstance(other, dict) else its < len(other):
                at[key] = json.loads(json.dumps(other[its]))
        case 7 if dice.randrange(50) == 0:
            for _ in range(dice.choice((30, 600, 3000))):
                inner = [inner]
            at[key] = inner
        case _ if isinstance(inner, str):
            at[key] = reworded(inner, dice)
        case _ if isinstance(inner, int | float):
            at[key] = dice.choice((inner + 1, -inner, str(inner), inner * 1000, None))
        case _:
            at[key] = dice.choice(fields())
    return value


def reworded(text: str, dice: random.Random) -> str:
    """Return a text, changed somewhere."""
    at = dice.randint(0, len(text))
    end = min(len(text), at + dice.randint(0, 12))
    match dice.randrange(7):
        case 0:
            return text[:at] + text[end:]
        case 1:
            return text[:at] + dice.choice(marks()) + dice.choice(("", "\n", dice.choice(marks()))) + text[at:]
        case 2:
            return text[:at]
        case 3:
            return text[:at] + text[at:end] * 2 + text[end:]
        case 4:
            return dice.choice(fields())
        case 5:
            return text[:at] + str(dice.choice([odd for odd in _ODD if isinstance(odd, str)])) + text[at:]
        case _:
            return text + dice.choice(marks())


# ── kinds ────────────────────────────────────────────────────────────────────
def bytewise(payload: bytes, dice: random.Random, others: list[bytes]) -> bytes:
    """Return any bytes, changed anyhow."""
    at = dice.randint(0, len(payload))
    end = min(len(payload), at + dice.randint(1, 16))
    match dice.randrange(5):
        case 0:
            return payload[:at] + payload[end:]
        case 1:
            return payload[:at] + dice.randbytes(dice.randint(1, 4)) + payload[at:]
        case 2:
            return payload[:at] + payload[at:end] * dice.choice((2, 3, 50)) + payload[end:]
        case 3:
            return payload[:at]
        case _:
            other = dice.choice(others) if others else b""
            start = dice.randint(0, len(other))
            return payload[:at] + other[start : start + dice.randint(1, 200)] + payload[at:]


def of_json(payload: bytes, dice: random.Random, others: list[bytes]) -> bytes:
    """Return bytes with one JSON value changed."""
    try:
        value = json.loads(payload)
    except (ValueError, RecursionError):
        return bytewise(payload, dice, others)
    if dice.randrange(12) == 0:
        return bytewise(payload, dice, others)
    try:
        changed = json.dumps(change(value, dice), ensure_ascii=dice.random() < 0.5)
    except RecursionError:
        return payload.replace(b":", b":" + b"[" * 3000, 1)  # nested deeper than this writer can write
    return changed.encode("utf-8", "surrogatepass")


def frames(payload: bytes, dice: random.Random, others: list[bytes]) -> bytes:
    """Return changed events with JSON in them."""
    blocks = payload.split(b"\n\n")
    at = dice.randrange(len(blocks))
    match dice.randrange(14):
        case 0:
            del blocks[at]
        case 1:
            blocks.insert(dice.randint(0, len(blocks)), blocks[at])
        case 2:
            other = dice.randrange(len(blocks))
            blocks[at], blocks[other] = blocks[other], blocks[at]
        case 3:
            del blocks[at + 1 :]
        case 4 if others:
            theirs = dice.choice(others).split(b"\n\n")
            blocks.insert(at, dice.choice(theirs))
        case 5:
            return bytewise(payload, dice, others)
        case 6:
            ends = dice.choice((b"\r\n", b"\r", b"\n"))
            return dice.choice((b"", b"\xef\xbb\xbf", b": hi\n\n")) + payload.replace(b"\n", ends)
        case 7:
            blocks[at] += dice.choice((b"\n", b"\ndata: [DONE]", b"\nevent: error", b"\ndata:", b"\nid: 1", b"\n:"))
        case _:
            name, colon, data = blocks[at].partition(b"data:")
            if colon:
                blocks[at] = name + colon + b" " + of_json(data.strip(), dice, others)
    return b"\n\n".join(blocks)


def text(payload: bytes, dice: random.Random, others: list[bytes]) -> bytes:
    """Return the text that a model wrote, changed."""
    if dice.randrange(8) == 0:
        return bytewise(payload, dice, others)
    return reworded(payload.decode("utf-8", "surrogateescape"), dice).encode("utf-8", "replace")


_VALUES = (
    *('""', '"a"', "0", "-1", "true", "[]", "{}", "[1]", '["a"]', "{ a = 1 }", "1e9", "nan", "inf", "1979-05-27"),
    *(
        '"https://x/y"',
        '"openai-chat"',
        '"none"',
        "[[]]",
        "9" * 30,
        '"\\u0000"',
        '"{key}"',
        "'''\n'''",
        '[{ a = "b" }]',
    ),
)


def toml(payload: bytes, dice: random.Random, others: list[bytes]) -> bytes:
    """Return changed lines of a registry file."""
    lines = payload.split(b"\n")
    at = dice.randrange(len(lines))
    match dice.randrange(8):
        case 0:
            del lines[at]
        case 1:
            lines.insert(dice.randint(0, len(lines)), lines[at])
        case 2 if others:
            lines.insert(at, dice.choice(dice.choice(others).split(b"\n")))
        case 3 | 4 if b"=" in lines[at]:
            lines[at] = lines[at].partition(b"=")[0] + b"= " + dice.choice(_VALUES).encode()
        case 5 if b"=" in lines[at]:
            lines[at] = dice.choice(fields()).encode() + b" =" + lines[at].partition(b"=")[2]
        case 6 if lines[at].startswith(b"["):
            lines[at] = lines[at].replace(b"]", b"." + dice.choice(fields()).encode() + b"]", 1)
        case _:
            return bytewise(payload, dice, others)
    return b"\n".join(lines)


KINDS: dict[str, Callable[[bytes, random.Random, list[bytes]], bytes]] = {
    "bytes": bytewise,
    "json": of_json,
    "frames": frames,
    "text": text,
    "toml": toml,
}


def rechosen(head: bytes, dice: random.Random) -> bytes:
    """Return the choices of an input, one of them made anew."""
    out = bytearray(head.ljust(HEAD, b"\0"))
    out[dice.randrange(HEAD)] = dice.randrange(256)
    return bytes(out)
