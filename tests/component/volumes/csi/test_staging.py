"""MountDevice and UnmountDevice against the driver: the reference's cases, and what is left on disk."""

import pytest

from klet.api.storage import VolumeError
from klet.csi.client import NodeCapability
from klet.csi.errors import CsiCallFailed
from klet.testing.csi.driver import NAME
from klet.testing.csi.faults import DriverFault, Moment
from klet.volumes.csi.places import attachment_name
from klet.volumes.csi.vol_data import BadVolumeData
from klet.volumes.errors import TransientFailure, UncertainProgress, VolumeSetupError
from klet.volumes.plugins.base import StageRequest
from klet.wire import csi_v1_pb2 as pb
from klet.wire.codes import Code

HASH = "f738d5eb646702a8a5f79d5435ac3a0048d440b49ea4000beae42aab32fb6143"
NON_FINAL = (Code.CANCELLED, Code.DEADLINE_EXCEEDED, Code.UNAVAILABLE, Code.RESOURCE_EXHAUSTED, Code.ABORTED)


async def test_a_volume_is_staged_with_its_file_beside_it_and_all_of_it_goes(bench):
    await bench.stage(bench.persistent(options=("noatime",), volumeAttributes={"k": "v"}))
    assert bench.staging == bench.root / f"plugins/kubernetes.io/csi/{NAME}/{HASH}/globalmount"
    assert bench.staging.stat().st_mode & 0o777 == 0o750
    file = bench.staging.parent / "vol_data.json"
    assert file.read_bytes() == f'{{"driverName":"{NAME}","volumeHandle":"vol-0a1b"}}\n'.encode()
    assert bench.driver.requests("NodeStageVolume") == [
        pb.NodeStageVolumeRequest(
            volume_id="vol-0a1b",
            staging_target_path=str(bench.staging),
            volume_capability=pb.VolumeCapability(
                mount=pb.VolumeCapability.MountVolume(fs_type="ext4", mount_flags=["noatime"]),
                access_mode=pb.VolumeCapability.AccessMode(mode=pb.VolumeCapability.AccessMode.SINGLE_NODE_WRITER),
            ),
            volume_context={"k": "v"},
        )
    ]
    await bench.unstage()
    assert bench.driver.memory.staged == {}
    assert bench.leftovers() == []


async def test_staging_and_unstaging_twice_does_no_harm(bench):
    await bench.stage()
    await bench.stage()
    await bench.unstage()
    await bench.unstage()
    assert bench.driver.order() == ["NodeStageVolume", "NodeStageVolume", "NodeUnstageVolume"]


async def test_a_driver_without_the_step_is_not_called_and_leaves_nothing(bench):
    bench.allow()
    await bench.stage()
    assert (bench.staging.is_dir(), bench.data_files()) == (True, [])
    await bench.unstage()
    assert bench.driver.order() == []
    assert bench.leftovers() == []


async def test_the_step_taken_away_meanwhile_is_not_called(bench):
    await bench.stage()
    (bench.staging / ".published").unlink()
    bench.allow()
    await bench.unstage()
    assert bench.driver.order() == ["NodeStageVolume"]
    assert bench.leftovers() == []


@pytest.mark.parametrize("code", NON_FINAL)
async def test_an_error_that_is_not_final_keeps_what_is_there(bench, code, fails):
    bench.driver.faults.add(DriverFault(rpc="NodeStageVolume", does=code, message="busy"))
    with fails(UncertainProgress, f"rpc error: code = {code} desc = busy"):
        await bench.stage()
    assert bench.staging.is_dir()
    assert bench.data_files() == [f"plugins/kubernetes.io/csi/{NAME}/{HASH}/vol_data.json"]


async def test_a_final_error_removes_what_was_made(bench, fails):
    bench.driver.faults.add(DriverFault(rpc="NodeStageVolume", does=Code.INTERNAL, message="no"))
    with fails(CsiCallFailed, "rpc error: code = Internal desc = no"):
        await bench.stage()
    assert bench.leftovers() == []


async def test_a_final_error_that_leaves_content_is_uncertain_and_removes_nothing(bench, fails):
    bench.driver.faults.add(DriverFault(rpc="NodeStageVolume", does=Code.INTERNAL, message="no", at=Moment.AFTER))
    with fails(UncertainProgress, "rpc error: code = Internal desc = no"):
        await bench.stage()
    assert (bench.staging / ".published").read_text() == "vol-0a1b"
    await bench.unstage()
    assert bench.leftovers() == []


async def test_an_unknown_driver_is_waited_for(bench, fails):
    bench.drivers.endpoints.clear()
    missing = f"driver name {NAME} not found in the list of registered CSI drivers"
    with fails(
        TransientFailure,
        f"kubernetes.io/csi: attacher.MountDevice failed to create newCsiDriverClient: {missing}",
    ):
        await bench.stage()
    assert bench.leftovers() == []


async def test_what_is_staged_waits_for_its_driver_to_be_unstaged(bench):
    await bench.stage()
    bench.drivers.endpoints.clear()
    with pytest.raises(TransientFailure, match=r"attacher\.UnmountDevice failed to create newCsiDriverClient"):
        await bench.unstage()
    assert bench.data_files()


async def test_nothing_is_tried_while_the_driver_objects_are_not_known(bench):
    bench.drivers.is_synced = False
    with pytest.raises(TransientFailure):
        await bench.stage()
    assert bench.leftovers() == []


async def test_a_missing_attachment_is_waited_for(bench):
    bench.describe(attach_required=True)
    with pytest.raises(TransientFailure, match="volumeattachments"):
        await bench.stage()
    assert bench.driver.order() == []


async def test_the_attachments_metadata_is_the_publish_context(bench):
    bench.describe(attach_required=True)
    bench.attach(attachment_metadata={"devicePath": "/dev/xvdba"})
    await bench.stage()
    (request,) = bench.driver.requests("NodeStageVolume")
    assert dict(request.publish_context) == {"devicePath": "/dev/xvdba"}


async def test_the_stage_secret_goes_to_the_driver_and_nowhere_else(bench, caplog, fails):
    spec = bench.persistent(nodeStageSecretRef={"name": "s", "namespace": "ns"})
    missing = 'kubernetes.io/csi: failed to find the secret s in the namespace ns with error: secrets "s" not found'
    with fails(TransientFailure, f"fetching NodeStageSecretRef ns/s failed: {missing}"):
        await bench.stage(spec)
    assert bench.driver.order() == []
    bench.api.secrets["ns", "s"] = {"key": "hush"}
    bench.driver.faults.add(DriverFault(rpc="NodeStageVolume", does=Code.INTERNAL))
    with pytest.raises(CsiCallFailed) as caught:
        await bench.stage(spec)
    await bench.stage(spec)
    assert dict(bench.driver.requests("NodeStageVolume")[-1].secrets) == {"key": "hush"}
    on_disk = b"".join(path.read_bytes() for path in bench.root.rglob("*") if path.is_file())
    assert "hush" not in caplog.text + str(caught.value)
    assert b"hush" not in on_disk


async def test_a_secret_is_not_read_for_a_driver_without_the_step(bench):
    bench.allow()
    await bench.stage(bench.persistent(nodeStageSecretRef={"name": "s", "namespace": "ns"}))


async def test_the_group_is_the_drivers_if_it_can(bench):
    bench.allow(NodeCapability.STAGE_UNSTAGE_VOLUME, NodeCapability.VOLUME_MOUNT_GROUP)
    await bench.stage(pod=bench.pod(securityContext={"fsGroup": 2000}))
    (request,) = bench.driver.requests("NodeStageVolume")
    assert request.volume_capability.mount.volume_mount_group == "2000"


@pytest.mark.parametrize("is_supported", [True, False])
async def test_the_label_is_an_option_and_kept_in_the_file_if_the_driver_supports_it(bench, is_supported):
    bench.describe(se_linux_mount=is_supported)
    await bench.stage(label="u:r:t:s0")
    (request,) = bench.driver.requests("NodeStageVolume")
    assert list(request.volume_capability.mount.mount_flags) == (['context="u:r:t:s0"'] if is_supported else [])
    text = (bench.staging.parent / "vol_data.json").read_text()
    assert ('"seLinuxMountContext":"u:r:t:s0"' in text) == is_supported


@pytest.mark.parametrize(
    ("content", "kind"),
    [
        pytest.param("{", BadVolumeData, id="cut"),
        pytest.param('{"driverName":1}', BadVolumeData, id="no string"),
        pytest.param("{}", TransientFailure, id="no driver"),
    ],
)
async def test_a_bad_file_is_an_error_and_nothing_is_removed(bench, content, kind):
    await bench.stage()
    (bench.staging.parent / "vol_data.json").write_text(content)
    with pytest.raises(kind):
        await bench.unstage()
    assert (bench.staging / ".published").exists()


async def test_a_file_that_is_a_link_is_neither_read_nor_written(bench, tmp_path):
    outside = tmp_path / "outside"
    outside.write_text("kept")
    bench.staging.mkdir(parents=True)
    (bench.staging.parent / "vol_data.json").symlink_to(outside)
    with pytest.raises(TransientFailure, match="failed to save volume info data"):
        await bench.stage()
    assert outside.read_text() == "kept"


@pytest.mark.parametrize("path", ["", "/", "/etc", "globalmount", "/x/../etc/globalmount", "{root}/pods/u"])
async def test_only_staging_directories_are_unstaged(bench, path):
    with pytest.raises(VolumeSetupError):
        await bench.plugin.unmount_device(path.replace("{root}", str(bench.root)), device_path="")
    assert bench.driver.calls == []


async def test_a_driver_that_fails_to_unstage_keeps_everything(bench, fails):
    await bench.stage()
    bench.driver.faults.add(DriverFault(rpc="NodeUnstageVolume", does=Code.INTERNAL, message="no"))
    with fails(
        VolumeSetupError,
        "kubernetes.io/csi: attacher.UnmountDevice failed: rpc error: code = Internal desc = no",
    ):
        await bench.unstage()
    assert bench.data_files()
    await bench.unstage()
    assert bench.leftovers() == []


async def test_waiting_for_the_attachment_asks_once_and_returns_its_name(bench):
    request = StageRequest(pod=bench.pod(), spec=bench.persistent())
    name = attachment_name("vol-0a1b", NAME, "node-1")
    with pytest.raises(VolumeSetupError, match=f"volume vol-0a1b has GET error for volume attachment {name}: "):
        await bench.plugin.wait_for_attach(request)
    bench.attach(attached=False)
    with pytest.raises(VolumeSetupError, match="volume vol-0a1b is not attached for volume attachment"):
        await bench.plugin.wait_for_attach(request)
    bench.attach()
    assert await bench.plugin.wait_for_attach(request) == name


@pytest.mark.parametrize(
    ("driver", "expected"),
    [
        pytest.param({"attach_required": False}, False, id="no attaching"),
        pytest.param({"attach_required": True}, True, id="attaching"),
        pytest.param(None, True, id="no object"),
    ],
)
def test_what_is_attachable(bench, driver, expected):
    if driver is None:
        bench.drivers.objects.clear()
    else:
        bench.describe(**driver)
    assert bench.plugin.is_attachable(bench.persistent()) is expected
    assert bench.plugin.is_attachable(bench.inline()) is False
    bench.drivers.is_synced = False
    assert bench.plugin.is_attachable(bench.persistent()) is None
    assert bench.plugin.is_attachable(bench.inline()) is False


@pytest.mark.parametrize(
    ("period", "code", "expected"),
    [
        pytest.param(60, 8, True, id="the node is full"),
        pytest.param(60, 13, False, id="another code"),
        pytest.param(60, None, False, id="no code"),
        pytest.param(None, 8, False, id="a driver whose limits are not followed"),
    ],
)
async def test_a_full_node_is_recognised_and_its_limits_are_read_again(bench, period, code, expected):
    bench.describe(attach_required=True, node_allocatable_update_period_seconds=period)
    bench.attach(attached=False, attach_error=VolumeError(message="full", error_code=code))
    assert await bench.plugin.is_exhausted(bench.persistent()) is expected
    assert bench.api.refreshed == ([NAME] if expected else [])


async def test_an_attachment_that_cannot_be_read_is_no_full_node(bench):
    bench.describe(node_allocatable_update_period_seconds=60)
    assert not await bench.plugin.is_exhausted(bench.persistent())
    assert not await bench.plugin.is_exhausted(bench.inline())


async def test_limits_that_cannot_be_read_again_do_not_hide_that_the_node_is_full(bench):
    bench.describe(attach_required=True, node_allocatable_update_period_seconds=60)
    bench.attach(attached=False, attach_error=VolumeError(error_code=8))
    bench.api.refresh_error = VolumeSetupError("no")
    assert await bench.plugin.is_exhausted(bench.persistent())
