"""Dotted paths: what is put is there, what is cut is gone, and nothing else moves."""

from __future__ import annotations

import copy

from cases import each
from hypothesis import given
from hypothesis import strategies as st

from cnllm.jsonpath import get, get_first, merge_patch, remove, set_value

from .support import Json, anything, times

keys = st.sampled_from(["a", "b", "c", "0", "a b", "好"])
paths = st.lists(keys, min_size=1, max_size=4).map(".".join)
tables = st.recursive(
    st.dictionaries(keys, anything, max_size=3), lambda inner: st.dictionaries(keys, inner, max_size=3), max_leaves=4
)


@times(100)
@given(tables, paths, anything)
def test_what_was_put_is_found(data: Json, path: str, value: object) -> None:
    set_value(data, path, value)
    assert get(data, path) == value


@times(100)
@given(tables, paths)
def test_what_was_cut_is_gone_and_was_what_stood_there(data: Json, path: str) -> None:
    before = get(data, path) if "0" not in path else None
    taken = remove(data, path)
    if "0" not in path:
        assert taken == before
        assert get(data, path) is None


@times(60)
@given(tables, paths, st.integers())
def test_putting_and_cutting_what_was_not_there_leaves_things_as_they_were(data: Json, path: str, value: int) -> None:
    data = {"x": data}
    before = copy.deepcopy(data)
    set_value(data, "new." + path, value)
    assert remove(data, "new." + path) == value
    assert data == before


@times(100)
@given(tables, tables)
def test_a_patch_is_in_and_stays_apart(data: Json, patch: Json) -> None:
    before = copy.deepcopy(patch)
    merge_patch(data, patch)
    merge_patch(once := copy.deepcopy(data), patch)
    assert once == data
    for key, value in patch.items():
        if not isinstance(value, dict):
            assert data[key] == value
    merge_patch(data, {"a": {"b": {"c": 1}}, "b": {"a": 2}})
    assert patch == before


def test_tables_merge_and_everything_else_replaces() -> None:
    data: Json = {"a": {"x": 1, "y": [1]}, "b": 1, "c": {"z": 1}}
    merge_patch(data, {"a": {"y": [2]}, "b": {"q": 1}, "c": 3})
    assert data == {"a": {"x": 1, "y": [2]}, "b": {"q": 1}, "c": 3}


@each(
    "path, value",
    [("a.0.b", 1), ("a.1", None), ("a.x", None), ("c", None), ("c.d", None), ("a.-1", None), ("d", 0), ("", None)],
)
def test_a_path_reads_tables_and_lists(path: str, value: object) -> None:
    assert get({"a": [{"b": 1}], "c": None, "d": 0}, path) == value


def test_the_first_path_that_has_something_decides() -> None:
    data = {"a": None, "b": 0, "c": 1}
    assert get_first(data, ["x", "a", "b", "c"]) == 0
    assert get_first(data, ["x"]) is None
    assert get_first(data, None) is None


def test_tables_that_become_empty_go_too() -> None:
    data: Json = {"a": {"b": {"c": 1}}, "d": {"e": 1, "f": 2}}
    assert (remove(data, "a.b.c"), remove(data, "d.e"), remove(data, "x.y"), remove(data, "d.f.g")) == (
        1,
        1,
        None,
        None,
    )
    assert data == {"d": {"f": 2}}


def test_tables_inside_the_data_are_copied_before_they_change() -> None:
    schema = {"type": "object", "properties": {"a": {"type": "string"}}}
    body: Json = {"format": {"schema": schema}}
    merge_patch(body, {"format": {"schema": {"properties": {"a": {"title": "A"}}, "x": 1}}})
    assert body["format"]["schema"]["properties"] == {"a": {"type": "string", "title": "A"}}
    assert schema == {"type": "object", "properties": {"a": {"type": "string"}}}
