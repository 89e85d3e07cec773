"""The options of memory and huge page mounts."""

import pytest

from klet.api.quantity import Quantity
from klet.model.allocation import PodAllocation, desired_allocation
from klet.volumes.errors import VolumeSetupError
from klet.volumes.host_mounter import has_noswap
from klet.volumes.media import mount_options, page_size, tmpfs_size

NODE = {"memory": Quantity.parse("16Gi")}
GI = 1 << 30


def container(name="c", **resources):
    return {"name": name, "resources": {kind: {"memory": text} for kind, text in resources.items()}}


@pytest.mark.parametrize(
    ("spec", "limit", "gigabytes"),
    [
        pytest.param({"containers": [container(limits="10Gi")]}, "1Gi", 1, id="the volume's limit is the least"),
        pytest.param({"containers": [container(limits="10Gi")]}, "0", 10, id="a limit of zero is none"),
        pytest.param({"containers": [container(limits="10Gi")]}, None, 10, id="the pod's limit"),
        pytest.param({"containers": [container(requests="2Gi")]}, None, 16, id="requests do not count"),
        pytest.param(
            {"containers": [container(limits="1Gi"), container("d")]}, None, 16, id="one container without a limit"
        ),
        pytest.param({"resources": {"limits": {"memory": "3Gi"}}}, None, 3, id="a limit of the pod as a whole"),
        pytest.param(
            {"containers": [container(limits="20Gi")]}, None, 16, id="the node has less than the pod may take"
        ),
        pytest.param({}, "20Gi", 16, id="the node has less than the volume may take"),
    ],
)
def test_the_size_of_memory(pod_with, spec, limit, gigabytes):
    pod = pod_with(**spec)
    found = tmpfs_size(pod, desired_allocation(pod), size_limit=limit and Quantity.parse(limit), allocatable=NODE)
    assert found == gigabytes * GI


@pytest.mark.parametrize(
    ("allocatable", "noswap", "options"),
    [
        pytest.param(NODE, True, (f"size={16 * GI}", "noswap"), id="both"),
        pytest.param(NODE, False, (f"size={16 * GI}",), id="a kernel that cannot keep it in memory"),
        pytest.param(None, True, ("noswap",), id="nobody knows what the node has"),
    ],
)
def test_the_options_of_memory(pod_with, allocatable, noswap, options):
    assert mount_options(pod_with(), PodAllocation(), "Memory", allocatable=allocatable, noswap=noswap) == options


def huge(*sizes, name="c"):
    return {"name": name, "resources": {"requests": {f"hugepages-{size}": "100Mi" for size in sizes}}}


@pytest.mark.parametrize(
    ("spec", "medium", "size"),
    [
        pytest.param({"containers": [huge("2Mi")]}, "HugePages", "2Mi", id="the only size"),
        pytest.param({"containers": [huge("2Mi"), huge("2Mi", name="d")]}, "HugePages", "2Mi", id="the same twice"),
        pytest.param({"containers": [huge("2Mi", "1Gi")]}, "HugePages-1Gi", "1Gi", id="one of two"),
        pytest.param({"initContainers": [huge("1Gi", name="i")]}, "HugePages-1Gi", "1Gi", id="an init container's"),
        pytest.param(
            {"resources": {"requests": {"hugepages-2Mi": "4Mi"}}}, "HugePages", "2Mi", id="of the pod as a whole"
        ),
    ],
)
def test_the_size_of_huge_pages(pod_with, spec, medium, size):
    pod = pod_with(**spec)
    given = desired_allocation(pod)
    assert str(page_size(given, medium)) == size
    assert mount_options(pod, given, medium, allocatable=NODE, noswap=True) == (f"pagesize={size}",)


NO_REQUEST = "medium {}: hugePages storage requested, but there is no resource request for huge pages"


@pytest.mark.parametrize(
    ("spec", "medium", "message"),
    [
        pytest.param(
            {"initContainers": [huge("2Mi", name="i")], "containers": [huge("1Gi")]},
            "HugePages",
            "medium: HugePages can't be used if container requests multiple huge page sizes",
            id="two sizes and no choice",
        ),
        pytest.param({}, "HugePages", NO_REQUEST.format("HugePages"), id="no request"),
        pytest.param(
            {"containers": [huge("2Mi")]}, "HugePages-1Mi", NO_REQUEST.format("HugePages-1Mi"), id="another size"
        ),
        pytest.param({"containers": [huge("2Mi")]}, "foo", 'unknown storage medium "foo"', id="no such medium"),
    ],
)
def test_media_that_are_refused(pod_with, spec, medium, message):
    pod = pod_with(**spec)
    with pytest.raises(VolumeSetupError) as caught:
        mount_options(pod, desired_allocation(pod), medium, allocatable=NODE, noswap=True)
    assert str(caught.value) == message


def test_huge_pages_without_a_size_after_the_dash(pod_with):
    pod = pod_with(containers=[huge("2Mi")])
    with pytest.raises(VolumeSetupError, match="medium HugePages-: "):
        mount_options(pod, desired_allocation(pod), "HugePages-", allocatable=NODE, noswap=True)


@pytest.mark.parametrize(
    ("release", "in_user_namespace", "known"),
    [
        pytest.param("6.4.0-generic", False, True, id="new enough"),
        pytest.param("7.0", False, True, id="much newer"),
        pytest.param("6.3.9", False, None, id="older: it has to be tried"),
        pytest.param("odd", False, None, id="a release that says nothing"),
        pytest.param("6.18.0", True, False, id="in a user namespace"),
    ],
)
def test_whether_the_kernel_can_keep_it_in_memory(release, in_user_namespace, known):
    assert has_noswap(release, in_user_namespace=in_user_namespace) is known
