"""What these tests share: one model for each way to treat a history, and conversations with the simulator."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from typing import Any

import msgspec
from builtin import BUILTIN
from note_rules import check_notes

import cnllm
from cnllm import Message, Text, ToolResult, engine
from cnllm.registry.model import Model, conditions
from cnllm.simulator import SimTransport
from cnllm.simulator.violations import refusals_of

Json = dict[str, Any]
SIMULATOR = SimTransport(BUILTIN)
TOOLS = [
    {
        "type": "function",
        "function": {
            "name": name,
            "description": "Looks it up.",
            "parameters": {
                "type": "object",
                "properties": {"q": {"type": "string"}, "places": {"type": "array", "items": {"type": "string"}}},
                "required": ["q"],
            },
        },
    }
    for name in ("search", "weather")
]
USER = "Which is warmer, Oslo or Rome? Look both up in parallel."


def signature(model: Model) -> bytes:
    """All that decides how a model writes its turns and what it takes of others'."""
    said: list[Any] = []
    for thinks, stream in ((True, False), (False, True)):
        flags = model.flags_for(conditions(reasoning=thinks, tools=True, stream=stream))
        reasoning, tools = flags.reasoning, flags.tools
        said.append(
            [
                (reasoning.mode, reasoning.default, reasoning.fields, reasoning.shape, reasoning.part),
                (reasoning.tags, reasoning.tags_at, reasoning.replay, reasoning.replay_as),
                (reasoning.replay_field, reasoning.if_missing, reasoning.if_foreign, reasoning.replay_patch),
                (tools.call_id_pattern, tools.result_name, tools.supported),
                flags.messages,
                flags.input,
                sorted(r.on for r in refusals_of(flags)),
            ]
        )
    return msgspec.json.encode(said)


@cache
def distinct() -> tuple[Model, ...]:
    """One model of each signature in the built-in registry."""
    found: dict[bytes, Model] = {}
    for name in BUILTIN.names():
        model = BUILTIN.resolve(name)
        if model.protocol == "openai-chat":  # and stays on it, whatever is asked for
            url = None if model.flags.base_url else "http://127.0.0.1:9/v1"
            chosen = BUILTIN.resolve(name, protocol="openai-chat", base_url=url)
            found.setdefault(signature(chosen), chosen)
    return tuple(found.values())


def of(provider: str) -> list[Model]:
    return [model for model in distinct() if model.provider == provider]


PROVIDERS = BUILTIN.providers  # not their models: a broken one is to fail a test, not the collection


def takes_tools(model: Model) -> bool:
    return model.flags.tools.supported is not False


def answered(plan: cnllm.Plan) -> tuple[int, dict[str, str], bytes]:
    """Status, headers and body of the simulator's answer."""
    status, headers, pieces = SIMULATOR.send(plan)
    return status, dict(headers), b"".join(pieces)


def exchange(plan: cnllm.Plan) -> cnllm.Reply:
    """The reply to a request, which has to be taken."""
    status, headers, content = answered(plan)
    assert status == 200, (plan.model, content.decode(), plan.body)
    if not plan.stream:
        return engine.parse_response(plan.model, status, headers, content, plan=plan)
    parser = engine.StreamParser(plan.model, plan=plan, status=status, headers=headers)
    parser.feed(content)
    parser.end()
    return parser.close()


def plan(model: Model, messages: Any, **options: Any) -> cnllm.Plan:
    """A request, with the tools if the model takes any."""
    if takes_tools(model):
        options.setdefault("tools", TOOLS)
    built = engine.build_request(model, messages, **options)
    check_notes(built.notes)
    return built


def results(reply: cnllm.Reply, *, media: tuple[cnllm.Media, ...] = ()) -> list[Message]:
    return [
        Message("tool", [ToolResult(c.id, f"It is {c.name}: 20 °C.", c.name, False, media)]) for c in reply.tool_calls
    ]


@cache
def conversation(model: Model, stream: bool = False) -> tuple[Message, ...]:
    """Question, calls, results, answer, as this model says them."""
    history: list[Message] = [Message("user", [Text(USER)])]
    for _ in range(2):
        reply = exchange(plan(model, history, stream=stream))
        history += [reply.message, *results(reply)]
    return tuple(history)


def walk(value: Any) -> Iterator[str]:
    """Every key of a JSON value, however deep."""
    if isinstance(value, dict):
        for key, inner in value.items():
            yield key
            yield from walk(inner)
    elif isinstance(value, list):
        for inner in value:
            yield from walk(inner)
