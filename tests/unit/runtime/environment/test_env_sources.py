"""Reading what an environment refers to."""

from collections.abc import Sequence

import pytest
from msgspec.structs import replace

from klet.aio.threads import Threads
from klet.api.config import ConfigMap, Secret
from klet.api.container import (
    ConfigMapEnvSource,
    ConfigMapKeySelector,
    EnvFromSource,
    EnvVar,
    EnvVarSource,
    FileKeySelector,
    SecretEnvSource,
    SecretKeySelector,
)
from klet.api.service import Service
from klet.model.allocation import PodAllocation
from klet.model.objects import ObjectMissing
from klet.node.capacity import AllocatableResources
from klet.runtime.environment.env import EnvironmentInputs
from klet.runtime.environment.env_files import EnvFile
from klet.runtime.environment.env_sources import EnvironmentReader, NoApiServer, NoObjects, VolumeFiles
from klet.testing.builders import make_container, make_pod

GIVEN = PodAllocation()
PLAIN = make_container("c")
CONTAINER = replace(
    PLAIN,
    env_from=(
        EnvFromSource(config_map_ref=ConfigMapEnvSource(name="app")),
        EnvFromSource(secret_ref=SecretEnvSource(name="key")),
    ),
    env=(
        EnvVar(name="A", value="1"),
        EnvVar(name="B", value_from=EnvVarSource(config_map_key_ref=ConfigMapKeySelector(name="app", key="x"))),
        EnvVar(name="C", value_from=EnvVarSource(config_map_key_ref=ConfigMapKeySelector(name="gone", key="x"))),
        EnvVar(name="D", value_from=EnvVarSource(secret_key_ref=SecretKeySelector(name="key", key="x"))),
        EnvVar(
            name="E",
            value_from=EnvVarSource(file_key_ref=FileKeySelector(volume_name="vars", path="a.env", key="x")),
        ),
        EnvVar(
            name="F",
            value_from=EnvVarSource(file_key_ref=FileKeySelector(volume_name="none", path="a.env", key="x")),
        ),
    ),
)


class Objects:
    """A few objects, and what was asked for."""

    def __init__(self) -> None:
        self.asked: list[str] = []

    async def config_map(self, namespace: str, name: str) -> ConfigMap:
        self.asked.append(f"configmap {namespace}/{name}")
        if name == "gone":
            raise ObjectMissing('configmap "gone" not found')
        return ConfigMap(data={"x": "1"})

    async def secret(self, namespace: str, name: str) -> Secret:
        self.asked.append(f"secret {namespace}/{name}")
        return Secret(data={"x": b"2"})


@pytest.fixture
def threads():
    threads = Threads(limit=1)
    yield threads
    threads.close()


class Services:
    """Services that are read when somebody waits for that."""

    def __init__(self) -> None:
        self._read: Sequence[Service] | None = None

    def services(self) -> Sequence[Service] | None:
        return self._read

    async def until_read(self) -> None:
        self._read = (Service(),)


def reader(
    objects: Objects | NoObjects,
    threads: Threads,
    *,
    services: Services | NoObjects | None = None,
    prefer_ipv6: bool = False,
) -> EnvironmentReader:
    return EnvironmentReader(
        objects=objects,
        services=services or NoObjects(),
        node=AllocatableResources(expected={}),
        files=VolumeFiles(threads=threads),
        node_ips=lambda: ("192.168.0.1",),
        prefer_ipv6=prefer_ipv6,
    )


async def test_each_object_is_read_once(threads, tmp_path):
    (tmp_path / "a.env").write_text("x='3'\n")
    objects = Objects()
    inputs = await reader(objects, threads).gather(
        make_pod(),
        CONTAINER,
        allocation=GIVEN,
        pod_ips=("10.0.0.1",),
        volumes={"vars": str(tmp_path)},
        devices={"GPU": "0"},
    )
    assert objects.asked == ["configmap default/app", "configmap default/gone", "secret default/key"]
    assert inputs.config_maps["app"] == {"x": "1"}
    assert isinstance(inputs.config_maps["gone"], ObjectMissing)
    assert inputs.secrets == {"key": {"x": b"2"}}
    assert inputs.files == {("vars", "a.env"): EnvFile({"x": "3"})}
    assert (inputs.pod_ips, inputs.node_ips, inputs.devices) == (("10.0.0.1",), ("192.168.0.1",), {"GPU": "0"})


async def test_nothing_is_read_that_nobody_refers_to(threads):
    objects = Objects()
    inputs = await reader(objects, threads).gather(
        make_pod(), PLAIN, allocation=GIVEN, pod_ips=(), volumes={}, devices={}
    )
    assert objects.asked == []
    assert inputs == EnvironmentInputs(allocation=GIVEN, node_ips=("192.168.0.1",), allocatable={})


@pytest.mark.parametrize(
    ("prefer_ipv6", "expected"),
    [
        pytest.param(False, ("10.0.0.1", "fd00::1"), id="IPv4 leads, whatever the runtime names first"),
        pytest.param(True, ("fd00::1", "10.0.0.1"), id="IPv6 leads on a node of that family"),
    ],
)
async def test_addresses_are_in_the_order_of_the_status(threads, prefer_ipv6, expected):
    pod_ips = ("fd00::1", "10.0.0.1", "10.0.0.2")
    asked = reader(Objects(), threads, prefer_ipv6=prefer_ipv6)
    inputs = await asked.gather(make_pod(), PLAIN, allocation=GIVEN, pod_ips=pod_ips, volumes={}, devices={})
    assert inputs.pod_ips == expected


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        pytest.param("api", (Service(),), id="a pod of the cluster waits for them"),
        pytest.param("file", None, id="a static pod does not"),
    ],
)
async def test_services_that_have_not_been_read_yet(threads, source, expected):
    pod = make_pod(source=source)
    asked = reader(Objects(), threads, services=Services())
    inputs = await asked.gather(pod, PLAIN, allocation=GIVEN, pod_ips=(), volumes={}, devices={})
    assert inputs.services == expected


async def test_a_node_without_an_api_server():
    with pytest.raises(NoApiServer) as caught:
        await NoObjects().config_map("default", "app")
    assert str(caught.value) == "couldn't get configMap default/app, no kubeClient defined"
    with pytest.raises(NoApiServer) as caught:
        await NoObjects().secret("default", "key")
    assert str(caught.value) == "couldn't get secret default/key, no kubeClient defined"
    assert NoObjects().services() == ()
