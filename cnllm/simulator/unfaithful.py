"""Simulate hosts that serve a model badly: each word names one fault, for `SimTransport`, `running` and the program.

    lost-calls=20       every 20th tool call is missing; a turn that held nothing else comes back empty
    leaked-calls=20     every 20th tool call stands in the text, in markup, instead of among the calls
    ignored-schemas     arguments and structured answers have values of the wrong type
    repetition          the second half of a text repeats its last words, as bad quantisation makes models do
    truncation=40       a text ends after 40 tokens, and the finish reason does not say so
    forgotten-thoughts  a number that stands only in the reasoning of an earlier turn is another one
    slow=0.2            waits 0.2 seconds before each piece of a stream

Separate several with `;`.
"""

from __future__ import annotations

import json
import re
import threading
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from cnllm.simulator.reply import SimulatedReply, write_calls
from cnllm.simulator.request import ParsedRequest, split_pieces

__all__ = ["HostFaults", "UnfaithfulHost", "read_host_faults"]

_LOOP = 4  # pieces of text that a model repeats
_LEAST = 12  # pieces of a text in which a repetition can be seen
_NUMBER = re.compile(r"\d{3,}")
_OTHER_DIGITS = str.maketrans("0123456789", "1234567890")


class HostFaults(Struct, frozen=True):
    """The faults of a host; the module explains the words. 0 and False mean none."""

    lost_calls: int = 0
    leaked_calls: int = 0
    ignored_schemas: bool = False
    repetition: bool = False
    truncation: int = 0
    forgotten_thoughts: bool = False
    slow: float = 0.0


_WORDS = {name.replace("_", "-"): name for name in HostFaults.__struct_fields__}


def read_host_faults(words: str) -> HostFaults:
    """Return the faults that these words name. Raise `ValueError` for an unknown word or a number that fits none."""
    values: dict[str, Any] = {}
    for word in filter(None, (part.strip() for part in words.split(";"))):
        name, equals, text = word.partition("=")
        if name not in _WORDS:
            raise ValueError(f"no fault of a host is called {name}; there are {', '.join(sorted(_WORDS))}")
        kind = type(getattr(HostFaults(), _WORDS[name]))
        if kind is bool:
            if equals:
                raise ValueError(f"{name} takes no number")
            values[_WORDS[name]] = True
            continue
        try:
            number = kind(text)
        except ValueError:
            number = 0
        if not 0 < number < 1e9:
            raise ValueError(f"{name} takes a number above 0: {name}=20")
        values[_WORDS[name]] = number
    return HostFaults(**values)


class UnfaithfulHost:
    """A host with faults. It counts the calls that it has seen, from `calls` on; threads may share it."""

    def __init__(self, faults: HostFaults, calls: int = 0) -> None:
        self.faults = faults
        self._calls = calls
        self._lock = threading.Lock()

    def change(self, request: ParsedRequest, reply: SimulatedReply) -> SimulatedReply:
        """Return the reply as this host sends it."""
        faults = self.faults
        if faults.ignored_schemas:
            wants_json = request.schema is not None or request.answer is not None
            calls = tuple(replace(call, arguments=_with_wrong_types(call.arguments)) for call in reply.calls)
            reply = replace(reply, calls=calls, text=_with_wrong_types(reply.text) if wants_json else reply.text)
        if reply.calls and (faults.lost_calls or faults.leaked_calls):
            reply = self._without_lost_calls(reply)
        if faults.forgotten_thoughts:
            reply = replace(reply, text=_without_thoughts(request, reply.text))
        pieces = split_pieces(reply.text)
        if faults.repetition and len(pieces) >= _LEAST:
            half = pieces[: len(pieces) // 2]
            loop = half[-_LOOP:] * len(pieces)
            pieces = half + loop[: len(pieces) - len(half)]
            reply = replace(reply, text="".join(pieces))
        if faults.truncation and (len(pieces) > faults.truncation or reply.finish == "length"):
            reply = replace(reply, text="".join(pieces[: faults.truncation]), finish="stop")
        return reply

    def _without_lost_calls(self, reply: SimulatedReply) -> SimulatedReply:
        """Return a reply without the calls whose number is a multiple of one of the faults."""
        with self._lock:
            first = self._calls + 1
            self._calls += len(reply.calls)
        leaks, losses = self.faults.leaked_calls, self.faults.lost_calls
        numbered = list(enumerate(reply.calls, first))
        leaked = [call for number, call in numbered if _hits(number, leaks)]
        calls = [call for number, call in numbered if not _hits(number, leaks) and not _hits(number, losses)]
        if len(calls) == len(numbered):
            return reply
        text = reply.text + (write_calls(tuple(leaked)) if leaked else "")
        return replace(reply, calls=tuple(calls), text=text, finish="tool_calls" if calls else "stop")


def _without_thoughts(request: ParsedRequest, text: str) -> str:
    """Return a text in which each number that only reasoning of earlier turns holds is another one."""
    written = " ".join([turn.text for turn in request.turns] + [str(turn.calls) for turn in request.turns])
    thoughts = " ".join(str(turn.wire) for turn in request.turns if turn.role == "assistant")

    def forget(match: re.Match[str]) -> str:
        number = match[0]
        known = number in written or number not in thoughts
        return number if known else number.translate(_OTHER_DIGITS)

    return _NUMBER.sub(forget, text)


def _hits(number: int, every: int) -> bool:
    return every > 0 and number % every == 0


def _with_wrong_types(text: str) -> str:
    """Return a JSON object whose values are lists of what they should be; another text as it is."""
    try:
        value = json.loads(text)
    except ValueError:
        return text
    if not isinstance(value, dict):
        return text
    return json.dumps({key: [item] for key, item in value.items()}, ensure_ascii=False)
