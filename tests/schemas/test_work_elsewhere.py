"""What reads a schema beside the validator does work that grows with what it is given, and never with a power of it."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from functools import partial
from types import FrameType
from typing import Any

import pytest
from examples import some

from cnllm.schemas.adapt import adapt_schema, remove_nulls
from cnllm.schemas.coerce import allowed_types, coerce, property_schema
from cnllm.schemas.python_types import inline_references
from cnllm.simulator.schema_sample import sample_match, sample_value
from cnllm.tools.arguments import decode_values

RULES = ("inline-refs", "any-of-only", "one-type", "branch-types", "no-tuples", "typed", "root-object")
REF = {"$ref": "#/$defs/n"}


class TooMuch(Exception):
    """More calls than an attack may cost."""


def calls(work: Callable[[], Any], most: int) -> int:
    """Return how many calls of functions some work takes, those of C among them."""
    count = 0

    def see(frame: FrameType, event: str, arg: Any) -> None:
        nonlocal count
        count += event in ("call", "c_call")
        if count > most:
            raise TooMuch

    before = sys.getprofile()
    sys.setprofile(see)
    try:
        work()
    finally:
        sys.setprofile(before)
    return count


def around(width: int) -> dict[str, Any]:
    """Schemas that lead to each other, each in as many ways as `width`."""
    return {f"d{i}": {"anyOf": [{"$ref": f"#/$defs/d{(i + j) % 8}"} for j in range(width)]} for i in range(8)}


def table(count: int) -> dict[str, Any]:
    return {"type": "object", "properties": {f"p{i}": {"type": "string"} for i in range(count)}}


def chain(length: int) -> dict[str, Any]:
    """Schemas each of which holds the next one twice."""
    last = {f"d{length}": table(20)}
    return {f"d{i}": {"properties": {key: {"$ref": f"#/$defs/d{i + 1}"} for key in "ab"}} for i in range(length)} | last


def same_names(count: int) -> dict[str, Any]:
    """Definitions whose names differ only by where they stand."""
    deep = {f"g{i}": {"properties": {"x": {"type": "string"}}} for i in range(count)}
    return {"$defs": deep, "properties": {f"p{i}": {"$ref": f"#/$defs/g{i}/properties/x"} for i in range(count)}}


def many_ways(count: int) -> dict[str, Any]:
    """One large definition, to which references point that are all written in another way."""
    return {
        "$defs": {"n": table(count)},
        "properties": {f"p{i}": {"$ref": "#/$defs/n" + "/" * i} for i in range(count)},
    }


def coerced(schema: dict[str, Any], count: int = 300) -> Callable[[], Any]:
    def work() -> None:
        for nth in range(count):
            coerce(str(nth), property_schema(schema, "a", schema), schema)

    return work


def attacks() -> Iterator[tuple[str, Callable[[], Any], int]]:
    """Name, work, and the most calls that it may take."""
    text = {"a": "[1]"}
    for width in (8, 200):
        wide = {"$defs": around(width), "properties": {"a": {"$ref": "#/$defs/d0"}}}
        yield f"encoded, {width} ways", partial(decode_values, text, wide), 20_000
        yield f"typed, {width} ways", partial(allowed_types, wide["properties"]["a"], wide), 20_000
        yield f"inline, {width} ways", partial(adapt_schema, wide, RULES, ()), 3_000_000
    endless: dict[str, Any] = {"$defs": {"n": {"anyOf": [REF, {"$ref": "#/$defs/n"}]}}, "properties": {"a": REF}}
    yield "encoded, endless", lambda: decode_values(text, endless), 1_000
    many = {"properties": {"a": {"anyOf": [{"type": "array"}] * 50_000}}}
    yield "encoded, many branches", lambda: decode_values(text, many), 1_000
    for values in ([*range(20_000)], [f"v{i}" for i in range(20_000)], [{"i": i} for i in range(20_000)]):
        yield "typed, an enum", coerced({"properties": {"a": {"enum": values}}}), 1_500_000
    yield "typed, many branches", coerced({"properties": {"a": {"anyOf": [{"enum": [1]}] * 50_000}}}, 100), 1_000_000
    once = {"type": "object", "$defs": chain(30), "properties": {"a": {"$ref": "#/$defs/d0"}}}
    yield "a chain that doubles, one expansion each", lambda: adapt_schema(once, RULES, ()), 3_000_000
    large = {"$defs": {"n": table(500)}, "properties": {f"p{i}": REF for i in range(300)}}
    yield "a large definition, often", lambda: adapt_schema(large, RULES, ()), 3_000_000
    yield "a large definition of a function, often", lambda: inline_references(large), 1_500_000
    linked = {f"d{i}": {"$ref": f"#/$defs/d{i + 1}"} for i in range(150)} | {"d150": {}}
    yield "a chain of a function", lambda: inline_references({"$defs": linked, **linked["d0"]}), 200_000
    yield "doubling of a function", lambda: inline_references(once), 1_500_000
    keywords = {"allOf": [{f"x-{i}": i} for i in range(5_000)]}
    yield "allOf of new keywords", lambda: adapt_schema(keywords, ("any-of-only",), ()), 200_000
    yield "references with one last name", lambda: adapt_schema(same_names(2_000), ("root-refs",), ()), 1_000_000
    yield "references written in many ways", lambda: adapt_schema(many_ways(1_000), ("root-refs",), ()), 1_000_000
    branches = [{"properties": {"kind": {"const": i}, "v": {"type": "string"}}} for i in range(200)]
    union = {"properties": {"a": {"items": {"anyOf": branches}}}}
    value = {"a": [{"kind": i, "v": None} for i in range(50)]}
    yield "nulls in a union", lambda: remove_nulls(value, union), 500_000
    for source in (
        "((a{1000}){1000}){1000}",
        "(((a{99}){99}){99}){99}",
        "(()){999999}",
        "^(a+)+$b",
        "(" * 5_000,
        "a{99999999}",
    ):
        yield f"matching {source[:20]}", partial(sample_match, source, "s"), 500_000
    yield "matching a range", lambda: sample_match("[\0-\U0010ffff]{500}", "s"), 500_000
    each = {"type": "array", "minItems": 10_000, "items": {"type": "string", "pattern": "^((ab){50}){50}$"}}
    yield "an array of patterns", lambda: sample_value(each), 3_000_000
    tall = {"type": "array", "minItems": 10_000, "items": {"properties": {f"p{i}": {} for i in range(5_000)}}}
    yield "an array of large objects", lambda: sample_value(tall), 1_000_000


@pytest.mark.sampled
def test_work_has_a_bound_wherever_a_schema_is_read() -> None:
    for name, work, most in some([*attacks()]):
        try:
            calls(work, most)
        except TooMuch:
            raise AssertionError(f"{name} takes more than {most} calls") from None


def test_work_grows_with_the_size_and_not_with_its_square() -> None:
    def grows(made: Callable[[int], Callable[[], Any]]) -> float:
        return calls(made(400), 10**7) / calls(made(100), 10**7)

    assert grows(lambda n: lambda: adapt_schema(same_names(n), ("root-refs",), ())) < 5
    assert grows(lambda n: lambda: adapt_schema(many_ways(n), ("root-refs",), ())) < 5
    assert grows(lambda n: lambda: decode_values({f"p{i}": "[1]" for i in range(n)}, table(n))) < 5
    assert grows(lambda n: coerced({"properties": {"a": {"enum": [*range(500)]}}}, n)) < 5


def test_what_is_ordinary_is_read_as_before() -> None:
    either = {"anyOf": [{"type": "array"}, {"$ref": "#/$defs/n"}]}
    root = {
        "$defs": {"n": {"type": ["object", "null"]}},
        "properties": {"a": either, "b": {"type": ["array", "string"]}},
    }
    assert decode_values({"a": '{"x": 1}', "b": "[1]"}, root) == {"a": {"x": 1}, "b": "[1]"}
    long = {"enum": [f"{i:03}" for i in range(500)]}
    assert [coerce(t, long, long) for t in ("007", "5", "499")] == ["007", "5", "499"]
    numbers = {"type": "integer", "enum": [*range(500)]}
    assert [coerce(t, numbers, numbers) for t in ("7", "499")] == [7, 499]
    few = {"enum": [1, 2, "3"]}
    assert [coerce(t, few, few) for t in ("1", "3", "9")] == [1, "3", "9"]
    assert sample_match("[]a]{3}", "s")[0] is not None
