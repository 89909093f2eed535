"""The tables of fields tell the truth: a request with each field is decoded, and built for an endpoint of each wire."""

from __future__ import annotations

import json
from typing import Any

import pytest

from cnllm import CannotSend, engine
from cnllm.protocols import PROTOCOLS, fields
from cnllm.protocols.fields import Field

from .clients import GEMINI, PATHS, endpoint
from .test_context import BODIES

MARK = "marked-value"
VALUES: dict[str, Any] = {
    "string": MARK,
    "object": {"marked": MARK},
    "array": [MARK],
    "boolean": True,
    "integer": 7,
    "number": 0.25,
}
"""A value of each type, which no other part of a request has."""
BY_MEANING: dict[str, Any] = {"logit_bias": {"7": 1.5}, "logprobs": True}


def value_of(row: Field) -> Any:
    """A value that a field takes."""
    return BY_MEANING.get(row.meaning, VALUES[row.types[0] if row.types else "string"])


def built(client: str, target: str, keys: dict[str, Any]) -> engine.Plan:
    request = engine.decode_request(client, {**BODIES[client], **keys}, path=PATHS.get(client, ""))
    return engine.build_request(endpoint(target), request.messages, **request.options)


CASES = [
    (protocol, place, name)
    for protocol in PROTOCOLS
    for place in ("", "text", "reasoning", "generationConfig", "output_config")
    for name, row in fields(protocol).request.get(place, {}).items()
    if row.outcome in ("forward", "keep", "refuse")
]


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_each_key_of_a_body_has_the_outcome_of_its_row(protocol: str) -> None:
    for _, place, name in [case for case in CASES if case[0] == protocol]:
        row = fields(protocol).request[place][name]
        value = value_of(row)
        keys = {place: {name: value}} if place else {name: value}
        path = f"{place}.{name}" if place else name
        for target in PROTOCOLS:
            if target == protocol:
                plan = built(protocol, target, keys)
                added = [note for note in plan.notes if note.flag == "body.set" and note.said == path]
                sent = (plan.body[place] if place else plan.body)[name]
                assert (sent[: len(value)] if added else sent) == value, (path, target)
                continue
            if row.outcome == "refuse":
                with pytest.raises(CannotSend) as caught:
                    built(protocol, target, keys)
                assert name in str(caught.value), (path, target)
                continue
            plan = built(protocol, target, keys)
            notes = [note for note in plan.notes if note.code in ("key-foreign", "param-dropped")]
            expected = fields(target).place(row.meaning) if row.outcome == "forward" else None
            if expected is not None and not notes:
                found: Any = plan.body
                for key in expected.split("."):
                    found = found[key]
                assert found == value, (path, target)
            else:
                assert any(name in str(note) or row.meaning in str(note) for note in notes), (path, target)
                assert MARK not in json.dumps(plan.body), (path, target)


SEALED = "reasoning.encrypted_content"


@pytest.mark.parametrize("store", [None, True])
@pytest.mark.parametrize("asked", [[], ["message.output_text.logprobs"], [SEALED, "x"]])
def test_a_client_that_asks_for_more_gets_the_sealed_reasoning_as_well(asked: list[str], store: bool | None) -> None:
    """Without it the next turn could not send the reasoning back, as the endpoint stores none."""
    wire = "openai-responses"
    keys: dict[str, Any] = {"include": asked} if store is None else {"include": asked, "store": store}
    plan = built(wire, wire, keys)
    missing = [] if SEALED in asked else [SEALED]
    assert plan.body["include"] == [*asked, *missing]
    notes = [note for note in plan.notes if note.flag == "body.set"]
    assert [(note.said, SEALED in note.did) for note in notes] == [("include", True)] * len(missing)
    assert all("providers.toml:" in str(note) for note in notes)
    assert not [note for note in built(wire, wire, {}).notes if note.flag == "body.set"]


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_a_tool_of_the_vendor_stays_on_its_wire_and_is_named_in_a_note_elsewhere(protocol: str) -> None:
    for name, row in fields(protocol).request["tools[]"].items():
        if row.outcome != "offer":
            continue
        tool: dict[str, Any] = {name: {}} if protocol == GEMINI else {"type": name, "name": MARK}
        for target in PROTOCOLS:
            plan = built(protocol, target, {"tools": [tool]})
            if target == protocol:
                assert plan.body["tools"] == [tool], (name, target)
            else:
                assert "tools" not in plan.body, (name, target)
                assert any(note.code == "tool-foreign" and name in note.said for note in plan.notes), (name, target)
