"""Unite the rules of several layers: each marker then begins the blocks of one rule only."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from msgspec import Struct
from msgspec.structs import replace

__all__ = ["Markup", "filter_markers", "unite_rules", "words_of"]


class Markup(Struct, frozen=True):
    """Markup in which a model may write a call: markers, and the grammars of the text between them, tried in order.

    `parts` are the keywords of the grammar, or a table of them by grammar. `then` is what becomes of a block. A block
    of a `strict` rule is text unless it holds calls with arguments and nothing else. One of a `whole` rule counts only
    as the whole answer.
    """

    open: list[str]
    close: list[str]
    format: Sequence[str]
    parts: list[str] | dict[str, list[str]] | None = None
    then: Literal["recover", "strip", "keep"] = "recover"
    strict: bool = False
    whole: bool = False


_LEAST = 6  # characters of a closer that is markup wherever it stands


def filter_markers(rules: Sequence[Markup], tags: Sequence[str]) -> tuple[str, ...]:
    """Return the markers of an answer: the openers of the rules, the tags of reasoning, and closers of both.

    Only a closer that begins like another marker counts on its own, and no short one: `]` and `}` are text.
    """
    heads = [*(opener for rule in rules for opener in rule.open), *filter(None, tags)]
    begins = {head[0] for head in heads}
    closers = [closer for rule in rules for closer in rule.close if len(closer) >= _LEAST and "`" not in closer]
    return tuple(dict.fromkeys([*heads, *(closer for closer in closers if closer[0] in begins)]))


def words_of(rule: Markup, grammar: str) -> list[str]:
    """Return the words that a rule names for a grammar."""
    words = rule.parts.get(grammar) if type(rule.parts) is dict else rule.parts
    return list(words or ())


def unite_rules(rules: Sequence[Markup]) -> list[Markup]:
    """Return rules of which no two share an opener.

    The first rule with an opener keeps it and adds the formats of the others.
    """
    out: list[Markup] = []
    owner: dict[str, int] = {}
    for rule in rules:
        free = [opener for opener in rule.open if opener not in owner]
        for index in {owner[opener] for opener in rule.open if opener in owner}:
            first = out[index]
            if set(first.close) >= set(rule.close) and (type(first.parts) is not list or first.parts == rule.parts):
                formats = [format for format in rule.format if format not in first.format and format != "sections"]
                words = {format: names for format in formats if (names := words_of(rule, format))}
                parts = first.parts if isinstance(first.parts, list) else words | (first.parts or {})
                out[index] = replace(first, format=[*first.format, *formats], parts=parts or None)
        if free:
            owner.update(dict.fromkeys(free, len(out)))
            out.append(rule if len(free) == len(rule.open) else replace(rule, open=free))
    return out
