"""Mounts and block devices of a container."""

import pytest
from msgspec.structs import replace

from klet.api.container import Container, VolumeDevice, VolumeMount
from klet.api.pod import Pod
from klet.api.volume import ImageVolumeSource, Volume
from klet.model.volumes import HostVolume
from klet.runtime.config.mounts import (
    BlockVolume,
    MountInputs,
    asks_for_recursive_read_only,
    build_block_devices,
    build_mounts,
    resolve_sub_path,
)
from klet.runtime.errors import StartError
from klet.testing.builders import make_container, make_pod
from klet.wire import cri_v1_pb2 as cri

INPUTS = MountInputs(
    volumes={"data": HostVolume("/host/data")},
    hosts_file="/pods/u/etc-hosts",
    termination_log="/pods/u/containers/c/0a1b2c3d",
)
ENVIRONMENT = {"NAME": "web", "EMPTY": ""}
RECURSION = 'failed to resolve recursive read-only mode: volume "data" requested recursive read-only mode, but '


def mount(path: str = "/data", **options) -> VolumeMount:
    return VolumeMount(name="data", mount_path=path, **options)


def mounting(*mounts: VolumeMount, **options) -> Container:
    return replace(make_container("c"), volume_mounts=mounts, **options)


def built(container: Container, *, inputs: MountInputs = INPUTS, pod: Pod | None = None) -> list[cri.Mount]:
    return build_mounts(pod or make_pod(container), container, inputs, environment=ENVIRONMENT)


@pytest.mark.parametrize(
    ("volume", "relabels", "expected"),
    [
        pytest.param(HostVolume("/v"), True, (False, False), id="somebody's"),
        pytest.param(HostVolume("/v", read_only=True), True, (True, False), id="read-only whatever is asked for"),
        pytest.param(HostVolume("/v", relabels=True), True, (False, True), id="the pod's own"),
        pytest.param(HostVolume("/v", relabels=True), False, (False, False), id="a machine without labels"),
    ],
)
def test_what_a_volume_says_of_its_mounts(volume, relabels, expected):
    inputs = MountInputs(volumes={"data": volume}, relabels=relabels)
    [found] = built(mounting(mount()), inputs=inputs)
    assert (found.readonly, found.selinux_relabel) == expected


@pytest.mark.parametrize(
    ("wanted", "expected"),
    [
        pytest.param(mount(), ("/data", False, cri.PROPAGATION_PRIVATE), id="plain"),
        pytest.param(mount("data"), ("/data", False, cri.PROPAGATION_PRIVATE), id="a relative path gets a slash"),
        pytest.param(mount(read_only=True), ("/data", True, cri.PROPAGATION_PRIVATE), id="read-only"),
        pytest.param(mount(mount_propagation="None"), ("/data", False, cri.PROPAGATION_PRIVATE), id="no propagation"),
        pytest.param(
            mount(mount_propagation="HostToContainer"),
            ("/data", False, cri.PROPAGATION_HOST_TO_CONTAINER),
            id="from the host",
        ),
        pytest.param(
            mount(mount_propagation="Bidirectional"), ("/data", False, cri.PROPAGATION_BIDIRECTIONAL), id="both ways"
        ),
    ],
)
def test_a_mount_of_a_volume(wanted, expected):
    first = built(mounting(wanted))[0]
    assert first.host_path == "/host/data"
    assert (first.container_path, first.readonly, first.propagation) == expected


def test_mounts_come_in_order_then_the_hosts_file_then_the_termination_log():
    container = mounting(mount("/b"), mount("/a"), termination_message_path="/dev/termination-log")
    assert [(each.container_path, each.host_path) for each in built(container)] == [
        ("/b", "/host/data"),
        ("/a", "/host/data"),
        ("/etc/hosts", "/pods/u/etc-hosts"),
        ("/dev/termination-log", "/pods/u/containers/c/0a1b2c3d"),
    ]


@pytest.mark.parametrize(
    ("container", "inputs", "paths"),
    [
        pytest.param(mounting(mount("/etc/hosts")), INPUTS, ["/etc/hosts"], id="a pod's own hosts file stays"),
        pytest.param(make_container("c"), INPUTS, ["/etc/hosts"], id="no path, no termination log"),
        pytest.param(
            mounting(termination_message_path="/t"), MountInputs(volumes={}), [], id="what was not made is not mounted"
        ),
    ],
)
def test_mounts_that_are_left_out(container, inputs, paths):
    assert [each.container_path for each in built(container, inputs=inputs)] == paths


@pytest.mark.parametrize("relabels", [True, False])
def test_files_of_our_own_get_a_label_where_there_are_labels(relabels):
    inputs = MountInputs(
        volumes={"data": HostVolume("/host/data")}, hosts_file="/h", termination_log="/t", relabels=relabels
    )
    container = mounting(mount(), termination_message_path="/dev/termination-log")
    assert [each.selinux_relabel for each in built(container, inputs=inputs)] == [False, relabels, relabels]


@pytest.mark.parametrize(
    ("wanted", "is_supported", "expected"),
    [
        pytest.param(mount(read_only=True), True, False, id="not asked for"),
        pytest.param(mount(read_only=True, recursive_read_only="Disabled"), True, False, id="switched off"),
        pytest.param(mount(recursive_read_only="Disabled"), True, False, id="switched off on a writable mount"),
        pytest.param(mount(read_only=True, recursive_read_only="IfPossible"), True, True, id="if possible, and it is"),
        pytest.param(mount(read_only=True, recursive_read_only="IfPossible"), False, False, id="and it is not"),
        pytest.param(mount(read_only=True, recursive_read_only="Enabled"), True, True, id="switched on"),
        pytest.param(
            mount(read_only=True, recursive_read_only="Enabled", mount_propagation="None"), True, True, id="explicit"
        ),
    ],
)
def test_recursive_read_only(wanted, is_supported, expected):
    inputs = MountInputs(volumes={"data": HostVolume("/d")}, supports_recursive_read_only=is_supported)
    assert built(mounting(wanted), inputs=inputs)[0].recursive_read_only is expected


@pytest.mark.parametrize(
    ("mounts", "expected"),
    [
        pytest.param([], False, id="no mounts"),
        pytest.param([mount(), mount(recursive_read_only="Disabled")], False, id="nobody asks"),
        pytest.param([mount(), mount(recursive_read_only="IfPossible")], True, id="somebody asks"),
    ],
)
def test_who_asks_for_recursive_read_only(mounts, expected):
    assert asks_for_recursive_read_only(mounts) is expected


@pytest.mark.parametrize(
    ("wanted", "message"),
    [
        pytest.param(
            VolumeMount(name="gone", mount_path="/x"),
            'cannot find volume "gone" to mount into container "c"',
            id="an unknown volume",
        ),
        pytest.param(mount(recursive_read_only="IfPossible"), f"{RECURSION}it is not read-only", id="writable"),
        pytest.param(
            mount(read_only=True, recursive_read_only="IfPossible", mount_propagation="HostToContainer"),
            f'{RECURSION}it is not compatible with propagation "HostToContainer"',
            id="with propagation",
        ),
        pytest.param(
            mount(read_only=True, recursive_read_only="Enabled"),
            f"{RECURSION}it is not supported by the runtime",
            id="an old runtime",
        ),
        pytest.param(
            mount(sub_path="/etc"), "error SubPath `/etc` must not be an absolute path", id="an absolute part"
        ),
        pytest.param(
            mount(sub_path="a/../../b"),
            "unable to provision SubPath `a/../../b`: must not contain '..'",
            id="a part outside",
        ),
        pytest.param(
            mount(sub_path_expr="$(Z)/$(EMPTY)/$(NAME)"), "missing value for EMPTY, Z", id="a part without a name"
        ),
        pytest.param(
            mount(sub_path="x"),
            'failed to prepare subPath for volumeMount "data" of container "c"',
            id="a part that nobody made ready",
        ),
    ],
)
def test_mounts_that_fail_the_container(wanted, message):
    with pytest.raises(StartError) as caught:
        built(mounting(wanted))
    assert (caught.value.reason, caught.value.message) == ("CreateContainerConfigError", message)


@pytest.mark.parametrize(
    ("wanted", "expected"),
    [
        pytest.param(mount(), "", id="the whole volume"),
        pytest.param(mount(sub_path="a/b"), "a/b", id="a part"),
        pytest.param(mount(sub_path="$(NAME)"), "$(NAME)", id="a plain part is not expanded"),
        pytest.param(mount(sub_path_expr="logs/$(NAME)"), "logs/web", id="an expanded part"),
        pytest.param(mount(sub_path_expr="$$(NAME)"), "$(NAME)", id="an escaped name"),
        pytest.param(mount(sub_path="a..b"), "a..b", id="dots within a name"),
    ],
)
def test_parts_of_volumes(wanted, expected):
    assert resolve_sub_path(wanted, ENVIRONMENT) == expected


def test_a_part_is_mounted_from_where_it_was_made_ready():
    inputs = MountInputs(volumes={"data": HostVolume("/host/data")}, sub_paths={1: "/pods/u/volume-subpaths/data/c/1"})
    mounts = built(mounting(mount("/a"), mount("/b", sub_path="x")), inputs=inputs)
    assert [each.host_path for each in mounts] == ["/host/data", "/pods/u/volume-subpaths/data/c/1"]


def test_an_image_as_a_volume():
    container = mounting(mount(sub_path="models", read_only=True))
    pod = make_pod(container)
    volumes = (Volume(name="data", image=ImageVolumeSource(reference="klet.local/models:1")),)
    pod = replace(pod, metadata=replace(pod.metadata, annotations={"a": "b"}), spec=replace(pod.spec, volumes=volumes))
    [found] = built(container, pod=pod, inputs=MountInputs(volumes={}, images={"data": "sha256:9"}))
    assert found == cri.Mount(
        container_path="/data",
        readonly=True,
        image=cri.ImageSpec(image="sha256:9", user_specified_image="klet.local/models:1", annotations={"a": "b"}),
        image_sub_path="models",
    )


DISKS = {
    "disk": BlockVolume(path="/pods/u/volumeDevices/disk"),
    "fixed": BlockVolume(path="/pods/u/volumeDevices/fixed", read_only=True),
    "late": BlockVolume(path=""),
}


def using(name: str, path: str = "/dev/xvda") -> Container:
    return replace(make_container("c"), volume_devices=(VolumeDevice(name=name, device_path=path),))


@pytest.mark.parametrize(
    ("container", "expected"),
    [
        pytest.param(make_container("c"), [], id="none"),
        pytest.param(using("disk"), [("/dev/xvda", "/pods/u/volumeDevices/disk", "mrw")], id="a disk"),
        pytest.param(using("fixed"), [("/dev/xvda", "/pods/u/volumeDevices/fixed", "r")], id="a read-only one"),
        pytest.param(using("late"), [], id="one whose link is not there"),
    ],
)
def test_block_devices(container, expected):
    devices = build_block_devices(container, DISKS)
    assert [(each.container_path, each.host_path, each.permissions) for each in devices] == expected


@pytest.mark.parametrize(
    ("container", "message"),
    [
        pytest.param(
            using("disk", "dev/xvda"), "error DevicePath `dev/xvda` must be an absolute path", id="a relative path"
        ),
        pytest.param(using("gone"), 'cannot find volume "gone" to pass into container "c"', id="an unknown volume"),
    ],
)
def test_block_devices_that_fail_the_container(container, message):
    with pytest.raises(StartError) as caught:
        build_block_devices(container, DISKS)
    assert caught.value.message == message
