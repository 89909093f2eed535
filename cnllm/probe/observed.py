"""Read what replies show by themselves: forms of reasoning that nobody has described, finish words, token counts."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from cnllm.jsonpath import get, leaves, set_value
from cnllm.probe.exchange import ProbeAnswer, ProbeExchange
from cnllm.probe.facts import FlagFact
from cnllm.registry.flags import Flags
from cnllm.registry.model import Model

__all__ = [
    "THINKING",
    "Learnt",
    "counts_in",
    "find_tags",
    "is_proven",
    "learn",
    "learn_usage",
    "message_of",
    "observe_replies",
    "pieces_of",
    "repeats",
    "with_learnt",
]

THINKING = re.compile(r"reason|think|thought|思考|推理|深度", re.IGNORECASE)
_USUAL = frozenset(
    (
        "role",
        "content",
        "name",
        "refusal",
        "tool_calls",
        "function_call",
        "tool_call_id",
        "audio",
        "id",
        "type",
        "index",
    )
)
_KINDS = ("stop", "length", "tool_calls")
_COUNTS = ("input", "output", "total", "reasoning", "cached", "cache_write")
_MARK = re.compile(r"[<\[{◁【⟨]([^\s<>\[\]{}◁▷【】⟨⟩]{1,40})[>\]}▷】⟩]")
_AROUND = re.compile(r"^(?:begin|start|end)_?(?:of_)?|\W")
_PROSE = (
    "p",
    "b",
    "i",
    "a",
    "em",
    "strong",
    "div",
    "span",
    "html",
    "body",
    "h1",
    "h2",
    "code",
    "pre",
    "answer",
    "final",
)
_MOST_COUNT = 10**8
"""Larger numbers are times."""


class Learnt(Struct, frozen=True):
    """Holds what replies have shown of how they are to be read, beside what the wire has.

    `fields` may hold reasoning; `part` is the type of such a part of the content, `tags` the pair around it. `is_open`:
    the opening tag does not arrive. `repeats`: each piece of a stream holds what came before it. `usage` are the paths
    of the usage object, and of the input and the output in it.
    """

    fields: tuple[str, ...] = ()
    part: str | None = None
    tags: tuple[str, str] | None = None
    is_open: bool = False
    repeats: bool = False
    usage: tuple[str, str, str] | None = None


# ── a reply of the flat wire, whole or streamed ──────────────────────────────
def message_of(data: Any) -> dict[str, Any]:
    """Return the message of a reply of the flat wire, put together where it came in pieces; {} where there is none."""
    if isinstance(data, dict):
        return _object(data, "choices.0.message")
    message: dict[str, Any] = {}
    for path, items in pieces_of(data).items():
        texts = [item for item in items if isinstance(item, str)]
        set_value(message, path, items if len(texts) < len(items) else texts[-1] if repeats(texts) else "".join(texts))
    return message


def pieces_of(data: Any) -> dict[str, list[Any]]:
    """Return the pieces of the message of a stream by path; a list is taken item by item."""
    pieces: dict[str, list[Any]] = {}
    for chunk in data if isinstance(data, list) else ():
        for path, piece in leaves(_delta(chunk)).items():
            items = piece if isinstance(piece, list) else [piece] if isinstance(piece, str) and piece else []
            pieces.setdefault(path, []).extend(items)
    return pieces


def _object(data: Any, path: str) -> dict[str, Any]:
    found = get(data, path)
    return dict(found) if isinstance(found, dict) else {}


def _delta(chunk: Any) -> dict[str, Any]:
    return _object(chunk, "choices.0.delta")


def repeats(pieces: list[Any]) -> bool:
    """Whether each piece of a text holds what came before it."""
    if not all(isinstance(piece, str) for piece in pieces):
        return False
    grows = all(later.startswith(earlier) for earlier, later in itertools.pairwise(pieces))
    return len(pieces) > 2 and grows and len(pieces[-1]) > len(pieces[0])


def find_tags(text: str) -> tuple[str, str, bool] | None:
    """Return the pair of tags around the beginning of a text; True: the opening one does not arrive."""
    marks = [(mark, _core(mark.group(1))) for mark in _MARK.finditer(text)]
    for number, (mark, core) in enumerate(marks):
        if not core or core in _PROSE:
            continue
        if not _ends(mark.group(1)):
            closing = next((m for m, c in marks[number + 1 :] if c == core and _ends(m.group(1))), None)
            if text[: mark.start()].strip() or closing is None:
                return None
            inner, rest = text[mark.end() : closing.start()], text[closing.end() :]
            return (mark.group(), closing.group(), False) if inner.strip() and rest.strip() else None
        if text[: mark.start()].strip() and text[mark.end() :].strip():
            return _opening(mark.group()), mark.group(), True
        return None
    return None


def _core(name: str) -> str:
    return _AROUND.sub("", name.strip("|/").casefold()).replace("_", "")


def _ends(name: str) -> bool:
    return "/" in name[:2] or name.strip("|").casefold().startswith("end")


def _opening(closing: str) -> str:
    return closing.replace("/", "", 1) if "/" in closing else re.sub("end", "begin", closing, count=1, flags=re.I)


# ── learning ─────────────────────────────────────────────────────────────────
def learn(learnt: Learnt, flags: Flags, request: Mapping[str, Any] | None, answer: ProbeAnswer) -> Learnt:
    """Return what is learnt with one more reply of the flat wire."""
    message = message_of(answer.data)
    content = message.get("content")
    known = {*(flags.reasoning.fields or ()), *learnt.fields}
    prompt = str(request)
    new = [
        path
        for path, text in _texts(message).items()
        if path.partition(".")[0] not in _USUAL and path not in known and text not in prompt and text not in answer.text
    ]
    has_repeats = any(repeats(pieces) for path, pieces in pieces_of(answer.data).items() if path != "role")
    learnt = replace(learnt, fields=(*learnt.fields, *new), repeats=learnt.repeats or has_repeats)
    if isinstance(content, list):
        kinds = [p.get("type") for p in content if isinstance(p, dict)]
        part = next((k for p, k in zip(content, kinds, strict=False) if k != "text" and k in (p or ()) and p[k]), None)
        return learnt if not isinstance(part, str) or kinds[-1:] == [part] == kinds else replace(learnt, part=part)
    pair = find_tags(content) if isinstance(content, str) and not message.get("tool_calls") else None
    tags = flags.reasoning.tags or []
    pairs = list(zip(tags[::2], tags[1::2], strict=False))
    if pair is not None and (pair[2] or pair[:2] not in pairs):
        learnt = replace(learnt, tags=pair[:2], is_open=pair[2])
    return learnt


def _texts(message: dict[str, Any]) -> dict[str, str]:
    """Return the prose of a message by path: a text of a few words, or a list of them.

    A path with control characters is none of an endpoint's: it would stand in files and on a terminal.
    """
    found = {}
    for path, value in leaves(message).items():
        if not path.isprintable():
            continue
        items = [item.get("text") for item in value if isinstance(item, dict)] if isinstance(value, list) else [value]
        text = " ".join(item for item in items if isinstance(item, str))
        if len(text.split()) >= 3 or (len(text) >= 8 and not text.isascii()):
            found[path] = text
    return found


def is_proven(learnt: Learnt, facts: Mapping[str, FlagFact], exchanges: Sequence[ProbeExchange]) -> bool:
    """Whether a field that nobody knows holds reasoning: by its name, before the text of a stream, or by a switch."""
    if not learnt.fields or "reasoning.fields" not in facts or any(THINKING.search(f) for f in learnt.fields):
        return True
    if any(
        fact.answer == "works" and fact.flag.startswith(("reasoning.on.", "reasoning.off.")) for fact in facts.values()
    ):
        return True
    return any(_comes_first(e.answer.data, learnt.fields) for e in exchanges if isinstance(e.answer.data, list))


def _comes_first(chunks: list[Any], fields: tuple[str, ...]) -> bool:
    """Whether the pieces of a field arrive before the pieces of the text, and there are several of both."""
    deltas = [(any(get(delta, field) for field in fields), delta.get("content")) for delta in map(_delta, chunks)]
    order = ["field" if has_field else "text" for has_field, content in deltas if has_field or content]
    return order.count("field") > 1 and order.count("text") > 0 and order == sorted(order)


def with_learnt(model: Model, learnt: Learnt, *, is_open: bool = False) -> Model:
    """Return a model whose replies are read as others of it have shown. `is_open`: this reply begins inside of tags."""
    if learnt == Learnt():
        return model

    def change_flags(flags: Flags) -> Flags:
        reasoning = replace(flags.reasoning, fields=[*(flags.reasoning.fields or ()), *learnt.fields])
        if learnt.part is not None:
            reasoning = replace(reasoning, part=learnt.part)
        if learnt.tags is not None:
            tags = [*learnt.tags, *(reasoning.tags or ())]
            reasoning = replace(reasoning, tags=tags, tags_at="start-open" if is_open else reasoning.tags_at)
        usage = flags.usage
        if learnt.usage is not None:
            at, input, output = learnt.usage
            usage = replace(usage, at=[at, *(usage.at or ())], input=[input], output=[output])
        stream = flags.stream
        if learnt.repeats:
            stream = replace(stream, deltas="cumulative")
        return replace(flags, reasoning=reasoning, usage=usage, stream=stream)

    return model.derive(change_flags)


# ── words of finishing, and places of token counts ───────────────────────────
def observe_replies(flags: Flags, learnt: Learnt, exchanges: Sequence[ProbeExchange], limit: str) -> Iterator[FlagFact]:
    """Yield what two replies or more show by themselves. `flags` say where the wire has it.

    `limit` is the path of the most tokens of a reply.
    """
    passed = [e for e in exchanges if e.answer.is_whole]
    yield from _finish(flags, passed, limit)
    yield from _usage(flags, learnt, passed)
    yield from _errors(flags, [e for e in exchanges if e.answer.refused])


def _finish(flags: Flags, exchanges: Sequence[ProbeExchange], limit: str) -> Iterator[FlagFact]:
    """Yield the words with which replies ended as they should: after the text, a limit, a call.

    A word that the wire does not have is proven by replies of one kind, where those of another kind have another word.
    """
    seen: dict[str, dict[str, list[int]]] = {}
    for exchange in exchanges:
        reply = exchange.answer.reply
        word = reply.raw_finish if reply is not None else None
        if reply is None or not word or "." in word:
            continue
        known = (flags.finish or {}).get(word)
        kind = known if known == reply.finish else _kind(exchange, limit) if known is None else None
        if kind is not None:
            seen.setdefault(word, {}).setdefault(kind, []).append(exchange.number)
    for word, kinds in seen.items():
        kind, numbers = next(iter(kinds.items()))
        others = any(kind not in more for other, more in seen.items() if other != word)
        if len(kinds) == 1 and kind in _KINDS and len(numbers) > 1 and (word in (flags.finish or {}) or others):
            yield FlagFact(f"finish.{word}", kind, "works", tuple(numbers[:2]))


def _kind(exchange: ProbeExchange, limit: str) -> str | None:
    """Return how a reply ended by what is in it; None where that cannot be told."""
    answer = exchange.answer
    if answer.calls:
        return "tool_calls"
    most, output = get(exchange.ask.body, limit), answer.usage.output
    if type(most) is not int:
        return "stop" if answer.text else None
    if output is None:
        return None
    return "length" if output >= most else "stop" if answer.text else None


def _usage(flags: Flags, learnt: Learnt, exchanges: Sequence[ProbeExchange]) -> Iterator[FlagFact]:
    """Yield the paths of token counts at which replies have numbers."""
    rules = flags.usage
    own = [learnt.usage[0]] if learnt.usage is not None else []
    found = [(e, at, usage) for e in exchanges for at, usage in [_counts_at([*own, *(rules.at or ())], e.answer.data)]]
    found.sort(key=lambda each: isinstance(each[0].answer.data, list))  # whole replies before streams
    places = list(dict.fromkeys(at for _, at, usage in found if usage is not None))
    counted = [(e.number, usage) for e, at, usage in found if usage is not None and at == places[0]]
    numbers = tuple(number for number, _ in counted[:2])
    if len(numbers) < 2 or found[0][2] is None:
        return  # nothing is said of whole replies whose counts stand where nobody knows
    yield FlagFact("usage.at", places, "works", numbers)
    paths = {name: getattr(rules, name) or [] for name in _COUNTS}
    if learnt.usage is not None:
        paths |= {"input": [learnt.usage[1]], "output": [learnt.usage[2]]}
    for name, tried in paths.items():
        path = next((p for p in tried if all(type(get(usage, p)) is int for _, usage in counted)), None)
        if path is not None:
            yield FlagFact(f"usage.{name}", [path], "works", numbers)


def _counts_at(places: Sequence[str], data: Any) -> tuple[str, dict[str, Any] | None]:
    """Return the place of the token counts in a body, or in the last chunk that has them, and the counts."""
    for at in places:
        for part in reversed(data) if isinstance(data, list) else (data,):
            if isinstance(counts := get(part, at), dict):
                return at, counts
    return "", None


def learn_usage(learnt: Learnt, flags: Flags, exchanges: Sequence[ProbeExchange]) -> Learnt:
    """Return what is learnt of token counts: one number grows with the requests, another one with the replies.

    Only replies of the kind of the last one are compared, whole or streamed: the other kind may have no counts.
    """
    is_streamed = exchanges[-1].answer.streamed
    rows = [
        (
            sum(len(msgspec.json.encode(part)) for part in map(e.ask.body.get, ("messages", "tools")) if part),
            _length(e.answer),
            counts_in(e.answer.data),
        )
        for e in exchanges
        if e.answer.is_whole and e.answer.streamed == is_streamed
    ]
    if len(rows) < 3:
        return learnt
    paths = [path for path in rows[0][2] if all(path in numbers for *_, numbers in rows)]
    inputs = [p for p in paths if _follows([(size, numbers[p]) for size, _, numbers in rows])]
    outputs = [p for p in paths if p not in inputs and _follows([(length, n[p]) for _, length, n in rows])]
    for input, output in itertools.product(inputs, outputs):
        is_total = any(all(n[input] == n[p] + n[output] for *_, n in rows) for p in paths if p not in (input, output))
        at = _common(input, output)
        if not is_total and at:
            known = [path for name in _COUNTS for path in (getattr(flags.usage, name) or ())]
            outer = [".".join(at.split(".")[:depth]) for depth in range(at.count(".") + 1, 0, -1)]
            # the object that has other counts too
            at = next((o for o in outer if any(f"{o}.{path}" in paths for path in known)), at)
            return replace(learnt, usage=(at, input.removeprefix(f"{at}."), output.removeprefix(f"{at}.")))
    return learnt


def counts_in(data: Any) -> dict[str, int]:
    """Return the numbers of a body, or of the chunks of a stream, by path. Times are none."""
    out: dict[str, int] = {}
    for part in data if isinstance(data, list) else (data,):
        tree = {k: v for k, v in part.items() if k != "choices"} if isinstance(part, dict) else {}
        out |= {p: v for p, v in leaves(tree).items() if type(v) is int and abs(v) < _MOST_COUNT}
    return out


def _length(answer: ProbeAnswer) -> int:
    calls = answer.reply.tool_calls if answer.reply is not None else []
    return len(answer.text) + len(answer.reasoning) + sum(len(call.raw) for call in calls)


def _follows(pairs: list[tuple[int, int]]) -> bool:
    """Whether a number grows wherever a text is much longer, and is no larger than it."""
    grows = [(b[1] - a[1]) > 0 for a in pairs for b in pairs if b[0] > 1.3 * a[0] + 60]
    return len(grows) > 1 and all(grows) and all(0 <= number <= size + 20 for size, number in pairs)


def _common(first: str, second: str) -> str:
    """Return the path of the object that holds two paths; "" where it is the body itself."""
    a, b = first.split("."), second.split(".")
    return ".".join(a[: next((n for n, (x, y) in enumerate(zip(a, b, strict=False)) if x != y), 0)])


# ── errors ───────────────────────────────────────────────────────────────────
def _errors(flags: Flags, exchanges: Sequence[ProbeExchange]) -> Iterator[FlagFact]:
    """Yield where the sentence of a refusal stands, if that is no place of the wire."""
    rules = flags.error
    places: dict[str, list[int]] = {}
    for exchange in exchanges:
        data, message = exchange.answer.data, exchange.answer.message
        if not isinstance(data, dict) or any(isinstance(get(data, at), dict | str | list) for at in rules.at or ()):
            continue
        path = next((p for p, value in leaves(data).items() if value == message and message), None)
        if path is not None and path not in (rules.message or ()):
            places.setdefault(path, []).append(exchange.number)
    for path, numbers in places.items():
        if len(numbers) > 1 and len(places) == 1:
            at, _, leaf = path.rpartition(".")
            yield FlagFact("error.at", [at or "."], "refused", tuple(numbers[:2]))
            yield FlagFact("error.message", [leaf], "refused", tuple(numbers[:2]))
