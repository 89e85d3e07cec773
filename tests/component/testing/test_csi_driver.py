"""The CSI test driver itself: strict about the order, idempotent, and as a process of its own with a memory."""

import asyncio
import json
import signal
import sys

import pytest

from klet.aio.clock import SystemClock
from klet.csi.client import CsiConnector, NodeCapability
from klet.csi.connection import DriverAddress
from klet.csi.errors import CsiCallFailed
from klet.csi.metrics import register_csi_calls
from klet.metrics import MetricRegistry
from klet.testing.csi.backing import PlainBacking
from klet.testing.csi.driver import NAME
from klet.testing.csi.faults import DriverFault, Mishap, Moment
from klet.testing.csi.serving import serve_driver
from klet.testing.csi_driver import parse_fault
from klet.wire import csi_v1_pb2 as pb
from klet.wire.codes import Code

MOUNT = pb.VolumeCapability(mount=pb.VolumeCapability.MountVolume())


def connector() -> CsiConnector:
    return CsiConnector(durations=register_csi_calls(MetricRegistry()), clock=SystemClock())


def address(socket):
    return DriverAddress(driver=NAME, endpoint=str(socket))


@pytest.fixture
async def server(tmp_path):
    backing = PlainBacking(root=tmp_path / "backing")
    async with serve_driver(backing=backing, socket=tmp_path / "d.sock", capabilities=frozenset(NodeCapability)) as s:
        yield s


async def refused(call) -> Code:
    with pytest.raises(CsiCallFailed) as caught:
        await call
    return caught.value.code


async def test_the_order_of_calls_is_enforced_and_each_may_be_repeated(server, tmp_path):
    (staging := tmp_path / "s").mkdir()
    stage = pb.NodeStageVolumeRequest(volume_id="v", staging_target_path=str(staging), volume_capability=MOUNT)
    publish = pb.NodePublishVolumeRequest(
        volume_id="v", staging_target_path=str(staging), target_path=str(tmp_path / "t"), volume_capability=MOUNT
    )
    async with connector().open(address(server.socket)) as client:
        assert await refused(client.publish(publish)) == Code.FAILED_PRECONDITION
        for _ in range(2):
            await client.stage(stage)
        for _ in range(2):
            await client.publish(publish)
        assert await refused(client.unstage("v", str(staging))) == Code.FAILED_PRECONDITION
        for _ in range(2):
            await client.unpublish("v", str(tmp_path / "t"))
        for _ in range(2):
            await client.unstage("v", str(staging))
        await client.stage(stage)
        (elsewhere := tmp_path / "e").mkdir()
        stage.staging_target_path = str(elsewhere)
        assert await refused(client.stage(stage)) == Code.ALREADY_EXISTS


async def test_a_fault_can_leave_half_a_publish(server, tmp_path):
    server.driver.faults.add(DriverFault(rpc="NodePublishVolume", does=Code.INTERNAL, at=Moment.PARTIAL))
    request = pb.NodePublishVolumeRequest(volume_id="csi-1", target_path=str(tmp_path / "t"), volume_capability=MOUNT)
    async with connector().open(address(server.socket)) as client:
        assert await refused(client.publish(request)) == Code.INTERNAL
        assert (tmp_path / "t").is_dir()
        assert server.driver.memory.published == {}
        await client.publish(request)


async def test_a_late_driver_does_its_work_after_the_caller_has_gone(server, tmp_path):
    server.driver.faults.add(DriverFault(rpc="NodePublishVolume", does=Mishap.HANG))
    request = pb.NodePublishVolumeRequest(volume_id="csi-1", target_path=str(tmp_path / "t"), volume_capability=MOUNT)
    async with connector().open(address(server.socket)) as client, asyncio.TaskGroup() as group:
        call = group.create_task(client.publish(request))
        await server.driver.faults.reached.wait()
        assert server.driver.memory.published == {}
        server.driver.faults.release()
        await call
    assert server.driver.memory.published


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        pytest.param(
            "NodeStageVolume:before:hang",
            DriverFault(rpc="NodeStageVolume", does=Mishap.HANG, at=Moment.BEFORE),
            id="it hangs before it does anything",
        ),
        pytest.param(
            "NodePublishVolume:partial:Internal",
            DriverFault(rpc="NodePublishVolume", does=Code.INTERNAL, at=Moment.PARTIAL),
            id="it fails halfway with a code",
        ),
    ],
)
def test_faults_are_given_as_text(text, fault):
    assert parse_fault(text) == fault


async def test_as_a_process_it_dies_when_asked_to_and_remembers_what_it_did(tmp_path):
    (registry := tmp_path / "registry").mkdir()
    socket = tmp_path / "d.sock"
    (staging := tmp_path / "s").mkdir()
    stage = pb.NodeStageVolumeRequest(volume_id="v", staging_target_path=str(staging), volume_capability=MOUNT)
    first = await run_driver(tmp_path, "--fault", "NodeStageVolume:after:die", "--registry", str(registry))
    async with connector().open(address(socket)) as client:
        assert await refused(client.stage(stage)) == Code.UNAVAILABLE
    assert await first.wait() == 137
    second = await run_driver(tmp_path)
    async with connector().open(address(socket)) as client:
        await client.unstage("v", str(staging))
    second.send_signal(signal.SIGTERM)
    assert await second.wait() == 0
    state = json.loads((tmp_path / "root" / "state.json").read_text())
    assert state == {"staged": {}, "published": {}, "sizes": {}, "calls": ["NodeStageVolume", "NodeUnstageVolume"]}
    assert (registry / "d.sock").readlink() == socket


async def run_driver(directory, *arguments):
    (directory / "root").mkdir(exist_ok=True)
    socket = directory / "d.sock"
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "klet.testing.csi_driver", "--socket", str(socket), "--root", str(directory / "root"),
        "--plain", "--capability", "STAGE_UNSTAGE_VOLUME", *arguments, stdout=asyncio.subprocess.PIPE,
    )  # fmt: skip
    assert process.stdout is not None
    assert await process.stdout.readline() == b"serving\n"
    return process
