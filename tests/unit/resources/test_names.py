"""Where pods and QoS classes have their cgroups."""

import pytest
from msgspec.structs import replace

from klet.host.cgroups.names import ROOT, CgroupDriver, CgroupName, cgroup_path
from klet.host.errors import CgroupNameError
from klet.model.qos import QosClass
from klet.resources.names import pod_cgroup, pod_of, pods_root, qos_cgroup
from klet.testing.builders import make_container, make_pod, with_resources

FULL = {"cpu": "1", "memory": "1Mi"}
BEST_EFFORT = make_pod(uid="1234-abcd")
BURSTABLE = make_pod(with_resources(make_container("c"), requests={"cpu": "1"}), uid="1234-abcd")
GUARANTEED = make_pod(with_resources(make_container("c"), requests=FULL, limits=FULL), uid="1234-abcd")
CLASSIFIED = replace(BEST_EFFORT, status=replace(BEST_EFFORT.status, qos_class="Burstable"))


@pytest.mark.parametrize(
    ("qos", "plain", "slices"),
    [
        pytest.param(QosClass.GUARANTEED, "/kubepods", "/kubepods.slice", id="guaranteed"),
        pytest.param(
            QosClass.BURSTABLE,
            "/kubepods/burstable",
            "/kubepods.slice/kubepods-burstable.slice",
            id="burstable",
        ),
        pytest.param(
            QosClass.BEST_EFFORT,
            "/kubepods/besteffort",
            "/kubepods.slice/kubepods-besteffort.slice",
            id="best effort",
        ),
    ],
)
def test_classes(qos, plain, slices):
    name = qos_cgroup(pods_root(ROOT), qos)
    assert cgroup_path(name, CgroupDriver.CGROUPFS) == plain
    assert cgroup_path(name, CgroupDriver.SYSTEMD) == slices


@pytest.mark.parametrize(
    ("pod", "plain", "slices"),
    [
        pytest.param(
            GUARANTEED,
            "/kubepods/pod1234-abcd",
            "/kubepods.slice/kubepods-pod1234_abcd.slice",
            id="guaranteed",
        ),
        pytest.param(
            BURSTABLE,
            "/kubepods/burstable/pod1234-abcd",
            "/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod1234_abcd.slice",
            id="burstable",
        ),
        pytest.param(
            BEST_EFFORT,
            "/kubepods/besteffort/pod1234-abcd",
            "/kubepods.slice/kubepods-besteffort.slice/kubepods-besteffort-pod1234_abcd.slice",
            id="best effort",
        ),
        pytest.param(
            CLASSIFIED,
            "/kubepods/burstable/pod1234-abcd",
            "/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod1234_abcd.slice",
            id="the class in the status decides",
        ),
    ],
)
def test_pods(pod, plain, slices):
    name = pod_cgroup(pods_root(ROOT), pod)
    assert cgroup_path(name, CgroupDriver.CGROUPFS) == plain
    assert cgroup_path(name, CgroupDriver.SYSTEMD) == slices


def test_a_root_of_its_own():
    name = pod_cgroup(pods_root(CgroupName(("foo",))), GUARANTEED)
    assert cgroup_path(name, CgroupDriver.CGROUPFS) == "/foo/kubepods/pod1234-abcd"
    assert cgroup_path(name, CgroupDriver.SYSTEMD) == "/foo.slice/foo-kubepods.slice/foo-kubepods-pod1234_abcd.slice"


@pytest.mark.parametrize("uid", ["a_b", "a/b", ".."])
def test_uids_that_cannot_be_in_a_name(uid):
    # `pod..` is a name like any other; the others break a rule.
    pod = make_pod(uid=uid)
    if uid == "..":
        assert pod_cgroup(pods_root(ROOT), pod).last == "pod.."
        return
    with pytest.raises(CgroupNameError):
        pod_cgroup(pods_root(ROOT), pod)


@pytest.mark.parametrize(
    ("components", "expected"),
    [
        pytest.param(("kubepods", "pod1"), "1", id="guaranteed"),
        pytest.param(("kubepods", "burstable", "pod1-2"), "1-2", id="burstable"),
        pytest.param(("kubepods", "besteffort", "podmypod"), "mypod", id="a UID may hold the word itself"),
        pytest.param(("kubepods", "burstable"), None, id="a class"),
        pytest.param(("kubepods", "pod"), None, id="no UID"),
        pytest.param(("kubepods", "mypod1"), None, id="somebody else's"),
        pytest.param(("kubepods", "burstable", "pod1", "podx"), None, id="below a pod"),
        pytest.param(("kubepods", "pod+"), None, id="what is no UID"),
        pytest.param(("kubepods", "pod-a"), None, id="no UID begins so"),
        pytest.param(("pod1",), None, id="outside"),
        pytest.param((), None, id="the root"),
    ],
)
def test_whose_cgroup(components, expected):
    assert pod_of(pods_root(ROOT), CgroupName(components)) == expected
