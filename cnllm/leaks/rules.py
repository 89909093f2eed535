"""Rules of several layers as one set: each marker begins the blocks of one rule only."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from cnllm.registry.flags import Leak

__all__ = ["united", "words_of"]


def words_of(rule: Leak, grammar: str) -> list[str]:
    """Return the words that a rule names for a grammar."""
    said = rule.parts.get(grammar) if type(rule.parts) is dict else rule.parts
    return list(said or ())


def united(rules: Sequence[Leak]) -> list[Leak]:
    """Rules of which no two share an opener. The first that has one keeps it, and learns the others' grammars."""
    out: list[Leak] = []
    owner: dict[str, int] = {}
    for rule in rules:
        free = [opener for opener in rule.open if opener not in owner]
        for place in {owner[opener] for opener in rule.open if opener in owner}:
            first = out[place]
            if set(first.close) >= set(rule.close) and (type(first.parts) is not list or first.parts == rule.parts):
                more = [one for one in rule.format if one not in first.format and one != "sections"]
                words = {one: said for one in more if (said := words_of(rule, one))}
                parts = first.parts if isinstance(first.parts, list) else words | (first.parts or {})
                out[place] = msgspec.structs.replace(first, format=[*first.format, *more], parts=parts or None)
        if free:
            owner.update(dict.fromkeys(free, len(out)))
            out.append(rule if len(free) == len(rule.open) else msgspec.structs.replace(rule, open=free))
    return out
