"""Ask questions on a terminal that one letter answers."""

from __future__ import annotations

import sys

from cnllm.cli.language.messages import translate
from cnllm.cli.output import stdio

__all__ = ["can_ask", "choose"]


def can_ask() -> bool:
    """Whether a person can read a question and answer it."""
    return sys.stdin.isatty() and sys.stderr.isatty()


def choose(question: str, letters: str) -> str:
    """Ask until one of the letters comes. An empty line, or the end of the input, is the first letter."""
    from cnllm.cli.output import terminal

    while True:
        stdio.write_text(f"{terminal.escape(translate(question))} [{'/'.join(letters[0].upper() + letters[1:])}] ")
        line = sys.stdin.readline()
        answer = line.strip().lower()[:1]
        if not answer:
            if not line:
                stdio.write_text("\n")
            return letters[0]
        if answer in letters:
            return answer
