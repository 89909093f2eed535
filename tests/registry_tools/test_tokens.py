"""The errors of estimated tokens: how they are measured, and that the manual has the numbers of the package."""

from __future__ import annotations

import json
import re
from pathlib import Path

import msgspec
import pytest

from cnllm.estimates import tokens
from cnllm.estimates.tokens import TokenFamily
from maintenance.tokens import Sample, measure, samples

ROOT = Path(__file__).parents[2]
PAGES = ("docs/explanation/cost.md", "docs/zh/explanation/cost.md")


@pytest.mark.parametrize("page", PAGES)
def test_the_manual_has_the_errors_of_the_package(page: str) -> None:
    data = msgspec.toml.decode(
        Path(tokens.__file__).with_name("families.toml").read_bytes(), type=dict[str, TokenFamily]
    )
    rows = re.findall(r"^\| (\S+) \| (\d+) \| (\d+) ?% \| (\d+) ?% \|$", (ROOT / page).read_text(), re.M)
    shown = [(int(count), int(half), int(most)) for _, count, half, most in rows]
    errors = [(family.recordings, family.errors) for family in data.values()]
    assert shown == [(count, *(round(100 * share) for share in found or ())) for count, found in errors]
    assert [name for name, *_ in rows][:-2] == [*data][:-2]


def test_a_family_gets_the_numbers_that_fit_what_was_counted() -> None:
    def sample(number: int, *, has_tools: bool) -> Sample:
        estimate = 100 + 37 * number
        return Sample(f"f{number}", "kin", estimate, has_tools, round(8 + 240 * has_tools + 0.9 * estimate))

    group = [sample(number, has_tools=number % 2 == 0) for number in range(30)]
    few = [Sample(f"g{number}", "few", 100, False, 100) for number in range(3)]
    found = measure([*group, *few])
    assert (found["kin"].start, found["kin"].tools, found["kin"].text) == (8, 240, 0.9)
    assert found["kin"].errors == (0.0, 0.0)
    assert "few" not in found
    assert (found["other"].recordings, found["other"].errors) == (3, None)
    strange = [row._replace(counted=5000) if number == 5 else row for number, row in enumerate(group)]
    assert measure(strange)["kin"].tools == 240, "one recording that differs a lot counts once"


def test_a_recording_is_read_as_it_was_counted(tmp_path: Path) -> None:
    def record(name: str, counted: int | None, **more: object) -> None:
        body = {"model": "claude-x", "messages": [{"role": "user", "content": "word " * 100}], "max_tokens": 9, **more}
        usage = {"input_tokens": counted, "output_tokens": 1, "cache_read_input_tokens": 20}
        content = [{"type": "text", "text": "Yes"}]
        reply = {"type": "message", "role": "assistant", "content": content, "stop_reason": "end_turn", "usage": usage}
        answer = {"status": 200, "content_type": "application/json", "body": json.dumps(reply)}
        exchange = {"protocol": "anthropic-messages", "stream": False, "request": {"body": body}, "response": answer}
        (tmp_path / "home" / name).write_text(json.dumps({"model": "claude-x", "exchanges": [exchange]}))

    (tmp_path / "home").mkdir()
    record("plain.json", 90)
    record("search.json", 9000, tools=[{"type": "web_search_20250305", "name": "web_search"}])
    (found,) = samples(tmp_path)
    assert (found.file, found.family, found.has_tools, found.counted) == ("home/plain", "claude", False, 110)
    assert 100 < found.estimate < 150
