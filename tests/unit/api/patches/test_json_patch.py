import copy
import time

import pytest

from klet.api.patches.errors import PatchError, TooManyOperations
from klet.api.patches.json_patch import MAX_OPERATIONS, apply_json_patch


def op(name, path, **rest):
    return {"op": name, "path": path, **rest}


@pytest.mark.parametrize(
    ("data", "operations", "expected"),
    [
        pytest.param({"a": 1}, [], {"a": 1}, id="no operation"),
        pytest.param({"a": 1}, [op("add", "/b", value=2)], {"a": 1, "b": 2}, id="a member is added"),
        pytest.param({"a": 1}, [op("add", "/a", value=None)], {"a": None}, id="adding replaces a member"),
        pytest.param({"l": [1, 3]}, [op("add", "/l/1", value=2)], {"l": [1, 2, 3]}, id="an element is inserted"),
        pytest.param({"l": [1]}, [op("add", "/l/1", value=2)], {"l": [1, 2]}, id="one past the end appends"),
        pytest.param({"l": [1]}, [op("add", "/l/-", value=2)], {"l": [1, 2]}, id="a dash appends"),
        pytest.param({"a": 1}, [op("add", "", value=[])], [], id="the empty pointer is the whole"),
        pytest.param({"a": 1, "b": 2}, [op("remove", "/a")], {"b": 2}, id="a member is removed"),
        pytest.param({"l": [1, 2]}, [op("remove", "/l/0")], {"l": [2]}, id="an element is removed"),
        pytest.param({"l": [1, 2]}, [op("replace", "/l/0", value=9)], {"l": [9, 2]}, id="an element is replaced"),
        pytest.param({"a": {"b": 1}}, [op("replace", "/a/b", value=2)], {"a": {"b": 2}}, id="a member is replaced"),
        pytest.param(
            {"a": {"b": 1}, "c": {}},
            [op("move", "/c/d", **{"from": "/a/b"})],
            {"a": {}, "c": {"d": 1}},
            id="a member moves",
        ),
        pytest.param(
            {"l": [1, 2, 3]}, [op("move", "/l/2", **{"from": "/l/0"})], {"l": [2, 3, 1]}, id="an element moves"
        ),
        pytest.param(
            {"a": [1]},
            [op("copy", "/b", **{"from": "/a"}), op("add", "/b/-", value=2)],
            {"a": [1], "b": [1, 2]},
            id="a copy is its own",
        ),
        pytest.param(
            {"a/b": 1, "m~n": 2}, [op("remove", "/a~1b"), op("remove", "/m~0n")], {}, id="escapes in pointers"
        ),
        pytest.param({"": 1}, [op("replace", "/", value=2)], {"": 2}, id="the empty name is a name"),
        pytest.param(
            {"a": {"b": [1, None]}},
            [op("test", "/a", value={"b": [1, None]})],
            {"a": {"b": [1, None]}},
            id="a test that holds",
        ),
    ],
)
def test_apply_json_patch(data, operations, expected):
    before = copy.deepcopy(data)
    assert apply_json_patch(data, operations) == expected
    assert data == before


@pytest.mark.parametrize(
    ("operations", "message"),
    [
        ([op("test", "/a", value=True)], "testing value /a failed"),
        ([op("test", "/x", value=1)], "there is nothing at 'x'"),
        ([op("remove", "/x")], "there is nothing at 'x'"),
        ([op("replace", "/x", value=1)], "there is nothing at 'x'"),
        ([op("add", "/x/y", value=1)], "there is nothing at 'x'"),
        ([op("add", "/a/b", value=1)], "nothing can be added at /a/b"),
        ([op("add", "/l/9", value=1)], "nothing can be added at /l/9"),
        ([op("add", "/l/01", value=1)], "nothing can be added at /l/01"),
        ([op("remove", "/l/-")], "there is nothing at '-'"),
        ([op("remove", "/l/-1")], "there is nothing at '-1'"),
        ([op("add", "/a")], "JSON patch operation 'add' needs a value"),
        ([op("add", "a", value=1)], "path of a JSON patch operation must be a JSON pointer, not 'a'"),
        ([op("add", "/a~2", value=1)], "path of a JSON patch operation must be a JSON pointer, not '/a~2'"),
        ([op("copy", "/b")], "from of a JSON patch operation must be a JSON pointer, not None"),
        ([op("move", "/o/x/y", **{"from": "/o"})], "/o cannot be moved into itself"),
        ([op("bend", "/a")], "unknown JSON patch operation: 'bend'"),
        ([{"path": "/a"}], "unknown JSON patch operation: None"),
        (["add"], "a JSON patch operation must be an object"),
    ],
)
def test_what_cannot_be_applied_is_refused(operations, message):
    with pytest.raises(PatchError) as caught:
        apply_json_patch({"a": 1, "l": [1], "o": {}}, operations)
    assert str(caught.value) == message


def test_copies_of_copies_end_before_they_fill_the_memory():
    """Each one doubles the document: a request of 3 KiB would be a terabyte."""
    doubling = [op("copy", f"/a/{number}", **{"from": "/a"}) for number in range(40)]
    started = time.process_time()
    with pytest.raises(PatchError, match="copies more than"):
        apply_json_patch({"a": {"b": "c" * 100}}, doubling)
    assert time.process_time() - started < 5


def test_too_many_operations_are_refused():
    with pytest.raises(TooManyOperations):
        apply_json_patch({}, [op("add", "/a", value=1)] * (MAX_OPERATIONS + 1))
