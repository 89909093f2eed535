"""How a test makes the server misbehave: one request header that names the fault.

    x-cnllm-fault: stall-headers           accepts the request and never answers
    x-cnllm-fault: stall-body              sends the headers and nothing more
    x-cnllm-fault: stall-middle            sends half of the body and nothing more
    x-cnllm-fault: comments                sends half of the body, then comments for ever
    x-cnllm-fault: linger                  sends all of the body and never ends it
    x-cnllm-fault: reset-headers           resets the connection before it answers
    x-cnllm-fault: reset                   resets it after half of the body
    x-cnllm-fault: drop                    closes it after half of the body, without the end of the last chunk
    x-cnllm-fault: cut                     ends the body properly after half of it
    x-cnllm-fault: error                   tells of an error after half of the body, in an event, and ends it properly
    x-cnllm-fault: slow                    waits 0.2 seconds before each piece (slow=0.5: as many as said)
    x-cnllm-fault: redirect                answers 307 to /moved (redirect=URL: to there)
    x-cnllm-fault: status=503              answers that status with a plain error object
    x-cnllm-fault: retry-after=2           sends that header too (alone: with status 429)

Several stand side by side, parted by `;`. With `times=2` only the first two requests that send this very
header are met by it; any further word (`id=a`) tells one test's header from another's.
"""

from __future__ import annotations

from msgspec import Struct

__all__ = ["HEADER", "InjectedFault", "read_fault"]

HEADER = "x-cnllm-fault"

_KINDS = frozenset(
    {
        "stall-headers",
        "stall-body",
        "stall-middle",
        "comments",
        "linger",
        "reset-headers",
        "reset",
        "drop",
        "cut",
        "error",
        "slow",
        "redirect",
        "status",
        "retry-after",
    }
)


class InjectedFault(Struct, frozen=True):
    """What goes wrong: `kinds` with what was said after `=`, and how many requests it meets (None: all)."""

    kinds: dict[str, str]
    times: int | None = None

    @property
    def status(self) -> int | None:
        """The status to answer with instead of the endpoint's own answer."""
        if "status" in self.kinds:
            return int(self.kinds["status"])
        return 429 if "retry-after" in self.kinds else None

    @property
    def delay(self) -> float:
        """Seconds to wait before each piece."""
        return float(self.kinds["slow"] or 0.2) if "slow" in self.kinds else 0.0

    @property
    def is_midway(self) -> bool:
        """Does it strike in the middle of the body?"""
        return not self.kinds.keys().isdisjoint({"stall-middle", "comments", "reset", "drop", "cut", "error"})


def read_fault(header: str) -> InjectedFault:
    """The fault a header names. Raises `ValueError` for a word that is none."""
    words = dict(w.strip().partition("=")[::2] for w in header.split(";") if w.strip())
    kinds = {k: v for k, v in words.items() if k in _KINDS}
    if not kinds:
        raise ValueError(f"{HEADER}: {header} is no fault; there are {', '.join(sorted(_KINDS))}")
    for word, needed in (("status", int), ("retry-after", float)):
        if word in kinds:
            needed(kinds[word])
    if kinds.get("slow"):
        float(kinds["slow"])
    if "status" in kinds and not 200 <= int(kinds["status"]) <= 599:
        raise ValueError(f"{HEADER}: {kinds['status']} is no status to answer with")
    return InjectedFault(kinds=kinds, times=int(words["times"]) if "times" in words else None)
