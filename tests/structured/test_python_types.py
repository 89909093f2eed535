"""Types of Python as the schema of an answer: the schema that goes out, and the value that comes back."""

from __future__ import annotations

import dataclasses
import enum
import json
from collections.abc import Iterator
from datetime import date
from typing import Annotated, Any, Literal, NamedTuple, Optional, Required, TypedDict, Union

import pydantic
import pytest

import cnllm
from cnllm import engine

SECRET = "sk-abcdefgh12345678"


@dataclasses.dataclass(frozen=True)
class City:
    """A city."""

    name: str
    people: int = 0
    founded: date | None = None


class Row(TypedDict):
    """A city as a dict."""

    name: str


class Size(enum.Enum):
    """How large a city is."""

    SMALL = "small"
    LARGE = "large"


class Place(NamedTuple):
    """Where it is."""

    north: float
    east: float


class Model(pydantic.BaseModel):
    """A city as a model."""

    name: str


class Plain:
    """A class that nothing describes."""


BERN = City("Bern", 134_000, date(1191, 1, 1))
CASES: list[tuple[Any, Any, Any]] = [
    (City, {"name": "Bern", "people": 134_000, "founded": "1191-01-01"}, BERN),
    (City, {"name": "Bern"}, City("Bern")),
    (list[str], ["Bern", "Basel"], ["Bern", "Basel"]),
    (list[City], [{"name": "Bern"}], [City("Bern")]),
    (dict[str, int], {"Bern": 3}, {"Bern": 3}),
    (tuple[str, int], ["Bern", 3], ("Bern", 3)),
    (Row, {"name": "Bern"}, {"name": "Bern"}),
    (Size, "large", Size.LARGE),
    (Place, [46.9, 7.4], Place(46.9, 7.4)),
    (Literal["yes", "no"], "yes", "yes"),
    (City | None, None, None),
    (Optional[City], {"name": "Bern"}, City("Bern")),  # noqa: UP045
    (Union[int, str], "Bern", "Bern"),  # noqa: UP007
    (City | list[City], [{"name": "Bern"}], [City("Bern")]),
    (list[Model], [{"name": "Bern"}], [Model(name="Bern")]),
    (Annotated[int, pydantic.Field(ge=1)], 3, 3),
    (int, 3, 3),
    (bool, False, False),
    (str, "Bern", "Bern"),
    (dict, {"a": [1]}, {"a": [1]}),
]


class Endpoint:
    """A transport that answers with texts, one after another, and keeps the bodies."""

    def __init__(self, *texts: str) -> None:
        self.texts = [*texts]
        self.bodies: list[dict[str, Any]] = []

    def send(self, plan: engine.Plan) -> tuple[int, dict[str, str], Iterator[bytes]]:
        self.bodies.append(plan.body)
        message = {"role": "assistant", "content": self.texts.pop(0)}
        return 200, {}, iter([json.dumps({"choices": [{"message": message, "finish_reason": "stop"}]}).encode()])


@pytest.mark.parametrize(("schema", "value", "meant"), CASES, ids=[str(case[0]) for case in CASES])
def test_the_answer_is_built_as_the_type_says(schema: Any, value: Any, meant: Any) -> None:
    endpoint = Endpoint()
    model = cnllm.Registry.load().resolve("openai/gpt-5.2", protocol="openai-chat")
    with cnllm.Client(transport=endpoint, api_key=SECRET) as client:
        sent = client.plan(model, "Which?", schema=schema)
        wire = sent.body["response_format"]["json_schema"]["schema"]
        assert wire["type"] == "object"  # an endpoint takes nothing else
        wrapped = "answer" in wire["properties"] if "properties" in wire else False
        endpoint.texts = [json.dumps({"answer": value} if wrapped else value)]
        reply = client.call(model, "Which?", schema=schema)
    assert (reply.parsed, type(reply.parsed)) == (meant, type(meant))
    assert [note.code for note in reply.notes if note.code.startswith("answer")] == []
    assert json.loads(json.dumps(reply.to_dict()))["parsed"] == json.loads(json.dumps(reply.to_dict()["parsed"]))


def test_an_answer_that_does_not_fit_is_sent_back_with_the_place() -> None:
    model = cnllm.Registry.load().resolve("openai/gpt-5.2", protocol="openai-chat")
    endpoint = Endpoint('{"name": "Bern", "people": "many"}', '{"name": "Bern", "people": 3}')
    with cnllm.Client(transport=endpoint, api_key=SECRET) as client:
        reply = client.call(model, "Which?", schema=City)
    assert reply.parsed == City("Bern", 3)
    assert "$.people" in json.dumps(endpoint.bodies[1])
    assert "answer-corrected" in [note.code for note in reply.notes]


@pytest.mark.parametrize(
    "wrong", [Plain, "City", 3, City("x"), ["x"], print, lambda: 1, Literal, list[Plain], object()]
)
def test_what_is_no_schema_is_refused_with_what_is(wrong: Any) -> None:
    with pytest.raises(
        TypeError, match=r"^schema is .*a pydantic model, a dataclass, list\[str\], …\) or a JSON Schema"
    ):
        cnllm.fit("glm-4.7", "Hi", schema=wrong)


def test_a_reply_holds_no_secret_in_any_of_these() -> None:
    model = cnllm.Registry.load().resolve("openai/gpt-5.2", protocol="openai-chat")
    for schema, text in (
        (City, {"name": SECRET}),
        (list[City], {"answer": [{"name": SECRET}]}),
        (Row, {"name": SECRET}),
    ):
        with cnllm.Client(transport=Endpoint(json.dumps(text)), api_key=SECRET) as client:
            reply = client.call(model, "Which?", schema=schema)
        assert SECRET not in repr(reply)


def test_the_schema_of_a_type_is_read_once() -> None:
    before = engine.build_request(cnllm.Registry.load().resolve("glm-4.7"), "Hi", schema=list[City])
    again = engine.build_request(cnllm.Registry.load().resolve("glm-4.7"), "Hi", schema=list[City])
    assert before.answer is not None
    assert again.answer is not None
    assert before.answer.kind is again.answer.kind


class Nested(TypedDict, total=False):
    """Rows of `typing.TypedDict`, at any depth."""

    rows: Required[list[Row]]
    best: Row | None
    size: Annotated[Size, "how large"]


def test_a_typed_dict_of_any_python_is_read_with_what_is_required_in_it() -> None:
    answer = engine.build_request(cnllm.Registry.load().resolve("glm-4.7"), "Hi", schema=Nested).answer
    assert answer is not None
    assert answer.schema["required"] == ["rows"]
    assert {*answer.schema["properties"]} == {"rows", "best", "size"}
    assert answer.kind.model_validate_json('{"rows": [{"name": "Bern"}]}') == {"rows": [{"name": "Bern"}]}
    with pytest.raises(ValueError, match="name"):
        answer.kind.model_validate_json('{"rows": [{}]}')


def test_a_parameter_of_a_tool_may_be_one() -> None:
    @cnllm.tool
    def store(row: Row, rows: list[Nested]) -> str:
        """Store rows."""
        return f"{row['name']} {len(rows)}"

    assert store.parameters is not None
    assert store.parameters["properties"]["row"]["required"] == ["name"]
