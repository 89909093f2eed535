"""What counts as thinking's budget, and what is an endpoint's word for none."""

from __future__ import annotations

from urllib.parse import unquote, urlsplit

from builtin import BUILTIN

from cnllm import engine
from cnllm.simulator.respond import Endpoints


def test_no_thinking_is_no_budget_that_is_too_small() -> None:
    """Some say by a budget of 0 that there is to be no thinking, and by a least budget what thinking takes."""
    tried = 0
    google = [BUILTIN.resolve(name, protocol="gemini") for name in BUILTIN.names() if name.startswith("google/")]
    for model in (*google, *map(BUILTIN.resolve, BUILTIN.names())):
        rules = model.flags.reasoning
        if rules.budget is None or not rules.budget.min or rules.mode != "toggle":
            continue
        for level in ("off", "on"):
            plan = engine.build_request(model, "hi", reasoning=level)
            path = unquote(urlsplit(plan.url).path)
            assert Endpoints().respond(plan.model, plan.headers, plan.content, path).status == 200, (
                model.name,
                level,
                plan.body,
            )
            tried += 1
    assert tried
