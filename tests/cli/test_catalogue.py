"""The catalogues of messages: every message of the source has a translation, which the command line finds."""

from __future__ import annotations

import inspect
import json
import re
from pathlib import Path

import pytest

from cnllm.cli.language.catalogue import Catalogue, CatalogueEntry, read_catalogue
from maintenance.messages.catalogue import catalogues, translations
from maintenance.messages.extract import messages

from .test_program import commands

UPDATE = "python -m maintenance.messages names them, and takes up new messages; write their translations there"
PLACEHOLDER = re.compile(r"\{(\d+)\}")
ENDING = re.compile(r"(?<=[A-Za-z])\{(\d+)\}|(?<=\})\{(\d+)\}")  # the end of a word, or a clause that may be absent
VALUES = ("glm-4.7", "ZAI_API_KEY", "x/y.toml", "'a b'", "1.5", "6", "0.07")
CHINESE = re.compile(r"[\u4e00-\u9fff]")
NO_WORDS = re.compile(r"[^a-z]*")

FILES = pytest.mark.parametrize("path", catalogues(), ids=lambda path: path.stem)


def entries(path: Path) -> list[CatalogueEntry]:
    return read_catalogue(path.read_text(encoding="utf-8"))


@FILES
def test_every_message_has_a_translation(path: Path) -> None:
    known = translations(path)  # read once: the file is long
    missing = [message.text for message in messages() if message.text not in known]
    assert not missing, UPDATE


@FILES
def test_a_message_that_is_gone_leaves_the_catalogue(path: Path) -> None:
    assert not translations(path).keys() - {message.text for message in messages()}, UPDATE


@FILES
def test_the_values_of_a_message_are_those_of_its_translation(path: Path) -> None:
    for entry in entries(path):
        if entry.is_template:
            values, translated = (set(PLACEHOLDER.findall(text)) for text in (entry.message, entry.translation))
            plurals = {match[1] or match[2] for match in ENDING.finditer(entry.message)}
            assert translated <= values, entry
            assert values - translated <= plurals, entry


@FILES
def test_the_program_reads_what_other_programs_read(path: Path) -> None:
    assert {entry.message: entry.translation for entry in entries(path)} == translations(path)


@FILES
def test_every_message_is_found_by_its_text(path: Path) -> None:
    found = entries(path)
    catalogue = Catalogue(found)
    wrong = []
    for entry in found:
        if entry.message == entry.translation:
            continue
        message, expected = entry.message, entry.translation
        if entry.is_template:
            absent = {match[1] or match[2] for match in ENDING.finditer(message)}
            message, expected = (
                PLACEHOLDER.sub(lambda match: "" if match[1] in absent else VALUES[int(match[1])], text)  # noqa: B023
                .replace("{{", "{")
                .replace("}}", "}")
                for text in (message, expected)
            )
        if catalogue.translate(message) != expected:
            wrong.append((message, catalogue.translate(message), expected))
    assert not wrong


@pytest.mark.share(3)
@FILES
@pytest.mark.parametrize("words", [path for path, _ in commands()], ids=" ".join)
def test_the_help_of_every_command_is_translated(path: Path, words: tuple[str, ...]) -> None:
    catalogue = Catalogue(entries(path))
    command = dict(commands())[words]
    texts = [inspect.cleandoc(command.help or ""), *(getattr(param, "help", None) or "" for param in command.params)]
    for text in texts:
        assert NO_WORDS.fullmatch(text) or CHINESE.search(catalogue.translate(text)), text


def test_what_an_endpoint_says_stays_as_it_is() -> None:
    catalogue = Catalogue(entries(catalogues()[0]))
    said: set[str] = set()

    def walk(value: object) -> None:
        if isinstance(value, dict | list):
            for item in value.values() if isinstance(value, dict) else value:
                walk(item)
        elif isinstance(value, str) and value.count(" ") > 2:
            said.update(value.splitlines())

    walk(json.loads((Path(__file__).parents[1] / "errors" / "bodies.json").read_text(encoding="utf-8")))
    assert len(said) > 100
    changed = {text for text in said if catalogue.translate(text) != text}
    assert len(changed) <= 1, changed  # "Max size: 8000 tokens"


@pytest.mark.parametrize(
    "piece", [": ", "; ", " → ", "(a) ", "a: b; ", "a, ", "a or b, ", "[Errno 1] ", "did you mean "]
)
def test_long_words_of_an_endpoint_are_not_searched_for_messages(piece: str) -> None:
    """Each piece could begin a message. Their number in a real error is small, and nobody waits for thousands."""
    catalogue = Catalogue(entries(catalogues()[0]))
    text = f"HTTP 400: {piece * 2000}x"
    assert catalogue.translate(text).count(piece.strip()) > 1900
