"""What is found of volumes after a restart, and what hostile files lead to."""

import json

import pytest

from klet.errors import KletError
from klet.testing.csi.driver import NAME
from klet.testing.csi.faults import DriverFault
from klet.volumes.plugins.base import LeftVolume
from klet.wire.codes import Code

UID = "11111111-2222-3333-4444-555555555555"


def left(bench, name, *, is_block=False):
    return LeftVolume(uid=UID, name=name, path=bench.target(name).parent, is_block=is_block)


async def test_a_published_volume_is_recognised(bench):
    await bench.stage()
    await bench.publish()
    spec = await bench.plugin.reconstruct(left(bench, "pvc-7f3a"))
    assert (spec.name, spec.is_block) == ("pvc-7f3a", False)
    assert bench.plugin.volume_name(spec) == bench.plugin.volume_name(bench.persistent())
    assert bench.plugin.device_mount_path(spec) == str(bench.staging)


async def test_the_label_of_a_volume_is_recognised_by_either_file(bench):
    bench.describe(se_linux_mount=True)
    await bench.stage(label="u:r:t:s0:c1,c2")
    await bench.publish(label="u:r:t:s0:c1,c2")
    (staged,) = await bench.plugin.find_devices(())
    published = await bench.plugin.reconstruct(left(bench, "pvc-7f3a"))
    assert (staged.left_label, published.left_label) == ("u:r:t:s0:c1,c2",) * 2


async def test_an_inline_volume_is_recognised(bench):
    bench.describe(volume_lifecycle_modes=("Ephemeral",))
    await bench.publish(bench.inline())
    spec = await bench.plugin.reconstruct(left(bench, "scratch"))
    assert (spec.name, spec.persistent, bench.plugin.supports(spec)) == ("scratch", None, True)
    assert not bench.plugin.is_device_mountable(spec)


async def test_a_block_volume_is_recognised(bench):
    request = bench.block()
    await bench.plugin.set_up_device(request)
    await bench.plugin.map_pod_device(request)
    spec = await bench.plugin.reconstruct(left(bench, "pvc-7f3a", is_block=True))
    assert (spec.name, spec.is_block) == ("pvc-7f3a", True)
    assert bench.plugin.volume_name(spec) == bench.plugin.volume_name(bench.persistent())


@pytest.mark.parametrize(
    "content",
    [
        pytest.param(None, id="no file"),
        pytest.param("{", id="cut"),
        pytest.param("{}", id="nothing in it"),
        pytest.param(json.dumps({"driverName": NAME, "volumeHandle": "h", "specVolID": "other"}), id="another volume"),
        pytest.param(json.dumps({"driverName": NAME, "volumeHandle": "h", "specVolID": "../x"}), id="a way out"),
        pytest.param(json.dumps({"driverName": "", "volumeHandle": "h", "specVolID": "v"}), id="no driver"),
        pytest.param(json.dumps({"driverName": NAME, "volumeHandle": "", "specVolID": "v"}), id="no handle"),
    ],
)
async def test_a_directory_that_does_not_say_what_it_is_fails(bench, content):
    directory = bench.target("v").parent
    directory.mkdir(parents=True)
    if content is not None:
        (directory / "vol_data.json").write_text(content)
    with pytest.raises(KletError):
        await bench.plugin.reconstruct(left(bench, "v"))
    with pytest.raises(KletError):
        await bench.plugin.reconstruct(left(bench, "v", is_block=True))


async def test_staged_devices_are_found_without_any_pod(bench):
    await bench.stage()
    await bench.plugin.set_up_device(bench.block(bench.persistent(mode="Block", volumeHandle="other")))
    filesystem, block = await bench.plugin.find_devices(())
    assert bench.plugin.device_mount_path(filesystem) == str(bench.staging)
    assert (block.is_block, block.name, bench.plugin.device_name(block)) == (True, "pvc-7f3a", f"{NAME}^other")
    await bench.unstage()
    await bench.plugin.tear_down_device(block.name, map_path="", device_path="")
    assert await bench.plugin.find_devices(()) == []
    assert bench.leftovers() == []


async def test_a_stage_that_was_not_answered_is_found(bench):
    bench.driver.faults.add(DriverFault(rpc="NodeStageVolume", does=Code.UNAVAILABLE))
    with pytest.raises(KletError):
        await bench.stage()
    (found,) = await bench.plugin.find_devices(())
    assert bench.plugin.device_name(found) == f"{NAME}^vol-0a1b"


@pytest.mark.parametrize(
    "content",
    [
        pytest.param("{", id="cut"),
        pytest.param(json.dumps({"driverName": NAME, "volumeHandle": "other"}), id="another volume"),
        pytest.param(json.dumps({"driverName": "../..", "volumeHandle": "vol-0a1b"}), id="a way out"),
        pytest.param(json.dumps({"volumeHandle": "vol-0a1b"}), id="no driver"),
    ],
)
async def test_one_bad_file_hides_no_other_device(bench, content, caplog):
    await bench.stage()
    await bench.stage(bench.persistent(volumeHandle="second"))
    (bench.staging.parent / "vol_data.json").write_text(content)
    bad = bench.root / "plugins/kubernetes.io/csi/volumeDevices/x/data/vol_data.json"
    bad.parent.mkdir(parents=True)
    bad.write_text(content)
    (found,) = await bench.plugin.find_devices(())
    assert bench.plugin.device_name(found) == f"{NAME}^second"
    assert caplog.text.count("cannot be read") == 2


async def test_directories_that_were_made_and_never_used_are_removed(bench):
    for name in (f"{NAME}/abc/globalmount", "volumeDevices/pv/data", "volumeDevices/pv/dev"):
        (bench.root / "plugins/kubernetes.io/csi" / name).mkdir(parents=True)
    assert await bench.plugin.find_devices(()) == []
    assert bench.leftovers() == []


async def test_content_that_nobody_explains_stays(bench):
    strange = bench.root / "plugins/kubernetes.io/csi" / NAME / "abc/globalmount/data"
    strange.parent.mkdir(parents=True)
    strange.write_text("precious")
    assert await bench.plugin.find_devices(()) == []
    assert strange.read_text() == "precious"


async def test_without_any_driver_there_is_nothing(bench):
    assert await bench.plugin.find_devices(()) == []
    assert bench.leftovers() == []
