"""The page on the security of the gateway names tests that exist, and numbers that the code has."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from cnllm.gateway import access_log, admission, asgi, bounds, http_protocol, request_body, service, tokens
from cnllm.gateway.monitoring import recent
from cnllm.gateway.store import StoreBounds as StoreBounds

from .store_support import ROOT

ENGLISH = ROOT / "docs" / "explanation" / "gateway-security.md"
CHINESE = ROOT / "docs" / "zh" / "explanation" / "gateway-security.md"


def rows(page: Path) -> list[list[str]]:
    """The cells of the tables, without their heads."""
    lines = page.read_text(encoding="utf-8").splitlines()
    cells = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines if line.startswith("|")]
    return [row for row in cells if not set(row[0]) <= {"-"}]


def numbers(text: str) -> list[int]:
    return [int(number.replace(",", "")) for number in re.findall(r"\d[\d,]*", text)]


@pytest.mark.parametrize("page", [ENGLISH, CHINESE])
def test_every_test_that_the_page_names_exists(page: Path) -> None:
    files = Path(__file__).parent.glob("test_*.py")
    there = set(re.findall(r"^(?:async )?def (test_\w+)", "\n".join(file.read_text() for file in files), re.MULTILINE))
    named = set(re.findall(r"`(test_\w+)`", page.read_text(encoding="utf-8")))
    assert len(named) > 30
    assert named <= there, named - there


def test_both_pages_name_the_same_tests_and_numbers() -> None:
    english, chinese = rows(ENGLISH), rows(CHINESE)
    assert len(english) == len(chinese)
    for one, other in zip(english, chinese, strict=True):
        assert re.findall(r"`test_\w+`", " ".join(one)) == re.findall(r"`test_\w+`", " ".join(other))
        assert numbers(" ".join(one)) == numbers(" ".join(other)), (one, other)


def test_the_numbers_are_those_of_the_code() -> None:
    table = {row[0].rstrip("*"): numbers(row[1]) for row in rows(ENGLISH) if len(row) == 4}
    default, kept = bounds.Bounds(), StoreBounds()
    seconds = asgi._LOGINS[1], admission._GUESSES[1]
    assert table == {
        "what": [],
        "the head of a request": [http_protocol._HEAD_BYTES, http_protocol._MOST_FIELDS],
        "seconds for a head": [default.head_seconds],
        "seconds of an idle connection": [default.idle_seconds],
        "seconds for a body": [default.body_seconds],
        "seconds in which nothing of an answer is read": [default.write_seconds],
        "connections": [http_protocol._MOST_CONNECTIONS],
        "requests that wait on one connection": [http_protocol._MOST_QUEUED],
        "requests at once": [default.requests],
        "one body": [default.body_bytes],
        "bytes of all bodies*, and of unread answers": [default.held_bytes],
        "what is read of a refused request": [http_protocol._DISCARDED, http_protocol._DISCARD_SECONDS],
        "the memory of long conversations, only in the process": [service._MEMORY_BYTES, service._MOST_MEMORIES],
        "wrong keys of an address": [admission._GUESSES[0], seconds[1]],
        "wrong keys at `/ui` and `/metrics`": [asgi._LOGINS[0], seconds[0]],
        "addresses that are remembered for it": [bounds._MOST_ADDRESSES],
        "the name of a model": [bounds.LONGEST["model"]],
        "the name of an option": [bounds.LONGEST["option"]],
        "options that no protocol knows": [bounds.MOST_OPTIONS],
        "the values of one body: objects, arrays, and their contents": [request_body.MOST_VALUES],
        "the last requests at `/ui`": [recent._MOST, recent._LARGEST_SUM >> 20],
        "entries of `/v1/requests`": [access_log._KEPT_BYTES],
        "kept turns and responses": [kept.count, kept.bytes, kept.share * 100],
        "one sealed token, unpacked": [tokens.MAX_PAYLOAD],
    }
    assert f"{default.client_share:.0%}".replace("%", " percent") in ENGLISH.read_text()
