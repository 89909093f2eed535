"""Each documented field of a request arrives at the endpoint, or a note names it: alone, and beside another one."""

from __future__ import annotations

import copy
import json
from collections import Counter
from collections.abc import Iterator
from functools import cache
from pathlib import Path as File
from typing import Any

import pytest
from note_rules import check_notes

from cnllm import CannotSend, Model, Note, engine
from cnllm.jsonpath import get
from cnllm.protocols import PROTOCOLS
from cnllm.protocols.fields import snake_case
from cnllm.registry import Registry

from .clients import CHAT, PATHS, RESPONSES
from .documented import FIELDS
from .requests import BODIES, MARK, PDF, SCHEMA, URL, Json, Path, put

WIDE = """
input = ["text", "image", "audio", "video", "file"]
messages = { developer = true, files = "all", audio_url = "audio_url", blocks = ["search_result"] }
tools = { strict = true, search = true, custom = true, result_media = true }
schema.methods = ["json_schema"]
reasoning.mode = "toggle"
reasoning.default = "on"
reasoning.on.set.thinks = true
reasoning.off.set.thinks = false
reasoning.effort = { at = "effort", low = "low", high = "high" }
"""
NARROW = """
input = ["text"]
messages = { content = "string", system = "first", consecutive_roles = "join" }
tools = { strict = false, parallel = false, schema = ["inline-refs"], schema_drop = ["additionalProperties"] }
tool_choice.allowed = ["auto"]
schema.methods = ["json_object"]
params = { temperature = false, top_p = { fixed = 1 }, seed = "ignored", stop = false, max_tokens = { max = 100 } }
reasoning.mode = "never"
limits.output = 100
"""
WITHOUT_TOOLS = """
input = ["text"]
tools.supported = false
schema.methods = ["prompt"]
reasoning.mode = "always"
"""
ENDPOINTS = {"unknown": "", "wide": WIDE, "narrow": NARROW, "without-tools": WITHOUT_TOOLS}


@cache
def endpoints(folder: File) -> dict[tuple[str, str], Model]:
    """An endpoint of each kind over each wire."""
    out: dict[tuple[str, str], Model] = {}
    for name, flags in ENDPOINTS.items():
        for protocol in PROTOCOLS:
            out[name, protocol] = endpoint(folder, protocol, flags)
    return out


def endpoint(folder: File, protocol: str, flags: str) -> Model:
    """An endpoint over a wire, with these flags."""
    overlay = folder / f"{len(list(folder.iterdir()))}.toml"
    place = "" if protocol == CHAT else f".on.{protocol}"
    overlay.write_text(f"[providers.openai-compatible{place}]\n{flags}")
    url = "http://127.0.0.1:9/v1"
    return Registry.load(str(overlay)).resolve("openai-compatible/m", protocol=protocol, base_url=url)


Sent = tuple[Json | None, list[Note]]


def sent(client: str, model: Model, body: Json) -> Sent:
    """The body that an endpoint gets, and all notes; None where the request is refused, with the reason."""
    request = engine.decode_request(client, copy.deepcopy(body), path=PATHS.get(client, ""))
    try:
        plan = engine.build_request(model, request.messages, **request.options)
    except CannotSend as error:
        return None, [error.note]
    check_notes(plan.notes)
    return plan.body, [*request.notes, *plan.notes]


WHOLE_PARTS = frozenset(
    ["media-dropped", "block-foreign", "reasoning-foreign", "file-as-text", "tool-foreign", "calls-as-text"]
)
"""The codes of notes on a part as a whole, with all that it holds."""


OF_A_WHOLE = {
    "tools-unsupported": ("tool",),
    "tools-prompted": ("tool",),
    "media-dropped": ("content", "parts"),
    "no tools are offered": ("tool",),
}
"""Codes of notes on what holds a field, and which keys then lead to it: it is gone with the whole."""
ALIASES = {
    **dict.fromkeys(("max_output_tokens", "max_completion_tokens", "maxOutputTokens"), "max_tokens"),
    "responseLogprobs": "logprobs",
    "VALIDATED": "strict",
    "disable_parallel_tool_use": "parallel",
    **dict.fromkeys(("stop_sequences", "stopSequences"), "stop"),
    **dict.fromkeys(("reasoning_effort", "thinking", "thinkingConfig", "output_config"), "reasoning"),
}
"""Names of fields, and the one that notes have."""


def words(value: Any) -> Iterator[str]:
    """The keys and short texts in a value."""
    if isinstance(value, dict):
        for key, inner in value.items():
            yield key
            yield from words(inner)
    elif isinstance(value, list):
        for inner in value:
            yield from words(inner)
    elif isinstance(value, str):
        yield value


def is_lost(client: str, path: Path, value: Any, before: Sent, after: Sent) -> bool:
    """Whether a field neither arrives nor is named."""
    (old, known), (new, notes) = before, after
    added = (Counter(notes) - Counter(known)).elements()
    keys = [key for key in path if isinstance(key, str)]
    names = {name for key in (*keys, *words(value)) for name in (key, snake_case(key), ALIASES.get(key, key))}
    named = any(
        note.code in WHOLE_PARTS or any(name in f"{note.flag} {note.said} {note.did}" for name in names)
        for note in added
    ) or any(
        word in key
        for note in notes
        for word in OF_A_WHOLE.get(note.code, OF_A_WHOLE.get(note.did, ()))
        for key in keys
    )
    if new is None or old is None:  # the request was not sent
        return not named and old is not None
    if MARK in json.dumps(value):
        return not named and MARK not in json.dumps(new)
    if not named and new == old:
        return bool(get(new, ".".join(map(str, path))) != value)
    return False


OFF: list[Any] = ["none", {"effort": "none"}, {"type": "disabled"}, {"thinkingBudget": 0}]
ON: list[Any] = [{"type": "adaptive"}, {"includeThoughts": True}]


def is_usual(model: Model, value: Any) -> bool:
    """Whether a value asks for what the model does anyway."""
    rules = model.flags.reasoning
    return (rules.mode == "never" and value in OFF) or (
        (rules.mode == "always" or rules.default == "on") and value in ON
    )


IMPLIED = [
    {"tool_choice", "strict"},  # a forced call follows its schema, and none needs no schema
    {"tool_choice", "parallel_tool_calls"},  # nothing is called
    {"logprobs", "top_logprobs"},
    {"logprobs", "responseLogprobs"},
    {"max_tokens", "max_completion_tokens"},  # one of them counts
]
"""Pairs of fields of which one may say nothing beside the other."""
PARTNERS = (1, 7, 31)
"""How far behind a field in the table the fields stand that are sent together with it."""


def overlap(first: Path, second: Path) -> bool:
    """Whether two fields stand in one another, or say the same."""
    shorter = min(len(first), len(second))
    return first[:shorter] == second[:shorter] or {first[-1], second[-1]} in IMPLIED


@pytest.mark.share(2)
@pytest.mark.parametrize("kind", ENDPOINTS)
@pytest.mark.parametrize("client", PROTOCOLS)
def test_each_field_arrives_or_a_note_names_it(
    client: str, kind: str, tmp_path_factory: pytest.TempPathFactory
) -> None:
    table = FIELDS[client]
    lost: list[Any] = []
    for protocol in PROTOCOLS:
        model = endpoints(tmp_path_factory.getbasetemp())[kind, protocol]
        base = sent(client, model, BODIES[client])
        assert base[0] is not None
        alone = [sent(client, model, put(BODIES[client], path, value)) for path, value in table]
        for index, (path, value) in enumerate(table):
            if is_usual(model, value):
                continue
            if is_lost(client, path, value, base, alone[index]):
                lost.append((protocol, path, value))
            for distance in PARTNERS:
                other, given = table[(index + distance) % len(table)]
                before = alone[(index + distance) % len(table)]
                if overlap(path, other) or before[0] is None:
                    continue
                body = put(put(BODIES[client], other, given), path, value)
                if is_lost(client, path, value, before, sent(client, model, body)):
                    lost.append((protocol, path, value, other, given))
    assert not lost, lost


def test_files_of_two_kinds_in_one_message_are_both_named(tmp_path: File) -> None:
    model = endpoints(tmp_path)["narrow", PROTOCOLS[0]]
    content = [
        {"type": "image_url", "image_url": {"url": URL}},
        {"type": "input_audio", "input_audio": {"data": PDF, "format": "wav"}},
    ]
    turns: list[Any] = [{"role": "user", "content": content}, {"role": "user", "content": "Go on."}]
    plan = engine.build_request(model, turns, on_unsupported="adjust")
    said = [note.said for note in plan.notes if note.code == "media-dropped"]
    assert said == ["messages[0] holds image", "messages[0] holds audio"]


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_the_name_and_the_description_of_an_answer_arrive(protocol: str, tmp_path: File) -> None:
    format = {"name": "city", "description": "Where it is.", "schema": {**SCHEMA, "description": "A place."}}
    model = endpoints(tmp_path)["wide", protocol]
    text = json.dumps(engine.build_request(model, "Hi", schema={"json_schema": format}).body)
    assert '"city"' in text
    assert "Where it is." in text
    assert "A place." in text


@pytest.mark.parametrize(("shape", "sends"), [("content-parts", True), ("seal", False)])
def test_filler_is_sent_where_it_is_noted(shape: str, sends: bool, tmp_path: File) -> None:
    rules = f'reasoning = {{ mode = "always", replay = "always", if_missing = "empty", shape = "{shape}" }}'
    model = endpoint(tmp_path, RESPONSES, rules)
    turns: list[Any] = [{"role": role, "content": "Hi"} for role in ("user", "assistant", "user")]
    plan = engine.build_request(model, turns)
    assert ("reasoning" in [item.get("type") for item in plan.body["input"]]) is sends
    assert any(note.code == "reasoning-filled" for note in plan.notes) is sends


@pytest.mark.parametrize("rules", ['effort.at = "effort"', 'effort.high = "high"'])
def test_a_level_without_a_place_or_a_word_is_noted(rules: str, tmp_path: File) -> None:
    model = endpoint(tmp_path, CHAT, "\n".join(f"reasoning.{rule}" for rule in ('mode = "unknown"', rules)))
    for level in ("on", "high", 2048):
        plan = engine.build_request(model, "Hi", reasoning=level)
        assert plan.body.keys() == {"model", "messages"}
        assert "reasoning-unknown" in [note.code for note in plan.notes], level
