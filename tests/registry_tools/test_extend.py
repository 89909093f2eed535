"""A model added to a registry file leaves every byte of it as it was."""

from __future__ import annotations

import datetime
import tomllib
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest
from cases import each

from cnllm import RegistryError
from cnllm.registry_files.edit import (
    Addition,
    add_model,
    change_registry_file,
    remove_alias,
    set_alias,
    set_preference,
)
from cnllm.registry_files.set_values import Reading, set_facts
from cnllm.registry_files.toml_format import format_toml

pytestmark = pytest.mark.usefixtures("small_builtin")

MODEL = Addition(provider="home", id="m", protocol="openai-chat", context=1000, reasoning="always")
NEW = Addition(
    provider="away", id="x/y.z", protocol="openai-chat", base_url="http://h/v1", keys=("AWAY_KEY",), alias="xyz"
)
READING = Reading("https://example.org/card", datetime.date(2026, 11, 27))
COMMENTED = """# mine
[models."home/old"]   # the old one
limits = { context = 1_000 }  # underscores stay

  [aliases]  # short ones
old = "home/old"
# the end
"""


@each("text", lambda: ["", "\n", "# a comment", "# a comment\n", COMMENTED, COMMENTED.rstrip(), '[models."a/b"]\n\n\n'])
def test_what_was_there_stays_byte_for_byte(text: str) -> None:
    done = add_model(text, MODEL, "f")
    assert done.text.startswith(text)
    assert done.text.endswith("\n")
    assert tomllib.loads(done.text)["models"]["home/m"] == {
        "limits": {"context": 1000},
        "reasoning": {"mode": "always"},
    }
    assert 'models."home/m"' in done.text.splitlines()[done.line - 1]
    assert done.added in done.text


def test_a_new_provider_and_a_short_name() -> None:
    said = tomllib.loads(add_model("", NEW, "f").text)
    assert said["providers"]["away"] == {
        "title": "away",
        "protocol": "openai-chat",
        "base_url": "http://h/v1",
        "keys": ["AWAY_KEY"],
    }
    assert said["models"] == {"away/x/y.z": {}}
    assert said["aliases"] == {"xyz": "away/x/y.z"}


def test_a_short_name_joins_the_table_that_is_there() -> None:
    done = add_model(COMMENTED, NEW, "f").text
    before, inserted, after = done.partition('xyz = "away/x/y.z"\n')
    assert inserted
    assert (before + after).startswith(COMMENTED)
    assert before.endswith('old = "home/old"\n')
    assert tomllib.loads(done)["aliases"] == {"old": "home/old", "xyz": "away/x/y.z"}


@each("text", ["[aliases]", "[aliases]\n", '[aliases]\na = "b/c"', "[aliases]\n[prefer_]\n"])
def test_a_short_name_joins_a_table_at_the_end_or_an_empty_one(text: str) -> None:
    assert tomllib.loads(add_model(text, NEW, "f").text)["aliases"]["xyz"] == "away/x/y.z"


def test_lines_end_as_they_do_in_the_file() -> None:
    text = COMMENTED.replace("\n", "\r\n")
    done = add_model(text, NEW, "f").text
    assert done.replace('xyz = "away/x/y.z"\r\n', "").startswith(text)
    assert "\n" not in done.replace("\r\n", "")


EDITS: dict[str, Callable[[str], str]] = {
    "add a model": lambda text: add_model(text, NEW, "f").text,
    "set an alias": lambda text: set_alias(text, "new", "home/old", "f"),
    "remove an alias": lambda text: remove_alias(text, "old", "f"),
    "prefer a provider": lambda text: set_preference(text, ["home"], "f"),
    "set a fact": lambda text: set_facts(text, ["models", "home/old"], {"limits.output": 7}, READING, "f"),
    "give it its form": lambda text: format_toml(text, "f"),
}


@each("edit", list(EDITS))
def test_the_mark_and_the_ends_of_lines_stay_as_they_are(edit: str) -> None:
    plain = EDITS[edit](COMMENTED)
    assert plain != COMMENTED
    windows = EDITS[edit]("\ufeff" + COMMENTED.replace("\n", "\r\n"))
    assert windows == "\ufeff" + plain.replace("\n", "\r\n")
    lines = COMMENTED.split("\n")
    mixed = "\n".join(f"{line}\r" if number % 3 == 0 else line for number, line in enumerate(lines[:-1])) + "\n"
    done = EDITS[edit](mixed)
    assert done.replace("\r", "") == plain
    kept = Counter(done.split("\n")) & Counter(mixed.split("\n"))
    assert kept.total() == (Counter(plain.split("\n")) & Counter(lines)).total()


@each("text", ['aliases = { a = "b/c" }\n', 'aliases.a = "b/c"\n', "[aliases]\na = '''b/c\n'''\n"])
def test_a_short_name_joins_aliases_of_any_form(text: str) -> None:
    assert tomllib.loads(add_model(text, NEW, "f").text)["aliases"]["xyz"] == "away/x/y.z"


def test_where_nothing_can_be_added_it_says_what_to_add_by_hand() -> None:
    with pytest.raises(RegistryError, match="nothing can be added") as caught:
        add_model("models = {}\n", NEW, "f.toml")
    assert caught.value.file == "f.toml"
    assert "away/x/y.z" in (caught.value.hint or "")


def test_a_file_is_replaced_whole_with_its_mode_and_through_a_link(tmp_path: Path) -> None:
    real, link = tmp_path / "real.toml", tmp_path / "link.toml"
    real.write_text("# a\n")
    real.chmod(0o640)
    link.symlink_to(real)
    change_registry_file(link, lambda _: "# b\n", [str(link)])
    assert link.is_symlink()
    assert (real.read_text(), real.stat().st_mode & 0o777) == ("# b\n", 0o640)
    assert sorted(p.name for p in tmp_path.iterdir()) == ["link.toml", "real.toml"]


def test_a_text_with_a_new_fault_is_not_written(tmp_path: Path) -> None:
    path = tmp_path / "f.toml"
    path.write_text('[aliases]\nlost = "no/where"\n')
    new = '[models."zai/new"]\nreasoning = { mode = "toggle", on = 1 }\n'
    with pytest.raises(RegistryError, match="must be a table") as caught:
        change_registry_file(path, lambda _: new, [str(path)])
    assert caught.value.file == str(path)
    assert path.read_text() == '[aliases]\nlost = "no/where"\n'
    assert [p.name for p in tmp_path.iterdir()] == ["f.toml"]
    change_registry_file(path, lambda text: text + "# more\n", [str(path)])
    assert path.read_text().endswith("# more\n"), "a fault that was there before keeps nobody from adding"
