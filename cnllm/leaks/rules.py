"""Unite the rules of several layers: each marker then begins the blocks of one rule only."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from cnllm.registry.flags import Leak

__all__ = ["unite_rules", "words_of"]


def words_of(rule: Leak, grammar: str) -> list[str]:
    """Return the words that a rule names for a grammar."""
    words = rule.parts.get(grammar) if type(rule.parts) is dict else rule.parts
    return list(words or ())


def unite_rules(rules: Sequence[Leak]) -> list[Leak]:
    """Return rules of which no two share an opener.

    The first rule with an opener keeps it and adds the formats of the others.
    """
    out: list[Leak] = []
    owner: dict[str, int] = {}
    for rule in rules:
        free = [opener for opener in rule.open if opener not in owner]
        for index in {owner[opener] for opener in rule.open if opener in owner}:
            first = out[index]
            if set(first.close) >= set(rule.close) and (type(first.parts) is not list or first.parts == rule.parts):
                formats = [format for format in rule.format if format not in first.format and format != "sections"]
                words = {format: names for format in formats if (names := words_of(rule, format))}
                parts = first.parts if isinstance(first.parts, list) else words | (first.parts or {})
                out[index] = msgspec.structs.replace(first, format=[*first.format, *formats], parts=parts or None)
        if free:
            owner.update(dict.fromkeys(free, len(out)))
            out.append(rule if len(free) == len(rule.open) else msgspec.structs.replace(rule, open=free))
    return out
