"""Ask for conversations that not every endpoint takes: places of roles, forms of content, further keys."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from msgspec.structs import replace

from cnllm.probe.exchange import Answer, Ask
from cnllm.probe.question import Context, Finding, Question, Steps
from cnllm.types import Message, Text

__all__ = ["CONSECUTIVE", "CONTENT_PARTS", "DEVELOPER", "FIELDS", "FIRST", "PREFILL", "SYSTEM"]

_LONG = "The garden behind the old library has a pond, two benches and a walnut tree. " * 3
_SYSTEM = Message("system", "Be brief. " + _LONG)
_USER = Message("user", "Say hello in one short sentence.")
_TURN = Message("assistant", "Hello there. " + _LONG)
_LEAST = 15
"""The tokens by which the input grows at least where a long message is read."""


def _reads(answer: Answer, control: Answer) -> bool:
    """Whether the endpoint counted the tokens of the message that the control does not have."""
    if answer.reply is None or control.reply is None:
        return False
    more, less = answer.reply.usage.input, control.reply.usage.input
    return more is not None and less is not None and more - less >= _LEAST


def _place(flag: str, messages: list[Message], refused: Any, read: Any, why: str) -> Callable[[Context], Steps]:
    """Return a question about a conversation with one message more than the control's."""

    def run(context: Context) -> Steps:
        ask = context.ask(messages, why=why)
        if any(message.role == "developer" for message in messages) and "'developer'" not in str(ask.body):
            return []  # the wire has no such role
        control = yield context.ask([_USER], why="the control", control=True)
        answer = yield ask
        if answer.refused:
            return [Finding(flag, refused, "refused", answer.message)]
        return [Finding(flag, read, "works")] if _reads(answer, control) else []

    return run


def _system(context: Context) -> Steps:
    """Put a system message behind other messages."""
    late = [_USER, Message("assistant", "Hello."), _SYSTEM, _USER]
    without = [_USER, Message("assistant", "Hello."), Message("user", _USER.text)]
    answer = yield context.ask(late, why="a system message in the middle")
    if answer.refused:
        first = yield context.ask([_SYSTEM, _USER], why="a system message at the beginning", control=True)
        value = "first" if first.passed else "user"
        return [Finding("messages.system", value, "refused", answer.message)]
    control = yield context.ask(without, why="the same without it", control=True)
    return [Finding("messages.system", "any", "works")] if _reads(answer, control) else []


def _first(context: Context) -> Steps:
    """Let the assistant begin, where it may speak at all."""
    turns = yield context.ask([_USER, _TURN, _USER], why="the user begins", control=True)
    if not turns.passed:
        return []
    return (yield from _place("messages.first_user", [_TURN, _USER], True, False, "the assistant begins")(context))


def _content(context: Context) -> Steps:
    """Send the text as a list with one part."""
    ask = context.ask([_USER], why="content as a list of parts")
    answer = yield _with_last(context, ask, {"content": [{"type": "text", "text": _USER.text}]})
    if answer.refused:
        return [Finding("messages.content", "string", "refused", answer.message)]
    return []


def _with_last(context: Context, ask: Ask, keys: dict[str, Any], index: int = -1) -> Ask:
    """Return a request with further keys in one of its messages."""
    body = dict(ask.body or {})
    turns = list(body[context.bodies.turns])
    turns[index] = {**turns[index], **keys}
    body[context.bodies.turns] = turns
    return replace(ask, body=body)


_VALUES: dict[str, Any] = {"cache_control": {"type": "ephemeral"}}
"""The values of keys that are not a boolean."""


def _fields(context: Context) -> Steps:
    """Add a key that no endpoint has, then the keys that some have beside those of the wire's documentation."""
    history = [_USER, Message("assistant", "Hello."), Message("user", _USER.text)]
    hint = context.hints.get("messages.fields")
    nonsense = yield _with_last(context, context.ask(history, why="a key that does not exist"), {"zq_extra": True}, 1)
    if not nonsense.refused:
        return []
    taken: list[str] = []
    for key in (k for k in context.candidates.message_keys if k != "name"):
        settled = hint is not None and key not in hint.value
        ask = context.ask(history, why=f"the key {key} of a message", control=settled or context.run == 1)
        answer = yield _with_last(context, ask, {key: _VALUES.get(key, True)}, 1)
        if answer.passed:
            taken.append(key)
    return [Finding("messages.fields", taken, "works", nonsense.message)] if taken else []


def _prefill(context: Context) -> Steps:
    """Let the reply begin with the beginning of the control's answer, under each known mark."""
    control = yield context.ask([_USER], why="the control", control=True)
    begin = " ".join(control.text.split()[:4])
    if not begin or not control.text.startswith(begin) or begin == control.text:
        return []
    history = [_USER, Message("assistant", (Text(begin),))]
    plain = yield context.ask(history, why="the beginning of a reply, unmarked", control=True)
    if plain.passed and not plain.text.startswith(begin[:12]):
        return []  # it goes on from there without any mark, or answers something else: nothing can be told
    hint = context.hints.get("messages.prefill.set")
    for mark in context.candidates.prefills if hint is None else [hint.value]:
        ask = context.ask(history, why=f"the beginning of a reply, marked by {', '.join(mark)}")
        answer = yield _with_last(context, ask, mark)
        if answer.passed and answer.text.strip() and control.text.endswith(answer.text):
            return [Finding("messages.prefill.set", mark, "works")]
    return []


DEVELOPER = Question(
    "role developer",
    ("messages.developer",),
    "the tokens of such a message are counted; a refusal of the role",
    1,
    _place(
        "messages.developer",
        [replace(_SYSTEM, role="developer"), _USER],
        False,
        True,
        "a message of the role developer",
    ),
)
SYSTEM = Question(
    "system messages",
    ("messages.system",),
    "a late one is refused, or its tokens are counted",
    2,
    _system,
    applies=lambda c: c.has_roles,
)
CONSECUTIVE = Question(
    "consecutive roles",
    ("messages.consecutive_roles",),
    "two messages of the user in a row are refused, or both are counted",
    1,
    _place("messages.consecutive_roles", [Message("user", _LONG), _USER], "join", "keep", "two users in a row"),
)
FIRST = Question(
    "first message",
    ("messages.first_user",),
    "a conversation that the assistant begins is refused, or its tokens are counted",
    1,
    _first,
)
CONTENT_PARTS = Question(
    "parts of text",
    ("messages.content",),
    "a list with one text is refused",
    1,
    _content,
    applies=lambda c: c.is_flat,
)
FIELDS = Question(
    "keys of messages",
    ("messages.fields",),
    "a key that does not exist is refused, and these are not",
    4,
    _fields,
    applies=lambda c: c.is_flat,
)
PREFILL = Question(
    "the beginning of a reply",
    ("messages.prefill.set",),
    "the reply goes on from there, and begins anew without the mark",
    4,
    _prefill,
    applies=lambda c: c.is_flat,
)
