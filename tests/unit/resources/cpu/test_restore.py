"""What a previous run, klet's or upstream's, left of the CPU manager: kept as it is, or not started from at all."""

import pytest

from klet.checkpoint.upstream import CpuManagerFormat
from klet.cri.errors import CriError
from klet.model.pods import PodUID
from klet.resources.cpu.policy import CpuPolicyOptions, build_static_policy
from klet.resources.cpu.restore import CpuStateRefused, list_containers, restore_cpu_state
from klet.resources.cpu.settings import CpuManagerSettings
from klet.resources.cpu.state import ContainerRef, CpuState
from klet.resources.cpu.topology import build_topology
from klet.testing.machines import SMALL, list_cpus
from klet.testing.state_bytes import StateBytes
from klet.wire import cri_v1_pb2 as cri
from klet.wire.codes import Code

PATH = "/var/lib/kubelet/cpu_manager_state"
UID = "11111111-2222-3333-4444-555555555555"
NONE = CpuManagerSettings()
STATIC = CpuManagerSettings(
    static=build_static_policy(
        build_topology(list_cpus(SMALL)), CpuPolicyOptions(), reserved=1, specific=frozenset({0})
    )
)
UPSTREAMS = (
    b'{"policyName":"static","defaultCpuSet":"0-1,4-5","entries":{"11111111-2222-3333-4444-555555555555":'
    b'{"app":"2,6","web":"3,7"}},"checksum":3798591913}'
)
# As kubelets up to 1.17 wrote it; checksum 0 is accepted.
FIRST_VERSION = b'{"policyName":"static","defaultCpuSet":"0-1,4-7","entries":{"container-1":"2-3"},"checksum":0}'


def store(data=None):
    found = StateBytes(form=CpuManagerFormat())
    found.data = data
    return found


async def nobody():
    return {}


async def restore(left, settings, containers=nobody):
    return await restore_cpu_state(left, settings, path=PATH, containers=containers)


@pytest.mark.parametrize(
    ("settings", "data", "expected"),
    [
        pytest.param(NONE, None, b'{"policyName":"none","defaultCpuSet":"","checksum":1353318690}', id="first, none"),
        pytest.param(
            STATIC, None, b'{"policyName":"static","defaultCpuSet":"0-7","checksum":14413152}', id="first, static"
        ),
        pytest.param(STATIC, UPSTREAMS, UPSTREAMS, id="what upstream has given stays"),
    ],
)
async def test_a_start(settings, data, expected):
    left = store(data)
    await restore(left, settings)
    assert left.data == expected


async def test_what_upstream_has_given():
    found = await restore(store(UPSTREAMS), STATIC)
    assert found == CpuState(
        shared=frozenset({0, 1, 4, 5}),
        exclusive={PodUID(UID): {"app": frozenset({2, 6}), "web": frozenset({3, 7})}},
    )


async def test_a_file_of_the_first_version_is_written_as_one_of_the_second():
    async def containers():
        return {"container-1": ContainerRef(PodUID(UID), "app")}

    left = store(FIRST_VERSION)
    found = await restore(left, STATIC, containers)
    assert found.exclusive == {UID: {"app": frozenset({2, 3})}}
    assert left.data is not None
    assert f'"entries":{{"{UID}":{{"app":"2-3"}}}}'.encode() in left.data


@pytest.mark.parametrize(
    ("settings", "data", "message"),
    [
        pytest.param(
            NONE,
            UPSTREAMS,
            "start cpu manager error: could not restore state from checkpoint: "
            'configured policy "none" differs from state checkpoint policy "static", please drain this node and delete '
            f'the CPU manager checkpoint file "{PATH}" before restarting Kubelet',
            id="another policy",
        ),
        pytest.param(
            STATIC,
            UPSTREAMS.replace(b"3798591913", b"1"),
            "start cpu manager error: could not restore state from checkpoint: "
            "checkpoint is corrupted, please drain this node and delete "
            f'the CPU manager checkpoint file "{PATH}" before restarting Kubelet',
            id="another checksum",
        ),
        pytest.param(
            STATIC,
            FIRST_VERSION,
            "start cpu manager error: could not restore state from checkpoint: "
            "error migrating v1 checkpoint state to v2 checkpoint state: "
            "containerID 'container-1' not found in initial containers list, please drain this node and delete "
            f'the CPU manager checkpoint file "{PATH}" before restarting Kubelet',
            id="a container that is gone",
        ),
        pytest.param(
            STATIC,
            b'{"policyName":"static","defaultCpuSet":"0-3","checksum":0}',
            'start cpu manager error: current set of available CPUs "0-7" doesn\'t match with CPUs in state "0-3": '
            f"drain this node and delete {PATH}, or take back what was changed in reservedSystemCPUs, kubeReserved, "
            "systemReserved, cpuManagerPolicyOptions or the machine's CPUs",
            id="another machine",
        ),
    ],
)
async def test_what_is_refused_stays_where_it_is(settings, data, message):
    left = store(data)
    with pytest.raises(CpuStateRefused) as caught:
        await restore(left, settings)
    assert str(caught.value) == message
    assert (left.data, left.saves) == (data, 0)


class Runtime:
    """Has two containers, one of a sandbox that it does not list."""

    def __init__(self, error=None):
        self.error = error

    async def list_pod_sandbox(self, request):  # noqa: ARG002 - everything
        metadata = cri.PodSandboxMetadata(uid=UID)
        return cri.ListPodSandboxResponse(items=[cri.PodSandbox(id="s", metadata=metadata)])

    async def list_containers(self, request):  # noqa: ARG002 - everything
        if self.error is not None:
            raise self.error
        metadata = cri.ContainerMetadata(name="app")
        containers = [cri.Container(id=f"c-{sandbox}", pod_sandbox_id=sandbox, metadata=metadata) for sandbox in "sx"]
        return cri.ListContainersResponse(containers=containers)


async def test_containers_of_the_runtime():
    assert await list_containers(Runtime()) == {"c-s": ContainerRef(PodUID(UID), "app")}
    assert await list_containers(Runtime(CriError(Code.UNAVAILABLE, "away"))) == {}
