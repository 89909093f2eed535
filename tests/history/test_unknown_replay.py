"""An endpoint of which nobody knows whether it wants its reasoning back: none is sent, and a note says so."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import cnllm
from cnllm import engine

HOME = """[providers.home]
protocol = "openai-chat"
base_url = "http://127.0.0.1:9/v1"
keys = []
[models."home/m"]
reasoning = {{ {reasoning} }}
"""
TOGGLE = 'mode = "toggle", on = { set = { think = true } }'
TURN = {"role": "assistant", "content": "So.", "reasoning_content": "a thought", "by": "home/m"}


def plan(tmp_path: Path, reasoning: str, turns: list[dict[str, Any]]) -> engine.Plan:
    file = tmp_path / "providers.toml"
    file.write_text(HOME.format(reasoning=reasoning))
    model = cnllm.Registry.load(file).resolve("home/m")
    history: list[Any] = [message for turn in turns for message in ({"role": "user", "content": "Hi"}, turn)]
    return engine.build_request(model, [*history, {"role": "user", "content": "Go on"}])


@pytest.mark.parametrize("reasoning", [TOGGLE, 'mode = "always"', 'mode = "unknown"'])
def test_reasoning_is_left_out_with_one_note(tmp_path: Path, reasoning: str) -> None:
    request = plan(tmp_path, reasoning, [TURN, TURN])
    assert "a thought" not in json.dumps(request.body)
    (note,) = [note for note in request.notes if note.code == "reasoning-replay"]
    assert "messages[1]: reasoning; 1 more" in str(note)


@pytest.mark.parametrize(
    ("reasoning", "turn"),
    [
        (TOGGLE + ', replay = "never"', TURN),
        (TOGGLE + ', replay = "always"', TURN),
        ('mode = "never"', TURN),
        (TOGGLE, {"role": "assistant", "content": "So."}),
        (TOGGLE, {**TURN, "by": "zai/glm-4.7"}),  # another model's has a note of its own
    ],
)
def test_no_note_where_it_is_known_or_does_not_matter(tmp_path: Path, reasoning: str, turn: dict[str, Any]) -> None:
    assert [note for note in plan(tmp_path, reasoning, [turn]).notes if note.code == "reasoning-replay"] == []


def test_unknown_is_a_value_that_is_explained(tmp_path: Path) -> None:
    file = tmp_path / "providers.toml"
    file.write_text(HOME.format(reasoning=TOGGLE))
    model = cnllm.Registry.load(file).resolve("home/m")
    (fact,) = [fact for fact in model.explain() if fact.flag == "reasoning.replay"]
    assert (fact.value, fact.layer, fact.source) == ("unknown", "defaults", None)
