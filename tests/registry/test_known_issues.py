"""The known issues of a model: each from one flag, with its line and its source."""

from __future__ import annotations

import pytest

from cnllm import Registry
from cnllm.model_facts.known_issues import known_issues

from .support import HOME, Files

CASES = [
    (
        "tool_choice = { allowed = ['auto'], otherwise = 'narrow' }",
        "It refuses tool_choice none, required, a named tool; cnllm sends auto, with the named tool alone.",
    ),
    (
        "when.reasoning.tool_choice = { allowed = ['auto', 'none'] }",
        "While it reasons: it refuses tool_choice required, a named tool; cnllm sends auto.",
    ),
    ("params.seed = false", "It refuses seed; cnllm leaves it out, with a note."),
    ("params.seed = 'ignored'", "It takes seed and ignores it; a note says so."),
    (
        "params.top_p = { min = 0.1, max = 1 }",
        "It takes top_p from 0.1 up to 1 only; cnllm moves other values into the range, or leaves them out.",
    ),
    ("params.stop = { items = 1 }", "It takes one value for stop."),
    ("messages.developer = false", "It refuses the role developer; cnllm sends system."),
    (
        "schema.methods = ['json_object']",
        "It has no JSON Schema for answers; cnllm uses its JSON mode and the schema in the prompt, and checks the "
        "answer.",
    ),
    ("reasoning.mode = 'always'", "It always reasons; a request without reasoning gets it all the same, and a note."),
    (
        "reasoning = { mode = 'always', replay = 'always', if_missing = 'empty' }",
        "It refuses earlier turns without reasoning; cnllm sends an empty text where there is none.",
    ),
    ("tools.supported = false", "It takes no tools; cnllm describes them in the prompt."),
    ("stream.tools = false", "It does not stream tool calls; cnllm asks for the whole reply."),
]


@pytest.mark.parametrize(("flags", "text"), CASES, ids=[flags.partition(" ")[0] for flags, _ in CASES])
def test_a_flag_is_a_sentence(files: Files, flags: str, text: str) -> None:
    registry = files.load(HOME, f"[models.'home/x']\n{flags}\n")
    issues = known_issues(registry.resolve("home/x"))
    assert text in [issue.text for issue in issues]
    issue = next(issue for issue in issues if issue.text == text)
    assert issue.where.endswith(":2")
    assert issue.source is None


def test_what_follows_the_protocol_is_no_issue(files: Files) -> None:
    registry = files.load(HOME, "[models.'home/x']\ntool_choice.allowed = ['auto', 'none', 'required', 'named']\n")
    assert known_issues(registry.resolve("home/x")) == []


def test_every_issue_of_the_built_in_file_has_its_source() -> None:
    registry = Registry.load()
    count = 0
    for provider in registry.providers:
        for issue in known_issues(registry.resolve(f"{provider}/any")):
            assert issue.source, issue
            assert issue.text.endswith(".")
            count += 1
    assert count > 200
