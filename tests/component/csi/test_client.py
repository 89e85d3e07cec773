"""The CSI port against the test driver on a real Unix socket: requests, budget, errors, sizes, metrics, silence."""

import socket
from datetime import timedelta
from pathlib import Path

import pytest

from klet.aio.clock import SystemClock
from klet.csi.client import CsiConnector, CsiNodeInfo, CsiVolumeStats, NodeCapability, UsageNumbers
from klet.csi.connection import MAX_RECEIVED_BYTES, DriverAddress
from klet.csi.errors import LONGEST_MESSAGE, CsiCallFailed, CsiRequestInvalid
from klet.csi.metrics import register_csi_calls
from klet.metrics import MetricRegistry
from klet.model.verbosity import REQUESTS
from klet.testing.csi.backing import PlainBacking
from klet.testing.csi.driver import NAME
from klet.testing.csi.faults import DriverFault, Mishap, Moment
from klet.testing.csi.serving import DriverServer, serve_driver
from klet.wire import csi_v1_pb2 as pb
from klet.wire.codes import Code

MOUNT = pb.VolumeCapability(mount=pb.VolumeCapability.MountVolume(fs_type="ext4"))
SHORT = timedelta(milliseconds=300)


class Bench:
    """A driver, and a connector to it."""

    def __init__(self, server: DriverServer, directory: Path, budget: timedelta = timedelta(seconds=30)) -> None:
        self.server = server
        self.driver = server.driver
        self.directory = directory
        self.metrics = MetricRegistry()
        self._clock = SystemClock()
        self.durations = register_csi_calls(self.metrics)
        self.address = DriverAddress(driver=NAME, endpoint=str(server.socket))
        self.connector = CsiConnector(durations=self.durations, clock=self._clock, budget=budget)

    def hurried(self) -> CsiConnector:
        return CsiConnector(durations=self.durations, clock=self._clock, budget=SHORT)


@pytest.fixture
async def bench(tmp_path):
    backing = PlainBacking(root=tmp_path / "backing")
    async with serve_driver(backing=backing, socket=tmp_path / "d.sock", capabilities=frozenset(NodeCapability)) as s:
        yield Bench(s, tmp_path)


def stage_request(directory: Path) -> pb.NodeStageVolumeRequest:
    staging = directory / "stage"
    staging.mkdir(exist_ok=True)
    return pb.NodeStageVolumeRequest(
        volume_id="v", staging_target_path=str(staging), volume_capability=MOUNT, secrets={"k": "very-secret"}
    )


@pytest.mark.parametrize("name", ["a%20b.sock", "a b#c?.sock"])
async def test_a_driver_is_reached_whatever_its_socket_is_called(tmp_path, name):
    async with serve_driver(backing=PlainBacking(root=tmp_path / "backing"), socket=tmp_path / name) as server:
        assert (tmp_path / name).is_socket()
        async with Bench(server, tmp_path).connector.open(Bench(server, tmp_path).address) as client:
            assert (await client.node_info()).node_id


async def test_a_volume_is_staged_published_and_taken_down(bench):
    async with bench.connector.open(bench.address) as client:
        request = stage_request(bench.directory)
        await client.stage(request)
        publish = pb.NodePublishVolumeRequest(
            volume_id="v",
            target_path=str(bench.directory / "target"),
            staging_target_path=request.staging_target_path,
            volume_capability=MOUNT,
        )
        await client.publish(publish)
        assert bench.driver.memory.published == {str(bench.directory / "target"): "v"}
        await client.unpublish("v", str(bench.directory / "target"))
        await client.unstage("v", request.staging_target_path)
    assert bench.driver.requests("NodeStageVolume") == [request]
    assert bench.driver.requests("NodePublishVolume") == [publish]
    assert bench.driver.memory.staged == bench.driver.memory.published == {}
    assert not (bench.directory / "target").exists()


async def test_node_info_and_capabilities_become_values(bench):
    bench.driver.node_info = pb.NodeGetInfoResponse(
        node_id="i-1", max_volumes_per_node=3, accessible_topology=pb.Topology(segments={"zone": "z1"})
    )
    async with bench.connector.open(bench.address) as client:
        assert await client.node_info() == CsiNodeInfo(node_id="i-1", max_volumes=3, topology={"zone": "z1"})
        assert await client.capabilities() == frozenset(NodeCapability)
        bench.driver.capabilities = frozenset({NodeCapability.EXPAND_VOLUME})
        assert await client.capabilities() == {NodeCapability.EXPAND_VOLUME}
        bench.driver.node_info = pb.NodeGetInfoResponse(node_id="i-1")
        assert (await client.node_info()).topology is None


async def test_stats_have_bytes_inodes_and_the_condition(bench):
    target = str(bench.directory / "t")
    bench.driver.condition = pb.VolumeCondition(abnormal=True, message="disk is dying")
    async with bench.connector.open(bench.address) as client:
        request = pb.NodePublishVolumeRequest(volume_id="csi-1", target_path=target, volume_capability=MOUNT)
        await client.publish(request)
        (bench.driver.content("csi-1") / "file").touch()
        assert await client.stats("csi-1", target) == CsiVolumeStats(
            space=UsageNumbers(999_999, 1_000_000, 1),
            inodes=UsageNumbers(99, 100, 1),
            is_abnormal=True,
            condition="disk is dying",
        )


@pytest.mark.parametrize(
    ("code", "is_final"),
    [
        pytest.param(code, code not in ("Canceled", "DeadlineExceeded", "Unavailable", "ResourceExhausted", "Aborted"))
        for code in Code
        if code is not Code.OK
    ],
)
async def test_every_code_has_its_class(bench, code, is_final):
    bench.driver.faults.add(DriverFault(rpc="NodeStageVolume", does=code, message="no"))
    async with bench.connector.open(bench.address) as client:
        with pytest.raises(CsiCallFailed, match=f"^rpc error: code = {code} desc = no$") as caught:
            await client.stage(stage_request(bench.directory))
    assert (caught.value.code, caught.value.is_final) == (code, is_final)


async def test_what_the_protocol_requires_is_checked_before_a_call_and_is_not_final(bench):
    async with bench.connector.open(bench.address) as client:
        for call, message in (
            (client.stage(pb.NodeStageVolumeRequest(staging_target_path="/x")), "missing volume id"),
            (client.stage(pb.NodeStageVolumeRequest(volume_id="v")), "missing staging target path"),
            (client.publish(pb.NodePublishVolumeRequest(volume_id="v")), "missing target path"),
            (client.unpublish("", "/x"), "missing volume id"),
            (client.unstage("v", ""), "missing staging target path"),
        ):
            with pytest.raises(CsiRequestInvalid, match=f"^{message}$") as caught:
                await call
            assert not caught.value.is_final
    assert bench.driver.calls == []


async def test_the_budget_is_that_of_all_calls_of_an_operation(bench):
    bench.driver.faults.add(DriverFault(rpc="NodeGetCapabilities", does=Mishap.HANG))
    async with bench.hurried().open(bench.address) as client:
        with pytest.raises(CsiCallFailed, match="code = DeadlineExceeded desc = context deadline exceeded") as caught:
            await client.capabilities()
        assert not caught.value.is_final
        seen = len(bench.driver.calls)
        with pytest.raises(CsiCallFailed, match="DeadlineExceeded"):
            await client.node_info()
        assert len(bench.driver.calls) == seen, "no time is left for another call"
    async with bench.hurried().open(bench.address) as client:
        await client.node_info()


async def test_a_driver_that_dies_in_a_call_is_unavailable_and_found_again(bench):
    bench.driver.faults.add(DriverFault(rpc="NodeStageVolume", does=Mishap.DIE, at=Moment.AFTER))
    async with bench.connector.open(bench.address) as client:
        with pytest.raises(CsiCallFailed) as caught:
            await client.stage(stage_request(bench.directory))
    assert not caught.value.is_final
    assert bench.driver.memory.staged, "it was done nevertheless"
    async with bench.connector.open(bench.address) as client:
        with pytest.raises(CsiCallFailed) as caught:
            await client.node_info()
        assert caught.value.code is Code.UNAVAILABLE
    await bench.server.start()
    async with bench.connector.open(bench.address) as client:
        assert (await client.node_info()).node_id


async def test_a_socket_that_says_nothing_costs_the_budget_only(bench, tmp_path):
    with socket.socket(socket.AF_UNIX) as silent:
        silent.bind(str(tmp_path / "silent.sock"))
        silent.listen()
        address = DriverAddress(driver=NAME, endpoint=str(tmp_path / "silent.sock"))
        async with bench.hurried().open(address) as client:
            with pytest.raises(CsiCallFailed) as caught:
                await client.node_info()
    assert not caught.value.is_final


async def test_texts_and_answers_are_bounded(bench):
    bench.driver.faults.add(DriverFault(rpc="NodeGetInfo", does=Code.INTERNAL, message="x" * 6000))
    async with bench.connector.open(bench.address) as client:
        with pytest.raises(CsiCallFailed) as caught:
            await client.node_info()
        assert len(caught.value.message.encode()) == LONGEST_MESSAGE
        bench.driver.node_info = pb.NodeGetInfoResponse(node_id="x" * (MAX_RECEIVED_BYTES + 1))
        with pytest.raises(CsiCallFailed, match="code = ResourceExhausted"):
            await client.node_info()


async def test_calls_are_measured_by_driver_method_and_code(bench):
    bench.driver.faults.add(DriverFault(rpc="NodeGetInfo", does=Code.INTERNAL))
    async with bench.connector.open(bench.address) as client:
        with pytest.raises(CsiCallFailed):
            await client.node_info()
        await client.node_info()
    text = bench.metrics.write().decode()
    for code in ("Internal", "OK"):
        labels = f'driver_name="{NAME}",grpc_status_code="{code}",method_name="/csi.v1.Node/NodeGetInfo"'
        assert f'csi_operations_seconds_count{{{labels},migrated="false"}} 1' in text


async def test_no_secret_is_logged_or_part_of_an_error(bench, caplog):
    caplog.set_level(REQUESTS, logger="klet")
    bench.driver.faults.add(DriverFault(rpc="NodeStageVolume", does=Code.INTERNAL))
    async with bench.connector.open(bench.address) as client:
        with pytest.raises(CsiCallFailed) as caught:
            await client.stage(stage_request(bench.directory))
    assert "CSI call" in caplog.text
    assert "very-secret" not in caplog.text + repr(caught.value) + "".join(str(r.__dict__) for r in caplog.records)
