"""Hold texts against the rules in `rules.toml`."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterable, Iterator
from functools import cache
from pathlib import Path
from typing import Any

import msgspec

from .texts import Definition, Text

__all__ = [
    "Finding",
    "allowed",
    "chinese_findings",
    "first_line_findings",
    "name_findings",
    "rules",
    "sentence_findings",
    "word_findings",
]


class Finding(msgspec.Struct, frozen=True):
    """A place where a text breaks a rule."""

    file: str
    line: int
    rule: str
    found: str
    why: str

    def __str__(self) -> str:
        return f"{self.file}:{self.line}: {self.rule}: {self.found!r}: {self.why}"


@cache
def rules() -> dict[str, Any]:
    """Return the rules."""
    return tomllib.loads(Path(__file__).with_name("rules.toml").read_text(encoding="utf-8"))


def allowed(finding: Finding) -> bool:
    """Whether an exception of the rules names this finding."""
    return any(finding.file.endswith(one["file"]) and finding.found == one["found"] for one in rules()["exceptions"])


def word_findings(texts: Iterable[Text]) -> Iterator[Finding]:
    """Yield the forbidden words and shapes of texts."""
    patterns = [(rule, re.compile(rule["pattern"], re.IGNORECASE)) for rule in rules()["rules"]]
    for text in texts:
        joined = " ".join(text.text.split())
        for rule, pattern in patterns:
            if text.kind in rule.get("kinds", [text.kind]):
                for match in pattern.finditer(joined):
                    yield Finding(text.file, text.line, rule["name"], match[0].strip(), rule["why"])


def chinese_findings(texts: Iterable[Text]) -> Iterator[Finding]:
    """Yield the words of Chinese texts for which the rules have another one."""
    patterns = [(rule, re.compile(rule["pattern"])) for rule in rules()["chinese"]]
    for text in texts:
        for rule, pattern in patterns:
            for match in pattern.finditer(text.text):
                why = f"write {rule['word']}: {rule['why']}"
                yield Finding(text.file, text.line, "Chinese word", match[0], why)


def sentence_findings(texts: Iterable[Text]) -> Iterator[Finding]:
    """Yield the sentences of texts that are too long. Strings of the program may be data and are left out."""
    longest = rules()["longest_sentence"]
    for text in texts:
        if text.kind == "string":
            continue
        for paragraph in re.split(r"\n\s*\n|\n *[-*] +|\n {2,}(?=\S)", re.sub(r"``?[^`]*``?", "code", text.text)):
            for sentence in re.split(r"(?<=[.!?:;]) +", " ".join(paragraph.split())):
                words = sum(word != "code" for word in re.findall(r"[A-Za-z'’-]+", sentence))
                if words > longest:
                    why = f"it has {words} words: at most {longest}"
                    yield Finding(text.file, text.line, "long sentence", sentence[:60], why)


def first_line_findings(definitions: Iterable[Definition]) -> Iterator[Finding]:
    """Yield the docstrings whose first line begins with another word than the rule wants."""
    rule = rules()["first_lines"]
    forbidden, verbs = set(rule["forbidden"]), set(rule["verbs"].split())
    for one in definitions:
        words = re.findall(r"[\w'’-]+", one.docstring or "")
        first = words[0] if words else ""
        if first in forbidden - ({"Do"} if one.kind == "function" else set()):
            yield Finding(one.file, one.line, "first line", first, "begin with a verb or, for a boolean, with Whether")
        elif first and one.kind == "function" and first != "Whether" and first not in verbs:
            why = "begin with an imperative verb; a new one goes into tests/language/rules.toml"
            yield Finding(one.file, one.line, "first line", first, why)


def name_findings(definitions: Iterable[Definition]) -> Iterator[Finding]:
    """Yield the definitions whose name is a participle or an adverb."""
    forbidden = set(rules()["names"]["forbidden"].split())
    for one in definitions:
        name = one.name.strip("_").lower()
        if name in forbidden:
            yield Finding(one.file, one.line, "name", name, "use a noun for a thing, a verb for an action")
