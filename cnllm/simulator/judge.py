"""Says no to a request as the endpoint would, in the endpoint's own words."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

from msgspec import Struct

from cnllm.flags import Param, Refusal
from cnllm.model import Model
from cnllm.protocols import speaks
from cnllm.simulator import turns
from cnllm.simulator.asked import Asked, flags_for, off_asked, param_path
from cnllm.simulator.case import Case, Wrong
from cnllm.simulator.paths import at
from cnllm.simulator.read import CHAT

__all__ = ["Refused", "judge", "refusal"]

_TYPES = {"key": "authentication_error", "model": "not_found_error"}
_STATUSES = {"key": 401, "model": 404}
_CHOICES = ("auto", "none", "required", "named")


class Refused(Struct, frozen=True):
    """What the endpoint answers instead."""

    status: int
    body: str


def judge(model: Model, headers: Mapping[str, str], asked: Asked) -> Refused | None:
    """The refusal this request meets at this endpoint, None where it is taken.

    Worded by the entry's nearest refusal of that kind, else in the generic form. Refusals that only some
    endpoints make (reasoning missing, reasoning sent) are made only where the entry words them.
    """
    flags, thinks = flags_for(model, asked)
    refusals = flags.refusals or []
    case = Case(
        model=model,
        flags=flags,
        asked=asked,
        headers={k.lower(): v for k, v in headers.items()},
        thinks=thinks,
        worded=frozenset(r.on for r in refusals),
    )
    wrong = next(_wrongs(case), None)
    return None if wrong is None else refusal(wrong, refusals, model)


def refusal(wrong: Wrong, refusals: list[Refusal], model: Model | None = None) -> Refused:
    """Words what is wrong: by the first refusal of its kind, else as the wire's plain error object."""
    for said in refusals:
        if said.on == wrong.on:
            return Refused(status=said.status, body=_filled(said.body, wrong, model))
    status = _STATUSES.get(wrong.on, 400)
    if model is not None and model.protocol != CHAT:
        plain = speaks(model.protocol).write_error(status, wrong.message, wrong.on.replace("-", "_"))
        return Refused(status=status, body=json.dumps(plain, ensure_ascii=False))
    error = {
        "message": wrong.message,
        "type": _TYPES.get(wrong.on, "invalid_request_error"),
        "param": wrong.param,
        "code": wrong.on.replace("-", "_"),
    }
    return Refused(status=status, body=json.dumps({"error": error}, ensure_ascii=False))


def _filled(body: str, wrong: Wrong, model: Model | None) -> str:
    """A refusal's body with its blanks filled in, escaped where the body is JSON."""
    values = {
        "param": wrong.param,
        "value": wrong.value,
        "role": wrong.role,
        "index": wrong.index,
        "model": model.id if model is not None else wrong.value,
        "choice": wrong.choice,
    }
    escaped = body.lstrip().startswith(("{", "["))
    for name, value in values.items():
        text = value if isinstance(value, str) else "" if value is None else json.dumps(value, ensure_ascii=False)
        text = text[:200]
        body = body.replace("{" + name + "}", json.dumps(text, ensure_ascii=False)[1:-1] if escaped else text)
    return body


def _wrongs(case: Case) -> Iterator[Wrong]:
    """All that is wrong, in the order in which an endpoint notices."""
    yield from _key(case)
    yield from _shape(case)
    yield from turns.wrongs(case)
    yield from _tools(case)
    yield from _choice(case)
    yield from _params(case)
    yield from _answer(case)
    yield from _mode(case)


def _key(case: Case) -> Iterator[Wrong]:
    auth = case.flags.auth
    if not case.flags.keys or auth is None or not auth.header:
        return
    sent = case.headers.get(auth.header.lower(), "").strip()
    before, _, after = (auth.value or "{key}").partition("{key}")
    if not sent and speaks(case.model.protocol).bearer:
        sent, before, after = case.headers.get("authorization", "").strip(), "Bearer", ""
    fits = sent.startswith(before.strip()) and sent.endswith(after)
    if not fits or not sent.removeprefix(before.strip()).removesuffix(after).strip():
        yield Wrong("key", f"No API key was sent in the header {auth.header}.")


def _shape(case: Case) -> Iterator[Wrong]:
    asked = case.asked
    wanted = case.body.get("model")
    in_path = "{model}" in (case.flags.path or "")
    if wanted is None and not in_path:
        yield Wrong("model", "You must provide a model parameter.", param="model")
    elif wanted is not None and str(wanted).casefold() != case.model.id.casefold():
        yield Wrong("model", f"The model {wanted} does not exist.", param="model", value=wanted)
    if asked.broken is not None:
        yield Wrong("param", f"{asked.broken} is missing or malformed.", param=asked.broken)


def _tools(case: Case) -> Iterator[Wrong]:
    flags = case.flags.tools
    offered = case.asked.tools
    if offered is None:
        return
    if not offered:
        yield Wrong("empty-tools", "[] is too short - 'tools'", param="tools")
    if flags is not None and flags.supported is False:
        yield Wrong("param", "This model does not take tools.", param="tools")
    for index, tool in enumerate(t for t in offered if t.kind == "function"):
        where = f"tools[{index}].function"
        if not isinstance(tool.name, str) or not tool.name:
            yield Wrong("param", f"{where}.name is missing.", param=f"{where}.name", index=index)
            continue
        if flags is not None and flags.names_max is not None and len(tool.name) > flags.names_max:
            message = f"{where}.name is longer than {flags.names_max} characters."
            yield Wrong("param", message, param=f"{where}.name", value=tool.name, index=index)
        given = tool.parameters
        demanded = flags is not None and flags.parameters
        if (given is not None and not isinstance(given, dict)) or (demanded and not given):
            message = f"{where}.parameters is not a JSON Schema."
            yield Wrong("parameters", message, param=f"{where}.parameters", value=tool.name, index=index)


def _choice(case: Case) -> Iterator[Wrong]:
    choice = case.asked.choice
    if choice is None:
        return
    allowed: list[str] = list((case.flags.tool_choice and case.flags.tool_choice.allowed) or _CHOICES)
    if choice not in allowed:
        message = f"tool_choice {choice} is not supported."
        yield Wrong("tool-choice", message, param="tool_choice", value=choice, choice=choice)
    elif not case.asked.tools:
        message = "tool_choice is only allowed when tools are specified."
        yield Wrong("tool-choice", message, param="tool_choice", value=choice, choice=choice)
    elif choice == "named" and all(t.name != case.asked.named for t in case.asked.functions):
        message = f"tool_choice names {case.asked.named}, which is not among the tools."
        yield Wrong("tool-choice", message, param="tool_choice", value=case.asked.named, choice=choice)


def _params(case: Case) -> Iterator[Wrong]:
    for name, rule in (case.flags.params or {}).items():
        path = param_path(case.flags, name)
        value = at(case.body, path or name)
        if value is None:
            continue
        if rule is False:
            if _refuses_by_name(case):
                yield Wrong("param", f"Unsupported parameter: '{name}'.", param=name, value=value)
        elif isinstance(rule, Param) and (said := _outside(rule, value)):
            yield Wrong("param", f"invalid {path}: {said}", param=path, value=value)
    yield from _room(case)


def _refuses_by_name(case: Case) -> bool:
    """Does the endpoint refuse a parameter that it does not take? Recordings show some that merely ignore it.

    The flag says false for both. One that refuses says which parameter it minds, so its words tell.
    """
    return next(("{param}" in r.body for r in case.flags.refusals or () if r.on == "param"), False)


def _room(case: Case) -> Iterator[Wrong]:
    """How much the answer and the thinking may have."""
    path = param_path(case.flags, "max_tokens") or "max_tokens"
    room = at(case.body, path)
    most = case.flags.limits.output if case.flags.limits is not None else None
    if room is not None and (type(room) is not int or room < 1):
        yield Wrong("param", f"invalid {path}: it is a positive integer", param=path, value=room)
    elif room is not None and most is not None and room > most:
        message = f"invalid {path}: {room} is more than this model's {most}"
        yield Wrong("max-tokens", message, param=path, value=room)
    reasoning = case.flags.reasoning
    budget = reasoning.budget if reasoning is not None else None
    if reasoning is None or budget is None or not budget.at or (tokens := at(case.body, budget.at)) is None:
        return
    if any(patch is not None and at(patch.set, budget.at) == tokens for patch in (reasoning.off, reasoning.on)):
        return  # no number of tokens, but the endpoint's word for off or on
    if type(tokens) is not int or _bound_broken(tokens, budget.min, budget.max):
        message = f"invalid {budget.at}: {_bound_broken(tokens, budget.min, budget.max) or 'not an integer'}"
        yield Wrong("param", message, param=budget.at, value=tokens)
    ceiling = at(case.body, param_path(case.flags, budget.under) or budget.under) if budget.under else None
    if type(tokens) is int and type(ceiling) is int and tokens >= ceiling:
        yield Wrong("param", f"invalid {budget.at}: must be less than {budget.under}", param=budget.at, value=tokens)


def _outside(rule: Param, value: Any) -> str | None:
    """Why a value is not taken, None where it is."""
    if rule.fixed is not None and value != rule.fixed:
        return f"only {rule.fixed} is allowed for this model"
    if rule.items is not None and isinstance(value, list) and len(value) > rule.items:
        return f"at most {rule.items} items are allowed"
    return _bound_broken(value, rule.min, rule.max, rule.above, rule.below)


def _bound_broken(
    value: Any,
    least: float | None = None,
    most: float | None = None,
    above: float | None = None,
    below: float | None = None,
) -> str | None:
    """Which bound a value breaks, in words; None where it breaks none."""
    if least is None and most is None and above is None and below is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int | float):
        return "it must be a number"
    if least is not None and value < least:
        return f"must be at least {least:g}"
    if most is not None and value > most:
        return f"must be at most {most:g}"
    if above is not None and value <= above:
        return f"must be greater than {above:g}"
    if below is not None and value >= below:
        return f"must be less than {below:g}"
    return None


def _answer(case: Case) -> Iterator[Wrong]:
    kind = case.asked.answer
    rules = case.flags.schema
    if kind is None:
        return
    methods: list[str] = list((rules and rules.methods) or ("json_schema", "json_object"))
    # Where a schema is taken, a bare object is too; the list says how a schema is best asked for.
    taken = kind in methods or (kind == "json_object" and "json_schema" in methods)
    if not taken or (kind == "json_schema" and not isinstance(case.asked.schema, dict)):
        message = f"This response_format type is unavailable: {kind}."
        yield Wrong("schema", message, param="response_format", value=kind)
    if kind == "json_object" and rules is not None and rules.word and not _says(case.asked, rules.word):
        message = f"The messages must contain the word '{rules.word}' to use this response_format."
        yield Wrong("schema", message, param="response_format", value=kind)


def _says(asked: Asked, word: str) -> bool:
    return any(word.casefold() in t.text.casefold() for t in asked.turns)


def _mode(case: Case) -> Iterator[Wrong]:
    reasoning = case.flags.reasoning
    if reasoning is not None and reasoning.mode == "always" and off_asked(reasoning, case.body):
        yield Wrong("reasoning-off", "This model always reasons; reasoning cannot be turned off.")
    if case.flags.stream is not None and case.flags.stream.required and not case.asked.stream:
        yield Wrong("stream-required", "This model answers only when streaming.", param="stream", value=False)
