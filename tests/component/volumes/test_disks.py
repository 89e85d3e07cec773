"""iscsi and fc volumes on a machine whose tools note their calls, and whose sysfs a builder made."""

import json

import pytest

from klet.api.codec import convert
from klet.api.config import Secret
from klet.api.pod import Pod
from klet.api.storage import PersistentVolume
from klet.api.volume import Volume
from klet.host.mountinfo import MountEntry
from klet.model.allocation import desired_allocation
from klet.volumes.errors import FilesystemMismatch, VolumeSetupError
from klet.volumes.plugins.base import LeftVolume, MountRequest, StageRequest
from klet.volumes.spec import VolumeSpec

IQN, PORTAL = "iqn.2030-01.example:disks", "10.0.0.1:3260"
ISCSI = {"targetPortal": "10.0.0.1", "iqn": IQN, "lun": 3}
IFACE = """case "$*" in *"-o show"*) echo "iface.transport_name = tcp" ;; esac"""


@pytest.fixture
def node(disk_node):
    return disk_node


def pod_of():
    metadata = {"name": "p", "namespace": "ns", "uid": "u"}
    return convert(Pod, {"metadata": metadata, "spec": {"containers": [{"name": "c", "image": "i"}]}})


def inline(kind, **source):
    return VolumeSpec(convert(Volume, {"name": "v", kind: source}))


def claimed(kind, *, mode="Filesystem", options=(), read_only=False, **source):
    spec = {kind: source, "volumeMode": mode, "mountOptions": options}
    volume = convert(PersistentVolume, {"metadata": {"name": "pv"}, "spec": spec})
    return VolumeSpec(Volume(name="v"), volume, read_only=read_only)


def stage(spec, **fields):
    return StageRequest(pod=pod_of(), spec=spec, **fields)


def bind_request(spec, **fields):
    pod = pod_of()
    return MountRequest(pod=pod, allocation=desired_allocation(pod), spec=spec, **fields)


def log_in(node, number=3, address="10.0.0.1", disk="sda"):
    """Have the target show the disk as soon as somebody has logged in: the next look at sysfs finds it."""
    portal = f"{address}:3260"
    node.trees.add_session(number, IQN, address=address, disks=[(3, disk)])
    node.trees.add_disk(disk, by_path=f"ip-{portal}-iscsi-{IQN}-lun-3")


def log_in_by_tool(node, session="staged"):
    """Have `iscsiadm --login` make the session appear."""
    staged = node.trees.sys.parent / session
    real = node.trees.session_place(3)
    log_in(node)
    real.rename(staged)
    script = f'{IFACE}\ncase "$*" in *--login*) mv {staged} {real} ;; *--logout*) rm -rf {real} ;; esac'
    node.machine.add("iscsiadm", script)


class TestIscsi:
    async def test_a_first_mount_logs_in_scans_formats_and_mounts(self, node):
        log_in_by_tool(node)
        spec = inline("iscsi", **ISCSI)
        device = await node.iscsi.wait_for_attach(stage(spec))
        assert device == str(node.trees.dev / f"disk/by-path/ip-{PORTAL}-iscsi-{IQN}-lun-3")
        assert (node.trees.sys / "class/scsi_host/host3/scan").read_text() == "0 0 3"
        assert [call[-1] for call in node.machine.calls("iscsiadm")] == [
            "show",
            "new",
            "--discover",
            "manual",
            "--login",
            "manual",
        ]
        assert json.loads((node.iscsi_place / "iscsi.json").read_text())["Portals"] == [PORTAL]
        path = node.iscsi.device_mount_path(spec)
        assert path == str(node.iscsi_place)
        await node.iscsi.mount_device(stage(spec, device_path=device, mount_path=path))
        assert node.machine.calls()[1:] == [
            ["mkfs.ext4", "-F", "-m0", device],
            ["mount", "-t", "ext4", "-o", "defaults", device, path],
        ]

    async def test_the_last_disk_of_a_target_logs_out_and_leaves_nothing(self, node):
        log_in_by_tool(node)
        spec = inline("iscsi", **{**ISCSI, "targetPortal": "10.0.0.1"})
        path = node.iscsi.device_mount_path(spec)
        device = await node.iscsi.wait_for_attach(stage(spec))
        assert len(list(node.iscsi_place.parents[1].rglob("*no-port*"))) == 1
        await node.iscsi.mount_device(stage(spec, device_path=device, mount_path=path))
        node.machine.calls()
        # As the kernel does when a disk is deleted.
        (node.trees.session_place(3) / "device/session3/target3:0:0/3:0:0:3/block/sda").rmdir()
        await node.iscsi.unmount_device(path, device_path=device)
        assert [call[-3] for call in node.machine.calls("iscsiadm")] == ["--logout", "delete"]
        assert node.mounts.by_tool == []
        assert not node.iscsi_place.exists()
        assert list(node.iscsi_place.parents[1].rglob("*no-port*")) == []
        await node.iscsi.unmount_device(path, device_path=device)

    async def test_a_target_with_another_disk_here_stays_logged_in(self, node):
        node.trees.add_session(3, IQN, address="10.0.0.1", disks=[(4, "sdb")])
        node.trees.add_disk("sdb")
        spec = inline("iscsi", **ISCSI)
        path = node.iscsi.device_mount_path(spec)
        node.iscsi_place.mkdir(parents=True)
        await node.iscsi.unmount_device(path, device_path="")
        assert node.machine.calls("iscsiadm") == []
        assert (node.trees.sys / "block/sdb/device/delete").read_text() == ""
        assert not node.iscsi_place.exists()

    async def test_a_disk_is_deleted_with_its_multipath_device(self, node):
        log_in(node)
        node.trees.add_multipath("dm-0", ["sda"])
        node.iscsi_place.mkdir(parents=True)
        await node.iscsi.unmount_device(str(node.iscsi_place), device_path="")
        assert node.machine.calls("multipath") == [["-f", str(node.trees.dev / "dm-0")]]
        assert (node.trees.sys / "block/sda/device/delete").read_text() == "1"

    async def test_two_portals_give_the_multipath_device(self, node):
        log_in(node)
        log_in(node, 4, "10.0.0.2", "sdb")
        node.trees.add_multipath("dm-2", ["sda", "sdb"])
        spec = claimed("iscsi", **ISCSI, portals=["10.0.0.2"])
        assert await node.iscsi.wait_for_attach(stage(spec)) == str(node.trees.dev / "dm-2")
        assert [call[-1] for call in node.machine.calls("iscsiadm")] == ["show"]

    async def test_one_portal_of_two_is_enough(self, node):
        log_in(node)
        spec = claimed("iscsi", **ISCSI, portals=["10.0.0.2"])
        node.machine.add("iscsiadm", f'{IFACE}\ncase "$*" in *--discover*) echo down >&2; exit 4 ;; esac')
        assert (await node.iscsi.wait_for_attach(stage(spec))).endswith("-lun-3")
        calls = node.machine.calls("iscsiadm")
        assert sum(call[-1] == "--discover" for call in calls) == 5
        assert sum(call[-1] == "delete" for call in calls) == 5

    async def test_a_target_that_cannot_be_found_is_an_error_with_what_iscsiadm_said(self, node):
        node.machine.add("iscsiadm", f'{IFACE}\ncase "$*" in *--discover*) echo no route >&2; exit 4 ;; esac')
        with pytest.raises(VolumeSetupError) as caught:
            await node.iscsi.wait_for_attach(stage(inline("iscsi", **ISCSI)))
        assert str(caught.value) == (
            "failed to get any path for iscsi disk, last err seen:\n"
            f"iscsi: failed to sendtargets to portal {PORTAL}: no route (exit status 4)"
        )

    async def test_a_disk_that_does_not_appear_is_waited_for_half_a_minute(self, node):
        node.trees.add_session(3, IQN, address="10.0.0.1")
        started = node.clock.monotonic()
        with pytest.raises(VolumeSetupError, match=rf"ip-{PORTAL}-iscsi-{IQN}-lun-3 after 30s"):
            await node.iscsi.wait_for_attach(stage(inline("iscsi", **ISCSI)))
        assert node.clock.monotonic() - started == 5 * 30

    async def test_chap_settings_are_read_from_the_secret_of_the_pods_namespace(self, node):
        log_in_by_tool(node)
        data = {"node.session.auth.username": b"me", "node.session.auth.password": b"hush"}
        node.secrets.secrets["ns", "chap"] = Secret(data=data)
        await node.iscsi.wait_for_attach(
            stage(inline("iscsi", **ISCSI, chapAuthSession=True, secretRef={"name": "chap"}))
        )
        calls = node.machine.calls("iscsiadm")
        assert ["node.session.auth.password", "-v", "hush"] in [call[-3:] for call in calls]
        assert "hush" not in (node.iscsi_place / "iscsi.json").read_text()

    async def test_a_secret_that_is_missing_is_an_error_before_anything_is_done(self, node):
        spec = inline("iscsi", **ISCSI, chapAuthSession=True, secretRef={"name": "chap"})
        with pytest.raises(VolumeSetupError, match='couldn\'t get secret ns/chap error: secret "chap" not found'):
            await node.iscsi.wait_for_attach(stage(spec))
        assert node.machine.calls() == []

    async def test_an_initiator_name_gets_an_interface_of_its_own_that_is_removed_again(self, node):
        log_in_by_tool(node)
        spec = inline("iscsi", **ISCSI, initiatorName="iqn.2030-01.example:me")
        await node.iscsi.wait_for_attach(stage(spec))
        own = f"{PORTAL}:v"
        calls = node.machine.calls("iscsiadm")
        assert ["-m", "iface", "-I", own, "-o", "new"] in calls
        assert [call[-3:] for call in calls if "iface" in call and "update" in call] == [
            ["iface.transport_name", "-v", "tcp"],
            ["iface.initiatorname", "-v", "iqn.2030-01.example:me"],
        ]
        (node.trees.session_place(3) / "device/session3/target3:0:0/3:0:0:3/block/sda").rmdir()
        await node.iscsi.unmount_device(node.iscsi.device_mount_path(spec), device_path="")
        assert node.machine.calls("iscsiadm")[-1] == ["-m", "iface", "-I", own, "-o", "delete"]

    async def test_a_logout_that_did_not_work_keeps_what_is_needed_for_the_next_one(self, node):
        node.trees.add_session(3, IQN, address="10.0.0.1")
        node.iscsi_place.mkdir(parents=True)
        node.machine.add("iscsiadm", "exit 9")
        with pytest.raises(VolumeSetupError, match="still logged in"):
            await node.iscsi.unmount_device(str(node.iscsi_place), device_path="")
        assert node.iscsi_place.exists()

    async def test_after_a_restart_the_disk_is_found_by_its_directory(self, node):
        node.iscsi_place.mkdir(parents=True)
        (node.iscsi_place.parents[1] / "iface-default" / "nonsense").mkdir()
        plugin = node.restart()["kubernetes.io/iscsi"]
        [spec] = await plugin.find_devices(())
        assert plugin.device_mount_path(spec) == str(node.iscsi_place)
        assert plugin.device_name(spec) == f"{PORTAL}:{IQN}:3"

    async def test_after_a_restart_a_pods_volume_is_found_by_the_mount_table(self, node):
        place = node.root / "pods/u/volumes/kubernetes.io~iscsi/pv"
        place.mkdir(parents=True)
        node.iscsi_place.mkdir(parents=True)

        def entry(number, point):
            return MountEntry(number, 1, "8:0", "/", str(point), ("rw",), (), "ext4", "/dev/sda", ("rw",))

        table = (entry(2, node.iscsi_place), entry(3, place))
        left = LeftVolume(uid="u", name="pv", path=place, mounts=table)
        spec = await node.iscsi.reconstruct(left)
        assert node.iscsi.device_name(spec) == f"{PORTAL}:{IQN}:3"
        with pytest.raises(VolumeSetupError, match="couldn't fetch globalPDPath"):
            await node.iscsi.reconstruct(LeftVolume(uid="u", name="pv", path=place, mounts=table[1:]))

    @pytest.mark.parametrize("portal", ["10.0.0.1", "10.0.0.1:3260"])
    @pytest.mark.parametrize("mode", ["Filesystem", "Block"])
    async def test_after_a_restart_a_disk_has_the_name_that_it_has_in_the_api(self, node, portal, mode):
        """Otherwise the disk of a pod would be another one, and be unmounted as one that nobody has."""
        log_in(node)
        spec = claimed("iscsi", mode=mode, targetPortal=portal, iqn=IQN, lun=3)
        await node.iscsi.wait_for_attach(stage(spec))
        again = node.restart()["kubernetes.io/iscsi"]
        [found] = await again.find_devices(())
        assert (again.device_name(found), found.is_block) == (node.iscsi.device_name(spec), mode == "Block")

    async def test_no_directory_outside_is_unmounted_or_removed(self, node, tmp_path):
        outside = tmp_path / "outside"
        outside.mkdir()
        for path in (outside, node.root / "plugins", node.root / "plugins/kubernetes.io/iscsi/a", "/"):
            with pytest.raises(VolumeSetupError):
                await node.iscsi.unmount_device(str(path), device_path="/dev/sda")
        assert outside.exists()
        assert node.machine.calls() == []

    async def test_a_block_volume_keeps_its_record_beside_its_devices(self, node):
        log_in_by_tool(node)
        spec = claimed("iscsi", mode="Block", **ISCSI)
        device = await node.iscsi.wait_for_attach(stage(spec))
        place = node.root / "plugins/kubernetes.io/iscsi/volumeDevices/iface-default" / node.iscsi_place.name
        assert node.iscsi.global_map_path(spec) == str(place)
        assert (place / "iscsi.json").exists()
        assert await node.iscsi.map_pod_device(stage(spec, device_path=device)) == device
        (node.trees.session_place(3) / "device/session3/target3:0:0/3:0:0:3/block/sda").rmdir()
        node.machine.calls()
        await node.iscsi.tear_down_device("pv", map_path=str(place), device_path=device)
        assert [call[-3] for call in node.machine.calls("iscsiadm")] == ["--logout", "delete"]
        assert list(place.iterdir()) == []


class TestPodsOfDisks:
    async def test_a_pod_gets_the_mounted_disk_and_another_one_too(self, node):
        spec = claimed("fc", options=["noatime"], targetWWNs=["50a"], lun=0)
        node.trees.add_disk("sda", by_path="fc-0x50a-lun-0")
        path = node.fc.device_mount_path(spec)
        await node.fc.mount_device(stage(spec, device_path="/dev/sda", mount_path=path))
        await node.fc.set_up(bind_request(spec, device_mount_path=path))
        target = node.root / "pods/u/volumes/kubernetes.io~fc/pv"
        assert node.mounts.mounts[target] == (path, "bind", ("bind", "noatime"))
        await node.fc.tear_down("u", "pv")
        assert not target.exists()

    async def test_the_empty_directory_of_a_disk_that_is_not_mounted_is_never_given_to_a_pod(self, node):
        spec = claimed("fc", targetWWNs=["50a"], lun=0)
        path = node.fc.device_mount_path(spec)
        (node.root / "plugins/kubernetes.io/fc/50a-lun-0").mkdir(parents=True)
        with pytest.raises(VolumeSetupError, match="no disk is mounted at"):
            await node.fc.set_up(bind_request(spec, device_mount_path=path))

    @pytest.mark.parametrize(
        ("spec", "options"),
        [
            pytest.param(claimed("fc", wwids=["36"]), "defaults", id="none"),
            pytest.param(claimed("fc", wwids=["36"], read_only=True), "ro,defaults", id="claimed for reading"),
            pytest.param(
                claimed("fc", wwids=["36"], options=["noatime", "discard"]), "discard,noatime,defaults", id="sorted"
            ),
            pytest.param(inline("fc", wwids=["36"], readOnly=True), "ro,defaults", id="inline, for reading"),
        ],
    )
    async def test_options_of_a_disk(self, node, spec, options):
        node.machine.add("blkid", "echo TYPE=ext4")
        await node.fc.mount_device(stage(spec, device_path="/dev/sda", mount_path=node.fc.device_mount_path(spec)))
        [call] = node.machine.calls("mount")
        assert call[3] == options

    async def test_a_label_is_an_option(self, node):
        spec = claimed("fc", wwids=["36"])
        request = stage(spec, device_path="/dev/sda", mount_path=node.fc.device_mount_path(spec), label="a:b:c:s0")
        await node.fc.mount_device(request)
        [call] = node.machine.calls("mount")
        assert call[3] == 'context="a:b:c:s0",defaults'

    async def test_a_disk_with_another_filesystem_is_reported_as_such_and_leaves_no_directory(self, node):
        node.machine.add("blkid", "echo TYPE=xfs")
        node.machine.add("mount", "exit 32")
        spec = claimed("fc", wwids=["36"], fsType="ext4")
        with pytest.raises(FilesystemMismatch):
            await node.fc.mount_device(stage(spec, device_path="/dev/sda", mount_path=node.fc.device_mount_path(spec)))
        assert not (node.root / "plugins/kubernetes.io/fc/36").exists()


class TestFibreChannel:
    async def test_the_multipath_device_of_any_port_is_taken_without_a_rescan(self, node):
        scan = node.trees.add_host(0)
        node.trees.add_disk("sda", by_path="pci-0000:41:00.0-fc-0x50a-lun-0")
        node.trees.add_disk("sdb", by_path="pci-0000:41:00.1-fc-0x50b-lun-0")
        node.trees.add_multipath("dm-4", ["sdb"])
        device = await node.fc.wait_for_attach(stage(inline("fc", targetWWNs=["50a", "50b"], lun=0)))
        assert device == str(node.trees.dev / "dm-4")
        assert scan.read_text() == ""

    async def test_a_disk_without_multipath_device_is_taken_after_a_rescan(self, node):
        scan = node.trees.add_host(0)
        node.trees.add_disk("sda", by_path="fc-0x50a-lun-0")
        device = await node.fc.wait_for_attach(stage(inline("fc", targetWWNs=["50a"], lun=0)))
        assert device == str(node.trees.dev / "sda")
        assert scan.read_text() == "- - -"

    async def test_a_disk_by_its_identifier(self, node):
        node.trees.add_disk("sda", by_id="scsi-3600508b")
        device = await node.fc.wait_for_attach(stage(inline("fc", wwids=["3600508b"])))
        assert device == str(node.trees.dev / "sda")

    async def test_no_disk(self, node):
        with pytest.raises(VolumeSetupError, match=r"^no fc disk found$"):
            await node.fc.wait_for_attach(stage(inline("fc", targetWWNs=["50a"], lun=0)))

    async def test_after_the_last_pod_every_way_to_the_disk_is_removed(self, node):
        spec = inline("fc", targetWWNs=["50a", "50b"], lun=0)
        node.trees.add_disk("sda", by_path="fc-0x50a-lun-0")
        node.trees.add_disk("sdb", by_path="fc-0x50b-lun-0")
        device = node.trees.add_multipath("dm-0", ["sda", "sdb"])
        path = node.fc.device_mount_path(spec)
        await node.fc.mount_device(stage(spec, device_path=str(device), mount_path=path))
        node.machine.calls()
        await node.fc.unmount_device(path, device_path=str(device))
        assert node.machine.calls() == [
            ["multipath", "-f", str(device)],
            ["blockdev", "--flushbufs", str(node.trees.dev / "sda")],
            ["blockdev", "--flushbufs", str(node.trees.dev / "sdb")],
        ]
        deleted = [(node.trees.sys / "block" / name / "device/delete").read_text() for name in ("sda", "sdb")]
        assert deleted == ["1", "1"]
        assert node.mounts.by_tool == []
        assert not (node.root / "plugins/kubernetes.io/fc/50a-50b-lun-0").exists()

    async def test_a_disk_in_use_is_tried_again_for_two_minutes(self, node):
        node.trees.add_disk("sda", by_path="fc-0x50a-lun-0")
        node.machine.add("blockdev", "echo busy; exit 1")
        path = node.fc.device_mount_path(inline("fc", targetWWNs=["50a"], lun=0))
        started = node.clock.monotonic()
        with pytest.raises(VolumeSetupError, match=r"fc: failed to detach disk.*busy"):
            await node.fc.unmount_device(path, device_path="/dev/sda")
        assert node.clock.monotonic() - started == 120
        assert (node.trees.sys / "block/sda/device/delete").read_text() == ""

    async def test_another_disk_that_has_its_old_name_by_now_is_left_alone(self, node):
        other = node.trees.add_disk("sda", by_path="fc-0x60a-lun-0")
        path = node.fc.device_mount_path(inline("fc", targetWWNs=["50a"], lun=0))
        await node.fc.unmount_device(path, device_path=str(other))
        assert (node.trees.sys / "block/sda/device/delete").read_text() == ""

    async def test_after_a_restart_devices_are_found_by_their_directories(self, node):
        for name in ("50a-lun-0", "volumeDevices/36-37", "lun-0"):
            (node.root / "plugins/kubernetes.io/fc" / name).mkdir(parents=True)
        plugin = node.restart()["kubernetes.io/fc"]
        found = {(plugin.device_name(spec), spec.is_block) for spec in await plugin.find_devices(())}
        assert found == {("[50a]:0", False), ("[36 37]", True)}
