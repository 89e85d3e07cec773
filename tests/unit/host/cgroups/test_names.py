import pytest

from klet.host.cgroups.names import (
    ROOT,
    CgroupDriver,
    CgroupName,
    cgroup_path,
    cgroupfs_path,
    expand_slice,
    parse_cgroup,
    parse_cgroupfs,
    parse_systemd,
    slice_unit,
    systemd_path,
)
from klet.host.errors import CgroupNameError

BOTH = [
    pytest.param((), "/", "/", id="the root"),
    pytest.param(("kubepods",), "/kubepods", "/kubepods.slice", id="the pods root"),
    pytest.param(
        ("kubepods", "burstable"), "/kubepods/burstable", "/kubepods.slice/kubepods-burstable.slice", id="a QoS class"
    ),
    pytest.param(
        ("kubepods", "burstable", "pod1234-abcd"),
        "/kubepods/burstable/pod1234-abcd",
        "/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod1234_abcd.slice",
        id="a pod, whose dashes become underscores in a slice",
    ),
    pytest.param(("test", "a", "b"), "/test/a/b", "/test.slice/test-a.slice/test-a-b.slice", id="any nesting"),
    pytest.param(
        ("Burstable", "pod-123"), "/Burstable/pod-123", "/Burstable.slice/Burstable-pod_123.slice", id="capitals stay"
    ),
]


@pytest.mark.parametrize(("components", "in_cgroupfs", "in_systemd"), BOTH)
def test_a_name_has_two_spellings(components, in_cgroupfs, in_systemd):
    name = CgroupName(components)
    assert cgroup_path(name, CgroupDriver.CGROUPFS) == in_cgroupfs
    assert cgroup_path(name, CgroupDriver.SYSTEMD) == in_systemd


@pytest.mark.parametrize(("components", "in_cgroupfs", "in_systemd"), BOTH)
def test_both_spellings_are_read_back(components, in_cgroupfs, in_systemd):
    assert parse_cgroup(in_cgroupfs, CgroupDriver.CGROUPFS).components == components
    assert parse_cgroup(in_systemd, CgroupDriver.SYSTEMD).components == components


@pytest.mark.parametrize(
    ("path", "components"),
    [
        pytest.param("", (), id="nothing is the root"),
        pytest.param("a/b", ("a", "b"), id="the leading slash is optional"),
        pytest.param("/a/", ("a", ""), id="a trailing slash makes an empty component"),
    ],
)
def test_parse_cgroupfs(path, components):
    assert parse_cgroupfs(path).components == components


@pytest.mark.parametrize(
    ("path", "components"),
    [
        pytest.param("system.slice", ("system",), id="a bare unit"),
        pytest.param("/some/where/system.slice", ("system",), id="a leading path is lost"),
        pytest.param("/system.slice/", ("system",), id="a trailing slash is ignored"),
        pytest.param("-.slice", (), id="the root slice"),
    ],
)
def test_parse_systemd(path, components):
    assert parse_systemd(path).components == components


def test_an_empty_component_disappears_from_a_cgroupfs_path():
    assert cgroupfs_path(CgroupName(("a", "", "b"))) == "/a/b"


def test_a_single_empty_component_is_the_root_slice():
    assert systemd_path(CgroupName(("",))) == "/"


@pytest.mark.parametrize("component", ["a/b", "a_b", "..", ".", "a\0b", "a\nb"])
def test_a_component_that_would_leave_its_place_is_refused(component):
    with pytest.raises(CgroupNameError, match="invalid character in component"):
        CgroupName(("kubepods", component))


@pytest.mark.parametrize("unit", ["a", "a/b.slice", "a--b.slice", ".slice", "a-.slice"])
def test_a_bad_slice_is_refused(unit):
    with pytest.raises(CgroupNameError, match="invalid slice name"):
        expand_slice(unit)


def test_an_empty_component_is_no_slice():
    with pytest.raises(CgroupNameError, match="invalid slice name"):
        systemd_path(CgroupName(("a", "", "b")))


def test_names_print_as_go_prints_lists():
    name = CgroupName(("kubepods", "burstable"))
    assert name.quoted() == '["kubepods" "burstable"]'
    assert str(name) == "[kubepods burstable]"


def test_family():
    name = ROOT.child("kubepods").child("burstable", "pod1")
    assert name.components == ("kubepods", "burstable", "pod1")
    assert name.parent == CgroupName(("kubepods", "burstable"))
    assert name.last == "pod1"
    assert ROOT.last == ""


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        pytest.param("/a.slice", ("a.slice", "-.slice"), id="at the top the parent is the root slice"),
        pytest.param("/a.slice/a-b.slice", ("a-b.slice", "a.slice"), id="below it is the slice before"),
    ],
)
def test_slice_unit(path, expected):
    assert slice_unit(path) == expected


def test_the_root_is_no_unit():
    with pytest.raises(CgroupNameError):
        slice_unit("/")
