"""Results of a job that no vendor should send: a typed error or a row of nobody, and never a traceback."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from cnllm import Registry
from cnllm.batch.vendor.exchange import UnreadableAnswer
from cnllm.batch.vendor.parts import JobPart
from cnllm.batch.vendor.results import Results

PART = JobPart(1, "mark", "openai/gpt-4.1-mini", 1, 0.0, 5, "submitted")


@pytest.fixture
def results(tmp_path: Path) -> Iterator[Results]:
    batch = Registry.load().resolve(PART.model).flags.batch
    assert batch is not None
    with closing(Results(batch, PART, tmp_path)) as found:
        yield found


@pytest.mark.parametrize("line", [b'{"custom_id": "mark-1', b"\xff", b"[" * 100_000])
def test_a_line_that_is_no_json_is_named(results: Results, line: bytes) -> None:
    with pytest.raises(UnreadableAnswer, match="a line of the vendor's results is not JSON"):
        results.add(line)


@pytest.mark.parametrize("id", ["mark-0", "mark-6", "mark-\u0662", "mark-", "mark", "other-1", "mark-" + "1" * 5000])
def test_a_result_of_no_row_is_counted_as_foreign(results: Results, id: str) -> None:
    results.add(json.dumps({"custom_id": id, "response": {"status_code": 200, "body": {}}}).encode())
    assert (results.foreign, results.lines) == (1, 1)
    assert not results.is_of_part()
