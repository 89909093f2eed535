"""Ask for earlier turns with and without their reasoning: which are refused, and what stands in for it."""

from __future__ import annotations

from cnllm.probe.facts import Finding
from cnllm.probe.question import (
    ProbeContext,
    Steps,
    question,
    refusal,
)
from cnllm.probe.questions.earlier import ANSWERED, THANKS, Earlier, earlier, takes_calls

__all__ = ["replay", "replay_off"]


@question(
    "reasoning of earlier turns",
    "reasoning.replay",
    "reasoning.if_missing",
    requests=7,
    capable=True,
    applies=takes_calls,
)
def replay(context: ProbeContext) -> Steps:
    """Continue from a call with its reasoning, and without it.

    Proof: a turn without its reasoning is refused and one with it passes, or the reverse; what passes in its place.
    """
    builder = yield from earlier(context, context.on if context.on is not None else {})
    if builder is None or not builder.has_form:
        return []
    missing = yield builder.ask("an earlier call without its reasoning", thoughtful=False)
    present = yield builder.ask("an earlier call with its reasoning", thoughtful=True)
    if present.refused and missing.passed and context.is_flat:
        return [Finding("reasoning.replay", "never", "refused", present.message)]
    if not (missing.refused and present.passed):
        return []
    quote = missing.message
    found = yield from _extent(context, builder, quote)
    if not context.is_flat:
        return found
    for word, value in (("empty", ""), ("space", " ")):
        answer = yield builder.ask(f"{word} reasoning in its place", thoughtful=False, reasoning=value)
        if answer.passed:
            return [*found, Finding("reasoning.if_missing", word, "works", quote)]
    return found


def _extent(context: ProbeContext, builder: Earlier, quote: str) -> Steps:
    """Ask which turns must have their reasoning: those since the last question, those with calls, or all."""
    after = (ANSWERED, THANKS)
    old = yield builder.ask("an older call without its reasoning", thoughtful=False, after=after)
    if old.passed:
        return [Finding("reasoning.replay", "since-user", "refused", quote)]
    if not context.is_flat:
        return []
    talk = (ANSWERED, THANKS, ANSWERED, THANKS)
    plain = yield builder.ask("an older answer without its reasoning", thoughtful=True, after=talk, full=(3,))
    control = yield builder.ask("the same with all of it", thoughtful=True, after=talk, full=(3, 5))
    if plain.refused and control.passed:
        return [Finding("reasoning.replay", "always", "refused", quote)]
    return [Finding("reasoning.replay", "tool-turns", "refused", quote)] if plain.passed else []


@question(
    "reasoning of earlier turns, reasoning off",
    "when.no-reasoning.reasoning.replay",
    requests=2,
    capable=True,
    applies=(
        lambda c: (
            takes_calls(c)
            and c.is_flat
            and c.known.get("reasoning.mode") == "toggle"
            and c.off is not None
            and c.known.get("reasoning.replay") != "never"
        )
    ),
)
def replay_off(context: ProbeContext) -> Steps:
    """Send reasoning in an earlier turn while reasoning is off.

    Proof: a turn with reasoning is refused.
    """
    builder = yield from earlier(context)
    if builder is None or not builder.has_form:
        return []
    missing = yield builder.ask("an earlier call, reasoning off", thoughtful=False, control=True)
    present = yield builder.ask("an earlier call with reasoning, reasoning off", thoughtful=True)
    return refusal(present, "when.no-reasoning.reasoning.replay", "never") if missing.passed else []
