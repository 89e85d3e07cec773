import copy

import pytest

from klet.api.patches.errors import MissingMergeKey, PatchError
from klet.api.patches.strategic import REPLACE_LIST, apply_strategic_patch
from klet.api.pod import Pod


def pod(*names, **rest):
    return {"spec": {"containers": [{"name": name} for name in names], **rest}}


def names(result):
    return [element["name"] for element in result["spec"]["containers"]]


def apply(data, patch):
    before = copy.deepcopy((data, patch))
    result = apply_strategic_patch(data, patch, Pod)
    assert (data, patch) == before, "inputs stay as they are"
    return result


@pytest.mark.parametrize(
    ("data", "patch", "expected"),
    [
        pytest.param(
            {"metadata": {"labels": {"a": "1"}}},
            {"metadata": {"labels": {"b": "2"}}},
            {"metadata": {"labels": {"a": "1", "b": "2"}}},
            id="maps merge",
        ),
        pytest.param({"spec": {"nodeName": "n"}}, {"spec": {"nodeName": None}}, {"spec": {}}, id="null deletes"),
        pytest.param(
            {}, {"spec": {"os": {"name": None}}}, {"spec": {"os": {}}}, id="null that matches nothing is dropped"
        ),
        pytest.param(
            {"spec": {"tolerations": [{"key": "a"}]}},
            {"spec": {"tolerations": [{"key": "b"}]}},
            {"spec": {"tolerations": [{"key": "b"}]}},
            id="other lists are replaced",
        ),
        pytest.param(
            {"status": {"containerStatuses": [{"name": "a"}]}},
            {"status": {"containerStatuses": []}},
            {"status": {"containerStatuses": []}},
            id="container statuses are replaced",
        ),
        pytest.param(
            pod("a", "b"),
            {"spec": {"containers": [{"name": "b", "image": "i"}]}},
            {"spec": {"containers": [{"name": "a"}, {"name": "b", "image": "i"}]}},
            id="elements merge by key",
        ),
        pytest.param(
            pod("a"),
            {"spec": {"containers": [{"name": "b", "env": None, "$retainKeys": ["name"]}]}},
            pod("b", "a"),
            id="a new element comes without nulls and directives",
        ),
        pytest.param(
            pod("a", "b"),
            {"spec": {"containers": [{"name": "a", "$patch": "delete"}]}},
            pod("b"),
            id="an element is deleted",
        ),
        pytest.param(
            pod("a", "b"),
            {"spec": {"containers": [{"name": "c"}, REPLACE_LIST]}},
            pod("c"),
            id="a list is replaced by directive",
        ),
        pytest.param(
            {}, {"spec": {"containers": [{"name": "c"}, REPLACE_LIST]}}, pod("c"), id="also where there was none"
        ),
        pytest.param(
            {"spec": {"os": {"name": "linux"}}},
            {"spec": {"os": {"$patch": "replace", "x": 1}}},
            {"spec": {"os": {"x": 1}}},
            id="a map is replaced by directive",
        ),
        pytest.param(
            {"spec": {"os": {"name": "linux"}}},
            {"spec": {"os": {"$patch": "delete"}}},
            {"spec": {"os": {}}},
            id="a map is emptied by directive",
        ),
        pytest.param(
            {"spec": {"os": {"name": "linux"}}},
            {"spec": {"os": {"$patch": "merge", "x": 1}}},
            {"spec": {"os": {"name": "linux", "x": 1}}},
            id="merging is the default",
        ),
        pytest.param(
            {"metadata": {"finalizers": ["a", "b"]}},
            {"metadata": {"finalizers": ["c", "b"]}},
            {"metadata": {"finalizers": ["c", "a", "b"]}},
            id="plain values are a set",
        ),
        pytest.param(
            {"metadata": {"finalizers": ["a", "b"]}},
            {"metadata": {"$deleteFromPrimitiveList/finalizers": ["a", "x"]}},
            {"metadata": {"finalizers": ["b"]}},
            id="plain values are deleted by directive",
        ),
        pytest.param(
            {"metadata": {}},
            {"metadata": {"$deleteFromPrimitiveList/finalizers": ["a"]}},
            {"metadata": {}},
            id="deleting from no list does nothing",
        ),
        pytest.param(
            {"spec": {"volumes": [{"name": "v", "emptyDir": {"medium": "Memory"}}]}},
            {"spec": {"volumes": [{"name": "v", "hostPath": {"path": "/"}, "$retainKeys": ["name", "hostPath"]}]}},
            {"spec": {"volumes": [{"name": "v", "hostPath": {"path": "/"}}]}},
            id="keys that are not retained go",
        ),
        pytest.param(
            {"spec": {"nodeName": "n"}},
            {"spec": {"nodeName": {"odd": 1}}},
            {"spec": {"nodeName": {"odd": 1}}},
            id="another type replaces",
        ),
        pytest.param(
            {"spec": {"unknown": {"a": 1}}},
            {"spec": {"unknown": {"b": [1]}}},
            {"spec": {"unknown": {"a": 1, "b": [1]}}},
            id="unknown maps merge",
        ),
        pytest.param({"$patch": "x"}, {"$patch": "replace"}, {}, id="the whole object is replaced"),
    ],
)
def test_apply_strategic_patch(data, patch, expected):
    assert apply(data, patch) == expected


@pytest.mark.parametrize(
    ("before", "changed", "order", "expected"),
    [
        pytest.param("ab", "", "ba", "ba", id="the order alone"),
        pytest.param("ab", "c", "cab", "cab", id="a new element goes where the order says"),
        pytest.param("axb", "", "ba", "xba", id="what nobody named goes before what it preceded"),
        pytest.param("abx", "", "ba", "bax", id="and after what it followed"),
        pytest.param("axb", "c", "acb", "acxb", id="a new element keeps to its neighbours"),
        pytest.param("", "ab", "ab", "ab", id="no list before"),
        pytest.param("ab", "c", "", "cab", id="an empty order orders nothing"),
    ],
)
def test_set_element_order(before, changed, order, expected):
    data = pod(*before) if before else {"spec": {}}
    patch = {"spec": {"$setElementOrder/containers": [{"name": name} for name in order]}}
    if changed:
        patch["spec"]["containers"] = [{"name": name} for name in changed]
    assert names(apply(data, patch)) == list(expected)


def test_set_element_order_of_plain_values():
    patch = {"metadata": {"$setElementOrder/finalizers": ["c", "a"], "finalizers": ["c"]}}
    assert apply({"metadata": {"finalizers": ["a", "b"]}}, patch) == {"metadata": {"finalizers": ["c", "a", "b"]}}


def test_a_replaced_list_is_put_in_order_too():
    changes = [{"name": "c"}, {"name": "d"}, REPLACE_LIST]
    order = [{"name": name} for name in "cad"]
    patch = {"spec": {"containers": changes, "$setElementOrder/containers": order}}
    assert names(apply(pod("a", "b"), patch)) == ["c", "d"]


def test_odd_merge_keys_are_compared_all_the_same():
    data = {"spec": {"containers": [{"name": {"odd": [1]}}, {"name": "a"}]}}
    assert apply(data, {"spec": {"containers": [{"name": {"odd": [1]}, "image": "i"}]}}) == {
        "spec": {"containers": [{"name": {"odd": [1]}, "image": "i"}, {"name": "a"}]}
    }


def test_an_order_of_nothing_changes_nothing():
    assert apply({"spec": {}}, {"spec": {"$setElementOrder/volumes": []}}) == {"spec": {}}


@pytest.mark.parametrize(
    ("patch", "error", "message"),
    [
        (
            {"spec": {"containers": [{"image": "i", "tty": True}]}},
            MissingMergeKey,
            "map: map[image:i tty:true] does not contain declared merge key: name",
        ),
        (
            {"spec": {"containers": [{"$patch": "delete"}]}},
            MissingMergeKey,
            "map: map[$patch:delete] does not contain declared merge key: name",
        ),
        ({"spec": {"containers": ["a"]}}, PatchError, "expected a map in a list merged by name, found a"),
        (
            {"spec": {"containers": [{"$patch": "merge"}]}},
            PatchError,
            "merging lists cannot yet be specified in the patch",
        ),
        (
            {"spec": {"containers": [{"$patch": "bend"}]}},
            PatchError,
            "unknown patch type: bend in map: map[$patch:bend]",
        ),
        (
            {"spec": {"$patch": "bend", "x": None}},
            PatchError,
            "unknown patch type: bend in map: map[$patch:bend x:<nil>]",
        ),
        ({"spec": {"$retainKeys": "x"}}, PatchError, "invalid patch format of retainKeys"),
        ({"spec": {"$retainKeys": ["a"], "b": 1}}, PatchError, "invalid patch format of retainKeys"),
        ({"spec": {"$setElementOrder/containers": "x"}}, PatchError, "invalid patch format of setElementOrder list"),
        (
            {"spec": {"$setElementOrder/containers": [], "containers": {}}},
            PatchError,
            "invalid patch format of setElementOrder list",
        ),
        (
            {"metadata": {"$deleteFromPrimitiveList/finalizers": 1}},
            PatchError,
            "invalid patch format of primitive list",
        ),
        (
            {"spec": {"$setElementOrder/containers": [{"name": "a"}], "containers": [{"name": "b"}]}},
            PatchError,
            "The order in patch list:\n[map[name:b]]\n doesn't match $setElementOrder list:\n[map[name:a]]\n",
        ),
    ],
)
def test_what_cannot_be_applied_is_refused(patch, error, message):
    with pytest.raises(error) as caught:
        apply({"metadata": {}, **pod("a")}, patch)
    assert str(caught.value) == message
