"""Validation ends, whatever a model writes, and agrees with jsonschema on what is ordinary."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import hypothesis.strategies as st
import jsonschema
import pytest
from cases import each
from examples import share
from hypothesis import given, settings

from cnllm import ToolCall
from cnllm.schemas.patterns import compile_pattern
from cnllm.schemas.validate import Undecided, UnusableSchema, undecided_patterns, validation_errors
from cnllm.schemas.work import WorkBudget
from cnllm.tools import Tool, problem_with

from .shapes import SHAPES

LIMIT = 300  # seconds after which a process hangs; all shapes together take a few

JUDGE = """
from cnllm.schemas import work
from cnllm.schemas.work import WorkBudget
from cnllm.schemas.validate import Undecided, validation_errors
from tests.schemas.shapes import SHAPES
work.STEPS = 10_000  # so that what ends by them ends sooner
most, spend = [0], WorkBudget.spend
def counted(self, steps):
    most[0] = max(most[0], self.steps)
    spend(self, steps)
WorkBudget.spend = counted
for name, (schema, value, _) in SHAPES.items():
    most[0] = 0
    try: verdict = not validation_errors(value, schema)
    except Undecided: verdict = None
    print(name, verdict, most[0], sep="\\t", flush=True)
"""


def test_every_shape_ends_with_the_right_verdict_within_its_steps() -> None:
    done = subprocess.run([sys.executable, "-c", JUDGE], capture_output=True, text=True, timeout=LIMIT, check=True)
    lines = [line.split("\t") for line in done.stdout.splitlines()]
    assert {name: verdict for name, verdict, _ in lines} == {name: str(said) for name, (_, _, said) in SHAPES.items()}
    assert max(int(steps) for _, _, steps in lines) <= 400_000
    assert len(lines) >= 40


def test_the_work_grows_with_the_value_and_not_with_its_square() -> None:
    def steps(schema: dict[str, Any], value: Any) -> int:
        from cnllm.schemas.keywords import bounded_validator

        work = WorkBudget(value)
        validator = bounded_validator(jsonschema.Draft202012Validator)(schema, format_checker=work)
        assert not list(validator.iter_errors(value))
        return work.steps

    for schema, one in (
        ({"uniqueItems": True}, lambda n: [{"i": i} for i in range(n)]),
        ({"items": {"enum": [{"i": i} for i in range(100)]}}, lambda n: [{"i": 99}] * n),
        ({"additionalProperties": {"pattern": "^(a+)+$"}}, lambda n: {f"k{i}": "a" * 50 for i in range(n)}),
        ({"prefixItems": [{}], "unevaluatedItems": {"type": "integer"}}, lambda n: [1] * n),
    ):
        few, many = steps(schema, one(500)), steps(schema, one(2_000))
        assert many < 4.5 * few, schema


def test_arguments_that_cannot_be_checked_are_not_executed_and_the_model_hears_why() -> None:
    schema, value, _ = SHAPES["anyOf"]
    said = problem_with(
        Tool("f", parameters={"type": "object", "properties": {"a": schema["$defs"]["n"]}, **schema}),
        ToolCall("c", "f", value, ""),
    )
    assert said is not None
    assert "they cannot be checked: it takes more than 50000 steps. Send fewer or simpler values." in said


def test_a_reference_that_is_no_text_is_the_schemas_fault() -> None:
    for reference in (5, None, ["a"]):
        with pytest.raises(UnusableSchema, match="which is not in it"):
            validation_errors({"a": 1}, {"properties": {"a": {"$ref": reference}}})


def test_a_schema_without_end_is_the_schemas_fault() -> None:
    for schema in ({"$ref": "#"}, {"anyOf": [{"$ref": "#"}, {"$ref": "#"}]}, {"not": {"$ref": "#"}}):
        with pytest.raises(UnusableSchema, match="refers to itself without end"):
            validation_errors({"a": 1}, schema)


@each(
    "source, fits, other",
    lambda: [
        (r"^[\u4e00-\u9fa5]{2,4}$", "张三", "Zhang"),
        (r"^\ud83d\ude00+$", "😀😀", "x"),
        (r"^\u{1F600}$", "😀", "x"),
        (r"^\d{3}$", "123", "１２３"),
        (r"^[\d-]+$", "1-2", "a"),
        (r"^[^\d]$", "a", "1"),
        (r"^\D$", "a", "1"),
        (r"^\w+$", "北京", "a b"),
        (r"^[\w.-]+@[\w.-]+$", "a.b@c-d", "a@"),
        (r"^a$", "a", "a\n"),
        (r"^a\Z", "a", "a\n"),
        (r"^\/a\-b\<c\>\@$", "/a-b<c>@", "x"),
        (r"^[[&~]+$", "[&~", "a"),
        (r"^[a&&b]+$", "a&b", "c"),
        (r"^{a}$", "{a}", "a"),
        (r"^a{2}{x$".replace("}{", "}\\{"), "aa{x", "aa"),
        (r"^\cA$", "\x01", "A"),
        (r"^\p{L}+$", "né", "1"),
        (r"b", "abc", "ac"),
        (r"^(?<year>\d{4})$", "2026", "26"),
        (r"^(?P<year>\d{4})$", "2026", "26"),
        (r"^(?i)ab$", "AB", "c"),
        (r"^.$", "\ud800", "ab"),
    ],
)
def test_a_pattern_means_what_json_schema_means(source: str, fits: str, other: str) -> None:
    assert compile_pattern(source).matches(fits) is True
    assert compile_pattern(source).matches(other) is False


def test_the_size_of_a_pattern_is_that_with_its_counts_written_out() -> None:
    for source, size in (
        ("", 1),
        ("a{0}", 1),
        ("a{1}b?", 2),
        ("a{2,}b*", 3),
        ("a{2,4}", 4),
        ("(a{2}b|c){3}", 12),
        ("(){4}", 4),
        (".{2}", 16),
        ("[0-9]{4}", 44),
        (r"\w{2}\0", 301),
        ("(a{1000}){100}", 100_000),
    ):
        assert compile_pattern(source).size == size, source
    assert "too large" in str(compile_pattern("a{50000}b{50001}").problem)


UNKNOWN = [
    "(?=a)b",
    "(?!a)b",
    "(?<=a)b",
    "(?<!a+)b",
    r"(a)\1",
    r"(?P<n>a)(?P=n)",
    "a++",
    "(?>a)b",
    "a{,3}",
    "[]a]",
    "[^]",
    "((a{1000}){1000})",
]
UNKNOWN += ["a" * 10_001, "(" * 9_000]


def test_what_is_not_judged_is_neither_true_nor_false_and_is_told() -> None:
    for source in UNKNOWN:
        one = {"pattern": source}
        assert compile_pattern(source).matches("ab") is None, source
        if compile_pattern(source).is_broken:
            continue
        for schema in (
            one,
            {"not": one},
            {"not": {"not": one}},
            {"oneOf": [one, {"minLength": 1}]},
            {"if": one, "then": False, "else": {"type": "string"}},
            {"if": one, "then": {"type": "string"}, "else": False},
            {"anyOf": [one, False]},
        ):
            assert validation_errors("ab", schema) == [], (source, schema)
            assert len(undecided_patterns(schema)) == 1
        names = {"patternProperties": {source: False}, "additionalProperties": False}
        assert validation_errors({"ab": 1}, names) == []
        assert validation_errors(["ab"], {"contains": one, "maxContains": 0, "minContains": 0}) == []
        assert validation_errors({"ab": 1}, {"patternProperties": {source: {}}, "unevaluatedProperties": False}) == []
        assert validation_errors("ab", {**one, "type": "integer"})  # the rest is judged
    assert undecided_patterns({"properties": {"default": {"pattern": "(?=a)"}}, "default": {"pattern": "(?=b)"}}) != ()
    assert undecided_patterns({"default": {"pattern": "(?=b)"}, "enum": [{"pattern": "(?=b)"}]}) == ()


def test_a_list_of_schemas_judges_the_first_items_alone() -> None:
    older = "https://json-schema.org/draft/2019-09/schema"
    whole: dict[str, Any] = {"items": {"type": "integer"}, "unevaluatedItems": False}
    assert validation_errors([1, 2], whole) == []
    first = {"$schema": older, "items": [{"type": "integer"}], "unevaluatedItems": False}
    assert validation_errors([1], first) == []
    assert [error.message for error in validation_errors([1, 2], first)] == [
        "Unevaluated items are not allowed (2 was unexpected)"
    ]
    assert validation_errors([1, 2], {**first, "additionalItems": True}) == []


def test_a_schema_with_an_id_of_its_own_refers_to_its_own_definitions() -> None:
    inner = {"properties": {"b": {"$ref": "#/$defs/n"}}, "$defs": {"n": {"type": "integer"}}}
    schema = {"properties": {"a": {"$id": "http://x.test/a", **inner}}, "$defs": {"n": {"type": "string"}}}
    assert validation_errors({"a": {"b": 1}}, schema) == []
    assert len(validation_errors({"a": {"b": "x"}}, schema)) == 1


def test_a_pattern_that_is_none_is_a_fault_of_the_schema() -> None:
    for source in ("(", "[", "a)", "*a", "(?"):
        with pytest.raises(ValueError, match="not a JSON Schema: the pattern"):
            validation_errors("x", {"properties": {"a": {"pattern": source}}})


# ── as jsonschema ────────────────────────────────────────────────────────────

scalars = (
    st.none() | st.booleans() | st.integers(-3, 3) | st.sampled_from([0.0, 1.0, 1.5, -2.0]) | st.text("ab1", max_size=3)
)
values = st.recursive(
    scalars, lambda v: st.lists(v, max_size=4) | st.dictionaries(st.sampled_from("abc"), v, max_size=3), max_leaves=8
)
leaves = st.one_of(
    st.booleans(),
    st.fixed_dictionaries(
        {"type": st.sampled_from(["string", "integer", "number", "array", "object", "null", "boolean"])}
    ),
    st.fixed_dictionaries({"enum": st.lists(values, min_size=1, max_size=20)}),
    st.fixed_dictionaries({"const": values}),
    st.fixed_dictionaries({"uniqueItems": st.booleans()}),
    st.fixed_dictionaries({"pattern": st.sampled_from(["^a", "b$", "^[ab]+$", r"\d", "a|1", "^(a+)+$", "[^a]"])}),
    st.fixed_dictionaries({"multipleOf": st.sampled_from([1, 2, 0.5])}),
    st.fixed_dictionaries({"required": st.lists(st.sampled_from("abc"), max_size=2, unique=True)}),
    st.fixed_dictionaries(
        {"minimum": st.integers(-2, 2), "maxLength": st.integers(0, 3), "minItems": st.integers(0, 2)}
    ),
)


def _above(below: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    names = st.dictionaries(st.sampled_from("abc"), below, max_size=3)
    several = st.lists(below, min_size=1, max_size=3)
    patterns = st.dictionaries(st.sampled_from(["^a", "b|c", "."]), below, max_size=2)
    return st.fixed_dictionaries(
        {},
        optional={
            "properties": names, "patternProperties": patterns, "additionalProperties": below, "propertyNames": below,
            "items": below, "prefixItems": several, "contains": below, "minContains": st.integers(0, 2),
            "maxContains": st.integers(0, 2), "anyOf": several, "oneOf": several, "allOf": several, "not": below,
            "if": below, "then": below, "else": below, "dependentSchemas": names, "unevaluatedProperties": below,
            "unevaluatedItems": below,
        },
    )  # fmt: skip


@settings(max_examples=share(200), deadline=None)
@given(schema=st.recursive(leaves, _above, max_leaves=10), value=values)
def test_ordinary_schemas_are_judged_as_jsonschema_judges_them(schema: Any, value: Any) -> None:
    whole = {"allOf": [schema]}
    plain = sorted(
        (e.json_path, e.message, str(e.validator)) for e in jsonschema.Draft202012Validator(whole).iter_errors(value)
    )
    from cnllm.schemas.keywords import bounded_validator

    validator = bounded_validator(jsonschema.Draft202012Validator)(whole, format_checker=WorkBudget(value))
    ours = sorted((e.json_path, e.message, str(e.validator)) for e in validator.iter_errors(value))
    assert [place for place, _, _ in ours] == [place for place, _, _ in plain]
    assert [word for *_, word in ours] == [word for *_, word in plain]
    try:
        assert bool(validation_errors(value, whole)) is bool(plain)
    except Undecided as error:
        raise AssertionError("nothing here is large") from error
