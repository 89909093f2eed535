"""Ask questions on a terminal that one letter or digit answers."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from cnllm.cli.language.messages import translate
from cnllm.cli.output import stdio, terminal

if TYPE_CHECKING:
    from cnllm.registry.model import Model

__all__ = ["ask_site", "can_ask", "choose"]


def can_ask() -> bool:
    """Whether a person can read a question and answer it."""
    return sys.stdin.isatty() and sys.stderr.isatty()


def choose(question: str, letters: str, *, end: str | None = None) -> str:
    """Ask until one of the letters comes. An empty line is the first letter, and so is the end of the input.

    With `end` the end of the input is that answer.
    """
    while True:
        stdio.write_text(f"{terminal.escape(translate(question))} [{'/'.join(letters[0].upper() + letters[1:])}] ")
        line = sys.stdin.readline()
        answer = line.strip().lower()[:1]
        if not answer:
            if not line:
                stdio.write_text("\n")
            return letters[0] if line or end is None else end
        if answer in letters:
            return answer


def ask_site(variable: str, models: Sequence[Model]) -> str | None:
    """Ask which site of a vendor a key is for, and return its provider; None where nobody answers.

    The site of the user's country comes first.
    """
    country = _country(os.environ)
    ordered = sorted(models, key=lambda model: (model.flags.site.region if model.flags.site else None) != country)
    stdio.print_line(f"cnllm: {variable} fits several sites of one vendor, and each takes only its own keys")
    for number, model in enumerate(ordered, 1):
        stdio.print_line(f"  {number}  {model.provider}, {model.flags.base_url}")
    stdio.print_line(f"  cnllm keys test {variable} finds out which one takes the key")
    answer = choose("Which site is it for? The answer is kept.", "".join(map(str, range(1, len(ordered) + 1))), end="")
    return ordered[int(answer) - 1].provider if answer else None


def _country(environ: Mapping[str, str]) -> str:
    """Return the country of the user's locale in lower case; "" where it names none."""
    locale = environ.get("LC_ALL") or environ.get("LC_MESSAGES") or environ.get("LANG") or ""
    return locale.partition(".")[0].partition("@")[0].partition("_")[2].lower()
