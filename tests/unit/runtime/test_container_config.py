"""The configuration of one container."""

import pytest
from msgspec.structs import replace

from klet.api.container import Container, EphemeralContainer, ResourceRequirements
from klet.api.pod import Pod
from klet.api.quantity import Quantity
from klet.runtime.container_config import ContainerInputs, ContainerSettings, build_container_config
from klet.runtime.linux_resources import ResourceRules
from klet.runtime.mounts import MountInputs
from klet.runtime.security import ImageUser, SecuritySettings
from klet.testing.builders import make_container, make_pod, with_resources
from klet.wire import cri_v1_pb2 as cri

CAPACITY = 8_000_000_000
SETTINGS = ContainerSettings(security=SecuritySettings(), resources=ResourceRules(memory_capacity=CAPACITY))
INPUTS = ContainerInputs(
    restart_count=3,
    image_ref="sha256:1",
    image_user=ImageUser(),
    environment={"GREETING": "hello", "EMPTY": ""},
    mounts=MountInputs(
        volumes={"data": "/host/data"},
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
    return build_container_config(owner, container, inputs, settings)


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
