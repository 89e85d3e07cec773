"""The configuration of one container."""

import pytest
from msgspec.structs import replace

from klet.api.container import Container, EphemeralContainer, ResourceRequirements, VolumeDevice, VolumeMount
from klet.api.handlers import Lifecycle
from klet.api.pod import Pod
from klet.api.quantity import Quantity
from klet.api.security import SecurityContext
from klet.model.allocation import PodAllocation, desired_allocation
from klet.model.images import ImageUser
from klet.model.volumes import HostVolume
from klet.runtime.config.container_config import ContainerInputs, ContainerSettings, build_container_config
from klet.runtime.config.container_options import ContainerOptions, DeviceNode, HostMount
from klet.runtime.config.linux_resources import ResourceRules
from klet.runtime.config.mounts import BlockVolume, MountInputs
from klet.runtime.config.security import SecuritySettings
from klet.runtime.errors import StartError
from klet.testing.builders import make_container, make_pod, with_resources
from klet.wire import cri_v1_pb2 as cri

CAPACITY = 8_000_000_000
SETTINGS = ContainerSettings(security=SecuritySettings(), resources=ResourceRules(memory_capacity=CAPACITY))
INPUTS = ContainerInputs(
    restart_count=3,
    allocation=PodAllocation(),
    image_ref="sha256:1",
    image_user=ImageUser(),
    environment={"GREETING": "hello", "EMPTY": ""},
    mounts=MountInputs(
        volumes={"data": HostVolume("/host/data")},
        hosts_file="/pods/u/etc-hosts",
        termination_log="/pods/u/containers/c/0a1b2c3d",
    ),
)


def built(
    container: Container | EphemeralContainer,
    *,
    pod: Pod | None = None,
    inputs: ContainerInputs = INPUTS,
    settings: ContainerSettings = SETTINGS,
) -> cri.ContainerConfig:
    owner = pod or make_pod(container if isinstance(container, Container) else "main")
    inputs = replace(inputs, allocation=desired_allocation(owner))
    return build_container_config(owner, container, inputs, settings)


@pytest.mark.parametrize(
    ("is_on", "signal"),
    [pytest.param(True, cri.SIGUSR1, id="with its gate"), pytest.param(False, cri.RUNTIME_DEFAULT, id="not without")],
)
def test_a_container_may_choose_its_stop_signal(is_on, signal):
    container = replace(make_container("c"), lifecycle=Lifecycle(stop_signal="SIGUSR1"))
    assert built(container, settings=replace(SETTINGS, stop_signals=is_on)).stop_signal == signal


def test_names_image_command_and_environment():
    container = replace(
        make_container("c", image="busybox"),
        command=("sh", "-c"),
        args=("echo $(GREETING) $(OTHER) $$x",),
        working_dir="/work",
        stdin=True,
        stdin_once=True,
        tty=True,
    )
    config = built(container)
    assert config.metadata == cri.ContainerMetadata(name="c", attempt=3)
    assert config.image == cri.ImageSpec(image="sha256:1", user_specified_image="busybox")
    assert list(config.command) == ["sh", "-c"]
    assert list(config.args) == ["echo hello $(OTHER) $x"]
    assert (config.working_dir, config.stdin, config.stdin_once, config.tty) == ("/work", True, True, True)
    assert [(pair.key, pair.value) for pair in config.envs] == [("GREETING", b"hello"), ("EMPTY", b"")]
    assert config.log_path == "c/3.log"
    assert config.labels["io.kubernetes.container.name"] == "c"
    assert config.annotations["io.kubernetes.container.restartCount"] == "3"


def test_an_empty_command_is_left_to_the_image():
    config = built(make_container("c"))
    assert list(config.command) == list(config.args) == []


@pytest.mark.parametrize(
    ("requests", "limits", "shares", "quota", "memory"),
    [
        pytest.param({}, {}, 2, 0, 0, id="nothing asked for"),
        pytest.param({"cpu": "100m"}, {}, 102, 0, 0, id="a request"),
        pytest.param({"cpu": "1m"}, {}, 2, 0, 0, id="a tiny request"),
        pytest.param({}, {"cpu": "500m"}, 512, 50000, 0, id="a limit stands in for the request"),
        pytest.param({}, {"cpu": "5m"}, 5, 1000, 0, id="a tiny limit"),
        pytest.param({"cpu": "0"}, {"cpu": "1"}, 2, 100000, 0, id="a request of zero is a request"),
        pytest.param({"cpu": "1000"}, {}, 262144, 0, 0, id="a huge request"),
        pytest.param({}, {"memory": "64Mi"}, 2, 0, 67108864, id="a memory limit"),
        pytest.param({}, {"memory": "0"}, 2, 0, 0, id="a memory limit of zero is none"),
        pytest.param(
            {"cpu": "250m", "memory": "1e9"},
            {"cpu": "500m", "memory": "2e9"},
            256,
            50000,
            2_000_000_000,
            id="the worked example",
        ),
    ],
)
def test_resources(requests, limits, shares, quota, memory):
    resources = built(with_resources(make_container("c"), requests=requests, limits=limits)).linux.resources
    assert (resources.cpu_shares, resources.cpu_period, resources.cpu_quota) == (shares, 100000, quota)
    assert resources.memory_limit_in_bytes == memory


def test_the_worked_example_of_the_oom_score():
    container = with_resources(
        make_container("c"),
        requests={"cpu": "250m", "memory": "1e9"},
        limits={"cpu": "500m", "memory": "2e9"},
    )
    assert built(container).linux.resources.oom_score_adj == 875


@pytest.mark.parametrize(
    ("own", "expected"),
    [
        pytest.param({}, (200000, 2048, 1 << 30), id="the pod's limits stand in"),
        pytest.param({"cpu": "1", "memory": "1Mi"}, (100000, 1024, 1 << 20), id="its own limits win"),
        pytest.param({"cpu": "1"}, (100000, 1024, 1 << 30), id="one of each"),
        pytest.param({"memory": "0"}, (200000, 2048, 1 << 30), id="zero is no limit"),
    ],
)
def test_pod_level_limits(own, expected):
    container = with_resources(make_container("c"), limits=own)
    pod = make_pod(container)
    limits = {"cpu": Quantity.parse("2"), "memory": Quantity.parse("1Gi")}
    pod = replace(pod, spec=replace(pod.spec, resources=ResourceRequirements(limits=limits)))
    resources = built(container, pod=pod).linux.resources
    assert (resources.cpu_quota, resources.cpu_shares, resources.memory_limit_in_bytes) == expected


def test_without_quotas():
    settings = ContainerSettings(security=SecuritySettings(), resources=ResourceRules(cpu_quota=False))
    resources = built(with_resources(make_container("c"), limits={"cpu": "1"}), settings=settings).linux.resources
    assert (resources.cpu_period, resources.cpu_quota, resources.cpu_shares) == (0, 0, 1024)


def test_an_ephemeral_container_is_a_container_too():
    config = built(EphemeralContainer(name="debug", image="busybox", command=("sh",)))
    assert config.metadata.name == "debug"
    assert list(config.command) == ["sh"]
    assert config.linux.resources.oom_score_adj == 1000


def test_what_comes_with_devices():
    options = ContainerOptions(
        mounts=(HostMount(host_path="/lib/gpu", container_path="/gpu", read_only=True),),
        devices=(DeviceNode(host_path="/dev/gpu0", container_path="/dev/gpu", permissions="rw"),),
        cdi_devices=("vendor.com/gpu=0",),
        annotations={"gpu": "0", "io.kubernetes.container.restartCount": "99"},
    )
    disks = {"disk": BlockVolume(path="/disks/1")}
    container = replace(
        make_container("c"),
        volume_mounts=(VolumeMount(name="data", mount_path="/data"),),
        volume_devices=(VolumeDevice(name="disk", device_path="/dev/xvda"),),
    )
    mounts = MountInputs(volumes={"data": HostVolume("/host/data")}, block_volumes=disks)
    config = built(container, inputs=replace(INPUTS, options=options, mounts=mounts))
    assert list(config.mounts) == [
        cri.Mount(container_path="/gpu", host_path="/lib/gpu", readonly=True),
        cri.Mount(container_path="/data", host_path="/host/data"),
    ]
    assert list(config.devices) == [
        cri.Device(container_path="/dev/gpu", host_path="/dev/gpu0", permissions="rw"),
        cri.Device(container_path="/dev/xvda", host_path="/disks/1", permissions="mrw"),
    ]
    assert [device.name for device in config.CDI_devices] == ["vendor.com/gpu=0"]
    assert config.annotations["gpu"] == "0"
    assert config.annotations["io.kubernetes.container.restartCount"] == "3"


def test_in_a_user_namespace_every_mount_is_mapped():
    mapping = cri.IDMapping(host_id=65536, container_id=0, length=65536)
    users = cri.UserNamespace(mode=cri.POD, uids=[mapping], gids=[mapping])
    container = replace(
        make_container("c"),
        volume_mounts=(VolumeMount(name="data", mount_path="/data"),),
        termination_message_path="/dev/termination-log",
    )
    config = built(container, inputs=replace(INPUTS, user_namespace=users))
    assert len(config.mounts) == 3
    assert all(list(mount.uidMappings) == list(mount.gidMappings) == [mapping] for mount in config.mounts)
    assert config.linux.security_context.namespace_options.userns_options == users


def test_on_the_hosts_users_no_mount_is_mapped():
    users = cri.UserNamespace(mode=cri.NODE)
    config = built(make_container("c"), inputs=replace(INPUTS, user_namespace=users))
    assert not config.mounts[0].uidMappings
    assert config.linux.security_context.namespace_options.userns_options.mode == cri.NODE


def test_a_debugger_sees_the_processes_of_its_target():
    inputs = replace(INPUTS, target_id="abc")
    options = built(EphemeralContainer(name="debug", image="x"), inputs=inputs).linux.security_context.namespace_options
    assert (options.pid, options.target_id) == (cri.TARGET, "abc")


def test_values_that_are_not_text_are_sent_as_they_are():
    environment = {"RAW": b"\xff".decode(errors="surrogateescape")}
    config = built(make_container("c"), inputs=replace(INPUTS, environment=environment))
    assert [(pair.key, pair.value) for pair in config.envs] == [("RAW", b"\xff")]


def test_a_wrong_mount_is_reported_before_a_wrong_user():
    container = replace(
        make_container("c"),
        volume_mounts=(VolumeMount(name="gone", mount_path="/x"),),
        security_context=SecurityContext(run_as_non_root=True),
    )
    with pytest.raises(StartError, match="cannot find volume"):
        built(container)
    with pytest.raises(StartError, match="image will run as root"):
        built(replace(container, volume_mounts=()))
