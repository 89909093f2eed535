"""What a run of frames says, whatever the protocol."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any


@dataclass
class Call:
    """A tool call as far as it came."""

    id: str = ""
    name: str = ""
    raw: str = ""


@dataclass
class Heard:
    """What a run of frames says."""

    text: str = ""
    reasoning: str = ""
    calls: list[Call] = field(default_factory=list)
    refused: bool = False
    finish: str | None = None
    usage: dict[str, Any] | None = None
    error: Any = None

    @property
    def empty(self) -> bool:
        """Has nothing been said?"""
        return not (self.text or self.reasoning or self.calls or self.finish or self.error)
