"""Says no to a request as the endpoint would, in the endpoint's own words."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping

from msgspec import Struct

from cnllm.protocols import speaks
from cnllm.registry.flags import Refusal
from cnllm.registry.model import Model
from cnllm.simulator import check_messages
from cnllm.simulator.check_params import context_violations, param_violations, reasoning_violations
from cnllm.simulator.check_tools import tool_violations
from cnllm.simulator.read import CHAT
from cnllm.simulator.request import Asked, flags_for, off_asked
from cnllm.simulator.violations import Case, Wrong, refusals_of

__all__ = ["Refused", "judge", "refusal"]

_TYPES = {"key": "authentication_error", "model": "not_found_error", "fault": "server_error"}
_STATUSES = {"key": 401, "model": 404}
_CODES = {"context": "context_length_exceeded"}


class Refused(Struct, frozen=True):
    """What the endpoint answers instead."""

    status: int
    body: str


def judge(
    model: Model,
    headers: Mapping[str, str],
    asked: Asked,
    *,
    strict: bool = False,
    general: bool = False,
    unlisted: bool = False,
) -> Refused | None:
    """The refusal this request meets at this endpoint, None where it is taken.

    Worded by the entry's nearest refusal of that kind, else in the generic form; with `general` always in the generic
    form. Refusals that only some endpoints make (reasoning missing or sent, a parameter that is not taken) are made
    where the entry words them, and with `strict` wherever its flags deny what is sent. `unlisted`: the endpoint serves
    no such model.
    """
    flags, thinks = flags_for(model, asked)
    refusals = refusals_of(flags)
    case = Case(
        model=model,
        flags=flags,
        asked=asked,
        headers={k.lower(): v for k, v in headers.items()},
        thinks=thinks,
        worded=frozenset(r.on for r in refusals),
        strict=strict,
        unlisted=unlisted,
        general=general,
    )
    wrong = next(_wrongs(case), None)
    return None if wrong is None else refusal(wrong, [] if general else refusals, model)


def refusal(wrong: Wrong, refusals: list[Refusal], model: Model | None = None) -> Refused:
    """Words what is wrong: by the first refusal of its kind, else as the wire's plain error object."""
    for said in refusals:
        if said.on == wrong.on:
            return Refused(status=said.status, body=_filled(said.body, wrong, model))
    status = _STATUSES.get(wrong.on, 400)
    if model is not None and model.protocol != CHAT:
        plain = speaks(model.protocol).write_error(status, wrong.message, _code(wrong))
        return Refused(status=status, body=json.dumps(plain, ensure_ascii=False))
    error = {
        "message": wrong.message,
        "type": _TYPES.get(wrong.on, "invalid_request_error"),
        "param": wrong.param,
        "code": _code(wrong),
    }
    return Refused(status=status, body=json.dumps({"error": error}, ensure_ascii=False))


def _code(wrong: Wrong) -> str:
    return _CODES.get(wrong.on, wrong.on.replace("-", "_"))


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
    yield from _headers(case)
    yield from _shape(case)
    yield from check_messages.wrongs(case)
    yield from tool_violations(case)
    yield from param_violations(case)
    yield from reasoning_violations(case)
    yield from _answer(case)
    yield from _mode(case)
    yield from context_violations(case)


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


def _headers(case: Case) -> Iterator[Wrong]:
    """Fixed headers that are missing or hold something else. Their names may name somebody, their values be secret.

    Those of one mode are no demand: an endpoint answers without them, in another way.
    """
    if not case.strict or case.general:
        return
    for name, value in (case.model.flags.headers or {}).items():
        sent = {item.strip() for item in case.headers.get(name.lower(), "").split(",")}
        if not sent >= {item.strip() for item in value.split(",")}:
            yield Wrong("param", f"The header {name} is missing, or not the one that is taken here.", param=name)


def _shape(case: Case) -> Iterator[Wrong]:
    asked = case.asked
    wanted = case.body.get("model")
    in_path = "{model}" in (case.flags.path or "")
    if wanted is None and not in_path:
        yield Wrong("model", "You must provide a model parameter.", param="model")
    elif case.unlisted or (wanted is not None and str(wanted).casefold() != case.model.id.casefold()):
        named = case.model.id if wanted is None else wanted
        yield Wrong("model", f"The model {named} does not exist.", param="model", value=named)
    elif case.strict and case.flags.status is not None and case.flags.status.is_ == "retired":
        named = case.model.id if wanted is None else wanted
        yield Wrong("model", f"The model {named} has been retired.", param="model", value=named)
    if asked.broken is not None:
        yield Wrong("param", f"{asked.broken} is missing or malformed.", param=asked.broken)


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
    word = case.flags.simulator.json_word if case.flags.simulator is not None else None
    if kind == "json_object" and word and not _says(case.asked, word):
        message = f"The messages must contain the word '{word}' to use this response_format."
        yield Wrong("schema", message, param="response_format", value=kind)


def _says(asked: Asked, word: str) -> bool:
    return any(word.casefold() in t.text.casefold() for t in asked.turns)


def _mode(case: Case) -> Iterator[Wrong]:
    reasoning = case.flags.reasoning
    if reasoning is not None and reasoning.mode == "always" and off_asked(reasoning, case.body):
        yield Wrong("reasoning-off", "This model always reasons; reasoning cannot be turned off.")
    if case.flags.stream is not None and case.flags.stream.required and not case.asked.stream:
        yield Wrong("stream-required", "This model answers only when streaming.", param="stream", value=False)
