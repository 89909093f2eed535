"""Ask for conversations that not every endpoint takes: places of roles, forms of content, further keys."""

from __future__ import annotations

from typing import Any

from msgspec.structs import replace

from cnllm.probe.exchange import Ask, reads_more
from cnllm.probe.facts import Finding
from cnllm.probe.question import HELLO, ProbeContext, Steps, need, question, refusal
from cnllm.probe.questions.earlier import ANSWERED, THANKS, Earlier, earlier, takes_calls
from cnllm.types import Message, Text

__all__ = [
    "consecutive",
    "content_parts",
    "developer",
    "fields",
    "first",
    "prefill",
    "replay",
    "replay_off",
    "system",
]


_LONG = "The garden behind the old library has a pond, two benches and a walnut tree. " * 3
_SYSTEM = Message("system", "Be brief. " + _LONG)
_TURN = Message("assistant", "Hello there. " + _LONG)
_LEAST = 15
"""The tokens by which the input grows at least where a long message is read."""


def _longer(context: ProbeContext, messages: list[Message], flag: str, *, refused: Any, read: Any, why: str) -> Steps:
    """Ask with one message more than the control's."""
    control = yield context.ask([HELLO], why="the control", control=True)
    answer = yield context.ask(messages, why=why)
    is_read = reads_more(answer, control, _LEAST)
    return refusal(answer, flag, refused) or ([Finding(flag, read, "works")] if is_read else [])


@question("role developer", "messages.developer", requests=2)
def developer(context: ProbeContext) -> Steps:
    """Add a message of the role developer.

    Proof: the tokens of such a message are counted, or a role that does not exist is refused where nobody counts them;
    a refusal of the role.
    """
    messages, why = [replace(_SYSTEM, role="developer"), HELLO], "a message of the role developer"
    ask = context.ask(messages, why="a role that does not exist")
    need("'developer'" in str(ask.body))  # else the wire has no such role
    found = yield from _longer(context, messages, "messages.developer", refused=False, read=True, why=why)
    control = yield context.ask([HELLO], why="the control", control=True)
    if found or control.reply is None or control.reply.usage.input is not None:
        return found
    nonsense = yield _with_last(context, ask, {"role": "zq"}, 0)
    return [Finding("messages.developer", True, "works", nonsense.message)] if nonsense.refused else []


@question("consecutive roles", "messages.consecutive_roles", requests=1)
def consecutive(context: ProbeContext) -> Steps:
    """Let the user speak twice in a row.

    Proof: two messages of the user in a row are refused, or both are counted.
    """
    messages, why = [Message("user", _LONG), HELLO], "two users in a row"
    return _longer(context, messages, "messages.consecutive_roles", refused="join", read="keep", why=why)


@question("system messages", "messages.system", requests=2, applies=lambda c: c.has_roles)
def system(context: ProbeContext) -> Steps:
    """Put a system message behind other messages.

    Proof: a late one is refused, or its tokens are counted.
    """
    late = [HELLO, Message("assistant", "Hello."), _SYSTEM, HELLO]
    without = [HELLO, Message("assistant", "Hello."), Message("user", HELLO.text)]
    answer = yield context.ask(late, why="a system message in the middle")
    control = yield context.ask(without, why="the same without it", control=True)
    if answer.refused and control.passed:
        first = yield context.ask([_SYSTEM, HELLO], why="a system message at the beginning", control=True)
        value = "first" if first.passed else "user"
        return [Finding("messages.system", value, "refused", answer.message)]
    return [Finding("messages.system", "any", "works")] if reads_more(answer, control, _LEAST) else []


@question("first message", "messages.first_user", requests=1)
def first(context: ProbeContext) -> Steps:
    """Let the assistant begin, where it may speak at all.

    Proof: a conversation that the assistant begins is refused, or its tokens are counted.
    """
    turns = yield context.ask([HELLO, _TURN, HELLO], why="the user begins", control=True)
    need(turns.passed)
    why = "the assistant begins"
    return (yield from _longer(context, [_TURN, HELLO], "messages.first_user", refused=True, read=False, why=why))


@question("parts of text", "messages.content", requests=1, applies=lambda c: c.is_flat)
def content_parts(context: ProbeContext) -> Steps:
    """Send the text as a list with one part.

    Proof: a list with one text is refused.
    """
    ask = context.ask([HELLO], why="content as a list of parts")
    answer = yield _with_last(context, ask, {"content": [{"type": "text", "text": HELLO.text}]})
    return refusal(answer, "messages.content", "string")


def _with_last(context: ProbeContext, ask: Ask, keys: dict[str, Any], index: int = -1) -> Ask:
    """Return a request with further keys in one of its messages."""
    body = dict(ask.body)
    turns = list(body[context.bodies.turns])
    turns[index] = {**turns[index], **keys}
    body[context.bodies.turns] = turns
    return replace(ask, body=body)


_VALUES: dict[str, Any] = {"cache_control": {"type": "ephemeral"}}
"""The values of keys that are not a boolean."""


@question("keys of messages", "messages.fields", requests=4, applies=lambda c: c.is_flat)
def fields(context: ProbeContext) -> Steps:
    """Add a key that no endpoint has, then the keys that some have beside those of the wire's documentation.

    Proof: a key that does not exist is refused, and these are not.
    """
    history = [HELLO, Message("assistant", "Hello."), Message("user", HELLO.text)]
    hint = context.hint("messages.fields")
    nonsense = yield _with_last(context, context.ask(history, why="a key that does not exist"), {"zq_extra": True}, 1)
    need(nonsense.refused)
    keys: list[str] = []
    for key in (k for k in context.candidates.message_keys if k != "name"):
        settled = hint is not None and key not in hint
        ask = context.ask(history, why=f"the key {key} of a message", control=settled or context.run == 1)
        answer = yield _with_last(context, ask, {key: _VALUES.get(key, True)}, 1)
        if answer.passed:
            keys.append(key)
    return [Finding("messages.fields", keys, "works", nonsense.message)] if keys else []


@question("the beginning of a reply", "messages.prefill.set", requests=4, applies=lambda c: c.is_flat)
def prefill(context: ProbeContext) -> Steps:
    """Let the reply begin with the beginning of the control's answer, under each known mark.

    Proof: the reply goes on from there, and begins anew without the mark.
    """
    control = yield context.ask([HELLO], why="the control", control=True)
    begin = " ".join(control.text.split()[:4])
    need(begin and control.text.startswith(begin) and begin != control.text)
    history = [HELLO, Message("assistant", (Text(begin),))]
    plain = yield context.ask(history, why="the beginning of a reply, unmarked", control=True)
    # else it goes on from there without any mark, or answers something else: nothing can be told
    need(not plain.passed or plain.text.startswith(begin[:12]))
    for mark in context.candidates_for("messages.prefill.set", context.candidates.prefills):
        ask = context.ask(history, why=f"the beginning of a reply, marked by {', '.join(mark)}")
        answer = yield _with_last(context, ask, mark)
        if answer.passed and answer.text.strip() and control.text.endswith(answer.text):
            return [Finding("messages.prefill.set", mark, "works")]
    return []


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
    need(builder.has_form)
    missing = yield builder.ask("an earlier call without its reasoning", thoughtful=False)
    present = yield builder.ask("an earlier call with its reasoning", thoughtful=True)
    if present.refused and missing.passed and context.is_flat:
        return [Finding("reasoning.replay", "never", "refused", present.message)]
    need(missing.refused and present.passed)
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
    need(builder.has_form)
    missing = yield builder.ask("an earlier call, reasoning off", thoughtful=False, control=True)
    present = yield builder.ask("an earlier call with reasoning, reasoning off", thoughtful=True)
    return refusal(present, "when.no-reasoning.reasoning.replay", "never") if missing.passed else []
