"""A small run of `python -m fuzz.soak`: broken and whole streams side by side, none of which is mixed up or left."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from cnllm.transports import AsyncHttpx
from fuzz import soak


def _fast() -> Any:
    pytest.importorskip("httptools", reason="the extra cnllm-client[fast] is not installed")
    from cnllm.transports.fast import AsyncFast

    return AsyncFast()


@pytest.mark.parametrize("transport", [pytest.param(AsyncHttpx, marks=pytest.mark.long, id="httpx"), _fast])
def test_streams_that_break_side_by_side_lose_and_mix_nothing(transport: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(soak, "_FAULTS", tuple((name, 8) for name, _ in soak._FAULTS if name != "stall-middle"))

    monkeypatch.setattr(soak, "_LEFT", (("cancelled", 15), ("left", 10)))

    async def turns() -> soak.Soak:
        return await soak.run(url, 20, 0, transport(), turns=5)

    with soak.served(0.002) as url:
        found = asyncio.run(turns())
    assert found.wrong == []
    assert found.left_behind == []
    assert sum(found.outcomes.values()) == 100
    kinds = {outcome.partition(": ")[0] for outcome in found.outcomes}
    assert {"no fault", "cut", "drop", "reset", "error"} <= kinds, found.outcomes
    assert any(outcome.endswith(": cancelled") for outcome in found.outcomes), found.outcomes
