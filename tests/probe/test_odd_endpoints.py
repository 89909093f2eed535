"""Endpoints with forms that no vendor has: a probe learns them from their answers, and claims nothing that is wrong."""

from __future__ import annotations

from typing import Any

import pytest

from cnllm import probe

from .endpoint import KEY, Json, refused, serving
from .odd import Odd, Rule


def probed(endpoint: Odd, max_requests: int = 200) -> probe.Report:
    with serving(endpoint) as server:
        return probe.run(server.url, api_key=KEY, max_requests=max_requests, sleep=lambda seconds: None)


def values(report: probe.Report) -> dict[str, Any]:
    return {fact.flag: fact.value for fact in report.facts if fact.answer != "unknown"}


def refuses(key: str, answer: Any) -> Rule:
    return lambda request: answer if key in request else None


# ── a refusal is not an end ──────────────────────────────────────────────────
@pytest.mark.parametrize(
    ("status", "more"),
    [(401, {}), (402, {}), (403, {}), (429, {"code": "insufficient_quota"})],
)
def test_a_refusal_of_one_question_ends_nothing(status: int, more: Json) -> None:
    words = "this choice is not for you"
    found = probed(Odd(refuses("tool_choice", refused(words, status, **more)), refuses("seed", "seed is unknown")))
    assert values(found)["params.seed"] is False
    assert values(found)["tool_choice.allowed"] == []
    assert found.stopped == ""


def test_a_key_that_expires_in_the_middle_ends_the_probe() -> None:
    sent: list[Json] = []

    def expires(request: Json) -> Any:
        sent.append(request)
        return refused("the key has expired", 401) if len(sent) > 20 else None

    found = probed(Odd(expires))
    assert "refuses the key" in found.stopped
    assert len(sent) <= 23  # the refusal, and the base request again
    assert "refused" not in {fact.answer for fact in found.facts if fact.flag != "auth.header"}
