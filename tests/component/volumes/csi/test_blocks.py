"""Block volumes against the driver, and what is left on disk."""

import pytest

from klet.api.storage import TokenRequest
from klet.csi.errors import CsiCallFailed
from klet.testing.csi.driver import NAME
from klet.testing.csi.faults import DriverFault
from klet.volumes.errors import TransientFailure, UncertainProgress, VolumeSetupError
from klet.wire.codes import Code

UID = "11111111-2222-3333-4444-555555555555"
BLOCKS = "plugins/kubernetes.io/csi/volumeDevices"


async def test_a_device_is_staged_published_and_taken_down(bench):
    bench.describe(pod_info_on_mount=True)
    staging, device = await bench.map_device()
    root = bench.root / BLOCKS
    assert (staging, device) == (f"{root}/staging/pvc-7f3a", f"{root}/publish/pvc-7f3a/{UID}")
    assert bench.plugin.global_map_path(bench.persistent(mode="Block")) == f"{root}/pvc-7f3a/dev"
    text = (root / "pvc-7f3a/data/vol_data.json").read_text()
    assert '"specVolID":"pvc-7f3a"' in text
    assert "volumeLifecycleMode" not in text
    (stage,) = bench.driver.requests("NodeStageVolume")
    (publish,) = bench.driver.requests("NodePublishVolume")
    for request in (stage, publish):
        assert request.staging_target_path == staging
        assert request.volume_capability.HasField("block")
    assert publish.target_path == device
    assert publish.volume_context["csi.storage.k8s.io/pod.uid"] == UID
    await bench.unmap_device()
    assert bench.driver.order() == [
        "NodeStageVolume",
        "NodePublishVolume",
        "NodeUnpublishVolume",
        "NodeUnstageVolume",
    ]
    assert bench.leftovers() == []


async def test_all_of_it_may_be_done_twice(bench):
    for _ in range(2):
        await bench.map_device()
    for _ in range(2):
        await bench.unmap_device()
    assert bench.leftovers() == []


async def test_a_driver_without_the_step_is_given_the_staging_path_all_the_same(bench):
    bench.allow()
    staging, _ = await bench.map_device()
    assert staging == ""
    assert bench.driver.requests("NodePublishVolume")[0].staging_target_path.endswith("/staging/pvc-7f3a")
    await bench.unmap_device()
    assert bench.driver.order() == ["NodePublishVolume", "NodeUnpublishVolume"]
    assert bench.leftovers() == []


async def test_no_tokens_for_devices(bench):
    bench.describe(token_requests=(TokenRequest(audience="a"),))
    await bench.map_device()
    assert bench.api.tokens == []


@pytest.mark.parametrize(
    ("code", "kind", "is_left"),
    [(Code.INTERNAL, CsiCallFailed, False), (Code.UNAVAILABLE, UncertainProgress, True)],
)
async def test_a_stage_that_fails(bench, code, kind, is_left, fails):
    bench.driver.faults.add(DriverFault(rpc="NodeStageVolume", does=code, message="no"))
    with fails(kind, f"rpc error: code = {code} desc = no"):
        await bench.plugin.set_up_device(bench.block())
    assert bool(bench.leftovers()) == is_left
    await bench.unmap_device()
    assert bench.leftovers() == []


async def test_a_publish_that_fails_is_taken_down_with_the_rest(bench):
    bench.driver.faults.add(DriverFault(rpc="NodePublishVolume", does=Code.UNAVAILABLE, message="no"))
    with pytest.raises(UncertainProgress):
        await bench.map_device()
    await bench.unmap_device()
    assert bench.leftovers() == []


async def test_secrets_are_waited_for(bench):
    spec = bench.persistent(mode="Block", nodeStageSecretRef={"name": "s", "namespace": "ns"})
    with pytest.raises(TransientFailure, match=r"^failed to get NodeStageSecretRef ns/s: "):
        await bench.plugin.set_up_device(bench.block(spec))
    spec = bench.persistent(mode="Block", nodePublishSecretRef={"name": "s", "namespace": "ns"})
    with pytest.raises(TransientFailure, match="failed to get NodePublishSecretRef ns/s: "):
        await bench.map_device(spec)


async def test_without_a_driver_nothing_is_taken_down(bench):
    await bench.map_device()
    bench.drivers.endpoints.clear()
    with pytest.raises(TransientFailure):
        await bench.plugin.unmap_pod_device(UID, "pvc-7f3a")
    with pytest.raises(TransientFailure):
        await bench.plugin.tear_down_device("pvc-7f3a", map_path="", device_path="")
    bench.drivers.endpoints[NAME] = str(bench.server.socket)
    await bench.unmap_device()
    assert bench.leftovers() == []


async def test_a_published_device_without_file_is_an_error(bench):
    _, device = await bench.map_device()
    (bench.root / BLOCKS / "pvc-7f3a/data/vol_data.json").unlink()
    with pytest.raises(VolumeSetupError, match=r"there is no vol_data\.json"):
        await bench.plugin.unmap_pod_device(UID, "pvc-7f3a")
    assert bench.driver.memory.published == {device: "vol-0a1b"}


async def test_a_volume_that_is_called_staging_does_not_take_the_others_with_it(bench):
    await bench.map_device()
    await bench.plugin.tear_down_device("staging", map_path="", device_path="")
    await bench.plugin.tear_down_device("publish", map_path="", device_path="")
    assert (bench.root / BLOCKS / "staging/pvc-7f3a").is_dir()
    assert (bench.root / BLOCKS / "publish/pvc-7f3a").is_dir()


async def test_a_device_that_no_link_leads_to_is_taken_back_before_it_is_unstaged(bench):
    await bench.map_device()
    await bench.plugin.tear_down_device("pvc-7f3a", map_path="", device_path="")
    assert bench.driver.order()[-2:] == ["NodeUnpublishVolume", "NodeUnstageVolume"]
    assert bench.leftovers() == []
