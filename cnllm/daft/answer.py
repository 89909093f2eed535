"""The structs that `prompt` returns for `return_format=Answer`: all that a reply has, in columns."""

from __future__ import annotations

from typing import Any, Generic, TypeVar

import msgspec
from pydantic import BaseModel

from cnllm.types import Cost, Reply

__all__ = ["Answer", "ParsedAnswer", "answer_row", "split_format"]

Parsed = TypeVar("Parsed")


class AnswerUsage(BaseModel):
    """The tokens of a row: `input` includes the cached ones, `output` the reasoning. Null is unknown, and not 0."""

    input: int | None = None
    output: int | None = None
    total: int | None = None
    reasoning: int | None = None
    cached: int | None = None
    cache_write: int | None = None
    cache_write_1h: int | None = None


class AnswerCost(BaseModel):
    """The cost of a row in units of a currency.

    Where it is not `complete`, `amount` is a lower bound, and `at_most` is the most that it can be: null if nothing
    bounds it.
    """

    amount: float
    currency: str
    complete: bool = True
    at_most: float | None = None


class AnswerToolCall(BaseModel):
    """A tool call of the model; `arguments` is JSON."""

    name: str
    arguments: str


class Answer(BaseModel):
    """The whole answer of a row: `return_format=cnllm.daft.Answer` makes a struct column of it.

    A row that failed under `on_error="log"` or `"ignore"` has its `error`, and what arrived before it.
    """

    text: str | None = None
    reasoning: str | None = None
    tool_calls: list[AnswerToolCall] | None = None
    finish: str | None = None
    usage: AnswerUsage | None = None
    cost: AnswerCost | None = None
    error: str | None = None


class ParsedAnswer(Answer, Generic[Parsed]):
    """The whole answer of a row, and as `parsed` what follows a schema: `return_format=ParsedAnswer[Person]`."""

    parsed: Parsed | None = None


def split_format(return_format: Any) -> tuple[Any, bool]:
    """Return the schema in a `return_format`, or None, and whether the row is an `Answer`."""
    if not (isinstance(return_format, type) and issubclass(return_format, Answer)):
        return return_format, False
    arguments = return_format.__pydantic_generic_metadata__["args"]
    return (arguments[0] if arguments else None), True


def answer_row(reply: Reply[Any] | None, error: Exception | None, *, is_parsed: bool) -> dict[str, Any]:
    """Return a row's struct as a dict: of a reply, of an error, or of both where a part arrived."""
    row: dict[str, Any] = {"error": None if error is None else f"{type(error).__name__}: {error}"}
    if reply is not None:
        row |= {
            "text": reply.text,
            "reasoning": reply.reasoning,
            "tool_calls": [{"name": call.name, "arguments": call.raw} for call in reply.tool_calls],
            "finish": reply.finish,
            "usage": msgspec.structs.asdict(reply.usage),
            "cost": None if reply.cost is None else _cost_row(reply.cost),
        }
    if is_parsed:
        row["parsed"] = None if reply is None else reply.parsed
    return row


def _cost_row(cost: Cost) -> dict[str, Any]:
    """Return the struct of a cost as a dict."""
    most = None if cost.at_most is None else float(cost.at_most)
    return {"amount": float(cost.amount), "currency": cost.currency, "complete": cost.complete, "at_most": most}
