import copy

import pytest
from hypothesis import given
from hypothesis import strategies as st

from klet.api.patches.merge_patch import apply_merge_patch, create_merge_patch, same

full = st.booleans() | st.integers(-3, 3) | st.sampled_from(["a", "b"])


def objects(inner):
    return st.dictionaries(st.sampled_from("xyz"), inner, max_size=3)


def trees(leaves):
    return objects(st.recursive(leaves, lambda inner: st.lists(inner, max_size=3) | objects(inner), max_leaves=8))


with_nulls, without_nulls = trees(full | st.none()), trees(full)


@pytest.mark.parametrize(
    ("data", "patch", "expected"),
    [
        ({"a": "b"}, {"a": "c"}, {"a": "c"}),
        ({"a": "b"}, {"b": "c"}, {"a": "b", "b": "c"}),
        ({"a": "b"}, {"a": None}, {}),
        ({"a": "b", "b": "c"}, {"a": None}, {"b": "c"}),
        ({"a": ["b"]}, {"a": "c"}, {"a": "c"}),
        ({"a": "c"}, {"a": ["b"]}, {"a": ["b"]}),
        ({"a": {"b": "c"}}, {"a": {"b": "d", "c": None}}, {"a": {"b": "d"}}),
        ({"a": [{"b": "c"}]}, {"a": [1]}, {"a": [1]}),
        (["a", "b"], ["c", "d"], ["c", "d"]),
        ({"a": "b"}, ["c"], ["c"]),
        ({"a": "foo"}, None, None),
        ({"a": "foo"}, "bar", "bar"),
        ({"e": None}, {"a": 1}, {"e": None, "a": 1}),
        ([1, 2], {"a": "b", "c": None}, {"a": "b"}),
        ({}, {"a": {"bb": {"ccc": None}}}, {"a": {"bb": {}}}),
    ],
)
def test_apply_merge_patch_follows_the_cases_of_the_rfc(data, patch, expected):
    assert apply_merge_patch(data, patch) == expected


@given(without_nulls, without_nulls)
def test_a_created_patch_makes_the_new_of_the_old(old, new):
    assert same(apply_merge_patch(old, create_merge_patch(old, new)), new)


@given(without_nulls)
def test_equal_objects_need_no_patch(value):
    assert create_merge_patch(value, copy.deepcopy(value)) == {}


@given(without_nulls, with_nulls)
def test_applying_twice_is_applying_once_and_changes_no_input(data, patch):
    before = copy.deepcopy((data, patch))
    once = apply_merge_patch(data, patch)
    assert same(apply_merge_patch(once, patch), once)
    assert (data, patch) == before


@pytest.mark.parametrize(
    ("one", "other", "expected"),
    [
        (1, True, False),
        (0, False, False),
        (True, True, True),
        (1, 1.0, True),
        ([1], [True], False),
        ({"a": 1}, {"a": 1}, True),
        ({"a": 1}, {"b": 1}, False),
        ([1], [1, 2], False),
        (None, 0, False),
    ],
)
def test_equality_knows_booleans_from_numbers(one, other, expected):
    assert same(one, other) is expected
