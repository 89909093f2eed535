"""Answers that a server has parsed as JSON, so that a number or true stands where text belongs, are not lost."""

from __future__ import annotations

import json
from typing import Any

import pytest

from cnllm import Model, engine

from .test_counted_once import STOP, chunk, models, read

__all__ = ["models"]


def whole(model: Model, **message: Any) -> tuple[str, str]:
    body = {"choices": [{"index": 0, "message": message, "finish_reason": "stop"}]}
    reply = engine.parse_response(model, 200, {}, json.dumps(body).encode())
    return reply.reasoning, reply.text


@pytest.mark.parametrize(
    ("value", "text"),
    [(5, "5"), (0, "0"), (-1.5, "-1.5"), (True, "true"), (False, "false"), (10**20, "100000000000000000000")],
)
def test_a_bare_value_is_the_text_of_the_answer(models: dict[str, Model], value: Any, text: str) -> None:
    model = models["openai-chat"]
    assert whole(model, content=value) == ("", text)
    assert whole(model, content=[value, {"type": "text", "text": value}]) == ("", text * 2)
    assert read(model, [chunk({"content": value}), chunk({"content": "!"}), STOP]).text == f"{text}!"


def test_bare_values_in_pieces_are_one_text(models: dict[str, Model]) -> None:
    chunks = [chunk({"content": 1}), chunk({"content": "2"}), chunk({"content": 0}), chunk({"content": None}), STOP]
    assert read(models["openai-chat"], chunks).text == "120"


@pytest.mark.parametrize(("value", "text"), [(7, "7"), ({"text": "so"}, "so"), ({"summary": "so"}, "so"), ({}, "")])
def test_reasoning_that_is_no_text_is_read(models: dict[str, Model], value: Any, text: str) -> None:
    model = models["openai-chat"]
    assert whole(model, reasoning_content=value, content="Hello") == (text, "Hello")
    reply = read(model, [chunk({"reasoning_content": value}), chunk({"content": "Hello"}), STOP])
    assert (reply.reasoning, reply.text) == (text, "Hello")
