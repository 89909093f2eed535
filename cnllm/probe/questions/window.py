"""Ask for more input than any model takes: a refusal names the window, and costs nothing."""

from __future__ import annotations

from cnllm.probe.bounds import numbers
from cnllm.probe.question import Context, Finding, Steps, question
from cnllm.types import Message

__all__ = ["window"]

_WORDS = 2_200_000
_HANG_UP = 4096
_LEAST, _MOST = 512, 20_000_000


@question("window", "limits.context", requests=1)
def window(context: Context) -> Steps:
    """Send a prompt of two million words, or a little more than the endpoint says it takes.

    Proof: a prompt that is far too long is refused in words that name one limit.
    """
    count = (_WORDS if context.window is None else context.window * 5 // 4 + 1000) + context.run
    path = context.known.get("params.max_tokens") or context.bodies.path("max_tokens")
    answer = yield context.ask(
        [Message("user", "a " * count)], why=f"a prompt of {count} words", stream=True, most=_HANG_UP, set={path: 16}
    )
    if not answer.refused:
        return []
    said = [n for n in numbers(answer.message) if isinstance(n, int) and _LEAST <= n < _MOST and n < count]
    return [Finding("limits.context", said[0], "refused", answer.message)] if len(said) == 1 else []
