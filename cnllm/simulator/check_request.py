"""Validate a request and return the endpoint's error."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence

from msgspec import Struct
from msgspec.structs import asdict

from cnllm.protocols import server_codec
from cnllm.registry.flags import Flags, RefusalWords
from cnllm.registry.model import Model
from cnllm.simulator.check_messages import message_violations
from cnllm.simulator.check_params import context_violations, param_violations, reasoning_violations, tool_violations
from cnllm.simulator.request import ParsedRequest, flags_for, turns_reasoning_off
from cnllm.simulator.violations import RequestContext, Violation, refusals_of

__all__ = ["ErrorResponse", "check_key", "check_request", "error_response"]

_TYPES = {"key": "authentication_error", "model": "not_found_error", "fault": "server_error"}
_STATUSES = {"key": 401, "model": 404}
_CODES = {"context": "context_length_exceeded"}


class ErrorResponse(Struct, frozen=True):
    """The error that an endpoint returns: status and body."""

    status: int
    body: str


def check_request(
    model: Model, headers: Mapping[str, str], request: ParsedRequest, **options: bool
) -> ErrorResponse | None:
    """Return this endpoint's error for a request, or None if the endpoint accepts the request.

    Its text is the registry entry's refusal of that kind, else the generic form; with `general` always the generic
    form. Some refusals are made only by some endpoints (reasoning missing or sent, an unsupported parameter). They
    apply if the entry has a text for them, and with `strict` wherever its flags deny the request. `unlisted`: the
    endpoint does not serve this model.
    """
    flags, thinks = flags_for(model, request)
    refusals = refusals_of(flags)
    lower = {k.lower(): v for k, v in headers.items()}
    context = RequestContext(model, flags, request, lower, thinks, frozenset(r.on for r in refusals), **options)
    violation = next(_violations(context), None)
    return None if violation is None else _refuse(violation, () if context.general else refusals, model)


def check_key(model: Model, headers: Mapping[str, str]) -> ErrorResponse | None:
    """Return this endpoint's error for a request without a key, or None."""
    violation = _key_violation(model.flags, model.protocol, {k.lower(): v for k, v in headers.items()})
    return None if violation is None else _refuse(violation, refusals_of(model.flags), model)


def error_response(violation: Violation, protocol: str | None, status: int | None = None) -> ErrorResponse:
    """Format a violation as the plain error object of a wire, None is that of chat.

    `status` replaces the usual one of the kind.
    """
    status = status or _STATUSES.get(violation.on, 400)
    code = _CODES.get(violation.on, violation.on.replace("-", "_"))
    if protocol is not None and not (codec := server_codec(protocol)).dialects:
        body = codec.write_error(status, violation.message, code)
    else:
        kind = _TYPES.get(violation.on, "invalid_request_error")
        body = {"error": {"message": violation.message, "type": kind, "param": violation.param, "code": code}}
    return ErrorResponse(status=status, body=json.dumps(body, ensure_ascii=False))


def _refuse(violation: Violation, refusals: Sequence[RefusalWords], model: Model) -> ErrorResponse:
    """Format a violation as the first refusal of its kind, else as the plain error object of the model's wire."""
    refusal = next((refusal for refusal in refusals if refusal.on == violation.on), None)
    if refusal is None:
        return error_response(violation, model.protocol)
    return ErrorResponse(status=refusal.status, body=_fill_in(refusal.body, violation, model))


def _fill_in(body: str, violation: Violation, model: Model) -> str:
    """Fill in the placeholders of a refusal's body, escaped if the body is JSON."""
    values = asdict(violation) | {"model": model.id}
    is_json = body.lstrip().startswith(("{", "["))
    for name, value in values.items():
        text = value if isinstance(value, str) else "" if value is None else json.dumps(value, ensure_ascii=False)
        text = text[:200]
        body = body.replace("{" + name + "}", json.dumps(text, ensure_ascii=False)[1:-1] if is_json else text)
    return body


def _violations(context: RequestContext) -> Iterator[Violation]:
    """Yield all violations, in the order in which an endpoint checks."""
    if (no_key := _key_violation(context.flags, context.model.protocol, context.headers)) is not None:
        yield no_key
    checks = (_header_violations, _shape_violations, message_violations, tool_violations, param_violations)
    later = (reasoning_violations, _schema_violations, _mode_violations, context_violations)
    for check in (*checks, *later):
        yield from check(context)


def _key_violation(flags: Flags, protocol: str, headers: Mapping[str, str]) -> Violation | None:
    """Return the violation of a request without a key. Names of headers are in lower case."""
    auth = flags.auth
    if not flags.keys or auth is None or not auth.header:
        return None
    header = headers.get(auth.header.lower(), "").strip()
    prefix, _, suffix = (auth.value or "{key}").partition("{key}")
    if not header and server_codec(protocol).bearer:
        header, prefix, suffix = headers.get("authorization", "").strip(), "Bearer", ""
    matches = header.startswith(prefix.strip()) and header.endswith(suffix)
    if matches and header.removeprefix(prefix.strip()).removesuffix(suffix).strip():
        return None
    return Violation("key", f"No API key was sent in the header {auth.header}.")


def _header_violations(context: RequestContext) -> Iterator[Violation]:
    """Yield fixed headers that are missing or have another value. Names may identify a provider, values be secret.

    Headers of a single mode are not required: an endpoint answers without them, in another way.
    """
    if not context.strict or context.general:
        return
    for name, value in (context.model.flags.headers or {}).items():
        items = {item.strip() for item in context.headers.get(name.lower(), "").split(",")}
        if not items >= {item.strip() for item in value.split(",")}:
            yield Violation("param", f"The header {name} is missing, or not the one that is taken here.", param=name)


def _shape_violations(context: RequestContext) -> Iterator[Violation]:
    request = context.request
    name = context.body.get("model")
    in_path = "{model}" in (context.flags.path or "")
    if name is None and not in_path:
        yield Violation("model", "You must provide a model parameter.", param="model")
    name = context.model.id if name is None else name
    if context.unlisted or str(name).casefold() != context.model.id.casefold():
        yield Violation("model", f"The model {name} does not exist.", param="model", value=name)
    elif context.strict and context.flags.status is not None and context.flags.status.is_ == "retired":
        yield Violation("model", f"The model {name} has been retired.", param="model", value=name)
    if request.broken is not None:
        yield Violation("param", f"{request.broken} is missing or malformed.", param=request.broken)


def _schema_violations(context: RequestContext) -> Iterator[Violation]:
    kind = context.request.answer
    if kind is None:
        return
    methods: list[str] = list(context.flags.schema.methods or ("json_schema", "json_object"))
    # An endpoint that accepts a schema accepts a bare object too; the list holds the best methods for a schema.
    accepted = kind in methods or (kind == "json_object" and "json_schema" in methods)
    if not accepted or (kind == "json_schema" and not isinstance(context.request.schema, dict)):
        message = f"This response_format type is unavailable: {kind}."
        yield Violation("schema", message, param="response_format", value=kind)
    word = context.flags.simulator.json_word
    texts = [turn.text.casefold() for turn in context.request.turns]
    if kind == "json_object" and word and not any(word.casefold() in text for text in texts):
        message = f"The messages must contain the word '{word}' to use this response_format."
        yield Violation("schema", message, param="response_format", value=kind)


def _mode_violations(context: RequestContext) -> Iterator[Violation]:
    reasoning = context.flags.reasoning
    if reasoning.mode == "always" and turns_reasoning_off(reasoning, context.body):
        yield Violation("reasoning-off", "This model always reasons; reasoning cannot be turned off.")
    if context.flags.stream.required and not context.request.stream:
        yield Violation("stream-required", "This model answers only when streaming.", param="stream", value=False)
