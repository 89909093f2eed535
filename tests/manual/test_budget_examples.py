"""A budget in an example is in a currency that a model of the example is billed in."""

from __future__ import annotations

import itertools
import re
import shlex
from collections.abc import Iterator
from fnmatch import fnmatchcase

from cnllm import Registry

from .pages import ROOT

COMMAND = re.compile(r"cnllm (?:serve (?:keys|teams) (?:add|set)|batch) [^`|#\n]*--currency [A-Z]{3}[^`|#\n]*")


def examples() -> Iterator[tuple[str, list[str]]]:
    """Yield the place and the words of each command with a currency, on each page and in the help."""
    for page in [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")]:
        text = re.sub(r"\\\n *", "", page.read_text(encoding="utf-8"))
        for command in COMMAND.findall(text):
            yield f"{page.relative_to(ROOT)}: {command}", shlex.split(command)


def test_an_example_has_a_budget_that_a_model_of_it_is_billed_in() -> None:
    registry = Registry.load()
    names = registry.names()
    wrong, count = [], 0
    for place, words in examples():
        pairs = list(itertools.pairwise(words))
        given = [value for option, value in pairs if option in ("-m", "--model", "--models")]
        patterns = [pattern for value in given for pattern in value.split(",")]
        if not patterns:
            continue
        count += 1
        models = [name for name in names if any(fnmatchcase(name, pattern) for pattern in patterns)]
        models = models or [registry.resolve(pattern).name for pattern in patterns]
        prices = [registry.resolve(name).flags.price for name in models]
        billed = {price.currency for price in prices if price is not None}
        wrong += [place for option, value in pairs if option == "--currency" and value not in billed]
    assert not wrong
    assert count > 8
