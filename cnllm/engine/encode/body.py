"""Complete the body after the wire has written it: patches of the endpoint, budgets, `extra_body`; encode it.

Marks of the prompt cache beyond the number that endpoints take are left out: a request with more is refused.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec
from msgspec.structs import replace

from cnllm.engine.adjustments import Ledger
from cnllm.engine.encode.params import note_extra_body, note_own_keys, note_typing_errors
from cnllm.engine.encode.plan import Plan
from cnllm.engine.encode.reasoning import ReasoningPlan
from cnllm.engine.options import RequestOptions
from cnllm.jsonpath import contains, get, merge_patch, nest, remove, set_value
from cnllm.protocols import wire
from cnllm.registry import param_rules
from cnllm.registry.flags import Flags, Patch, ReasoningFlags
from cnllm.types import Message, Note, Reasoning
from cnllm.types.client_data import ClientData, count_text
from cnllm.types.json_form import plain_value
from cnllm.types.lenient_json import replace_surrogates
from cnllm.types.parts import CACHE_MARK, SYSTEM_ROLES

__all__ = [
    "add_extra_body",
    "add_patches",
    "encode",
    "limit_cache_marks",
    "most_output",
    "output_limit",
    "rename_keys",
    "stop_texts",
]

_encode = msgspec.json.Encoder(enc_hook=plain_value).encode
_MOST_MARKS = 4
"""Documented for the Messages protocol (https://platform.claude.com/docs/en/build-with-claude/prompt-caching); the mark
of the body itself is one of them. Chat completions have marks for the same models."""
_MARK_KEY = b'"%b":' % CACHE_MARK.encode()
_MARK_DID = f"left out, so that {_MOST_MARKS} stay, those of tools and system and the newest: endpoints refuse more"


def add_patches(
    body: dict[str, Any], reasoning: ReasoningPlan, flags: Flags, history: list[Message], ledger: Ledger
) -> None:
    """Apply the endpoint's standing patches, then those for reasoning, then the token budget."""
    merge_patch(body, flags.body.set or {})
    for path in flags.body.drop or ():
        remove(body, path)
    rules = flags.reasoning
    patches = list(reasoning.patches)
    if rules.replay_patch is not None and _has_reasoning(history):
        patches.append(rules.replay_patch)
    for patch in patches:
        merge_patch(body, patch.set or {})
        for path in patch.drop or ():
            remove(body, path)
    for path, value in reasoning.values:
        set_value(body, path, value)
    budget = reasoning.budget or _patched_budget(body, patches, rules)
    if budget is not None:
        _set_budget(body, budget, flags, ledger.for_option("reasoning"))


def add_extra_body(body: dict[str, Any], options: RequestOptions, flags: Flags, ledger: Ledger) -> None:
    """Merge the caller's `extra_body` into the body as it is; note what the endpoint refuses or ignores of it."""
    if options.extra_body:
        note_extra_body(options.extra_body, flags, ledger.for_option("extra_body"))
        if type(options.extra_body) is dict:  # not a client's body, which its own protocol checks
            note_typing_errors(options.extra_body, flags, ledger.for_option("extra_body"))
            note_own_keys(body, options.extra_body, "extra_body", ledger.for_option("extra_body"))
        merge_patch(body, options.extra_body)
        if type(options.extra_body) is ClientData:
            for path in wire(options.extra_body.protocol).drop_idle(body):
                ledger.note("key-foreign", "extra_body", path, "left out: the request asks for no reasoning")


def rename_keys(body: dict[str, Any], flags: Flags) -> dict[str, Any]:
    """Return the body with its keys at the endpoint's own paths."""
    paths = flags.body.rename
    if not paths:
        return body
    out: dict[str, Any] = {}
    for key, value in body.items():
        merge_patch(out, nest(paths[key], value) if key in paths else {key: value})
    return out


def encode(body: dict[str, Any], ledger: Ledger) -> bytes:
    """Return the bytes of a body; it is repaired, with a note, where a text is no valid Unicode."""
    try:
        return _encode(body)
    except UnicodeEncodeError:
        ledger.note("text-mended", "messages", "half of a character, which no UTF-8 can hold", "replaced by U+FFFD")
        return _encode(replace_surrogates(body))


def output_limit(body: dict[str, Any], flags: Flags) -> int | None:
    """Return the limit of output tokens that the body sets; None where it sets none.

    A negative number is none: servers such as llama.cpp generate without end for −1.
    """
    limit = get(body, _param_path("max_tokens", flags))
    return limit if type(limit) is int and limit >= 0 else None


def most_output(body: dict[str, Any], flags: Flags) -> int | None:
    """Return the most tokens of output, reasoning included, that the body allows; None where it sets no bound."""
    limit, rules = output_limit(body, flags), flags.reasoning
    if limit is None or rules.is_in_limit or _is_without_reasoning(body, rules):
        return limit
    path = rules.budget.at if rules.budget is not None else None
    budget = get(body, path) if path is not None and rules.bound == "budget" else None
    return limit + budget if type(budget) is int and budget >= 0 else None


def stop_texts(options: RequestOptions, body: dict[str, Any], flags: Flags) -> tuple[str, ...]:
    """Return the stop texts that the caller gave, as an option or in `extra_body`."""
    if not options.extra_body and "stop" not in options.params:
        return ()
    values = [options.params.get("stop"), get(body, _param_path("stop", flags)) if options.extra_body else None]
    texts = [text for value in values for text in (value if isinstance(value, list | tuple) else [value])]
    return tuple(dict.fromkeys(text for text in texts if type(text) is str and text))


def _param_path(name: str, flags: Flags) -> str:
    """Return the path of a parameter in the body."""
    return param_rules.path(name, (flags.params or {}).get(name))


def _is_without_reasoning(body: dict[str, Any], rules: ReasoningFlags) -> bool:
    """Whether it is certain that the model does not reason for this body."""
    if rules.mode in ("always", "never"):
        return rules.mode == "never"
    if rules.off is not None and rules.off.set and contains(body, rules.off.set):
        return True
    paths = [table.at for table in (rules.effort, rules.budget) if table is not None and table.at is not None]
    is_on = rules.on is not None and bool(rules.on.set) and contains(body, rules.on.set)
    return rules.default == "off" and not is_on and all(get(body, path) is None for path in paths)


def _has_reasoning(messages: list[Message]) -> bool:
    return any(type(p) is Reasoning and (p.text or p.seal) for m in messages if m.role == "assistant" for p in m.parts)


def _patched_budget(body: dict[str, Any], patches: list[Patch], rules: ReasoningFlags) -> tuple[str, int] | None:
    """Return path and tokens of a budget that a patch has set."""
    path = rules.budget.at if rules.budget is not None else None
    tokens = get(body, path) if patches and path else None
    return (path, tokens) if path is not None and type(tokens) is int else None


def _set_budget(body: dict[str, Any], budget: tuple[str, int], flags: Flags, ledger: Ledger) -> None:
    """Set a token budget, below the parameter that it must stay below."""
    path, tokens = budget
    rules = flags.reasoning.budget
    limit = rules.under if rules is not None else None
    if limit is not None:
        ceiling = get(body, _param_path(limit, flags))
        if type(ceiling) is int and tokens >= ceiling:
            lower = max(ceiling - 1, 0)
            least = rules.min if rules is not None else None
            off = flags.reasoning.off
            if least is not None and lower < least and off is not None:
                did = f"off: {limit} leaves no room for the {least} tokens that it takes at least"
                if ledger.may_change("reasoning-budget", "reasoning.budget.min", tokens, did):
                    remove(body, path)
                    merge_patch(body, off.set or {})
                    return
            elif ledger.may_change("reasoning-budget", "reasoning.budget.under", tokens, f"{lower}: below {limit}"):
                tokens = lower
    set_value(body, path, tokens)


# ── marks of the prompt cache ─────────────────────────────────────────────────


def limit_cache_marks(plan: Plan) -> Plan:
    """Return a plan whose body has no more marks than endpoints take, with a note on those that were left out.

    Turns may have been encoded before, so the bytes are searched: no other text in them can look like the key.
    """
    written = wire(plan.model.protocol).part_keys or plan.flags.messages.fields or ()
    if CACHE_MARK not in written or plan.content.count(_MARK_KEY) <= _MOST_MARKS:
        return plan
    body = msgspec.json.decode(plan.content)
    first, later = _marked(body)
    automatic = body.get(CACHE_MARK) is not None
    room = _MOST_MARKS - automatic
    for_later = max(room - len(first), not automatic)
    surplus = [*later[: max(len(later) - for_later, 0)]]
    rest = len(later) - len(surplus)
    surplus += first[: max(len(first) - (room - rest), 0)]
    if not surplus:
        return plan
    for block in surplus:
        del block[CACHE_MARK]
    note = Note("cache-mark", "protocol", count_text(CACHE_MARK, len(surplus)), _MARK_DID, plan.model.where("protocol"))
    return replace(plan, content=_encode(body), notes=[*plan.notes, note])


def _marked(body: dict[str, Any]) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """Return what has a mark in the order of the prompt: of tools and system, and of the turns behind them."""
    first = [block for key in ("tools", "system") for item in _items(body.get(key)) for block in _blocks(item)]
    later: list[dict[str, Any]] = []
    for message in _items(body.get("messages")):
        is_first = not later and message.get("role") in SYSTEM_ROLES
        (first if is_first else later).extend(_blocks(message))
    return first, later


def _blocks(block: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Yield the marked ones of a message or block and of the blocks in its content, which stand before it."""
    for inner in _items(block.get("content")):
        yield from _blocks(inner)
    if block.get(CACHE_MARK) is not None:
        yield block


def _items(value: Any) -> list[dict[str, Any]]:
    """Return the objects of a list."""
    return [item for item in value if type(item) is dict] if type(value) is list else []
