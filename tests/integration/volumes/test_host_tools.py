"""Volumes that tools of the machine mount: local disks (loop devices), flexVolume drivers, and nfs with a stand-in.

What is done on a real NFS or iSCSI server is tested in the whole machine: tests/machine/test_volumes.py.
"""

import json
import os
import shutil
import subprocess
from pathlib import Path

import pytest

from klet.api.codec import convert
from klet.api.config import Secret
from klet.api.pod import Pod
from klet.api.quantity import Quantity
from klet.api.storage import PersistentVolume
from klet.api.volume import Volume
from klet.certs.pod_certificates.board import NoPodCertificates
from klet.host import mounts
from klet.host.mountinfo import find_mount
from klet.host.project_quotas import NoQuotas
from klet.host.storage.iscsi_sessions import IscsiSessions
from klet.host.storage.scsi import DiskTree
from klet.host.storage.tools import HostTools, search_path
from klet.model.allocation import desired_allocation
from klet.objectcache.trust_bundles import NoTrustBundles
from klet.testing.clock import ManualClock
from klet.testing.devices import MemoryDevices
from klet.testing.storage import RecordingTools
from klet.volumes.build import VolumePorts, build_flex_finder, build_plugins
from klet.volumes.errors import FilesystemMismatch, VolumeSetupError
from klet.volumes.host_mounter import HostMounter
from klet.volumes.plugin_board import PluginBoard
from klet.volumes.plugins.base import ExpandRequest, ExpansionOutcome, LeftVolume, MountRequest, StageRequest
from klet.volumes.spec import VolumeSpec
from klet.volumes.storage_plugins import StoragePorts

pytestmark = [pytest.mark.root, pytest.mark.usefixtures("root"), pytest.mark.real_machine]

LOCAL, NFS = "kubernetes.io/local-volume", "kubernetes.io/nfs"
GROUP = 4242
CAP_SYS_RESOURCE = 24
DRIVER = """\
#!/bin/sh
# Attaches nothing; mounts a tmpfs that has the options it was given.
state={state}
command=$1
shift
echo "$command $*" >>"$state/calls"
case $command in
init) echo '{{"status":"Success","capabilities":{{"attach":{attach},"supportsMetrics":true}}}}' ;;
mount) mount -t tmpfs flex "$1" && printf %s "$2" >"$1/options" && echo '{{"status":"Success"}}' ;;
unmount) umount "$1" && echo '{{"status":"Success"}}' ;;
{more}
*) echo '{{"status":"Not supported"}}'; exit 1 ;;
esac
"""
ATTACHING = """\
waitforattach) echo '{"status":"Success","device":"/dev/flex0"}' ;;
mountdevice) mount -t tmpfs flex "$1" && echo device >"$1/device" && echo '{"status":"Success"}' ;;
"""


class Secrets:
    def __init__(self):
        self.secrets = {}

    async def secret(self, namespace, name):
        return self.secrets[namespace, name]


class Journal:
    def __init__(self):
        self.findings = []

    def record(self, finding, *, parent=None):
        assert parent is None
        self.findings.append(finding)
        return ""


class ToolNode:
    """Plugins on this machine's tools and mounts."""

    def __init__(self, root, threads, tools):
        self.root = root
        self.secrets = Secrets()
        self.journal = Journal()
        self.ports = VolumePorts(
            root=root,
            objects=self.secrets,
            tokens=None,
            trust=NoTrustBundles(),
            certificates=NoPodCertificates(),
            node=None,
            mounter=HostMounter(),
            devices=MemoryDevices(),
            storage=StoragePorts(
                tools=tools,
                disks=DiskTree(sys=root / "sys", dev=root / "dev"),
                sessions=IscsiSessions(sys=root / "sys"),
            ),
            quotas=NoQuotas(),
            recorder=self.journal,
            threads=threads,
            clock=ManualClock(),
            has_api=True,
            noswap=False,
        )
        self.board = PluginBoard(build_plugins(self.ports))

    def plugin(self, name):
        return next(plugin for plugin in self.board if plugin.name == name)

    def finder(self, directory):
        return build_flex_finder(self.ports, directory, self.board)

    def path(self, plugin, name, uid="u"):
        return self.root / "pods" / uid / "volumes" / plugin.replace("/", "~") / name

    def mounted(self):
        """What is mounted below the root, besides the root itself."""
        entries = mounts.list_mounts()
        return sorted(entry.mount_point for entry in entries if entry.mount_point.startswith(f"{self.root}/"))


@pytest.fixture
def tools():
    return HostTools(search=search_path(os.environ))


@pytest.fixture
def node(root, threads, tools):
    return ToolNode(root, threads, tools)


@pytest.fixture
def disk(tmp_path):
    """An empty disk of 16 MiB that is this test's alone."""
    image = tmp_path / "disk.img"
    image.touch()
    os.truncate(image, 16 << 20)
    try:
        done = subprocess.run(["losetup", "-f", "--show", str(image)], capture_output=True, text=True, check=False)
    except FileNotFoundError:
        pytest.skip("losetup is not installed: apt-get install mount")
    if done.returncode:
        pytest.skip(f"no loop device can be had ({done.stderr.strip()}): this machine's kernel or container forbids it")
    device = done.stdout.strip()
    yield device
    subprocess.run(["losetup", "-d", device], check=True)


@pytest.fixture
def lose():
    """Mounts a FUSE file system whose server has ended: whoever looks at it gets ENOTCONN."""

    def mount(path):
        path.mkdir(parents=True)
        try:
            server = os.open("/dev/fuse", os.O_RDWR)
        except OSError as error:
            pytest.skip(f"no FUSE ({error.strerror}): this machine's kernel or container has none")
        options = [f"fd={server}", "rootmode=40000", "user_id=0", "group_id=0"]
        mounts.mount("lost", path, fs_type="fuse", options=options)
        os.close(server)
        with pytest.raises(OSError, match="not connected"):
            path.stat()

    return mount


def nfs_spec(**fields):
    return VolumeSpec(convert(Volume, {"name": "v", "nfs": {"server": "srv", "path": "/e", **fields}}))


def pod_of(uid="u", **context):
    metadata = {"name": "p", "namespace": "ns", "uid": uid}
    spec = {"containers": [{"name": "c", "image": "i"}], "securityContext": context}
    return convert(Pod, {"metadata": metadata, "spec": spec})


def mount_request(spec, *, uid="u", path="", **context):
    pod = pod_of(uid, **context)
    return MountRequest(pod=pod, allocation=desired_allocation(pod), spec=spec, device_mount_path=path)


def read_start(device, size):
    with Path(device).open("rb") as file:
        return file.read(size)


def write_start(device, data):
    with Path(device).open("r+b") as file:
        file.write(data)


def under(path):
    """A path of the machine, as an object."""
    return Path(path)


def grow(image, device, size):
    os.truncate(image, size)
    subprocess.run(["losetup", "-c", device], check=True)


def can_resize():
    text = Path("/proc/self/status").read_text()
    return bool(int(text.split("CapEff:")[1].split()[0], 16) >> CAP_SYS_RESOURCE & 1)


def local(device, *, mode="Filesystem", read_only=False, fs_type=None, name="pv"):
    source = {"path": device, **({"fsType": fs_type} if fs_type else {})}
    volume = convert(PersistentVolume, {"metadata": {"name": name}, "spec": {"local": source, "volumeMode": mode}})
    return VolumeSpec(Volume(name="v"), volume, read_only=read_only)


async def stage(plugin, spec):
    path = plugin.device_mount_path(spec)
    await plugin.mount_device(StageRequest(pod=pod_of(), spec=spec, mount_path=path))
    return path


class TestLocalDisks:
    async def test_an_empty_disk_is_formatted_shared_by_pods_and_keeps_its_data(self, node, disk):
        plugin, spec = node.plugin(LOCAL), local(disk)
        path = await stage(plugin, spec)
        assert path == str(node.root / "plugins/kubernetes.io/local-volume/mounts/pv")
        for uid in ("u", "w"):
            await plugin.set_up(mount_request(spec, uid=uid, path=path))
        node.path(LOCAL, "pv").joinpath("data").write_text("kept")
        assert node.path(LOCAL, "pv", "w").joinpath("data").read_text() == "kept"
        assert find_mount(mounts.list_mounts(), path).fs_type == "ext4"
        for uid in ("u", "w"):
            await plugin.tear_down(uid, "pv")
        await plugin.unmount_device(path, device_path="")
        assert node.mounted() == []
        assert not under(path).exists()

        await stage(plugin, spec)
        await stage(plugin, spec)
        assert (under(path) / "data").read_text() == "kept"
        await plugin.unmount_device(path, device_path="")
        await plugin.unmount_device(path, device_path="")
        assert node.mounted() == []

    async def test_it_is_given_to_the_group_of_the_first_pod(self, node, disk):
        plugin, spec = node.plugin(LOCAL), local(disk)
        path = await stage(plugin, spec)
        await plugin.set_up(mount_request(spec, path=path, fsGroup=GROUP))
        assert node.path(LOCAL, "pv").stat().st_gid == GROUP

    async def test_a_pod_that_claims_it_for_reading_cannot_write(self, node, disk):
        plugin = node.plugin(LOCAL)
        path = await stage(plugin, local(disk))
        await plugin.unmount_device(path, device_path="")
        spec = local(disk, read_only=True)
        path = await stage(plugin, spec)
        await plugin.set_up(mount_request(spec, path=path))
        with pytest.raises(OSError, match="Read-only file system"):
            node.path(LOCAL, "pv").joinpath("new").write_text("")
        assert "ro" in find_mount(mounts.list_mounts(), path).super_options

    async def test_an_empty_disk_that_may_only_be_read_is_not_formatted(self, node, disk):
        with pytest.raises(Exception, match="cannot mount unformatted disk"):
            await stage(node.plugin(LOCAL), local(disk, read_only=True))
        assert read_start(disk, 16 << 20) == bytes(16 << 20)
        assert node.mounted() == []

    async def test_somebodys_data_is_never_formatted_away(self, node, disk):
        # A table with one partition, as fdisk writes it: boot signature, and an entry of type Linux.
        sector = bytearray(512)
        sector[446:462] = (
            bytes([0, 0, 2, 0, 0x83, 0, 32, 0]) + (2048).to_bytes(4, "little") + (8192).to_bytes(4, "little")
        )
        sector[510:] = b"\x55\xaa"
        write_start(disk, bytes(sector))
        with pytest.raises(FilesystemMismatch, match="unknown data, probably partitions"):
            await stage(node.plugin(LOCAL), local(disk))
        assert read_start(disk, 512) == bytes(sector)
        assert node.mounted() == []

    async def test_a_disk_with_another_filesystem_keeps_it(self, node, disk):
        plugin = node.plugin(LOCAL)
        path = await stage(plugin, local(disk))
        (under(path) / "data").write_text("kept")
        await plugin.unmount_device(path, device_path="")
        with pytest.raises(FilesystemMismatch, match='failed to mount the volume as "xfs", it already contains ext4'):
            await stage(plugin, local(disk, fs_type="xfs"))
        await stage(plugin, local(disk))
        assert (under(path) / "data").read_text() == "kept"

    async def test_a_disk_that_was_not_mounted_is_never_an_empty_directory_of_the_node(self, node, disk):
        spec = local(disk)
        path = node.plugin(LOCAL).device_mount_path(spec)
        under(path).mkdir(parents=True)
        with pytest.raises(VolumeSetupError, match="is not mounted at"):
            await node.plugin(LOCAL).set_up(mount_request(spec, path=path))

    async def test_a_disk_that_has_grown_grows_its_filesystem(self, node, disk, tmp_path):
        if not shutil.which("resize2fs"):
            pytest.skip("resize2fs is not installed: apt-get install e2fsprogs")
        if not can_resize():
            pytest.skip("no CAP_SYS_RESOURCE, which resize2fs needs: this machine's container does not have it")
        plugin, spec = node.plugin(LOCAL), local(disk)
        path = await stage(plugin, spec)
        before = os.statvfs(path).f_blocks
        grow(tmp_path / "disk.img", disk, 32 << 20)
        sizes = {"new_size": Quantity.parse("32Mi"), "old_size": Quantity.parse("16Mi")}
        request = ExpandRequest(spec=spec, device_mount_path=path, **sizes)
        assert (await plugin.expand(request)).outcome is ExpansionOutcome.FINISHED
        assert os.statvfs(path).f_blocks > 1.5 * before

    async def test_a_restart_finds_what_is_mounted_and_takes_both_stages_down(self, node, disk, threads, tools):
        plugin, spec = node.plugin(LOCAL), local(disk)
        path = await stage(plugin, spec)
        await plugin.set_up(mount_request(spec, path=path))
        later = ToolNode(node.root, threads, tools).plugin(LOCAL)
        left = LeftVolume(uid="u", name="pv", path=node.path(LOCAL, "pv"), mounts=mounts.list_mounts())
        found = await later.reconstruct(left)
        assert later.volume_name(found) == plugin.volume_name(spec)
        assert [later.device_mount_path(device) for device in await later.find_devices(mounts.list_mounts())] == [path]
        await later.tear_down("u", "pv")
        await later.unmount_device(later.device_mount_path(found), device_path="")
        assert node.mounted() == []

    async def test_a_block_volume_is_the_disk_itself_and_a_directory_is_none(self, node, disk, tmp_path):
        plugin = node.plugin(LOCAL)
        request = StageRequest(pod=pod_of(), spec=local(disk, mode="Block"))
        assert await plugin.map_pod_device(request) == disk
        with pytest.raises(VolumeSetupError, match="is a directory"):
            await plugin.map_pod_device(StageRequest(pod=pod_of(), spec=local(str(tmp_path), mode="Block")))

    async def test_a_directory_has_nothing_to_mount_for_all(self, node, tmp_path):
        plugin, spec = node.plugin(LOCAL), local(str(tmp_path))
        path = await stage(plugin, spec)
        await plugin.set_up(mount_request(spec, path=path))
        assert node.mounted() == [str(node.path(LOCAL, "pv"))]
        await plugin.tear_down("u", "pv")
        await plugin.unmount_device(path, device_path="")
        assert tmp_path.exists()


def flex_spec(*, read_only=False, **fields):
    source = {"driver": "vendor/disk", "readOnly": read_only, **fields}
    return VolumeSpec(convert(Volume, {"name": "v", "flexVolume": source}))


class TestFlexVolume:
    @pytest.fixture
    def state(self, tmp_path):
        made = tmp_path / "state"
        made.mkdir()
        return made

    @pytest.fixture
    def directory(self, tmp_path):
        return tmp_path / "exec"

    @pytest.fixture
    def install(self, directory, state):
        def write(*, attach=False, more=""):
            place = directory / "vendor~disk"
            place.mkdir(parents=True, exist_ok=True)
            text = DRIVER.format(state=state, attach=str(attach).lower(), more=more)
            new = place / ".new"
            new.write_text(text)
            new.chmod(0o755)
            new.rename(place / "disk")

        return write

    async def test_a_driver_mounts_and_unmounts_with_the_options_of_pod_volume_and_secret(
        self, node, install, directory
    ):
        install()
        node.secrets.secrets["ns", "key"] = Secret(data={"user": b"me"}, type="vendor/disk")
        assert await node.finder(directory).probe() == {"vendor/disk"}
        plugin, spec = node.plugin("vendor/disk"), flex_spec(options={"size": "1"}, secretRef={"name": "key"})
        target = node.path("vendor/disk", "v")
        for _ in range(2):
            await plugin.set_up(mount_request(spec, fsGroup=GROUP))
        assert json.loads((target / "options").read_text()) == {
            "kubernetes.io/fsType": "",
            "kubernetes.io/mounterArgs.FsGroup": str(GROUP),
            "kubernetes.io/pod.name": "p",
            "kubernetes.io/pod.namespace": "ns",
            "kubernetes.io/pod.uid": "u",
            "kubernetes.io/pvOrVolumeName": "v",
            "kubernetes.io/readwrite": "rw",
            "kubernetes.io/secret/user": "bWU=",
            "kubernetes.io/serviceAccount.name": "",
            "size": "1",
        }
        assert (target / "options").stat().st_gid == GROUP
        assert node.mounted() == [str(target)]
        for _ in range(2):
            await plugin.tear_down("u", "v")
        assert node.mounted() == []
        assert not target.exists()

    async def test_a_driver_that_attaches_mounts_the_device_and_pods_get_it_bound(
        self, node, install, directory, state
    ):
        install(attach=True, more=ATTACHING + 'mount) echo \'{"status":"Not supported"}\' ;;')
        script = directory / "vendor~disk/disk"
        script.write_text(script.read_text().replace('mount) mount -t tmpfs flex "$1" && printf', "no) printf", 1))
        await node.finder(directory).probe()
        plugin, spec = node.plugin("vendor/disk"), flex_spec()
        assert plugin.is_attachable(spec)
        device = await plugin.wait_for_attach(StageRequest(pod=pod_of(), spec=spec, device_path="from-status"))
        assert device == "/dev/flex0"
        path = plugin.device_mount_path(spec)
        assert path == str(node.root / "plugins/kubernetes.io/flexvolume/vendor/disk/mounts/v")
        await plugin.mount_device(StageRequest(pod=pod_of(), spec=spec, device_path=device, mount_path=path))
        await plugin.set_up(mount_request(spec, path=path))
        assert node.path("vendor/disk", "v").joinpath("device").read_text() == "device\n"
        await plugin.tear_down("u", "v")
        await plugin.unmount_device(path, device_path=device)
        assert node.mounted() == []
        assert not under(path).exists()
        calls = [line.split()[0] for line in (state / "calls").read_text().splitlines()]
        assert calls == ["init", "waitforattach", "mountdevice", "mount", "unmount", "unmountdevice"]

    async def test_a_failing_driver_leaves_no_directory_and_says_why(self, node, install, directory):
        install(more="x) ;;")
        script = directory / "vendor~disk/disk"
        failing = """mount) echo '{"status":"Failure","message":"no disk"}'; exit 1 ;;\nno)"""
        script.write_text(script.read_text().replace("mount)", failing, 1))
        await node.finder(directory).probe()
        with pytest.raises(VolumeSetupError, match=r"^mount command failed, status: Failure, reason: no disk$"):
            await node.plugin("vendor/disk").set_up(mount_request(flex_spec()))
        assert not node.path("vendor/disk", "v").exists()

    async def test_a_secret_of_another_type_is_not_given_to_a_driver(self, node, install, directory):
        install()
        node.secrets.secrets["ns", "key"] = Secret(data={"user": b"me"}, type="Opaque")
        await node.finder(directory).probe()
        with pytest.raises(VolumeSetupError, match="cannot get secret of type vendor/disk"):
            await node.plugin("vendor/disk").set_up(mount_request(flex_spec(secretRef={"name": "key"})))

    async def test_drivers_are_found_replaced_and_dropped_while_the_agent_runs(self, node, install, directory):
        finder = node.finder(directory)
        assert await finder.probe() == frozenset()
        install()
        assert await finder.probe() == {"vendor/disk"}
        assert await finder.probe() == frozenset()
        assert not node.plugin("vendor/disk").is_attachable(flex_spec())
        install(attach=True)
        assert await finder.probe() == {"vendor/disk"}
        assert node.plugin("vendor/disk").is_attachable(flex_spec())
        shutil.rmtree(directory)
        assert await finder.probe() == {"vendor/disk"}
        assert "vendor/disk" not in {plugin.name for plugin in node.board}

    async def test_a_driver_that_does_not_start_is_asked_again(self, node, install, directory):
        place = directory / "vendor~disk"
        place.mkdir(parents=True)
        (place / "disk").write_text("#!/nothing/like/it\n")
        (place / "disk").chmod(0o755)
        finder = node.finder(directory)
        assert await finder.probe() == frozenset()
        install()
        assert await finder.probe() == {"vendor/disk"}

    async def test_no_driver_takes_the_name_of_a_plugin_of_the_agent(self, node, directory):
        place = directory / "kubernetes.io~nfs"
        place.mkdir(parents=True)
        (place / "nfs").write_text('#!/bin/sh\necho \'{"status":"Success"}\'\n')
        (place / "nfs").chmod(0o755)
        before = node.plugin(NFS)
        assert await node.finder(directory).probe() == frozenset()
        assert node.plugin(NFS) is before

    async def test_a_lost_mount_of_a_driver_is_taken_down(self, node, install, directory, lose):
        install(more="x) ;;")
        script = directory / "vendor~disk/disk"
        script.write_text(script.read_text().replace("unmount)", "no)", 1))
        await node.finder(directory).probe()
        lose(node.path("vendor/disk", "v"))
        await node.plugin("vendor/disk").tear_down("u", "v")
        assert node.mounted() == []
        assert not node.path("vendor/disk", "v").exists()


class TestNfs:
    """`mount -t nfs` is a tmpfs here."""

    @pytest.fixture
    def machine(self, tmp_path):
        made = RecordingTools(tmp_path / "bin")
        made.add("mount", 'for target; do :; done\nexec /bin/mount -t tmpfs "srv:/e" "$target"')
        return made

    @pytest.fixture
    def node(self, root, threads, machine):
        return ToolNode(root, threads, machine.tools)

    @pytest.fixture
    def target(self, node):
        return node.path(NFS, "v")

    async def test_it_is_mounted_once_and_gone_after_the_pod(self, node, machine, target):
        plugin = node.plugin(NFS)
        for _ in range(2):
            await plugin.set_up(mount_request(nfs_spec(readOnly=True)))
        assert machine.calls("mount") == [["-t", "nfs", "-o", "ro", "srv:/e", str(target)]]
        assert node.mounted() == [str(target)]
        for _ in range(2):
            await plugin.tear_down("u", "v")
        assert node.mounted() == []
        assert not target.exists()

    async def test_options_of_a_persistent_volume_are_sorted(self, node, machine):
        volume = convert(
            PersistentVolume,
            {
                "metadata": {"name": "pv"},
                "spec": {"nfs": {"server": "fe80::1", "path": "/e"}, "mountOptions": ["vers=4", "hard"]},
            },
        )
        await node.plugin(NFS).set_up(mount_request(VolumeSpec(Volume(name="v"), volume, read_only=True)))
        [call] = machine.calls("mount")
        assert call[2:5] == ["-o", "hard,ro,vers=4", "[fe80::1]:/e"]

    async def test_a_failed_mount_leaves_no_directory(self, node, machine, target):
        machine.add("mount", "echo no route to host >&2; exit 32")
        with pytest.raises(Exception, match=r"(?s)^mount failed: exit status 32.*no route to host"):
            await node.plugin(NFS).set_up(mount_request(nfs_spec()))
        assert not target.exists()

    async def test_what_was_mounted_before_the_tool_failed_is_unmounted(self, node, machine, target):
        machine.add("mount", 'for target; do :; done\n/bin/mount -t tmpfs "srv:/e" "$target"; exit 1')
        with pytest.raises(Exception, match=r"mount failed"):
            await node.plugin(NFS).set_up(mount_request(nfs_spec()))
        assert node.mounted() == []
        assert not target.exists()

    async def test_a_link_in_its_place_leads_nothing_elsewhere(self, node, machine, target, root):
        victim = root / "victim"
        victim.mkdir()
        (victim / "data").write_text("kept")
        swap = f'rmdir "{target}"; ln -s {victim} "{target}"'
        machine.add("mount", f'for target; do :; done\n{swap}\nexec /bin/mount -t tmpfs "srv:/e" "$target"')
        with pytest.raises(Exception, match=r"something else is in its place|cannot"):
            await node.plugin(NFS).set_up(mount_request(nfs_spec()))
        assert node.mounted() == []
        assert (victim / "data").read_text() == "kept"

    async def test_a_directory_that_holds_files_is_never_emptied(self, node, target):
        target.mkdir(parents=True)
        (target / "data").write_text("kept")
        with pytest.raises(Exception, match="cannot remove"):
            await node.plugin(NFS).tear_down("u", "v")
        assert (target / "data").read_text() == "kept"


class TestLostMounts:
    """What lies behind them is gone."""

    @pytest.mark.parametrize("kind", [LOCAL, NFS, "kubernetes.io/iscsi"])
    async def test_a_pods_volume_is_taken_down(self, node, lose, kind):
        lose(node.path(kind, "pv"))
        await node.plugin(kind).tear_down("u", "pv")
        assert node.mounted() == []
        assert not node.path(kind, "pv").exists()

    async def test_a_disk_is_unmounted(self, node, lose):
        place = node.root / "plugins/kubernetes.io/local-volume/mounts/pv"
        lose(place)
        await node.plugin(LOCAL).unmount_device(str(place), device_path="")
        assert node.mounted() == []
        assert not place.exists()
